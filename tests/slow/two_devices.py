"""Tests that take a device, on the CPU and on the simulated accelerator: each passes, with the same losses bit by bit,
but for those of `ROUNDED`.

    python -m tests.slow.two_devices [FILE ...]

Prints a table of the files: tests on the CPU and on `sim:0`, runs whose losses were compared, steps, and those that
differ. Exits with 1 if a test fails on one of them, or a loss differs.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "tests" / "support" / "packages"
DEVICES = ("cpu", "sim:0")
FILES = ("tests/training", "tests/features/interpret", "tests/features/coach")
LATE = "the loss of a device is read some steps later, where its batch is gone"
ITS_OWN = "the test itself gives the net tensors of the CPU, or expects the CPU's name"
KERNELS = "the estimate is of the CPU's kernels: a mask of dropout is smaller elsewhere"
THREADS = "threads are measured for runs on the CPU alone"
ONE_DEVICE = "each process needs a device of its own"
SPARSE = "the simulated accelerator has no sparse tensors"
# What is not run on the accelerator, by the beginning of its name.
CPU_ALONE = {
    "tests/training/test_cpu_threads.py": THREADS,
    "tests/training/test_ranks.py": ONE_DEVICE,
    "tests/training/test_sparse_gradients.py": SPARSE,
    "tests/training/test_profile.py::test_a_run_is_profiled": ITS_OWN,
    "tests/training/test_memory.py::test_the_estimate_on_meta": KERNELS,
    "tests/training/test_memory.py::test_a_gpu_tells": ITS_OWN,
    "tests/training/test_evaluating.py::test_test_time_aug": ITS_OWN,
    "tests/training/test_one_output.py::test_evaluation_has_two": ITS_OWN,
    "tests/training/test_loop.py::test_the_events_tell": ITS_OWN,
    "tests/training/test_loop.py::test_visits_between": ITS_OWN,
    "tests/training/test_loop.py::test_stop_in_mid_epoch": LATE,
    "tests/training/test_schedules.py::test_a_rate_set_by_hand": LATE,
    "tests/training/test_failures.py::test_a_log_of_zero": LATE,
    "tests/training/test_failures.py::test_a_learning_rate_that": LATE,
    "tests/training/test_failures.py::test_of_mixed_samples": LATE,
    "tests/training/test_failures.py::test_dropout_falls": LATE,
    "tests/training/test_failures.py::test_a_loss_that_alone": LATE,
    "tests/training/test_surgery.py::test_a_run_goes_on": LATE,
    "tests/training/test_surgeries_in_short.py": LATE,
    "tests/features/interpret/test_attribution.py::test_saliency": ITS_OWN,
    "tests/features/interpret/test_interventions.py": ITS_OWN,
}
# Whose losses are equal up to rounding, ROUNDING of them: the accelerator has other kernels for attention, which torch
# writes out there, and for convolutions of bfloat16 in channels_last.
ROUNDED = (
    "tests/training/test_opened.py::test_a_model_of_a_package",
    "tests/training/test_opened.py::test_a_step_of_an_opened_model_is_recomputed",
    "tests/training/test_opened.py::test_the_loss_that_a_model_computes_itself",
    "tests/training/test_several_inputs.py::test_a_run_is_the_run_of_the_script[pairs, bfloat16",
    "tests/training/test_several_inputs.py::test_the_examples_learn",
)
ROUNDING = 1e-4


class Noted(NamedTuple):
    """How a test ended on a device, and the losses of its runs by step."""

    ended: str
    runs: list[dict[str, float]]


class Compared(NamedTuple):
    """The tests of a file, and what differs; `failed` are of either device."""

    file: str
    on_cpu: int
    on_device: int
    runs: int
    steps: int
    failed: tuple[str, ...]
    differing: tuple[str, ...]


def noted_on(device: str, files: Iterable[str]) -> dict[str, Noted]:
    """Run tests in a process of their own; return how each ended."""
    plain = {name: text for name, text in os.environ.items() if "XDIST" not in name}
    packages = [] if device == "cpu" else [str(PACKAGES)]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-p", "tests.slow.material.noted_losses"]
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes")
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=ROOT,
            env={
                **plain,
                "PYTHONPATH": os.pathsep.join([*packages, str(ROOT)]),
                "QT_QPA_PLATFORM": "offscreen",
                "TAPEDECK_TEST_DEVICE": device,
                "TAPEDECK_NOTED_LOSSES": str(notes),
            },
            stdout=subprocess.DEVNULL,
        )
        lines = notes.read_text("utf-8").splitlines()
    rows = map(json.loads, lines)
    return {row["test"]: Noted(row["ended"], row["runs"]) for row in rows}


def compared(files: Iterable[str]) -> list[Compared]:
    """Run tests on both devices."""
    files = list(files)
    on_cpu, on_device = (noted_on(device, files) for device in DEVICES)
    names = {test.partition("::")[0] for test in on_cpu}
    return [_of_file(name, on_cpu, on_device) for name in sorted(names)]


def _of_file(
    file: str, on_cpu: Mapping[str, Noted], on_device: Mapping[str, Noted]
) -> Compared:
    tests = [test for test in on_cpu if test.startswith(f"{file}::")]
    both = [test for test in tests if not test.startswith(tuple(CPU_ALONE))]
    missing = Noted("missing", [])
    ends = {test: on_device.get(test, missing).ended for test in both}
    failed = [f"{test} on the CPU" for test in tests if on_cpu[test].ended == "failed"]
    failed += [f"{test}: {end}" for test, end in ends.items() if end in _FAULTS]
    # Where a run is stopped amid it, a device has gone some steps further, and the next run begins there.
    pairs = [
        (test, [_apart(ours[step], theirs[step]) for step in {*ours} & {*theirs}])
        for test in both
        for ours, theirs in zip(
            on_cpu[test].runs, on_device.get(test, missing).runs, strict=False
        )
    ]
    different = {
        test
        for test, distances in pairs
        if max(distances, default=0.0) > ROUNDING * test.startswith(ROUNDED)
    }
    return Compared(
        file,
        len(tests),
        len(both),
        len(pairs),
        sum(len(distances) for _, distances in pairs),
        tuple(failed),
        tuple(sorted(different)),
    )


_FAULTS = ("failed", "missing")


def _apart(ours: float, theirs: float) -> float:
    """Return the relative distance of two losses, 0 of two NaN, infinite of one."""
    if repr(ours) == repr(theirs):
        return 0.0
    distance = abs(ours - theirs) / abs(ours)
    return math.inf if math.isnan(distance) else distance


def main(files: list[str]) -> int:
    """Print the table; return 1 for a fault."""
    rows = compared(files or FILES)
    print("| file | on cpu | on sim:0 | runs | steps | losses that differ |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        print(
            f"| {row.file} | {row.on_cpu} | {row.on_device} | {row.runs} | {row.steps:,} | {len(row.differing)} |"
        )
    faults = [line for row in rows for line in (*row.failed, *row.differing)]
    print(*faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
