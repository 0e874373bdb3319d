"""A project that is saved as another file takes its runs along, and the first file keeps its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.project import file as project_file
from app.runs import checkpoint_files, resume, store
from app.runs.resume import newest_weights
from tests.support.run_windows import listed, run, small
from tests.support.whole_window import WholeWindow
from tests.support.windows import messages
from tests.views.window.test_window import ready


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "net.tape"
    project_file.write(small(epochs=1), file)
    return file


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow, path: Path) -> WholeWindow:
    window.files.open(path)
    ready(qtbot, window)
    return window


def records(path: Path) -> list[tuple[int, str]]:
    return [
        (kept.record.number, kept.record.began)
        for kept in store.listed(store.runs_beside(path))
    ]


def test_runs_are_found_from_the_new_file_and_stay_with_the_old_one(
    qtbot: QtBot, window: WholeWindow, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(qtbot, window)
    (first,) = listed(qtbot, window, 1)
    other, told = path.with_name("people.tape"), messages(window)
    assert window.files.save_to(other)
    qtbot.waitUntil(
        lambda: any("Copied 1 run beside people.tape" in words for words in told)
    )
    (copy,) = listed(qtbot, window, 1)
    assert copy.folder.parent == store.runs_beside(other) and records(other) == records(
        path
    )
    assert (
        store.history_of(copy).steps["loss"].tolist()
        == store.history_of(first).steps["loss"].tolist()
    )
    names = [(each.path.name, each.step) for each in checkpoint_files.checkpoints(copy)]
    assert (
        names
        == [(each.path.name, each.step) for each in checkpoint_files.checkpoints(first)]
        and names
    )
    assert os.path.samefile(
        copy.checkpoints / "last.pt", first.checkpoints / "last.pt"
    ), "not twice on the disk"
    newest = newest_weights(store.runs_beside(other))
    assert newest is not None and newest[1].startswith("newest weights, of Run 1")
    run(qtbot, window)
    assert [number for number, _ in records(other)] == [2, 1] and len(
        records(path)
    ) == 1
    # Back to the first file: what it has is not copied again, and the new run has a number of its own there.
    told.clear()
    assert window.files.save_to(path)
    qtbot.waitUntil(
        lambda: any("Copied 1 run beside net.tape" in words for words in told)
    )
    assert [number for number, _ in records(path)] == [2, 1] and len(
        records(other)
    ) == 2
    (_, oldest) = listed(qtbot, window, 2)
    window.runs_control.delete([oldest])
    qtbot.waitUntil(lambda: len(records(path)) == 1)
    assert (
        len(records(other)) == 2
        and resume.newest(store.listed(store.runs_beside(other))[1]).is_file()
    )


def test_a_run_under_way_follows_when_it_has_ended(
    qtbot: QtBot, window: WholeWindow, path: Path
) -> None:
    window.run_control.step()
    qtbot.waitUntil(lambda: window.session.state == "paused")
    other = path.with_name("people.tape")
    assert window.files.save_to(other)
    assert not records(other) and len(records(path)) == 1
    window.session.stop()
    qtbot.waitUntil(lambda: len(records(other)) == 1 and not window.session.active)
    (kept,) = store.listed(store.runs_beside(other))
    assert kept.state == "stopped" and records(other) == records(path)


def test_a_full_disk_leaves_the_runs_where_they_are_and_says_so(
    qtbot: QtBot, window: WholeWindow, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(qtbot, window)
    before, told, refused = records(path), messages(window), []
    hearing = window.runs_keeper.refused.connect(lambda *words: refused.append(words))

    def full(_file: str, _target: str) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", full)
    other = path.with_name("people.tape")
    assert window.files.save_to(other)
    qtbot.waitUntil(lambda: bool(refused))
    window.runs_keeper.disconnect(hearing)
    ((title, reason),) = refused
    assert (
        title == "Not all runs were copied beside people.tape"
        and "No space left on device" in reason
    )
    assert str(store.runs_beside(path)) in reason and not any(
        "Copied" in words for words in told
    )
    assert records(path) == before and not list(store.runs_beside(other).iterdir()), (
        "whole or not at all"
    )
