"""The times of the layers of every example add up to the time of its step, and measuring leaves nothing behind.

    python -m tests.slow.layer_times [NAME ...]

Prints a table; exits with 1 if a sum is more than 5 % off. Run it on an idle machine.
"""

from __future__ import annotations

import sys
from statistics import median
from time import perf_counter

from app.cli import nets
from app.features.trials.compute.layer_times import layer_times
from app.preflight import preflight
from app.project import file
from app.training.objectives import info_of
from app.training.setup.devices import resolve
from app.training.setup.isolated_step import (
    aside,
    stepper_of,
    synthetic_batch,
    synthetic_info,
)
from app.util.resources import path as resource_path

STEPS = 30


def row(name: str) -> tuple[float, float, float, float, float]:
    """Return the seconds of a step, the sum of its rows, the step with hooks, and steps before and after."""
    project = file.read(resource_path("examples", f"{name}.tape"))
    job = preflight.job(project, nets.sound(project), None)
    info, device = info_of(job, synthetic_info(job)), resolve("cpu").id
    with aside(0):
        stepper = stepper_of(job, info, device)
        inputs, labels = synthetic_batch(job, info, device)
        stepper.model.train()

        def step() -> float:
            began = perf_counter()
            stepper.take(inputs, labels, True)
            return perf_counter() - began

        before = median([step() for _ in range(STEPS)])
        times = layer_times(stepper, inputs, labels, device)
        after = median([step() for _ in range(STEPS)])
    layers = sum(entry.forward + entry.backward for entry in times.layers)
    total = layers + times.optimizer_seconds
    return times.step_seconds, total, times.measured_seconds, before, after


def main(chosen: list[str]) -> int:
    """Print the table; return 1 if a sum is off."""
    examples = [file.stem for file in sorted(resource_path("examples").glob("*.tape"))]
    wrong = 0
    print("| example | step ms | sum ms | off | with hooks ms | before ms | after ms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in chosen or examples:
        seconds = row(name)
        step, total, *others = (f"{1000 * value:.3f}" for value in seconds)
        off = seconds[1] / seconds[0] - 1
        wrong += abs(off) > 0.05
        cells = [name, step, total, f"{off:.2%}", *others]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"{wrong} examples are off")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
