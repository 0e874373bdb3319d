"""The file of the open project: two windows on it, changes from outside, saves that fail; nothing is lost unsaid."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QMimeData, QPointF, Qt, QTimer, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog

from app.features.files.changed_file_dialog import ChangedFileDialog
from app.project import file as project_file
from app.project import file_lock
from app.project.picture_file import as_element
from app.project.project import Project
from app.util.resources import path as resource_path
from app.views.ui.dialogs.message import DialogAnswer, QuestionDialog
from app.views.ui.widgets.banner import Banner
from tests.support import windows
from tests.support.whole_window import WholeWindow


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.tape"
    project_file.write(
        project_file.read(resource_path("examples", "digits.tape")), path
    )
    return path


@pytest.fixture
def window(qtbot, qapp, file: Path) -> Iterator[WholeWindow]:
    with windows.shown(qapp, "file") as made:
        made.files.open(file)
        yield made


@pytest.fixture
def second(qtbot, qapp, window: WholeWindow, file: Path) -> Iterator[WholeWindow]:
    with windows.shown(qapp, "second") as made:
        made.files.open(file)
        yield made


def test_open_begins_where_the_open_or_the_last_project_is(
    window: WholeWindow, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[str] = []
    monkeypatch.setattr(
        QFileDialog,
        "getOpenFileName",
        lambda *given: (starts.append(given[2]) or "", ""),
    )
    monkeypatch.chdir(tmp_path.parent)
    window.files.choose()
    window.document.new(Project())
    window.files.choose()
    for path in window.settings.recent_files:
        window.settings.forget_recent(path)
    window.files.choose()
    assert starts == [str(tmp_path), str(tmp_path), str(tmp_path.parent)]


def banner(window: WholeWindow) -> Banner:
    return window.recovery.files.banner


def press(window: WholeWindow, text: str) -> None:
    if not banner(window).button(text).isVisible():  # in one line, without its actions
        QTest.mouseClick(banner(window).expand, Qt.MouseButton.LeftButton)
    QTest.mouseClick(banner(window).button(text), Qt.MouseButton.LeftButton)


def change(file: Path, **parts: object) -> Project:
    """Somebody else saves the file with other parts."""
    project = replace(project_file.read(file), **parts)
    project_file.write(project, file)
    return project


def wait_for_banner(qtbot, window: WholeWindow, words: str) -> None:
    qtbot.waitUntil(
        lambda: banner(window).isVisible() and words in banner(window).title()
    )


def answer(
    button: str,
    seen: list[str] | None = None,
    first: Callable[[], object] = lambda: None,
) -> None:
    """Press a button of the dialog that comes, once it has read the file; `seen` gets what it shows."""

    def look() -> None:
        dialog = QApplication.activeModalWidget()
        if not isinstance(dialog, ChangedFileDialog) or dialog.on_disk is None:
            QTimer.singleShot(10, look)
            return
        if seen is not None:
            seen.append(dialog.changes.toPlainText() or dialog.words.text())
        first()
        QTest.mouseClick(getattr(dialog, f"{button}_button"), Qt.MouseButton.LeftButton)

    QTimer.singleShot(0, look)


# -- two windows ------------------------------------------------------------------------------------------------------


def test_the_second_window_says_who_has_the_file(qtbot, second: WholeWindow) -> None:
    assert (
        banner(second).isVisible()
        and banner(second).title() == "net.tape is open in another window"
    )
    assert banner(second).actions_offered() == (
        "Read-only",
        "Open a copy",
        "Edit anyway",
    )
    press(second, "Edit anyway")
    assert not banner(second).isVisible() and not second.document.dirty


def test_of_another_program_its_process_and_the_time_are_said(
    qtbot, window: WholeWindow, file: Path, tmp_path
) -> None:
    other = tmp_path / "other.tape"
    project_file.write(Project(), other)
    since = datetime(2026, 11, 20, 14, 2).astimezone()  # of the zone here
    owner = {
        "user": "ada",
        "host": "lab3",
        "pid": 812,
        "since": since.astimezone(UTC).isoformat(),
    }
    file_lock.lock_beside(other).write_text(json.dumps(owner))
    window.files.open(other)
    assert "ada on lab3, process 812, since 2026-11-20 14:02" in banner(window).reason()
    press(window, "Edit anyway")
    assert file_lock.owner_in(file_lock.lock_beside(other)).pid == os.getpid()
    assert not file_lock.lock_beside(file).exists()


def test_the_second_window_has_the_file_once_the_first_is_closed(
    qtbot, window, second, file: Path
) -> None:
    window.close()
    qtbot.waitUntil(lambda: not banner(second).isVisible())
    with pytest.raises(file_lock.FileInUseError):
        file_lock.mark_open(file)


def test_what_is_read_only_is_saved_under_another_name_alone(
    qtbot, second, file: Path, monkeypatch
) -> None:
    press(second, "Read-only")
    qtbot.waitUntil(lambda: "read-only" in second.windowTitle())
    before, asked = file.read_bytes(), []
    second.canvas.add_op("nn.ReLU")
    monkeypatch.setattr(
        QFileDialog, "getSaveFileName", lambda *_: (asked.append(1) or "", "")
    )
    assert not second.files.save() and asked and file.read_bytes() == before
    monkeypatch.setattr(
        QFileDialog,
        "getSaveFileName",
        lambda *_: (str(file.with_name("mine.tape")), ""),
    )
    assert second.files.save() and second.document.path == file.with_name("mine.tape")
    qtbot.waitUntil(lambda: "read-only" not in second.windowTitle())
    assert file.read_bytes() == before


def test_a_copy_has_no_file(qtbot, second: WholeWindow) -> None:
    press(second, "Open a copy")
    assert (
        second.document.path is None
        and second.document.dirty
        and len(second.document.project.graph.nodes) == 12
    )
    assert not banner(second).isVisible()


def test_the_programs_own_examples_are_open_in_any_number_of_windows(
    qtbot, window: WholeWindow
) -> None:
    path = resource_path("examples", "digits.tape")
    window.files.open(path)
    assert not file_lock.lock_beside(path).exists()


def test_what_one_window_saves_the_other_is_told_and_does_not_overwrite(
    qtbot, window, second, file: Path
) -> None:
    window.canvas.add_op("nn.Conv2d")
    assert window.files.save()
    second.canvas.add_op("nn.ReLU")
    wait_for_banner(qtbot, second, "net.tape was changed on the disk")
    seen: list[str] = []
    answer("keep", seen)
    assert not second.files.save()
    assert "conv3" in seen[0] and len(project_file.read(file).graph.nodes) == 13
    assert second.document.dirty and project_file.read(file) == window.document.project


# -- changes from outside ---------------------------------------------------------------------------------------------


def test_a_change_from_outside_is_told_with_what_differs_and_reloading_is_one_undo_step(
    qtbot, window, file
) -> None:
    before = window.document.project
    training = replace(before.training, epochs=5)
    theirs = change(file, name="theirs", training=training)
    wait_for_banner(qtbot, window, "net.tape was changed on the disk")
    assert banner(window).reason() == "In the file: 1 name changed, 1 setting changed."
    press(window, "Reload")
    assert (
        window.document.project == theirs
        and not window.document.dirty
        and not banner(window).isVisible()
    )
    window.document.undo_stack.undo()
    assert window.document.project == before and window.document.dirty
    assert window.files.save() and project_file.read(file) == before


def test_keeping_mine_counts_as_unsaved_and_saving_asks_once_more(
    qtbot, window: WholeWindow, file: Path
) -> None:
    change(file, name="theirs")
    wait_for_banner(qtbot, window, "was changed on the disk")
    press(window, "Keep mine")
    assert window.document.dirty and not banner(window).isVisible()
    window.recovery.files.check()
    qtbot.waitUntil(lambda: window.recovery.files._looking is None)
    assert not banner(window).isVisible()  # it was said, and answered
    answer("overwrite")
    assert window.files.save() and project_file.read(file) == window.document.project


@pytest.mark.parametrize("button", ["keep", "reload", "overwrite", "save_as"])
def test_saving_over_a_change_asks(
    qtbot, window: WholeWindow, file: Path, monkeypatch, button: str
) -> None:
    theirs, other = change(file, name="theirs"), file.with_name("other.tape")
    window.canvas.add_op("nn.ReLU")
    mine = window.document.project
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(other), ""))
    answer(button)
    saved = window.files.save()
    assert saved is (button in ("overwrite", "save_as"))
    assert project_file.read(file) == (mine if button == "overwrite" else theirs)
    assert window.document.project == (theirs if button == "reload" else mine)
    assert window.document.dirty is (button == "keep")
    assert other.exists() is (button == "save_as")
    if button == "save_as":
        assert window.document.path == other and project_file.read(other) == mine


def test_what_is_overwritten_is_the_version_that_was_shown(
    qtbot, window: WholeWindow, file: Path
) -> None:
    change(file, name="theirs")
    window.canvas.add_op("nn.ReLU")

    def meanwhile() -> None:
        change(file, name="theirs again")
        answer("keep", seen)

    seen: list[str] = []
    answer("overwrite", first=meanwhile)
    assert not window.files.save()
    assert "theirs again" in seen[0] and project_file.read(file).name == "theirs again"


def test_a_file_that_is_gone_is_said_and_the_work_counts_as_unsaved(
    qtbot, window: WholeWindow, file: Path
) -> None:
    file.rename(file.with_name("moved.tape"))
    wait_for_banner(qtbot, window, "net.tape is gone")
    assert window.document.dirty
    press(window, "Save there again")
    assert (
        project_file.read(file) == window.document.project
        and not banner(window).isVisible()
    )


def test_a_file_that_can_no_longer_be_opened_is_said_and_not_overwritten_unasked(
    qtbot, window, file: Path
) -> None:
    file.write_text("<<<<<<< HEAD")
    wait_for_banner(qtbot, window, "can no longer be opened")
    window.canvas.add_op("nn.ReLU")
    answer("keep")
    assert not window.files.save() and file.read_text() == "<<<<<<< HEAD"
    answer("overwrite")
    assert window.files.save() and project_file.read(file) == window.document.project


def test_what_is_no_file_any_more_is_said_and_nothing_waits_for_it(
    qtbot, window: WholeWindow, file: Path
) -> None:
    file.unlink()
    os.mkfifo(file)
    wait_for_banner(qtbot, window, "can no longer be opened")
    assert "named pipe" in banner(window).reason()


def test_a_file_that_was_only_touched_or_saved_with_the_same_is_not_spoken_of(
    qtbot, window, file: Path
) -> None:
    os.utime(file, (0, 0))
    window.canvas.add_op("nn.ReLU")
    project_file.write(
        window.document.project, file
    )  # as another window that has the same
    qtbot.waitUntil(lambda: not window.document.dirty)
    assert not banner(window).isVisible() and window.files.save()


def test_replacing_the_file_by_a_rename_is_noticed_every_time(
    qtbot, window: WholeWindow, file: Path
) -> None:
    for name in ("first", "second", "third"):
        change(file, name=name)
        wait_for_banner(qtbot, window, "was changed")
        press(window, "Reload")
        assert window.document.project.name == name


# -- saves that fail, and files that are there ------------------------------------------------------------------------


def test_a_banner_about_a_failed_save_has_a_way_out_and_goes_with_the_next_save(
    qtbot, window: WholeWindow, file: Path, monkeypatch
) -> None:
    window.canvas.add_op("nn.ReLU")
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", _no_space)
        assert not window.files.save()
    assert (
        banner(window).title() == "net.tape was not saved"
        and "No space left" in banner(window).reason()
    )
    assert window.document.dirty and len(project_file.read(file).graph.nodes) == 12
    assert window.files.save() and not banner(window).isVisible()
    window.canvas.add_op("nn.ReLU")
    assert not window.files.save_to(file.parent / "no" / "folder.tape")
    monkeypatch.setattr(
        QFileDialog,
        "getSaveFileName",
        lambda *_: (str(file.with_name("other.tape")), ""),
    )
    press(window, "Save as…")
    assert (
        window.document.path == file.with_name("other.tape")
        and not banner(window).isVisible()
    )


def _no_space(_handle: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_name_without_its_ending_does_not_overwrite_unasked(
    qtbot, window, file: Path, monkeypatch
) -> None:
    other = file.with_name("other.tape")
    project_file.write(Project("other"), other)
    answers, asked = [DialogAnswer.CANCEL, DialogAnswer.DISCARD], []
    monkeypatch.setattr(
        QFileDialog, "getSaveFileName", lambda *_: (str(other.with_suffix("")), "")
    )

    def execute(self: QuestionDialog) -> None:
        asked.append(self.heading.text())
        self.answer = answers.pop(0)

    monkeypatch.setattr(QuestionDialog, "exec", execute)
    assert not window.files.save_as() and project_file.read(other).name == "other"
    assert (
        window.files.save_as() and project_file.read(other) == window.document.project
    )
    assert asked == ["Replace other.tape?"] * 2


def test_a_file_that_another_window_has_open_is_not_replaced_unasked(
    qtbot, window, second, monkeypatch, file
) -> None:
    press(second, "Open a copy")
    asked: list[str] = []
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(file), ""))
    monkeypatch.setattr(
        QuestionDialog, "exec", lambda self: asked.append(self.heading.text())
    )
    assert not second.files.save_as()
    assert asked == ["Replace net.tape, which is open in another window?"]


def test_the_question_about_unsaved_work_names_the_file(
    qtbot, window: WholeWindow, monkeypatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        QuestionDialog, "exec", lambda self: asked.append(self.heading.text())
    )
    window.canvas.add_op("nn.ReLU")
    assert not window.files.may_leave()
    assert asked == ["Save the changes to net.tape?"]


def test_what_is_being_typed_is_unsaved_work_when_another_file_is_dropped(
    qtbot, window, file, monkeypatch
) -> None:
    """No key and no click ends the typing then."""
    other = file.with_name("other.tape")
    project_file.write(Project("other"), other)
    answers = [DialogAnswer.CANCEL, DialogAnswer.DISCARD]
    monkeypatch.setattr(
        QuestionDialog, "exec", lambda self: setattr(self, "answer", answers.pop(0))
    )
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    graph = window.document.project.graph
    window.selection.set(
        {next(key for key, node in graph.nodes.items() if node.name == "fc2")}
    )
    window.pages.show("inspector")
    (line,) = window.inspector.node_page.form.editor("out_features").lines()
    line.setFocus()
    line.selectAll()
    QTest.keyClicks(line, "12")
    window.files.open_asking(other)
    assert (
        window.document.dirty and line.hasFocus() and answers == [DialogAnswer.DISCARD]
    )
    QTest.keyClicks(line, "3")
    window.files.open_asking(other)
    assert not answers and not window.document.project.graph.nodes
    assert window.document.project.name == "other" and not window.document.dirty


def test_a_picture_that_has_its_project_can_be_dropped(
    window: WholeWindow, file: Path, tmp_path: Path
) -> None:
    project, picture = window.document.project, tmp_path / "net.svg"
    element = as_element(project_file.dumps(project))
    picture.write_text(f'<svg xmlns="http://www.w3.org/2000/svg">{element}</svg>')
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(picture))])
    copy, left = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    bare = Qt.KeyboardModifier.NoModifier
    window.document.new()
    window.dropEvent(QDropEvent(QPointF(5, 5), copy, data, left, bare))
    assert window.document.project.graph == project.graph
    assert window.document.path is None


def test_a_saved_project_is_called_as_its_file(
    qtbot, window: WholeWindow, tmp_path, monkeypatch
) -> None:
    window.document.new()
    window.canvas.add_op("nn.ReLU")
    for name in ("lenet", "big"):
        monkeypatch.setattr(
            QFileDialog,
            "getSaveFileName",
            lambda *_, name=name: (str(tmp_path / f"{name}.tape"), ""),
        )
        assert window.files.save_as()
        qtbot.waitUntil(lambda name=name: window.windowTitle().startswith(f"{name}[*]"))
        assert window.toolbar.project.text() == name == window.document.project.name
        assert (
            project_file.read(tmp_path / f"{name}.tape").name == name
            and not window.document.dirty
        )
    window.document.undo_stack.undo()
    assert window.document.project.name == "big", (
        "the steps before the save have the name too"
    )


def test_a_save_that_fails_keeps_the_work(
    qtbot, window: WholeWindow, tmp_path: Path
) -> None:
    window.canvas.add_op("nn.ReLU")
    assert not window.files.save_to(tmp_path / "no" / "such" / "folder.tape")
    assert (
        window.document.dirty
        and "was not saved" in window.recovery.files.banner.title()
    )


# -- one selection, five readings -------------------------------------------------------------------------------------
