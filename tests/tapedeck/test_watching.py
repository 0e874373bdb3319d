"""A script that is watched computes what it would alone, and what is told of it is what it computed."""

from __future__ import annotations

import json
import math
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import tapedeck
from app.engine.watched import frame_types
from app.engine.watched.follow import follow
from app.engine.watched.script_link import ScriptLink
from app.training.events import (
    Finished,
    GradientNorms,
    GroupRates,
    LossParts,
    Noticed,
    Started,
    StepDone,
)
from tapedeck import commands, frames, watcher, watching
from tests.support.forked_python import run_replaced
from tests.tapedeck import loops

ROOT = Path(__file__).resolve().parents[2]
PLAIN = """
import os, signal, sys
print(sys.argv, sys.path[0], __name__, __file__, sorted(globals()), repr(__spec__), sys.stdin.read())
def fail():
    try:
        {}["x"]
    except KeyError as error:
        raise ValueError("more") from error
if "exit" in sys.argv: sys.exit(7)
if "kill" in sys.argv: os.kill(os.getpid(), signal.SIGINT)
fail()
"""


@pytest.fixture(autouse=True)
def at_every_step(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(watcher, "NORMS", (0.0, math.inf))
    monkeypatch.setattr(watcher, "TURN_EVERY", 0.0)
    yield
    for made in watching._now:
        made.stop()


def told(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("loop", loops.LOOPS, ids=lambda loop: loop.__name__)
def test_losses_and_norms_are_those_of_the_script(loop, tmp_path):
    torch.manual_seed(3)
    alone = list(loop())
    random = torch.get_rng_state()
    torch.manual_seed(3)
    with tapedeck.watch(folder=tmp_path, quiet=True) as watch:
        watched = list(loop())
    assert [loss.hex() for loss, _ in watched] == [loss.hex() for loss, _ in alone]
    assert (
        torch.equal(torch.get_rng_state(), random)
        and torch.autograd.backward.__name__ == "backward"
    )
    assert not hasattr(torch.autograd.backward, "__wrapped__")

    found = told(watch.frames)
    assert [each["loss"] for each in found if each["event"] == "step"] == [
        loss for loss, _ in alone
    ]
    seen = {each["step"]: each["norms"] for each in found if each["event"] == "norms"}
    for step, (_, norms) in enumerate(alone, 1):
        if (
            loop in (loops.gan, loops.cleared_by_another, loops.inside_backward)
            and step == 1
        ):
            continue  # the second optimizer was not known yet
        told_norms = [math.nan if norm is None else norm for norm in seen[step]]
        assert told_norms == pytest.approx(norms, rel=1e-6, nan_ok=True), step
    if loop is loops.gan:
        parts = [each for each in found if each["event"] == "losses"]
        assert (
            len(parts) == loops.STEPS
            and {"loss_judging", "loss_making"} <= parts[0].keys()
        )
    if loop is loops.scaled:
        assert [each["step"] for each in found if each["event"] == "skipped"] == [3]
    if loop in loops.SKIPPING:
        reasons = {
            each["step"]: each["reason"] for each in found if each["event"] == "skipped"
        }
        assert "a batch before step 1 without a step (loss nan)" in reasons.pop(1)
        assert (
            reasons.keys() == {3}
            and "2 batches before step 3" in reasons[3]
            and "(loss nan, nan)" in reasons[3]
        )
    if loop is loops.plain:
        rates = [each["rate"] for each in found if "rate" in each]
        assert rates == [0.1, 0.05, 0.025]


def test_steps_that_wait_to_be_written_are_told_as_at_once(tmp_path, monkeypatch):
    def steps(folder: str) -> list[dict]:
        torch.manual_seed(3)
        with tapedeck.watch(folder=tmp_path / folder, quiet=True) as watch:
            for loop in loops.LOOPS:
                list(loop())
        kinds = ("step", "losses", "rates", "skipped", "finished")
        found = [each for each in told(watch.frames) if each["event"] in kinds]
        return [
            {name: value for name, value in each.items() if name != "seconds"}
            for each in found
        ]

    at_once = steps("at once")
    monkeypatch.setattr(watcher, "NORMS", (math.inf, math.inf))
    monkeypatch.setattr(watcher, "TURN_EVERY", math.inf)
    assert steps("together") == at_once


def test_the_window_reads_what_is_told(tmp_path):
    with tapedeck.watch(folder=tmp_path, quiet=True) as watch:
        losses = [loss for loss, _ in loops.gan()]
    events = list(follow(watch.frames, every=0.01))
    steps = [event for event in events if isinstance(event, StepDone)]
    assert [event.loss for event in steps] == losses and steps[-1].seconds > steps[
        0
    ].seconds
    assert {event.rate for event in steps} == {0.01}
    (started,) = [event for event in events if isinstance(event, Started)]
    assert started.steps_per_epoch == 0 and started.parameters == 37
    assert any(
        "making: 52 parameters" in event.message
        for event in events
        if isinstance(event, Noticed)
    )
    norms = [event for event in events if isinstance(event, GradientNorms)]
    assert len(norms) >= len(losses) and norms[-1].layers == (
        "judge.0.0",
        "judge.1.0",
        "maker.0.0",
        "maker.1.0",
    )
    assert [event for event in events if isinstance(event, LossParts)][-1].outputs == (
        "judging",
        "making",
    )
    assert [event for event in events if isinstance(event, GroupRates)][-1].rates == (
        0.01,
        0.02,
    )
    assert events[-1] == Finished("done", 1, loops.STEPS, events[-1].seconds, "")


@pytest.mark.skipif(os.name != "posix", reason="a process is replaced by another")
@pytest.mark.parametrize(
    "words", [["a", ""], ["exit"], ["kill"]], ids=["raises", "exits", "is interrupted"]
)
def test_a_script_ends_as_it_would_alone(words, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PLAIN)

    def ran(*command: str) -> tuple[int, str, str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, *command, script.name, *words],
            input="hello",
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    assert ran(str(ROOT / "tapedeck" / "script.py"), str(tmp_path)) == ran()
    last = told(tmp_path / frames.FRAMES)[-1]
    assert last["event"] == ("failed" if words[0] == "a" else "finished")


ENDING = """
import os, sys, threading
def step():
    import torch
    net = torch.nn.Linear(2, 1)
    net(torch.ones(1, 2)).sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    raise ValueError("no more data")
def help(): raise OSError("no room")
def run(function):
    thread = threading.Thread(target=function, name="helper")
    thread.start()
    thread.join()
if "worker" in sys.argv: run(step)
if "helper" in sys.argv: run(help)
if "exit" in sys.argv: sys.exit(7)
if "message" in sys.argv: sys.exit("no data")
if "at once" in sys.argv: os._exit(7)
"""
BY_HAND = """
import tapedeck, torch
watch = tapedeck.watch(folder=".", quiet=True)
raise ValueError("no more data")
"""
ENDS = {
    "exit": (7, "stopped", "The script exited with 7."),
    "message": (1, "stopped", "The script exited with 1: no data"),
    "at once": (7, "stopped", "The script exited with 7."),
    "worker": (0, "", "ValueError: no more data (in the thread helper)"),
    "helper": (0, "done", ""),
}


@pytest.mark.parametrize("way", ENDS)
def test_how_a_script_ends_is_told(way, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(ENDING)
    launcher, environment = str(ROOT / "tapedeck/script.py"), {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, launcher, str(tmp_path), str(script), way],
        capture_output=True,
        env=os.environ | environment,
        check=False,
    )
    status, reason, text = ENDS[way]
    assert done.returncode == status
    frame = told(tmp_path / frames.FRAMES)[-1]
    assert frame.get("reason", "") == reason
    assert frame.get("note", frame.get("message", "")) == text
    if way == "helper":
        said = [each.get("message") for each in told(tmp_path / frames.FRAMES)]
        assert "The thread helper ended with OSError: no room" in said


def test_an_exception_ends_a_script_that_watches_itself(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", BY_HAND],
        capture_output=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    frame = told(tmp_path / frames.FRAMES)[-1]
    assert done.returncode == 1
    assert (frame["event"], frame["message"]) == ("failed", "ValueError: no more data")


@pytest.mark.skipif(os.name != "posix", reason="a process is replaced by another")
def test_the_command_runs_a_script_of_several_loops(tmp_path):
    script = Path(loops.__file__)
    done = run_replaced(tmp_path, str(script), "--lr", "", cwd=ROOT, given=b"hello")
    assert done.returncode == 1 and "['--lr', ''] hello __main__" in done.stdout
    said, *trace = done.stderr.splitlines()
    assert trace[0].startswith("Traceback") and trace[-1] == "KeyError: 'the end'"
    for loop, line in zip(loops.LOOPS, done.stdout.splitlines(), strict=False):
        torch.manual_seed(3)
        assert line.split()[1:-1] == [loss.hex() for loss, _ in loop()], loop.__name__
    path = Path(said.partition("watched in ")[2])
    assert frames.newest() == path and frames.is_private(path.parent)
    assert told(path)[-1]["message"] == "KeyError: 'the end'"


class Script(threading.Thread):
    """Steps until it is told to end; `waits` is set by the script while a step is under way."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 10**6, 0.1)
        self.ending = threading.Event()
        self.rates: list[float] = []
        self.watch = tapedeck.watch(
            {"model": self.model}, self.optimizer, folder=folder, quiet=True
        )

    def run(self) -> None:
        while not self.ending.is_set():
            self.optimizer.zero_grad()
            self.model(torch.ones(4, 3)).mean().backward()
            self.rates.append(self.optimizer.param_groups[0]["lr"])
            self.optimizer.step()
            self.schedule.step()
        self.watch.stop()


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    tmp_path.chmod(0o700)
    made = Script(tmp_path)
    yield made
    made.ending.set()
    made.join(300)
    assert not made.is_alive()


def asked(link: ScriptLink, do: str, **fields: object) -> dict:
    future = link.send(do, **fields)
    while not future.done():
        link.poll()
        threading.Event().wait(0.002)
    return future.result()


def reach(link: ScriptLink, step: int) -> None:
    while (asked(link, "ping"))["step"] < step:
        pass


def test_commands_act_between_two_steps(script, tmp_path):
    path = frames.socket_path(tmp_path)
    assert (
        stat.S_IMODE(path.stat().st_mode) == 0o600
        and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    )
    link = ScriptLink(script.watch.folder)
    paused = link.send("pause")
    script.start()
    while not paused.done():
        link.poll()
    assert paused.result()["step"] == 1 and asked(link, "ping") == {
        "id": 3,
        "ok": True,
        "step": 1,
        "paused": True,
    }
    asked(link, "step")
    reach(link, 2)
    assert asked(link, "ping")["paused"] and len(script.rates) == 2

    assert asked(link, "rate", rate=0.25)["before"] == 0.5
    with pytest.raises(Exception, match="above 0"):
        asked(link, "rate", rate=-1)
    with pytest.raises(Exception, match="no parameter group other"):
        asked(link, "rate", rate=1.0, group="other")
    saved = torch.load(
        asked(link, "save", path=str(tmp_path / "now.pt"))["path"], weights_only=True
    )
    assert (
        torch.equal(saved["models"]["model"]["weight"], script.model.weight)
        and saved["step"] == 2
    )
    with pytest.raises(Exception, match="is a folder"):
        asked(link, "save", path=str(tmp_path))

    batch = link.send("batch")
    asked(link, "step")
    while not batch.done():
        link.poll()
    (given,) = batch.result()["args"]
    assert (
        given["shape"] == [4, 3] and given["dtype"] == "float32" and given["max"] == 1.0
    )
    reach(link, 3)
    assert script.rates == [0.5, 0.5, 0.25] and script.schedule.base_lrs == [0.25]
    asked(link, "resume")
    reach(link, 5)
    link.close()


def test_a_window_that_is_killed_or_hangs_holds_no_script(script, monkeypatch):
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        's.sendall(b\'{"do": "pause", "id": 1}\\n\'); print(s.recv(99), flush=True); input()'
    )
    path = str(frames.socket_path(script.watch.folder))
    window = subprocess.Popen(
        [sys.executable, "-c", code, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    script.start()
    assert b"ok" in window.stdout.readline()
    taken = len(script.rates)
    window.send_signal(signal.SIGKILL)
    window.communicate()
    link = ScriptLink(script.watch.folder)
    reach(link, taken + 3)

    monkeypatch.setattr("tapedeck.actions.SILENCE", 0.05)
    asked(link, "pause")
    taken = len(script.rates)
    second = ScriptLink(script.watch.folder)  # and the first says nothing any more
    reach(second, taken + 3)
    second.close()
    link.close()


def test_nonsense_is_answered_or_dropped_and_the_script_goes_on(script):
    link = ScriptLink(script.watch.folder)
    script.start()
    link._socket.sendall(b"\xff\x00 nonsense\n[1]\n" + b'{"do": "fly", "id": 77}\n')
    reach(link, 2)
    flood = ScriptLink(script.watch.folder)
    try:
        flood._socket.sendall(b"x" * (4 * commands.LONGEST))
    except OSError:
        pass  # it was hung up on
    reach(link, len(script.rates) + 2)
    link.close()
    flood.close()


def test_an_error_of_the_watching_ends_the_watching_alone(tmp_path, monkeypatch):
    def broken(*_given: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(watcher.Watcher, "after_step", broken)
    watch = tapedeck.watch(folder=tmp_path, quiet=True)
    assert len(list(loops.plain())) == loops.STEPS
    assert "broken" in told(watch.frames)[-1]["note"] and not hasattr(
        torch.autograd.backward, "__wrapped__"
    )


def test_another_rank_speaks_when_it_is_asked_to(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    tmp_path.chmod(0o700)
    made = Script(tmp_path)
    link = ScriptLink(made.watch.folder)
    made.start()
    reach(link, 3)
    assert {each["event"] for each in told(made.watch.frames)} == {"script"} and told(
        made.watch.frames
    )[0]["rank"] == 1
    asked(link, "speak")
    asked(link, "pause")
    asked(link, "resume")
    made.ending.set()
    made.join(300)
    assert {"script", "started", "layers", "step"} <= {
        each["event"] for each in told(made.watch.frames)
    }
    link.close()


def test_what_says_no_secret_is_hung_up_on(tmp_path, monkeypatch):
    """Where there are no Unix sockets."""
    monkeypatch.delattr(commands.socket, "AF_UNIX")
    listening = commands.CommandSocket(tmp_path)
    file = tmp_path / frames.PORT
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    right = ScriptLink(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / frames.PORT).write_bytes(file.read_bytes()[:6] + b"0" * 64)
    (other / frames.PORT).chmod(0o600)
    wrong = ScriptLink(other)
    answer, refused = right.send("ping"), wrong.send("ping")
    while not (answer.done() and refused.done()):
        for client, command in listening.poll(0.01):
            client.answer(command["id"], ok=True)
        right.poll()
        wrong.poll()
    assert answer.result()["ok"] and refused.exception() is not None
    for each in (right, wrong, listening):
        each.close()


def test_a_cell_of_a_notebook_leaves_no_step_untold(tmp_path, monkeypatch):
    """IPython is no dependency: what it calls after a cell is called here."""
    called: list = []
    events = SimpleNamespace(
        register=lambda _name, f: called.append(f),
        unregister=lambda _name, f: called.remove(f),
    )
    monkeypatch.setitem(
        sys.modules,
        "IPython",
        SimpleNamespace(get_ipython=lambda: SimpleNamespace(events=events)),
    )
    monkeypatch.setattr(sys, "argv", ["/x/ipykernel_launcher.py", "-f", "kernel.json"])
    monkeypatch.setattr(watcher, "TURN_EVERY", math.inf)
    watch = tapedeck.watch(folder=tmp_path, quiet=True)
    list(loops.plain())
    called[0](None)
    found = told(watch.frames)
    assert sum(each["event"] == "step" for each in found) == loops.STEPS and found[0][
        "argv"
    ] == ["notebook"]
    assert repr(watch) == f"<Watch: tapedeck {watch.frames}>"
    watch.stop()
    assert not called and "has ended" in repr(watch)


@pytest.mark.parametrize("loop", loops.LOOPS, ids=lambda loop: loop.__name__)
def test_each_line_of_a_script_is_a_frame_that_the_window_takes(loop, tmp_path):
    """Also of a script whose words no file can hold."""
    with tapedeck.watch(folder=tmp_path, quiet=True) as watch:
        list(loop())
        watch._watcher.say("half a pair: \ud800")
        watch.failed(ValueError("x" * 100_000))
    kinds = {
        type(frame_types.decode(line)).__name__.lower()
        for line in watch.frames.read_bytes().splitlines()
    }
    assert {
        "script",
        "started",
        "layers",
        "step",
        "norms",
        "memory",
        "looking",
        "said",
        "failed",
    } <= kinds
    events = list(follow(watch.frames, every=0.01))
    assert not [
        event
        for event in events
        if isinstance(event, Noticed) and "not a line" in event.message
    ]


def test_a_script_that_updates_by_itself_is_said_to_have_no_steps(tmp_path):
    weight = torch.ones(3, requires_grad=True)
    with tapedeck.watch(folder=tmp_path, quiet=True) as watch:
        for _ in range(watcher.UNSTEPPED + 5):
            weight.square().sum().backward()
            with torch.no_grad():
                weight -= 0.01 * weight.grad
            weight.grad = None
    said = [each["message"] for each in told(watch.frames) if each["event"] == "said"]
    assert len(said) == 1 and "no optimizer of torch has stepped" in said[0]
    assert any(isinstance(event, Noticed) for event in follow(watch.frames, every=0.01))


@pytest.mark.skipif(os.name != "posix", reason="a signal is sent to a process")
def test_a_script_is_interrupted_as_by_ctrl_c(tmp_path):
    code = (
        "import torch, tapedeck, sys\n"
        "weight = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(weight.parameters(), 0.1)\n"
        "with tapedeck.watch(folder=sys.argv[1], quiet=True):\n"
        "    while True:\n"
        "        weight(torch.ones(1, 2)).sum().backward(); optimizer.step()\n"
    )
    tmp_path.chmod(0o700)
    running = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    path = frames.socket_path(tmp_path)
    while not path.exists():
        assert running.poll() is None
        threading.Event().wait(0.01)
    link = ScriptLink(tmp_path)
    assert asked(link, "interrupt")["ok"]
    _, trace = running.communicate()
    assert running.returncode == -signal.SIGINT and trace.rstrip().endswith(
        "KeyboardInterrupt"
    )
    assert str(ROOT / "tapedeck") not in trace and str(ROOT / "app") not in trace
    assert told(tmp_path / frames.FRAMES)[-1]["note"] == "The script was interrupted."
    link.close()
