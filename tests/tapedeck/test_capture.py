"""A script whose steps are captured and played computes what it would alone, and what is played is what it computes."""

from __future__ import annotations

import contextlib
import io
import os
import queue
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import tapedeck
from app.autograd.playback.steps import Breaks
from app.engine.protocol import EngineDiedError, Handle, HandleLostError
from app.engine.requests.capture import CapturedStep, HeldStep
from app.engine.requests.findings import FindingsRequest
from app.engine.requests.playback import (
    MovementEnded,
    Play,
    PlaybackRequest,
    Seek,
)
from app.engine.watched.script_engine import ScriptEngine
from app.engine.watched.script_link import ScriptLink
from tapedeck import program
from tapedeck.frames import socket_path
from tests.support.forked_python import run_forked
from tests.tapedeck import loops
from tests.tapedeck.test_watching import (  # noqa: F401
    Script,
    asked,
    at_every_step,
    reach,
    script,
    told,
)

ROOT = Path(__file__).resolve().parents[2]


class Doubling(torch.autograd.Function):
    """Gives away what it keeps in its `ctx`, and draws."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.factor = [2.0]
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        factor = ctx.factor[0]
        del ctx.factor
        return (
            gradient
            * factor
            * (1 + 0 * (torch.rand(()) + numpy.random.rand() + random.random()))
        )


def with_state() -> Iterator[tuple[float, Any]]:
    """Keeps all the state that a second backward over the same graph would change."""
    random.seed(5)
    numpy.random.seed(5)
    part = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Tanh())
    head = nn.Linear(8, 1)
    seen: list[float] = []
    head.weight.register_hook(lambda gradient: seen.append(float(gradient.norm())))
    head.bias.register_post_accumulate_grad_hook(
        lambda leaf: seen.append(float(leaf.grad.norm()))
    )
    head.register_full_backward_hook(
        lambda _module, _inputs, outputs: seen.append(float(outputs[0].norm()))
    )
    optimizer = torch.optim.SGD([*part.parameters(), *head.parameters()], 0.1)
    for _ in range(loops.STEPS):
        inside = Doubling.apply(
            checkpoint(part, torch.randn(7, 5, requires_grad=True), use_reentrant=False)
        )
        inside.register_hook(lambda gradient: seen.append(float(gradient.norm())))
        inside.retain_grad()
        loss = head(inside).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        drawn = (random.random(), numpy.random.rand())
        yield (
            loss.item(),
            (
                len(seen),
                sum(seen),
                inside.grad.sum().item(),
                part[1].running_var.sum().item(),
                drawn,
            ),
        )


class Window:
    """Asks for captures as a window does, and pings meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.link = folder, ScriptLink(folder)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._ended.wait(0.002):
            self.link.poll()

    def hold(self, capture: Any) -> tuple[ScriptEngine, HeldStep, CapturedStep]:
        answer = capture.result(60)
        engine = ScriptEngine(self.folder)
        held = HeldStep(Handle(1, 1), answer["script"], answer["step"])
        return engine, held, engine.ask(held).result(60)

    def play(self, engine: ScriptEngine, held: HeldStep, step: CapturedStep) -> None:
        """Play to the end, half of the way back, and to the end again."""
        events: queue.Queue[Any] = queue.Queue()
        playing = engine.ask(PlaybackRequest(held, step.tape), events.put)
        for command in (
            Play(Breaks()),
            Seek(len(step.tape.order) // 2),
            Play(Breaks()),
        ):
            playing.send(command)
            while not isinstance(event := events.get(timeout=300), MovementEnded):
                continue
        assert event.stop.reason == "end", event

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.link.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Window]]:
    """Opens windows, and closes them if the test fails: a script would stand for as long as they are there."""
    monkeypatch.setattr(
        "tapedeck.capture.SILENCE", 600.0
    )  # a machine that stands still is no window that hangs
    windows: list[Window] = []

    def open_one(folder: Path) -> Window:
        windows.append(Window(folder))
        return windows[-1]

    yield open_one
    for window in windows:
        window.close()


