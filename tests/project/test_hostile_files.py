"""Files that lie about a project may be called, and may say, what they like: own layers, and the folders of runs.

What they say is refused with words, or changes no structure of the source and leads to no other folder.
"""

from __future__ import annotations

import ast
import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from app.builder.analysis import analyse
from app.builder.catalog import custom
from app.project import custom_layers, file
from app.project.project import Project
from app.runs import checkpoint_files, store, tables
from app.runs import record as records
from app.source.layer_files import LayerFileError
from app.training.columns import Columns
from app.training.history import History
from tests.project.test_hostile_projects import CALL, NUMBERS, TEXTS, canary, places
from tests.support import own_layers_nets as own
from tests.support.builder_nets import skeleton

__all__ = ["canary"]  # sings in every test of this file too
pytestmark = pytest.mark.usefixtures("nothing_trusted")
CLASSES = (
    "Net",
    "nn",
    "torch",
    "F",
    "self",
    "super",
    "print",
    "eval",
    "𝐞𝐯𝐚𝐥",
    "ﬁx",
    "ªº",
    "Ⅳ",
    "canary",
    "Module",
    "match",
    "_",
    "__import__",
    "__class__",
    "List",
    "Sequential",
    "x" * 3000,
    "é" * 40,
)
TABLES = (store.STEPS, store.EPOCHS, store.MEMORY, store.GRADIENTS, store.LOSSES)


def over(path: Path, name: str = "Scaled") -> Project:
    """A project with one layer of a file."""
    op = f"custom.{custom.module_name(path)}:{name}"
    graph = own.chain(
        [
            ("input", {"shape": (1, 8, 8)}),
            ("nn.Flatten", {}),
            ("nn.Linear", {"out_features": 16}),
            (op, {"features": 16}),
            ("output", {}),
        ]
    )
    return Project(name="own", graph=graph, layer_files=(str(path),))


def structure(text: str) -> str:
    """The structure of a source where it says nothing of whether a class is imported under another name."""
    return (
        skeleton(text)
        .replace("asname='_'", "")
        .replace("alias(name='_', )", "alias(name='_')")
    )


@pytest.mark.parametrize("number", range(5))
def test_a_file_of_layers_of_any_name_gives_the_source_of_a_harmless_one(
    tmp_path: Path, number: int
) -> None:
    def text_of(path: Path) -> str:
        own.trust(path)
        project = over(path)
        analysis = analyse(project.graph, custom_layers.ops_of(project))
        assert not analysis.errors, (path.name, analysis.errors)
        assert file.loads(file.dumps(project)).layer_files == project.layer_files
        (taken,) = analysis.source.files
        assert taken.module.isidentifier() and taken.module.isascii()
        return analysis.source.text

    harmless = structure(text_of(own.write(tmp_path)))
    for name in TEXTS[number::5]:
        try:
            path = own.write(tmp_path, name=f"{name}.py")
        except (OSError, ValueError):
            continue  # no file can be called so
        try:
            custom.read_text(path)
        except LayerFileError as error:
            assert str(error)
        else:
            assert structure(text_of(path)) == harmless


@pytest.mark.parametrize("name", CLASSES, ids=lambda name: ascii(name)[:20])
def test_a_class_of_any_name_is_imported_as_what_it_is_or_said_to_be_none(
    tmp_path: Path, name: str
) -> None:
    path = own.write(
        tmp_path, own.LAYERS.replace("class Scaled", f"class {name}"), "hostile.py"
    )
    own.trust(path)
    told = ast.parse(f"class {name}: pass").body[0].name  # as Python reads it
    project = over(path, told)
    analysis = analyse(project.graph, custom_layers.ops_of(project))
    plain = own.write(tmp_path)
    own.trust(plain)
    project = over(plain)
    harmless = analyse(project.graph, custom_layers.ops_of(project)).source.text
    if told.startswith("_"):
        assert any(
            "no longer has this class" in problem.message for problem in analysis.errors
        )
    elif not analysis.errors:  # a class called nn takes torch's from the file itself
        assert structure(analysis.source.text) == structure(harmless)
    imported = [
        node
        for node in ast.walk(ast.parse(analysis.source.text))
        if isinstance(node, ast.ImportFrom)
    ]
    assert {node.module for node in imported} <= {"torch", "hostile"}


@pytest.fixture
def run(tmp_path: Path) -> store.Kept:
    return store.begin(tmp_path / "p.runs", Project("p"))


def looked_at(folder: Path) -> None:
    """What the list of runs does with a folder."""
    for kept in store.listed(folder):
        assert kept.state and kept.record.title
        checkpoint_files.checkpoints(kept)
        assert store.runs_unsaved(folder, kept.record.project).parent == folder
        try:
            store.history_of(kept).to_csv()
        except records.RunError as error:
            assert str(error)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_a_run_that_says_anything_is_read_or_refused(
    run: store.Kept, name: str
) -> None:
    path = run.folder / name
    columns: tuple[list[str], ...] = (
        ["a"],
        ["a", "a"],
        list(TEXTS[:40]),
        ["step"] * 8,
        [""],
        [CALL, "step"],
    )
    for names in columns:
        tables.append(
            path,
            [each.encode("utf-8", "replace").decode() for each in names],
            [[1.0] * len(names)] * 3,
        )
        looked_at(run.folder.parent)
        path.unlink()
    for raw in (
        b"",
        b"\n",
        b"{}\n",
        b'{"columns": []}\n',
        b"\xff\n",
        b'{"columns": ["a"]}\n123',
        b"9" * 5000 + b"\n",
        b'{"columns":' + b"[" * 9000 + b"\n",
    ):
        path.write_bytes(raw)
        looked_at(run.folder.parent)
        path.unlink()


def test_a_record_of_a_run_that_says_anything_is_read_or_left_out(
    run: store.Kept,
) -> None:
    path = run.folder / records.FILE
    written = json.loads(path.read_bytes())
    for where in places(written):
        if isinstance(where[-1], tuple):
            continue
        for value in (*TEXTS[::4], *NUMBERS):
            raw = json.loads(json.dumps(written))
            at = raw
            for key in where[:-1]:
                at = at[key]
            at[where[-1]] = value
            path.write_text(json.dumps(raw), "utf-8")
            looked_at(run.folder.parent)


@pytest.mark.parametrize(
    "name", ["step-²", "step-٣", "step-", "\n", CALL[:20], "step-" + "9" * 200]
)
def test_a_checkpoint_of_any_name_is_listed(run: store.Kept, name: str) -> None:
    run.checkpoints.mkdir()
    (run.checkpoints / f"{name}.pt").touch()
    (found,) = checkpoint_files.checkpoints(run)
    assert found.path.stem == name


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text)[:20])
def test_a_name_leads_to_no_other_folder(tmp_path: Path, text: str) -> None:
    word = store.plain(text)
    assert (
        word == Path(word).name and word not in (".", "..") and len(word.encode()) < 250
    )
    (tmp_path / word).mkdir()
    assert (tmp_path / word).resolve().parent == tmp_path.resolve()


def test_names_of_outputs_are_cells_of_the_table_and_no_more() -> None:
    history = History()
    names = tuple(dict.fromkeys(f"loss_{text}" for text in TEXTS))
    history.parts = Columns("step", *names)
    history.parts.extend(np.ones((1 + len(names), 2)))
    header, *rows = csv.reader(io.StringIO(history.to_csv(), newline=""))
    assert set(names) <= set(header) and not rows
