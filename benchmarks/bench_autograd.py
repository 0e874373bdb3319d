"""From a batch to its graph on the screen: reading the tape, laying it out and painting it, the forward pass excluded.

Aims: resnet152 within 100 ms folded and 250 ms unfolded, a chain of 20,000 nodes within 1 s, a frame within 16.7 ms
while panning. Beside it, in turns on the same loss, torchviz and `dot -Tsvg`. Times are of the processor (this process
and `dot`), so that what else the machine does counts less; those of the clock are printed too.

    python benchmarks/bench_autograd.py             everything
    python benchmarks/bench_autograd.py retained    the resident memory over 1,000 captures alone
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from _peer import Missing  # noqa: E402
from _report import OUT, Figure, percentile, publish  # noqa: E402

TORCHVIZ = "torchviz==0.0.3"
ROUNDS = 7
CHAIN = 20_000
FRAMES = 60
CAPTURES, SETTLED = 1_000, 200
WINDOW = (1600, 1000)


def torchviz() -> Any:
    """torchviz, from a folder of its own: it needs nothing but torch and graphviz, which are here. Raises Missing."""
    folder = OUT / "torchviz"
    if not (folder / "torchviz").exists():
        print(f"installing {TORCHVIZ} into {folder}", flush=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(folder),
            TORCHVIZ,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Missing((done.stderr.strip() or "pip failed").splitlines()[-1])
    sys.path.append(str(folder))
    return importlib.import_module("torchviz")


def processor() -> float:
    """Seconds of the processor that this process and those it waited for have used."""
    mine, theirs = (
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime


class Watch:
    """Milliseconds of the processor and of the clock, summed over what was timed."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0

    def time(self, work: Callable[[], Any], sign: int = 1) -> Any:
        gc.collect()
        gc.freeze()  # as the window does once torch is loaded
        wall, cpu = time.perf_counter(), processor()
        result = work()
        self.cpu += sign * 1000 * (processor() - cpu)
        self.wall += sign * 1000 * (time.perf_counter() - wall)
        return result


class Subject:
    """A net, a batch and a loss."""

    def __init__(self, name: str, model: Any, inputs: Any) -> None:
        self.name, self.model, self.inputs = name, model, inputs

    @staticmethod
    def loss(output: Any, _target: Any = None) -> Any:
        return output.sum()

    def forward(self) -> Any:
        return self.loss(self.model(self.inputs))

    def read(self) -> tuple[Any, Watch]:
        """The tape, and what reading it took beyond the forward pass itself."""
        from app.autograd.batch import TrainingBatch

        watch = Watch()
        watch.time(self.forward, -1)
        return watch.time(
            TrainingBatch(self.model, self.inputs, self.loss).capture
        ), watch


def resnet152() -> Subject:
    import torch

    from app.util.torchvision_import import import_torchvision

    model = import_torchvision("models").resnet152()
    return Subject("resnet152", model.train(), torch.randn(2, 3, 32, 32))


def chain() -> Subject:
    import torch

    class Chain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * self.weight
            for _ in range(CHAIN):
                x = x.sin()
            return x

    return Subject(f"a chain of {CHAIN:,}", Chain(), torch.randn(2))


def drawn(room: Any, tape: Any, grouping: str, unfolded: bool) -> Watch:
    """The tape shown in place of one that was folded so: grouped, laid out, put on the scene and painted."""
    room.set_tape(None)
    room.set_tape(tape)
    room.head.grouping.set_value(grouping)
    while bool(room.unfolded) != unfolded or (
        unfolded and room.scene.drawing and len(boxes(room)) < len(tape.nodes)
    ):
        room.head.fold_all.click()
    watch = Watch()

    def work() -> None:
        room.set_tape(tape)
        room.view.viewport().repaint()

    watch.time(work)
    assert (len(boxes(room)) == len(tape.nodes)) == unfolded
    return watch


def boxes(room: Any) -> tuple[Any, ...]:
    return room.drawing().boxes


def theirs(make_dot: Callable[..., Any], subject: Subject) -> Watch:
    """The same loss by torchviz, with what it shows of saved tensors, and `dot -Tsvg`."""
    loss = subject.forward()
    watch = Watch()

    def work() -> None:
        dot = make_dot(loss, params=dict(subject.model.named_parameters()))
        subprocess.run(
            ["dot", "-Tsvg"],
            input=dot.source.encode(),
            stdout=subprocess.DEVNULL,
            check=True,
        )

    watch.time(work)
    return watch


def frames(room: Any, zoom: float | None) -> list[float]:
    """Milliseconds of the processor for each repaint while panning; `zoom` None has everything in view."""
    view = room.view
    view.frame_all()
    if zoom is not None:
        view.zoom_to(zoom)
    view.viewport().repaint()
    taken = []
    for number in range(FRAMES):
        forth = number % 20 < 10
        began = time.process_time()
        view.pan(23 if forth else -23, 11 if forth else -11)
        view.viewport().repaint()
        taken.append(1000 * (time.process_time() - began))
    return taken