class Backwards:
    """The gradients of every backward of a script by the leaf, and those that were played before it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.own: list[dict[int, torch.Tensor]] = []
        self.played: list[tuple[int, dict[int, torch.Tensor]]] = []
        self.watch: tapedeck.Watch | None = None
        self._backward = torch.autograd.backward
        monkeypatch.setattr(torch.autograd, "backward", self._run)
        kind: Any = program.module("autograd.playback.playback").Playback
        self._release = kind.release
        monkeypatch.setattr(kind, "release", lambda playback: self._note(playback))

    def _note(self, playback: Any) -> None:
        graph, found = playback.graph, playback.leaf_gradients
        if found and playback.position == len(playback):
            leaves = {
                id(graph.nodes[node].variable): gradient.clone()
                for node, gradient in found.items()
            }
            self.played.append((len(self.own), leaves))
        self._release(playback)

    def _run(self, tensors: Any, *args: Any, **kwargs: Any) -> None:
        assert self.watch is not None and self.watch._watcher is not None
        if self.watch._watcher.actions.capturing.standing:
            return self._backward(tensors, *args, **kwargs)
        states = self.watch._watcher.states.values()
        leaves = [leaf for state in states for leaf in state.layers.parameters]
        before = [leaf.grad for leaf in leaves]
        for leaf in leaves:
            leaf.grad = None
        self._backward(tensors, *args, **kwargs)
        self.own.append(
            {id(leaf): leaf.grad.clone() for leaf in leaves if leaf.grad is not None}
        )
        for leaf, held in zip(leaves, before, strict=True):
            if held is not None:
                leaf.grad = held if leaf.grad is None else held.add_(leaf.grad)


@pytest.mark.parametrize(
    "loop", [*loops.LOOPS, with_state], ids=lambda loop: loop.__name__
)
def test_every_backward_is_captured_played_and_that_of_the_script(
    loop, tmp_path, monkeypatch, opened
):
    tmp_path.chmod(0o700)
    torch.manual_seed(3)
    alone = [(loss.hex(), repr(more)) for loss, more in loop()]
    random_state = torch.get_rng_state()
    torch.manual_seed(3)
    backwards = Backwards(monkeypatch) if loop is not with_state else None
    watch = tapedeck.watch(folder=tmp_path, quiet=True)
    if backwards is not None:
        backwards.watch = watch
    window, watched, notes, names = opened(watch.folder), [], [], set()
    capture = window.link.send("capture")

    def run() -> None:
        watched.extend((loss.hex(), repr(more)) for loss, more in loop())
        watch.stop()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while True:
        try:
            engine, held, step = window.hold(capture)
        except Exception as error:
            assert "ended before it called backward again" in str(error)
            break
        assert step.tape.loss is not None
        if (
            held.step == loops.STEPS
        ):  # those of a GAN have other names once its second optimizer is known
            own = [
                node
                for node in step.tape.nodes
                if not node.is_leaf and node.name != "DoublingBackward"
            ]
            assert all(node.line and (node.call or node.in_loss) for node in own), (
                step.tape.nodes
            )
        notes.append(step.notes)
        names |= {name for node in step.tape.nodes for name in node.parameters}
        window.play(engine, held, step)
        capture = window.link.send("capture")  # by which the script goes on
        engine.close()
    thread.join(300)
    window.close()
    assert not thread.is_alive() and watched == alone
    assert (
        torch.equal(torch.get_rng_state(), random_state)
        and not torch._C._len_torch_function_stack()
    )
    assert len(notes) >= loops.STEPS - 1
    if backwards is not None:
        assert len(backwards.played) == len(notes)
        for place, leaves in backwards.played:
            own = backwards.own[place]
            assert own.keys() <= leaves.keys() and all(
                same(own[leaf], leaves[leaf]) for leaf in own
            )
    said = " ".join(notes[-1])
    assert ("the loss is scaled by" in said) == (loop is loops.scaled)
    assert ("hook" in said) == (loop is with_state)
    if loop is loops.gan:
        assert {"judge.0.0.weight", "maker.1.0.bias"} <= names


def test_a_capture_has_the_layers_and_lines_of_the_script(script, opened):
    window = opened(script.watch.folder)
    capture = window.link.send("capture")
    script.start()
    engine, held, step = window.hold(capture)
    assert held.step == 2 and held.script
    by_name = {node.name: node for node in step.tape.nodes}
    addmm, mean = by_name["AddmmBackward0"], by_name["MeanBackward0"]
    assert (
        dict(step.tape.layers) == {"": "Linear"}
        and step.tape.input_shapes == ((4, 3),)
        and step.tape.train
    )
    assert mean.in_loss and not addmm.in_loss and addmm.call == 1
    assert (
        step.tape.code_of(mean)
        == step.tape.code_of(addmm)
        == "self.model(torch.ones(4, 3)).mean().backward()"
    )
    assert {node.parameters for node in step.tape.nodes if node.is_leaf} == {
        ("weight",),
        ("bias",),
    }
    with pytest.raises(Exception, match="runs the batch again"):
        engine.ask(FindingsRequest(held)).result(60)

    taken = len(script.rates)
    second = ScriptLink(script.watch.folder)
    with pytest.raises(Exception, match="Another client is connected"):
        asked(second, "engine")
    assert (
        asked(second, "rate", rate=0.25)["before"] == 0.5
    )  # commands are heard meanwhile
    assert len(script.rates) == taken
    window.link.send("release").result(60)
    with pytest.raises((EngineDiedError, HandleLostError), match="has gone on|is gone"):
        while True:
            engine.ask(held).result(60)
    reach(second, taken + 3)
    with pytest.raises(Exception, match="not paused before a backward"):
        asked(second, "engine")

    asked(
        second, "pause"
    )  # then a capture takes it on to the next backward, and it pauses after that step
    at = asked(second, "ping")["step"]
    waits = window.link.send("capture")
    assert waits.result(60)["step"] == at + 1
    window.link.send("release").result(60)
    assert asked(second, "ping")["paused"]
    reach(second, at + 1)
    overtaken, held_again = Future[dict[str, Any]](), Future[dict[str, Any]]()
    window.link._waiting |= {901: overtaken, 902: held_again}
    window.link._socket.sendall(
        b'{"do": "capture", "id": 901}\n{"do": "capture", "id": 902}\n'
    )  # read at once
    with pytest.raises(Exception, match="another capture"):
        overtaken.result(60)
    assert held_again.result(60)["step"] > at
    window.close()
    engine.close()
    reach(second, at + 2)  # who asked is gone: the script goes on
    second.close()


def test_who_asks_and_never_looks_holds_no_script(script, monkeypatch):
    monkeypatch.setattr("tapedeck.capture.SILENCE", 0.05)
    link = ScriptLink(script.watch.folder)
    capture = link.send("capture")
    script.start()
    while not capture.done():
        link.poll()
    assert capture.result()["step"] == 2
    second = ScriptLink(script.watch.folder)  # and the first says nothing any more
    reach(second, 5)
    link.close()
    second.close()


def test_a_backward_that_cannot_be_described_is_said_and_runs(
    script, opened, monkeypatch
):
    def broken(*_given: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(program.module("autograd.step_graph"), "StepGraph", broken)
    window = opened(script.watch.folder)
    capture = window.link.send("capture")
    script.start()
    with pytest.raises(Exception, match="cannot be captured: broken"):
        capture.result(60)
    monkeypatch.setattr(program, "module", broken)
    with pytest.raises(Exception, match="cannot be imported by the script's Python"):
        window.link.send("capture").result(60)
    reach_with(window, 5)
    window.close()


def reach_with(window: Window, step: int) -> None:
    while window.link.send("ping").result(60)["step"] < step:
        continue


TRAIN = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 1))
optimizer = torch.optim.Adam(model.parameters())
for step in range(40):
    loss = model(torch.randn(5, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
"""
OWN = f"""
import os, sys, time, app
while not os.path.exists("begin"):
    time.sleep(0.01)
{TRAIN}
import app.late
print(app.__file__, app.late.VALUE, sys.modules["app"] is app)
"""
KILLED = """
import json, socket, sys
def connect():
    made = socket.socket(socket.AF_UNIX)
    made.connect(sys.argv[1])
    return made, made.makefile("rb")
link, answers = connect()
link.sendall(b'{"do": "capture", "id": 1}\\n')
print("asked", flush=True)
print(json.loads(answers.readline()), flush=True)
engine, said = connect()
engine.sendall(b'{"do": "engine", "id": 1}\\n')
print(json.loads(said.readline()), flush=True)
input()
"""


