"""What watching a long run takes: resident memory over 20,000 steps (aim: it grows by less than 20 MB), and redrawing a
curve of a million steps (aim: within 16 ms).

The run is a 3-layer MLP of 64 on the digits with everything measured and kept as the window keeps it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import _jobs
from _report import Figure, publish

STEPS, SETTLED = 20_000, 4_000
POINTS = 1_000_000
REDRAWS = 50


def growth(steps: int, settled: int) -> float:
    """MB that the process grew by from step `settled` on; what a history must hold of the steps is among it."""
    from msgspec.structs import replace

    from app.builder.analysis import analyse
    from app.preflight import preflight
    from app.telemetry.memory import resident
    from app.training.events import StepDone
    from app.training.history import History
    from app.training.loop import train

    project = _jobs.mlp()
    training = replace(project.training, epochs=10_000, max_steps=steps, device="cpu")
    history, first = History(), 0
    for event in train(
        preflight.job(replace(project, training=training), analyse(project.graph)),
        threads=1,
    ):
        history.add(event)
        if isinstance(event, StepDone) and event.step == settled:
            first = resident() or 0
    if len(history.steps) != steps:
        raise RuntimeError(f"the run ended after {len(history.steps)} steps")
    return ((resident() or 0) - first) / 1e6


def redraws(points: int, count: int) -> list[float]:
    """Milliseconds of redrawing and painting the loss of so many steps."""
    import numpy as np

    from app.training.history import History
    from app.views.app import make_application
    from app.views.training.charts.charts import LossChart
    from app.views.ui import theme

    application = make_application(["tapedeck"])
    theme.apply(application, "dark")
    history, chart = History(), LossChart()
    step = np.arange(1.0, points + 1)
    rows = np.full((len(history.steps.names), points), np.nan)
    losses = np.exp(-step / 3e5) + 0.1 * np.random.default_rng(0).random(points)
    for name, values in {
        "step": step,
        "epoch": np.ones(points),
        "loss": losses,
        "samples": np.full(points, 64.0),
        "seconds": step / 1000,
    }.items():
        rows[history.steps.names.index(name)] = values
    history.steps.extend(rows)
    chart.resize(640, 320)
    chart.set_history(history, "step")
    chart.plot.set_x_range(0.0, float(points))
    chart.show()
    application.processEvents()
    chart.redraw()  # smooths all of them, once
    spent = []
    for number in range(count):
        history.steps.append(
            *(
                1.0 if name != "step" else points + number + 1.0
                for name in history.steps.names
            )
        )
        began = perf_counter()
        chart.redraw()
        application.processEvents()
        spent.append(1000 * (perf_counter() - began))
    return spent


def _elsewhere(*arguments: str) -> list[float]:
    """A measurement in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [float(each) for each in done.stdout.split()]


def main(short: bool) -> None:
    steps, settled = (4_000, 1_000) if short else (STEPS, SETTLED)
    publish(
        "live",
        [
            Figure(
                f"resident memory from step {settled:,} to {steps:,}",
                "MB",
                tuple(_elsewhere("growth", str(steps), str(settled))),
                aim=20,
            ),
            Figure(
                f"redrawing a curve of {POINTS:,} steps",
                "ms",
                tuple(_elsewhere("redraws")),
                aim=16,
            ),
        ],
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["growth", steps, settled]:
            print(growth(int(steps), int(settled)))
        case ["redraws"]:
            print(*redraws(POINTS, REDRAWS))
        case arguments:
            main("short" in arguments)
