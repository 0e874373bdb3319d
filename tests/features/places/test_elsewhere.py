"""Scripts at a place: started there once, followed and steered from here over a line that may be cut."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.engine.watched.follow import follow
from app.engine.watched.script_capture import held_step
from app.features.places import values
from app.features.places.cli import elsewhere
from app.features.places.values import Place, PlaceError
from app.main import main
from app.training.events import Failed, Finished, StepDone
from tests.slow import place_cuts
from tests.support.ssh_host import SshHost

ROOT = Path(__file__).resolve().parents[3]
PRINTS = "import os, sys; print(sys.argv[1:], os.getcwd()); sys.exit(int(sys.argv[1]))"
TRAINS = """
import os, sys, time, torch
weight = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(weight.parameters(), 0.1)
print(os.getpid(), flush=True)
while not os.path.exists("end"):
    weight(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    time.sleep(0.002)
print("the end")
"""


@pytest.fixture
def box(ssh_host: SshHost) -> Iterator[SshHost]:
    values.save({"gpubox": Place("gpubox", "box", sys.executable)})
    yield ssh_host
    for mirror in elsewhere._mirrors:
        mirror.communicate()  # with its stdin it ends
    elsewhere._mirrors.clear()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "app.main", "run", "--on", *arguments]


@contextmanager
def terminal(
    *arguments: str, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command(*arguments),
        cwd=ROOT,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline().split("watched in ")[1].strip()


def wait_until(condition: Callable[[], object], seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_script_runs_there_as_it_would_in_a_terminal_there(box: SshHost):
    folder = box.home / "it's a\nfolder"
    folder.mkdir()
    (folder / "-a b.py").write_text(PRINTS)
    arguments = ["7", "it's", 'a "b"', "-x", "two\nlines", "$HOME", ""]
    done = subprocess.run(
        command(f"gpubox:{folder}", "--quiet", "--", "./-a b.py", *arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{arguments} {folder}\n" and done.stderr == ""
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("on", "script", "says"),
    [
        ("gpubox", "none.py", "gpubox: there is no file none.py in"),
        ("gpubox:none", "train.py", "gpubox: there is no folder none"),
        ("another", "train.py", "another is no place; there are gpubox"),
    ],
)
def test_what_cannot_be_run_there_is_refused(box: SshHost, capsys, on, script, says):
    assert main(["run", "--on", on, script]) == 1
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_a_full_disk_there_is_said_before_anything_runs(box: SshHost, capsys):
    (box.home / "train.py").write_text(PRINTS)
    (box.home / ".state").write_text("no room for a folder")
    assert main(["run", "--on", "gpubox", "train.py", "0"]) == 1
    assert ".state/tapedeck" in capsys.readouterr().err


def test_nothing_is_lost_or_doubled_when_the_line_is_cut(box: SshHost):
    """The short form of `python -m tests.slow.place_cuts`: two follow, the script is held, the losses are its own."""
    outcome = place_cuts.tried(box, cuts=5, seed=1)
    assert outcome.faults == [] and outcome.steps > 0
    assert [cut.held for cut in outcome.cuts] == [False, False, False, True, False]


def test_who_watches_leaves_and_comes_back_and_the_script_goes_on(box: SshHost):
    """Ctrl+C, a closed window, a far end that is killed; a step is captured in between."""
    (box.home / "train.py").write_text(TRAINS)
    with terminal("gpubox", "train.py") as process:
        address = address_of(process)
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130 and process.stderr is not None
        assert process.stderr.read() == (
            f"tapedeck: the script goes on; tapedeck {address} watches it\n"
        )
    path = Path(elsewhere.frames_here(address))
    wait_until(lambda: b'"step": 20' in path.read_bytes())
    with held_step(path, steps(path) + 200, play=False) as held:
        assert held.captured.tape.nodes
    elsewhere._mirrors.pop().communicate()  # the window is closed
    os.kill(pid, 0)
    again = Path(elsewhere.frames_here(address))
    wait_until(lambda: steps(again) > steps(path))
    for far_end in far_ends(box):
        os.kill(far_end, signal.SIGKILL)
    wait_until(lambda: b"is back" in again.read_bytes())
    (box.home / "end").touch()
    *_, last = follow(again, every=0.01)
    assert isinstance(last, Finished) and last.reason == "done"


def steps(path: Path) -> int:
    return path.read_bytes().count(b'"event": "step"')


def far_ends(host: SshHost) -> list[int]:
    """The processes there that serve a line, by what only they have: the stub on their command line."""
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            ours = f"HOME={host.home}".encode() in file.read_bytes()
            stub = b"version_info" in file.with_name("cmdline").read_bytes()
        except OSError:
            continue
        shell = file.with_name("comm").read_text().strip() in ("bash", "sh", "dash")
        if ours and stub and not shell:
            found.append(int(file.parent.name))
    return found


def test_a_script_that_is_killed_there_ends_here(box: SshHost):
    (box.home / "train.py").write_text(TRAINS)
    with terminal("gpubox", "train.py") as process:
        path = Path(elsewhere.frames_here(address_of(process)))
        assert process.stdout is not None and process.stderr is not None
        pid = int(process.stdout.readline())
        events = []
        for event in follow(path, every=0.01):
            if isinstance(event, StepDone) and event.step == 10:
                os.kill(pid, signal.SIGKILL)
            events.append(event)
        assert isinstance(events[-1], Finished) and "ended" in events[-1].note
        assert "signal 9" in process.stderr.read() and process.wait() == 137


def test_a_script_is_steered_by_what_is_typed(box: SshHost):
    (box.home / "train.py").write_text(TRAINS)
    near, far = pty.openpty()
    with terminal("gpubox", "train.py", stdin=far) as process:
        address_of(process)
        assert process.stderr is not None and process.stdout is not None
        assert "type pause, resume" in process.stderr.readline()
        process.stdout.readline()
        for typed, answer in (
            ("pause", "pause: at step"),
            ("lr 0.25", "lr 0.25: done"),
            ("lr fast", "lr fast is no command; there are pause"),
            ("step", "step: at step"),
            ("save", "save: /"),
            ("stop", "stop: at step"),
        ):
            os.write(near, f"{typed}\n".encode())
            assert answer in process.stderr.readline()
        assert process.wait() == 130  # as after Ctrl+C there
    os.close(near)
    os.close(far)


def test_a_file_there_that_holds_no_frames_is_refused(box: SshHost):
    os.mkfifo(box.home / "pipe.jsonl")
    (box.home / "folder.jsonl").mkdir()
    for name, says in (("pipe", "is no file"), ("folder", "is no file")):
        path = Path(elsewhere.frames_here(f"gpubox:{name}.jsonl"))
        *_, last = follow(path, every=0.01)
        assert isinstance(last, Failed) and says in last.message


def test_frames_there_are_data(box: SshHost):
    """What a hostile file says of sockets and paths is not heeded, and half a line is none."""
    started = {"event": "started", "device": "cpu", "parameters": 1}
    lines = [
        json.dumps(started),
        '{"event": "step", "epoch": 1, "step": 1, "loss": 0.5, "socket": "/tmp/x"}',
        "\x1b[31m {",
        '{"event": "step", "epoch": 1, "step": 2, "loss": 0.25}',
        '{"event": "finished", "reason": "done", "epoch": 1, "steps": 2}',
    ]
    file = box.home / "lines.jsonl"
    file.write_text("\n".join(lines) + '\n{"event": "st')
    path = Path(elsewhere.frames_here("gpubox:lines.jsonl"))
    losses = [e.loss for e in follow(path, every=0.01) if isinstance(e, StepDone)]
    assert losses == [0.5, 0.25]
    assert path.read_text() == "\n".join(lines) + "\n"


def test_what_is_no_place_is_a_file_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a:b.jsonl").touch()
    assert elsewhere.frames_here("a:b.jsonl") == "a:b.jsonl"
    assert elsewhere.frames_here("C:\\lines.jsonl") == "C:\\lines.jsonl"
    with pytest.raises(PlaceError, match="gpubox is no place"):
        elsewhere.frames_here("gpubox:lines.jsonl")
    assert main(["gpubox:lines.jsonl"]) == 1
