"""Steps a second in the window with everything live, against the exported train.py alone (aim: at least 0.95).

Live are the curves, the gradient map, the gradient strips on the canvas, the counter and the memory. Both run the same
job in a process of its own, in turns; the first epoch of each warms up, validation is part of both.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _window
from _report import Figure, in_turns, publish

EPOCHS = 40
ROUNDS = 11


def script_steps_per_second(folder: Path, steps: int) -> float:
    """Run train.py and clock the lines that it prints at the end of each epoch."""
    command = [sys.executable, "-u", "train.py", "--epochs", str(EPOCHS), "--out", str(folder / "trained")]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ends = [time.perf_counter() for line in process.stdout if line.startswith("epoch ")]
    if process.wait() or len(ends) != EPOCHS:
        raise RuntimeError(f"train.py ended with {process.returncode} after {len(ends)} epochs")
    return steps * (EPOCHS - 1) / (ends[-1] - ends[0])


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = _window.measure(folder, 2).steps  # writes train.py, and warms the file cache
        ours, theirs = in_turns(
            lambda: _window.measure(folder, EPOCHS).steps_per_second,
            lambda: script_steps_per_second(folder, steps),
            rounds=ROUNDS,
        )
    figure = Figure("training in the window against train.py alone", "steps/s", ours, theirs, 0.95, True)
    publish("training", [figure])


if __name__ == "__main__":
    main()
