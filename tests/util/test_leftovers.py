"""Temporary files and folders of processes that were killed go away; those of live ones stay."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from app.project import file as project_file
from app.project.project import Project
from app.util import atomic, leftovers
from tests.support.full_disk import files_of_at_most

KILLED = """
import os, signal, sys
from pathlib import Path
from app.util import atomic; from app.util import leftovers
folder = leftovers.TemporaryFolder()
(Path(folder.name) / "inside").write_text("x")
def fill(path):
    path.write_text("half")
    print(folder.name, flush=True)
    {end}
atomic.write(Path(sys.argv[1]) / "net.tape", fill)
"""


def start(end: str, folder: Path) -> subprocess.Popen[str]:
    """A process in the midst of writing a file in `folder`, which also has a temporary folder there."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", KILLED.format(end=end), str(folder)]
    found = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert found.stdout is not None and found.stdout.readline()
    return found


@pytest.mark.skipif(os.name == "nt", reason="kill -9 is POSIX")
def test_what_a_killed_process_left_beside_a_project_goes_when_it_is_saved_next(
    tmp_path: Path,
) -> None:
    start("os.kill(os.getpid(), signal.SIGKILL)", tmp_path).wait()
    assert (
        len(list(tmp_path.glob(".tapedeck-*")))
        == len(list(tmp_path.glob("tapedeck-*")))
        == 1
    )
    project_file.write(Project(name="new"), tmp_path / "net.tape")
    assert [path.name for path in tmp_path.iterdir()] == ["net.tape"]


@pytest.mark.skipif(os.name == "nt", reason="kill -9 is POSIX")
def test_what_belongs_to_a_live_process_stays_until_it_is_gone(tmp_path: Path) -> None:
    live = start("sys.stdin.read()", tmp_path)
    before = sorted(tmp_path.iterdir())
    assert (
        len(before) == 2
        and leftovers.sweep(tmp_path) == 0
        and sorted(tmp_path.iterdir()) == before
    )
    live.kill()
    live.wait()
    assert leftovers.sweep(tmp_path) == 2 and not list(tmp_path.iterdir())


def test_an_id_that_another_process_has_by_now_does_not_keep_a_file(
    tmp_path: Path,
) -> None:
    machine, process, started = leftovers.owner().split("-")
    if started == "0":
        pytest.skip("this system does not tell when a process started")
    (tmp_path / f".tapedeck-{machine}-{process}-{int(started) - 1}-aa").touch()
    (tmp_path / f".tapedeck-{machine}-{process}-{started}-aa").touch()
    assert leftovers.sweep(tmp_path) == 1


def test_what_other_machines_and_other_programs_left_stays(tmp_path: Path) -> None:
    _, process, started = leftovers.owner().split("-")
    for name in (
        f".tapedeck-00000000-{process}-{int(started) + 1}-aa",
        ".tapedeck-notes",
        ".tapedeck-abcd1234",
    ):
        (tmp_path / name).touch()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").touch()
    machine = leftovers.owner().split("-")[0]
    (tmp_path / f"tapedeck-{machine}-999999999-1-aa").symlink_to(outside)
    assert leftovers.sweep(tmp_path) == 0 and (outside / "mine").exists()


def test_files_of_versions_that_did_not_say_who_made_them_go_after_a_day(
    tmp_path: Path,
) -> None:
    for name, age in (
        (".tapedeck-abcd1234", 2),
        (".tapedeck-abcd_234.safetensors", 2),
        (".tapedeck-abcd1235", 0),
    ):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age * 86_400,) * 2)
    assert leftovers.sweep(tmp_path) == 2 and [
        path.name for path in tmp_path.iterdir()
    ] == [".tapedeck-abcd1235"]


def test_a_temporary_folder_goes_at_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with leftovers.TemporaryFolder() as name:
        assert (
            Path(name).parent == tmp_path and Path(name).stat().st_mode & 0o777 == 0o700
        )
    assert not list(tmp_path.iterdir())


def torch_file(path: Path) -> None:
    import torch

    with path.open("wb") as file:
        torch.save({"a": torch.ones(10_000)}, file)


def safetensors_file(path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"a": torch.ones(10_000)}, path)


def plain_file(path: Path) -> None:
    path.write_bytes(bytes(40_000))


def copied_file(path: Path) -> None:
    shutil.copyfile(shutil.__file__, path)


@pytest.mark.parametrize(
    "fill", [torch_file, safetensors_file, copied_file, plain_file]
)
def test_a_disk_that_takes_no_more_is_one_error_of_the_system_whoever_writes(
    fill, tmp_path: Path
) -> None:
    path = tmp_path / "it"
    path.write_text("old")
    with (
        files_of_at_most(20_000),
        pytest.raises(OSError, match="File too large") as error,
    ):
        atomic.write(path, fill)
    assert (
        atomic.failure_text(error.value) == f"{path} cannot be written: File too large."
    )
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="this system has no /dev/fd")
def test_what_is_no_file_is_written_to() -> None:
    read, write = os.pipe()
    atomic.write_text(f"/dev/fd/{write}", "hello")
    os.close(write)
    assert os.read(read, 100) == b"hello"
    os.close(read)