@pytest.mark.skipif(os.name != "posix", reason="a process is killed by a signal")
def test_a_window_that_is_killed_lets_the_script_go_on_and_its_package_app_is_its_own(
    tmp_path,
):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("")
    (tmp_path / "app" / "late.py").write_text("VALUE = 7")
    (tmp_path / "train.py").write_text(OWN)
    folder = tmp_path / "watched"
    folder.mkdir(mode=0o700)

    def started(*command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )

    watched = started(str(ROOT / "tapedeck" / "script.py"), str(folder), "train.py")
    frames = folder / "frames.jsonl"
    while not frames.exists() or not frames.read_text().endswith("\n"):
        assert watched.poll() is None
        threading.Event().wait(0.01)
    window = started("-c", KILLED, str(socket_path(folder)))
    assert window.stdout.readline() == "asked\n"
    (tmp_path / "begin").touch()
    assert (
        "'step': 2" in window.stdout.readline() and "True" in window.stdout.readline()
    )
    window.send_signal(signal.SIGKILL)
    window.communicate()
    output, _ = watched.communicate()
    alone = io.StringIO()
    with contextlib.redirect_stdout(alone):
        exec(TRAIN, {})
    assert watched.returncode == 0
    assert output == f"{alone.getvalue()}{tmp_path / 'app' / '__init__.py'} 7 True\n"
    assert {"paused", "resumed"} <= {each["event"] for each in told(frames)}


