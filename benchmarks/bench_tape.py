"""What recording all gradient norms costs a training step (aim: at most 1.10 of it), what it costs once it is off, and
how long a backward pass takes that is played node by node.

Recorded are two nets: the bundled MNIST net at the batch size of its project, and torchvision's resnet18 at batch 16,
on noise of the right shape. A figure is the CPU time that the process takes for a step with the recorder on by that of
a plain step, measured in turns in the same process, step by step: what the machine does beside meets both alike.

Played are torchvision's resnet152 on two pictures of 32x32 and chains of 5,000 and 20,000 multiplications, by a number
and by a weight: the CPU time of the whole pass on one thread, every gradient measured, by that of a plain backward.
Once more in an engine, by the clock, against a thread of this process.

    python benchmarks/bench_tape.py [short]
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import _jobs
from _report import Figure, in_turns, publish

ROUNDS = 15
# Steps that make a round: those of a small net are short.
NETS = {"MNIST net": 20, "resnet18 at batch 16": 1}


def stepper(name: str) -> Callable[[bool], float]:
    """step(recorded) trains one of `_jobs.NETS` by a batch of noise and answers the CPU seconds that it took."""
    import torch
    from torch.nn import functional as F

    from app.autograd.playback.recording import record
    from app.builder.analysis import analyse
    from app.project.custom_layers import ops_of
    from app.source.compiled import make_module

    project = _jobs.NETS[name][0]()
    source = analyse(project.graph, ops_of(project)).source
    torch.manual_seed(0)
    model = make_module(source)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(project.training.batch_size, *source.inputs[0].shape)
    y = torch.randint(0, 10, (len(x),))

    def step(recorded: bool) -> float:
        started = time.process_time()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if recorded:
            with record(loss) as recorder:
                loss.backward()
            recorder.finish()
        else:
            loss.backward()
        optimizer.step()
        return time.process_time() - started

    for recorded in (False, True, False):
        step(recorded)  # warm-up
    return step


def by_round(steps: Sequence[float], size: int) -> tuple[float, ...]:
    """The mean step of each round of `size`."""
    return tuple(sum(steps[at : at + size]) / size for at in range(0, len(steps), size))


def measured(name: str, rounds: int) -> list[Figure]:
    """The figures of one net. Off is the same step once more, on a model that was recorded right before it."""
    never, step = stepper(name), stepper(name)
    size = NETS[name]
    pairs = (
        in_turns(lambda: step(True), lambda: step(False), rounds * size),
        in_turns(lambda: step(False), lambda: never(False), rounds * size),
    )
    (on, plain), (off, untouched) = (
        (by_round(ours, size), by_round(theirs, size)) for ours, theirs in pairs
    )
    return [
        Figure(
            f"{name}: a step with all gradient norms recorded", "CPU s", on, plain, 1.10
        ),
        Figure(
            f"{name}: a step with the recorder off again, against a net never recorded",
            "CPU s",
            off,
            untouched,
        ),
    ]


def chain(length: int, weighted: bool) -> Any:
    """A net of `length` multiplications in a row, by a number or by a weight."""
    import torch
    from torch import nn

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((4,), 1.0001))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            factor = self.weight if weighted else 1.0001
            x = x * self.weight
            for _ in range(length):
                x = x * factor
            return x

    return Chain()


def resnet152() -> Any:
    from app.util.torchvision_import import import_torchvision

    return import_torchvision("models").resnet152()


# Name: the net, and the shape of its input.
PLAYED: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "resnet152": (resnet152, (2, 3, 32, 32)),
    "chain of 5,000": (lambda: chain(5_000, False), (2, 4)),
    "chain of 20,000": (lambda: chain(20_000, False), (2, 4)),
    "chain of 20,000 with a weight in each": (lambda: chain(20_000, True), (2, 4)),
}


def played(name: str, rounds: int) -> Figure:
    """A whole pass of one of `PLAYED`, played, against a plain backward of the same graph."""
    import torch

    from app.autograd.batch import TrainingBatch
    from app.autograd.playback.playback import Playback

    make, shape = PLAYED[name]
    torch.set_num_threads(1)  # threads that wait for one another would count
    torch.manual_seed(0)
    x = torch.randn(shape)
    with TrainingBatch(make(), x, lambda out, _target: out.sum()).hold() as graph:
        playback = Playback(graph)

        def play() -> float:
            playback.seek(0)
            started = time.process_time()
            playback.run()
            return time.process_time() - started

        def backward() -> float:
            started = time.process_time()
            graph.ends[0].backward(retain_graph=True)
            return time.process_time() - started

        backward()  # warm-up
        ours, theirs = in_turns(play, backward, rounds)
        return Figure(
            f"{name}: all {len(playback):,} nodes played", "CPU s", ours, theirs
        )


CHAIN = 5_000
CHAIN_TEXT = f"""import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 1.0001))

    def forward(self, x):
        x = x * self.weight
        for _ in range({CHAIN}):
            x = x * 1.0001
        return x
"""


def in_engine(rounds: int) -> Figure:
    """A chain of multiplications played at full speed in an engine, as the window hears of it, against the same on a
    thread of this process, which is how it was played before there were engines."""
    from app.autograd.capture_options import CaptureOptions
    from app.autograd.playback.steps import Breaks
    from app.engine.client import Engine
    from app.engine.requests.capture import CaptureRequest
    from app.engine.requests.playback import (
        GraphHeld,
        MovementEnded,
        Play,
        PlaybackRequest,
        Steps,
    )
    from app.engine.tasks.capture import batch_of
    from app.engine.tasks.playback import PlaybackSession
    from app.source.generated import InputSpec, Source
    from app.training.job import Job

    source = Source(CHAIN_TEXT, (InputSpec("x", (4,)),), ("y",))
    request = PlaybackRequest(
        CaptureRequest(Job(source), options=CaptureOptions("random", 2, loss=False))
    )
    engine, heard, mine = Engine(), queue.SimpleQueue[Any](), queue.SimpleQueue[Any]()
    session = PlaybackSession(request, mine.put, lambda: batch_of(request.batch).hold())
    threading.Thread(target=session.run, daemon=True).start()
    question = engine.ask(request, heard.put)

    def play(send: Callable[[Any], None], events: queue.SimpleQueue[Any]) -> float:
        """Seconds of the clock until the last step is there as an object."""
        started, steps = time.perf_counter(), 0
        send(Play(Breaks(), again=True))
        while not isinstance(event := events.get(), MovementEnded):
            steps += len(event.records) if isinstance(event, Steps) else 0
        assert steps >= CHAIN
        return time.perf_counter() - started

    for events in (heard, mine):
        while not isinstance(events.get(), GraphHeld):
            pass
    ours, theirs = in_turns(
        lambda: play(question.send, heard), lambda: play(session.submit, mine), rounds
    )
    engine.close()
    return Figure(
        f"chain of {CHAIN:,}: played in an engine, against a thread of this process",
        "s",
        ours,
        theirs,
    )


def main(arguments: list[str]) -> None:
    rounds = 3 if "short" in arguments else ROUNDS
    recorded = [figure for name in NETS for figure in measured(name, rounds)]
    publish(
        "tape",
        [
            *recorded,
            *(played(name, min(rounds, 3)) for name in PLAYED),
            in_engine(rounds),
        ],
    )


if __name__ == "__main__":
    main(sys.argv[1:])
