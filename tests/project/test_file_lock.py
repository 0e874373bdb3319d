"""Locks end with their process, say who holds them, and never keep anybody from reading."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path

import pytest

from app.project import file as project_file
from app.project import file_lock
from app.project.project import Project

HOLDER = """
import sys, time
from pathlib import Path
from app.project import file_lock
lock = file_lock.mark_open(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.tape"
    project_file.write(Project(), path)
    return path


def _holder(path: Path) -> subprocess.Popen[bytes]:
    """Another process that has the file open."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    return holder


def test_a_second_process_is_told_who_has_the_file_and_can_read_it(file: Path) -> None:
    holder = _holder(file)
    try:
        with pytest.raises(file_lock.FileInUseError) as caught:
            file_lock.mark_open(file)
        assert (
            caught.value.owner.pid == holder.pid
            and f"process {holder.pid}" in caught.value.owner.description
        )
        assert (
            "since" in caught.value.owner.description
            and project_file.read(file) == Project()
        )
        assert file_lock.holder(file) == caught.value.owner
    finally:
        holder.kill()
        holder.wait()


def test_the_lock_of_a_process_that_was_killed_is_free_and_its_file_can_be_removed(
    file: Path,
) -> None:
    holder = _holder(file)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    beside = file_lock.lock_beside(file)
    assert beside.exists() and file_lock.holder(file) is None
    file_lock.remove_dead(beside)
    assert not beside.exists()
    lock = file_lock.mark_open(file)
    assert lock.path == beside
    file_lock.remove_dead(beside)  # nobody's but a dead owner's
    assert beside.exists()
    lock.remove()
    assert os.listdir(file.parent) == ["net.tape"]


def test_a_link_and_its_target_have_one_lock(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.tape"
    link.symlink_to(file)
    lock = file_lock.mark_open(link)
    with pytest.raises(file_lock.FileInUseError):
        file_lock.mark_open(file)
    lock.remove()


def test_a_mark_of_another_machine_counts_until_it_is_taken_over(file: Path) -> None:
    owner = {
        "user": "ada",
        "host": "lab3",
        "pid": 812,
        "since": "2026-11-20T14:02:00+00:00",
    }
    day = datetime.fromisoformat(owner["since"]).astimezone().strftime("%Y-%m-%d")
    file_lock.lock_beside(file).write_text(json.dumps(owner))
    with pytest.raises(file_lock.FileInUseError) as caught:
        file_lock.mark_open(file)
    assert caught.value.owner.description.startswith(
        f"ada on lab3, process 812, since {day}"
    )
    file_lock.mark_open(file, force=True).remove()


def test_a_folder_that_takes_no_files_is_not_said_to_be_open_elsewhere(
    file: Path, monkeypatch
) -> None:
    def refuse(*_args: object) -> int:
        raise PermissionError

    monkeypatch.setattr(file_lock.os, "open", refuse)
    with pytest.raises(PermissionError):
        file_lock.mark_open(file)


@pytest.mark.parametrize(
    "text",
    ["", "[1]", '{"pid": "x"}', '{"user":1,"host":"","pid":1,"since":"soon"}', "\xff"],
)
def test_a_lock_file_that_says_nothing_of_use_is_no_obstacle(
    file: Path, text: str
) -> None:
    file_lock.lock_beside(file).write_text(text)
    assert file_lock.owner_in(file_lock.lock_beside(file)) == file_lock.Owner()
    file_lock.mark_open(file).remove()


def test_a_lock_whose_file_was_taken_away_by_its_owner_is_not_held_by_two(
    tmp_path: Path, monkeypatch
) -> None:
    """Between opening the file and locking it the owner may remove it: what is locked then is a file without a name."""
    path, opened = tmp_path / "x.lock", []
    first = file_lock.Lock(path)
    take = file_lock._take

    def late(handle: int) -> None:
        if not opened:
            opened.append(handle)
            first.remove()
        take(handle)

    monkeypatch.setattr(file_lock, "_take", late)
    second = file_lock.Lock(path)
    monkeypatch.undo()
    with pytest.raises(file_lock.FileLockError):
        file_lock.Lock(path)
    second.remove()


def test_of_two_savers_at_once_only_one_replaces_what_both_have_read(
    file: Path, monkeypatch
) -> None:
    """The second one comes when the first has compared and not yet written: it waits, and is refused."""
    known, ends, waits = project_file.digest(file), [], threading.Event()
    monkeypatch.setattr(file_lock.time, "sleep", lambda _seconds: waits.set())

    def save() -> None:
        try:
            project_file.write(Project("second"), file, known)
        except project_file.ChangedOnDiskError:
            ends.append("refused")
        else:
            ends.append("written")

    second = threading.Thread(target=save)

    def compared(_digest: str) -> None:
        second.start()
        while not waits.is_set() and second.is_alive():
            pass

    project_file.write(Project("first"), file, known, compared)
    second.join()
    assert ends == ["refused"] and project_file.read(file).name == "first"


def test_a_save_does_not_wait_for_ever_for_one_that_hangs(
    file: Path, monkeypatch
) -> None:
    monkeypatch.setattr(file_lock, "PATIENCE", 0.0)
    with file_lock.exclusive(file):
        project_file.write(Project("second"), file, project_file.digest(file))
    assert project_file.read(file).name == "second"