INTERRUPTED = f"""
import os, sys, time
while "watched" in sys.argv and not os.path.exists("begin"):
    time.sleep(0.01)
if "alone" in sys.argv:
    import signal, torch
    backward, calls = torch.autograd.backward, []
    def interrupted(*given, **named):
        calls.append(1)
        os.kill(os.getpid(), signal.SIGINT) if len(calls) == 3 else None
        return backward(*given, **named)
    torch.autograd.backward = interrupted
{TRAIN}
"""


@pytest.mark.skipif(os.name != "posix", reason="a process is interrupted by a signal")
def test_ctrl_c_ends_a_script_that_stands_as_it_would_alone(tmp_path, opened):
    (tmp_path / "train.py").write_text(INTERRUPTED)
    folder = tmp_path / "watched"
    folder.mkdir(mode=0o700)

    def started(*command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )

    launcher = str(ROOT / "tapedeck" / "script.py")
    watched = started(launcher, str(folder), "train.py", "watched")
    frames = folder / "frames.jsonl"
    while not frames.exists() or not frames.read_text().endswith("\n"):
        assert watched.poll() is None
        threading.Event().wait(0.01)
    window = opened(folder)
    capture = window.link.send("capture", step=3)
    (tmp_path / "begin").touch()
    engine, held, _ = window.hold(capture)
    assert held.step == 3
    watched.send_signal(signal.SIGINT)
    output, trace = watched.communicate()
    alone = run_forked(tmp_path / "train.py", "alone", cwd=tmp_path)
    assert (
        watched.returncode == -signal.SIGINT
        and output == alone.stdout
        and len(output.splitlines()) == 2
    )
    assert (
        trace.splitlines()[-1] == "KeyboardInterrupt" == alone.stderr.splitlines()[-1]
    )
    assert "loss.backward()" in trace and str(ROOT / "tapedeck") not in trace
    assert told(frames)[-1]["note"] == "The script was interrupted."
    with pytest.raises((EngineDiedError, HandleLostError)):
        engine.ask(held).result(60)
    engine.close()


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Return whether two gradients are equal, a NaN in the same places included."""
    return torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(
        ours.nan_to_num(), theirs.nan_to_num()
    )
