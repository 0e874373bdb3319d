"""One undo step an edit, the file's state in sight, and an open project that no failure takes away."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from app.project import file
from app.project.document import Document
from app.project.file import ProjectFileError
from app.project.project import Project

A, B, C, D = (Project(name=name) for name in "abcd")


@pytest.fixture
def document(qtbot) -> Document:
    return Document(A)


class Heard:
    """What the document said, in order."""

    def __init__(self, document: Document) -> None:
        self.all: list[tuple[str, object]] = []
        document.changed.connect(
            lambda before, after: self.all.append(
                ("changed", (before.name, after.name))
            )
        )
        document.replaced.connect(
            lambda project: self.all.append(("replaced", project.name))
        )
        document.path_changed.connect(
            lambda path: self.all.append(("path", path and path.name))
        )
        document.dirty_changed.connect(lambda dirty: self.all.append(("dirty", dirty)))

    def take(self) -> list[tuple[str, object]]:
        said, self.all[:] = list(self.all), []
        return said


def test_an_edit_is_a_step_and_comes_back_exactly(document: Document) -> None:
    heard = Heard(document)
    document.apply("Rename", B)
    assert document.project is B and document.undo_stack.undoText() == "Rename"
    document.apply("Rename again", C)
    document.undo_stack.undo()
    document.undo_stack.undo()
    assert document.project is A
    document.undo_stack.redo()
    assert document.project is B
    assert [said for said in heard.take() if said[0] == "changed"] == [
        ("changed", pair)
        for pair in (("a", "b"), ("b", "c"), ("c", "b"), ("b", "a"), ("a", "b"))
    ]


def test_an_edit_that_changes_nothing_is_no_step(document: Document) -> None:
    heard = Heard(document)
    document.apply("Nothing", Project(name="a"))
    assert (
        document.undo_stack.count() == 0
        and heard.take() == []
        and document.project is A
    )


def test_a_burst_is_one_step(document: Document) -> None:
    for project in (B, C, D):
        document.apply("Type", project, merge="name")
    assert document.undo_stack.count() == 1 and document.project is D
    document.undo_stack.undo()
    assert document.project is A
    document.undo_stack.redo()
    assert document.project is D


def test_another_field_or_none_begins_a_new_step(document: Document) -> None:
    document.apply("Type", B, merge="name")
    document.apply("Type", C, merge="notes")
    document.apply("Click", D)
    document.apply("Click", A)
    assert document.undo_stack.count() == 4


def test_a_burst_that_ends_where_it_began_leaves_no_step(document: Document) -> None:
    heard = Heard(document)
    document.apply("Type", B, merge="name")
    document.apply("Type", A, merge="name")
    assert (
        document.undo_stack.count() == 0
        and document.project == A
        and not document.dirty
    )
    assert [said for said in heard.take() if said[0] == "dirty"] == [
        ("dirty", True),
        ("dirty", False),
    ]
    document.apply("Type", C, merge="name")
    document.undo_stack.undo()
    assert document.project == A


def test_an_edit_after_undo_forgets_what_was_undone(document: Document) -> None:
    document.apply("1", B)
    document.apply("2", C)
    document.undo_stack.undo()
    document.apply("3", D)
    assert not document.undo_stack.canRedo()
    document.undo_stack.undo()
    assert document.project is B


def test_steps_outlive_the_garbage_collector(document: Document) -> None:
    for i in range(50):
        document.apply(str(i), Project(name=f"p{i}"), merge="m" if i % 3 else None)
    gc.collect()
    while document.undo_stack.canUndo():
        document.undo_stack.undo()
    gc.collect()
    assert document.project is A
    while document.undo_stack.canRedo():
        document.undo_stack.redo()
    assert document.project.name == "p49"


def test_dirty_follows_the_file_through_undo_and_redo(
    document: Document, tmp_path: Path
) -> None:
    heard = Heard(document)
    path = tmp_path / "net.tape"
    document.apply("1", B)
    document.save(path)
    assert not document.dirty and document.path == path and file.read(path) == B
    document.undo_stack.undo()
    assert document.dirty
    document.undo_stack.redo()
    assert not document.dirty
    document.apply("2", C)
    document.save()
    assert file.read(path) == C
    said = [said for said in heard.take() if said[0] in ("dirty", "path")]
    assert said == [
        ("dirty", True),
        ("dirty", False),
        ("path", "net.tape"),
        ("dirty", True),
        ("dirty", False),
        ("dirty", True),
        ("dirty", False),
        ("path", "net.tape"),
    ]


def test_a_burst_is_not_merged_over_a_save(document: Document, tmp_path: Path) -> None:
    document.apply("Type", B, merge="name")
    document.save(tmp_path / "net.tape")
    document.apply("Type", C, merge="name")
    assert document.dirty and document.undo_stack.count() == 2
    document.undo_stack.undo()
    assert document.project is B and not document.dirty


def test_opening_replaces_everything(document: Document, tmp_path: Path) -> None:
    path = tmp_path / "net.tape"
    file.write(D, path)
    document.apply("1", B)
    heard = Heard(document)
    document.open(path)
    assert document.project == D and document.path == path
    assert not document.dirty and document.undo_stack.count() == 0
    assert heard.take() == [
        ("dirty", False),
        ("replaced", "d"),
        ("changed", ("b", "d")),
        ("path", "net.tape"),
    ]


def test_a_bad_file_leaves_the_open_project_with_its_steps_and_its_path(
    document: Document, tmp_path: Path
) -> None:
    document.save(tmp_path / "good.tape")
    document.apply("1", B)
    heard = Heard(document)
    bad = tmp_path / "bad.tape"
    bad.write_text("{")
    with pytest.raises(ProjectFileError, match="^bad.tape: "):
        document.open(bad)
    with pytest.raises(OSError):
        document.open(tmp_path / "gone.tape")
    assert heard.take() == [] and document.project is B and document.dirty
    assert document.path == tmp_path / "good.tape" and document.undo_stack.canUndo()


def test_a_save_that_fails_changes_nothing(document: Document, tmp_path: Path) -> None:
    document.save(tmp_path / "net.tape")
    document.apply("1", B)
    heard = Heard(document)
    with pytest.raises(OSError):
        document.save(tmp_path / "no such folder" / "net.tape")
    assert (
        document.dirty and document.path == tmp_path / "net.tape" and heard.take() == []
    )
    assert file.read(tmp_path / "net.tape") == A


def test_saving_needs_a_name_once(document: Document, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no file yet"):
        document.save()
    document.save(tmp_path / "net.tape")
    document.new(D)
    assert document.path is None and document.project is D and not document.dirty
    document.new()
    assert document.project == Project()


def test_undo_all_is_the_first_project_itself(document: Document) -> None:
    for i in range(200):
        document.apply(str(i), Project(name=str(i)))
    document.undo_stack.setIndex(0)
    assert document.project is A


def test_a_project_opened_after_an_import_that_was_not_saved_is_not_modified(
    document: Document,
) -> None:
    document.new(Project(name="imported"))
    document.mark_unsaved()
    assert document.dirty
    document.new(Project(name="next"))
    assert not document.dirty and not document.undo_stack.canUndo()
