"""What it takes to be able to live any step of a run again: steps per second of CPU time with hashes recorded, by
those without (aim: at least 0.98), in slices of one run; and the seconds in which `tapedeck revisit` reaches random
steps of a run that keeps checkpoints for it (aim: the seconds that were asked for).

    python benchmarks/bench_revisit.py [short]
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import _jobs
from _report import Figure, publish

SLICES, SECONDS = 16, 0.5  # of the clock, in turns with hashes and without
NETS = ("3-layer MLP of 64", "MNIST net", "resnet18 at batch 16")
COLD = 5  # steps that are also recomputed by a process of their own
WITHIN, LENGTH = 10.0, 45.0  # seconds asked for, and of the run


def slices(name: str, count: int, seconds: float) -> list[tuple[bool, float]]:
    """Steps per second of CPU time of slices of one run, in turns with hashes and without."""
    from msgspec.structs import replace

    from app.builder.analysis import analyse
    from app.preflight import preflight
    from app.project import custom_layers
    from app.training.events import Failed, StepDone
    from app.training.loop import train
    from app.training.monitoring.watcher import Watcher

    class Switched(Watcher):
        """Records hashes while it is on."""

        on = True

        def hash_gradients(self) -> None:
            if Switched.on:
                super().hash_gradients()

    project = _jobs.NETS[name][0]()
    training = replace(project.training, epochs=100_000, device="cpu")
    analysis = analyse(project.graph, custom_layers.ops_of(project))
    job = preflight.job(replace(project, training=training), analysis)
    found: list[tuple[bool, float]] = []
    order = random.Random(15)
    steps, began, clock, warm = 0, process_time(), perf_counter(), False
    for event in train(job, threads=1, watch=Switched):
        if isinstance(event, Failed):
            raise RuntimeError(event.message)
        if not isinstance(event, StepDone):
            continue
        steps += 1
        if perf_counter() - clock < seconds or steps < 3:
            continue
        if warm:
            found.append((Switched.on, steps / (process_time() - began)))
            # Pairs in random order: telemetry has a rhythm of its own.
            Switched.on = not Switched.on if len(found) % 2 else order.random() < 0.5
        warm = True
        if len(found) == count:
            break
        steps, began, clock = 0, process_time(), perf_counter()
    return found


def ratio(name: str, count: int, seconds: float) -> Figure:
    found = slices(name, count, seconds)
    with_hashes = tuple(rate for on, rate in found if on)
    without = tuple(rate for on, rate in found if not on)
    rounds = min(len(with_hashes), len(without))
    title = f"steps per second of CPU time with hashes recorded, {name}"
    return Figure(
        title,
        "steps/s",
        with_hashes[:rounds],
        without[:rounds],
        aim=0.98,
        more_is_better=True,
    )


def reached(
    length: float, within: float, count: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds to random steps of a run of some seconds: of an engine that stands, as in the window, and of
    `tapedeck revisit`, the start of its process included."""
    from app.project import file

    with tempfile.TemporaryDirectory() as scratch:
        path = _jobs.write("MNIST net", Path(scratch))
        _command(
            "train",
            path,
            "--epochs",
            "100000",
            "--device",
            "cpu",
            "--revisit-seconds",
            within,
            "--out",
            Path(scratch, "out"),
            limit=length,
        )
        from app.runs import store

        (kept,) = store.listed(Path(scratch, "out", "runs"))
        assert file.read(kept.folder / store.PROJECT).training.revisit_seconds == within
        last, choose = kept.record.summary.steps, random.Random(15)
        steps = [choose.randint(1, last) for _ in range(count)]
        warm, cold = by_engine(kept.folder, steps), []
        for step in steps[:COLD]:
            began = perf_counter()
            _command("revisit", kept.folder, "--step", step, "--json")
            cold.append(perf_counter() - began)
        size = sum(one.stat().st_size for one in kept.checkpoints.glob("revisit-*.pt"))
        number = len([*kept.checkpoints.glob("revisit-*.pt")])
        print(
            f"{number} checkpoints of {size / 1e6:.1f} MB together, {last} steps in {kept.record.summary.seconds:.0f} s"
        )
        return warm, tuple(cold)


def by_engine(run: Path, steps: list[int]) -> tuple[float, ...]:
    """Seconds in which an engine that has recomputed a step before recomputes others."""
    from app.engine.client import Engine
    from app.features.revisit.values import Revisit

    engine, spent = Engine(), []
    try:
        engine.ask(Revisit(run, 1, "")).result()
        for step in steps:
            began = perf_counter()
            found = engine.ask(Revisit(run, step, "")).result()
            spent.append(perf_counter() - began)
            assert found.parted is None and found.held is not None
            engine.release(found.held)
    finally:
        engine.close()
    return tuple(spent)


def _command(*arguments: object, limit: float | None = None) -> None:
    """Run a command, interrupted as by Ctrl+C after some seconds."""
    import signal

    process = subprocess.Popen(
        [sys.executable, "-m", "app.main", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
    )
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()
    if process.returncode:
        raise RuntimeError(f"tapedeck {arguments[0]} ended with {process.returncode}")


def main(short: bool) -> None:
    count, length, steps = (4, 15.0, 3) if short else (SLICES, LENGTH, 10)
    slow = NETS[-1]  # a slice of it has three steps at least
    figures = [
        ratio(name, count // 2 if name == slow else count, SECONDS) for name in NETS
    ]
    for figure in figures:
        print(figure, flush=True)
    warm, cold = reached(length, WITHIN, steps)
    words = f"random steps of a run with revisit_seconds {WITHIN:g}"
    publish(
        "revisit",
        [
            *figures,
            Figure(
                f"seconds of an engine that stands to {words}", "s", warm, aim=WITHIN
            ),
            Figure(f"seconds of `tapedeck revisit` to {words}", "s", cold, aim=WITHIN),
        ],
    )


if __name__ == "__main__":
    main("short" in sys.argv[1:])