def pictures(
    room: Any,
    subject: Subject,
    make_dot: Callable[..., Any] | None,
    aims: dict[str, float],
) -> list[Figure]:
    """Every way of folding, in turns with the others' way."""
    ways = (
        ("folded by block", "block", False),
        ("folded by layer", "layer", False),
        ("unfolded", "layer", True),
    )
    ours: dict[str, list[Watch]] = {name: [] for name, _, _ in ways}
    other: list[Watch] = []
    subject.read()  # what is made at the first use is made
    for _ in range(ROUNDS):
        for name, grouping, unfolded in ways:
            tape, watch = subject.read()
            shown = drawn(room, tape, grouping, unfolded)
            watch.cpu, watch.wall = watch.cpu + shown.cpu, watch.wall + shown.wall
            ours[name].append(watch)
        if make_dot is not None:
            other.append(theirs(make_dot, subject))
    figures = []
    nodes = f"{subject.name} ({len(tape.nodes):,} nodes)"
    for name, found in ours.items():
        cpu = tuple(watch.cpu for watch in found)
        figures.append(
            Figure(
                f"{nodes}, {name}, read, laid out and painted",
                "ms of CPU",
                cpu,
                aim=aims[name],
            )
        )
        figures.append(
            Figure("  by the clock", "ms", tuple(watch.wall for watch in found))
        )
        if other:
            against = tuple(watch.cpu for watch in other)
            figures.append(
                Figure(
                    "  against torchviz and dot -Tsvg", "ms of CPU", cpu, against, aim=1
                )
            )
    for name, zoom in (("all in view", None), ("at 50%", 0.5), ("at 100%", 1.0)):
        taken = tuple(percentile(frames(room, zoom), 0.95) for _ in range(3))
        figures.append(
            Figure(
                f"  a frame while panning it unfolded, {name}, p95",
                "ms of CPU",
                taken,
                aim=16.7,
            )
        )
    print("\n".join(map(str, figures)), flush=True)
    return figures


def retained() -> Figure:
    """MB that the process grew by from capture 200 to capture 1,000 of a small residual net."""
    import torch

    from app.autograd.batch import TrainingBatch
    from app.telemetry.memory import resident

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = (
                torch.nn.Conv2d(16, 16, 3, padding=1),
                torch.nn.BatchNorm2d(16),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.conv(x)).relu() + x

    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), *(Block() for _ in range(4)), torch.nn.Flatten()
    )
    inputs = torch.randn(4, 3, 18, 18)
    first = 0
    for number in range(1, CAPTURES + 1):
        TrainingBatch(net, inputs, Subject.loss).capture()
        if number == SETTLED:
            first = resident()
        if number % 200 == 0:
            print(
                f"after {number:,} captures {resident() / 1e6:.1f} MB resident",
                flush=True,
            )
    name = f"growth of the resident memory from capture {SETTLED} to {CAPTURES:,}"
    return Figure(name, "MB", ((resident() - first) / 1e6,), aim=2)


def measure() -> None:
    import torch
    from PySide6.QtWidgets import QApplication

    torch.set_num_threads(1)
    from app.util import gc_pause
    from app.views.autograd.page import AutogradPage
    from app.views.ui import theme

    gc_pause.begin()  # as in the window, and in the engine during a capture
    application = QApplication.instance() or QApplication(["tapedeck"])
    theme.apply(application, "dark")
    room = AutogradPage()
    room.resize(*WINDOW)
    room.show()
    application.processEvents()
    make_dot = None
    try:
        if shutil.which("dot") is None:
            raise Missing("Graphviz's dot is not installed")
        make_dot = torchviz().make_dot
    except Missing as reason:
        print(f"torchviz is not measured: {reason}", file=sys.stderr)
    net, long = resnet152(), chain()
    figures = pictures(
        room,
        net,
        make_dot,
        {"folded by block": 100, "folded by layer": 100, "unfolded": 250},
    )
    if make_dot is not None:
        try:
            theirs(make_dot, long)
        except RecursionError as error:
            print(f"torchviz cannot draw {long.name}: {error}", flush=True)
    figures += pictures(
        room,
        long,
        None,
        dict.fromkeys(("folded by block", "folded by layer", "unfolded"), 1000),
    )
    room.set_tape(None)
    room.close()
    figures.append(apart())
    print(figures[-1])
    publish("autograd", figures)


def apart() -> Figure:
    """The growth of the memory, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "retained"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    print(done.stdout, end="", flush=True)
    grown = float(done.stdout.split("grown by ")[1].split()[0])
    return Figure(
        f"growth of the resident memory from capture {SETTLED} to {CAPTURES:,}",
        "MB",
        (grown,),
        aim=2,
    )


if __name__ == "__main__":
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    if sys.argv[1:] == ["retained"]:
        figure = retained()
        print(f"grown by {figure.value:.2f} MB")
    else:
        measure()
