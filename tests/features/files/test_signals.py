"""A window that SIGTERM or SIGHUP ends, as a log-out does, is closed as by Quit: nothing is left, nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.project import file as project_file
from app.project import file_lock, journal
from app.runs import record, store
from app.util.resources import PATH_ENTRY
from app.util.resources import path as resource_path
from app.views.settings import Settings
from tests.conftest import PATIENCE

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="elsewhere a program is not ended by a signal"
)
DIGITS = resource_path("examples", "digits.tape")


@contextmanager
def window(what: str, *file: Path) -> Iterator[subprocess.Popen[str]]:
    """A window in a process of its own, in which something has happened."""
    command = [
        sys.executable,
        "-m",
        "tests.support.window_until_signal",
        what,
        *map(str, file),
    ]
    with subprocess.Popen(
        command,
        cwd=PATH_ENTRY,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_hears_of_hang_ups,
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def _hears_of_hang_ups() -> None:
    """Undo `nohup`, which the suite may run under."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> None:
    process.send_signal(number)
    assert process.wait(PATIENCE / 1000) == 0


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.fixture
def journals() -> Path:
    return Settings().journal_folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "work" / "net.tape"
    path.parent.mkdir()
    project_file.write(project_file.read(DIGITS), path)
    return path


def test_an_untouched_project_leaves_no_lock_and_nothing_to_recover(
    journals: Path, file: Path
) -> None:
    with window("opened", file) as process:
        assert file_lock.lock_beside(file).exists()
        end(process, signal.SIGHUP)
    assert left(file.parent) == ["net.tape"] and not left(journals)


@pytest.mark.parametrize("what", ["edited", "asked"])
def test_unsaved_work_is_offered_at_the_next_start(
    journals: Path, file: Path, what: str
) -> None:
    before = file.read_bytes()
    with window(what, file) as process:
        end(process)
    (offer,) = journal.find(journals).found
    offer.leave()
    assert offer.entry is not None and offer.entry.file == file
    assert (
        len(offer.entry.project.graph.nodes)
        == len(project_file.read(file).graph.nodes) + 1
    )
    assert file.read_bytes() == before and left(file.parent) == ["net.tape"]


def lives(pid: str) -> bool:
    try:
        return (
            Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


def children(pid: object) -> list[str]:
    """The processes below one; none where there is no /proc."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    below = [child for task in tasks for child in task.read_text().split()]
    return below + [pid for child in below for pid in children(child)]


def test_a_run_is_stopped_and_saved_and_no_process_stays(
    qtbot, journals: Path, file: Path
) -> None:
    with window("training", file) as process:
        others = children(process.pid)
        for pid in others:  # a log-out ends all of them at once
            os.kill(int(pid), signal.SIGTERM)
        end(process)
    qtbot.waitUntil(lambda: not any(map(lives, others)))
    (kept,) = store.listed(store.runs_beside(file))
    assert kept.state == "stopped" and record.read(kept.folder).ending is not None
    assert not left(journals) and not list(file.parent.glob(".*"))


def test_a_run_of_another_program_that_was_watched_is_no_unsaved_work(
    journals: Path, tmp_path: Path
) -> None:
    lines = tmp_path / "run.jsonl"
    lines.write_text('{"event": "script", "script": "train.py"}\n')
    with window("watching", lines) as process:
        end(process)
    assert not left(journals)


def test_a_signal_that_is_ignored_stays_ignored(journals: Path, file: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with window("opened", file) as process:
            assert file_lock.lock_beside(file).exists()
            process.send_signal(signal.SIGHUP)
            end(process)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert left(file.parent) == ["net.tape"] and not left(journals)
