"""Steps a second in the window beside processes that each keep a processor busy, against train.py beside as many.

The window and the script that it exports make the same run, in turns, alone and beside one and two busy processes (aim:
at least 0.9). Beside one, the window is also held against train.py with OMP_NUM_THREADS=1 (aim: at least 0.6), which is
what a script makes at best that leaves a processor to the other process.

    python benchmarks/bench_beside.py [short] [rounds=N] [NET ...]

`short` is one round of a few epochs, to see that it runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import _jobs
import _window
from _report import Figure, in_turns, publish
from bench_training import script_steps_per_second

EPOCHS = {"digits net": 12, "3-layer MLP of 64": 150, "MNIST net": 8}
ROUNDS = 5
SINGLE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
BURN = "print(flush=True)\nwhile True: pass"


@contextmanager
def beside(count: int) -> Iterator[None]:
    """Keep processes that compute without end."""
    burning = [
        subprocess.Popen([sys.executable, "-c", BURN], stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        for one in burning:
            assert one.stdout is not None
            one.stdout.readline()
        yield
    finally:
        for one in burning:
            one.kill()
            one.communicate()


def measured(name: str, folder: Path, short: bool, rounds: int) -> list[Figure]:
    """The figures of one net."""
    epochs = 3 if short else EPOCHS[name]
    project = _jobs.write(name, folder)
    steps = _window.measure(
        folder, 2, project=project
    ).steps  # writes train.py, and warms the file cache

    def window() -> float:
        return _window.measure(folder, epochs, project=project).steps_per_second

    def script() -> float:
        return script_steps_per_second(folder, "train.py", epochs, steps)

    def single() -> float:
        with mock.patch.dict(os.environ, SINGLE):
            return script()

    figures = []
    for count, where in enumerate(
        ("alone", "beside one busy process", "beside two busy processes")
    ):
        with beside(count):
            ours, theirs = in_turns(window, script, rounds=rounds)
            figures.append(
                Figure(
                    f"{name}, {where}: window against train.py",
                    "steps/s",
                    ours,
                    theirs,
                    0.9,
                    True,
                )
            )
            if count == 1:
                ours, theirs = in_turns(window, single, rounds=rounds)
                what = f"{name}, {where}: window against train.py in one thread"
                figures.append(Figure(what, "steps/s", ours, theirs, 0.6, True))
    return figures


def main(arguments: list[str]) -> None:
    short = "short" in arguments
    rounds = next(
        (
            int(each.partition("=")[2])
            for each in arguments
            if each.startswith("rounds=")
        ),
        ROUNDS,
    )
    names = [each for each in arguments if each != "short" and "=" not in each] or list(
        EPOCHS
    )
    figures = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            figures += measured(name, Path(folder), short, 1 if short else rounds)
    publish("beside", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
