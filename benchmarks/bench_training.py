"""Steps a second in the window with everything live, against the exported train.py alone (aim: at least 0.97).

Live are the curves, the map of the layers, the gradient strips on the canvas, the counter and the memory. All do
the same job, in turns; the first epoch of each warms up, validation is part of all. Beside them stands the same script
with a SummaryWriter: the loss of every step, and histograms of all weights every 50 steps.

    python benchmarks/bench_training.py [short] [rounds=N] [NET ...]

`short` is one round of a few epochs, to see that it runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import _jobs
import _window
from _report import Figure, in_turns, publish

ROUNDS = 7
WRITER = "train_writer.py"


def script_steps_per_second(folder: Path, name: str, epochs: int, steps: int) -> float:
    """Run a script and clock the lines that it prints at the end of each epoch."""
    command = [
        sys.executable,
        "-u",
        name,
        "--epochs",
        str(epochs),
        "--out",
        str(folder / "trained"),
    ]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    ends = [time.perf_counter() for line in process.stdout if line.startswith("epoch ")]
    if process.wait() or len(ends) != epochs:
        raise RuntimeError(
            f"{name} ended with {process.returncode} after {len(ends)} epochs"
        )
    return steps * (epochs - 1) / (ends[-1] - ends[0])


def with_writer(text: str) -> str:
    """The exported script with what a person adds who watches it in TensorBoard."""
    for before, after in (
        (
            "    step = 0\n",
            "    from torch.utils.tensorboard import SummaryWriter\n\n"
            "    writer = SummaryWriter(str(args.out / 'events'))\n    step = 0\n",
        ),
        (
            "            total += value * len(",
            "            writer.add_scalar('loss', value, step)\n"
            "            if step % 50 == 0:\n                for name, parameter in model.named_parameters():\n"
            "                    writer.add_histogram(name, parameter, step)\n            total += value * len(",
        ),
    ):
        if text.count(before) != 1:
            raise RuntimeError(
                f"train.py has changed: {before.strip()!r} is there {text.count(before)} times"
            )
        text = text.replace(before, after)
    return text


def measured(name: str, folder: Path, short: bool, rounds: int) -> list[Figure]:
    """The figures of one net."""
    epochs = _jobs.NETS[name][2] if short else _jobs.NETS[name][1]
    project = _jobs.write(name, folder)
    steps = _window.measure(
        folder, 2, project=project
    ).steps  # writes train.py, and warms the file cache
    (folder / WRITER).write_text(
        with_writer((folder / "train.py").read_text("utf-8")), "utf-8"
    )

    def window() -> float:
        return _window.measure(folder, epochs, project=project).steps_per_second

    def script(which: str = "train.py") -> float:
        return script_steps_per_second(folder, which, epochs, steps)

    ours, theirs = in_turns(window, script, rounds=rounds)
    live = Figure(
        f"{name}: seen live, against train.py alone",
        "steps/s",
        ours,
        theirs,
        0.97,
        True,
    )
    writer, alone = in_turns(partial(script, WRITER), script, rounds=min(rounds, 3))
    what = f"{name}: train.py with a SummaryWriter against train.py alone"
    return [live, Figure(what, "steps/s", writer, alone)]


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
        _jobs.NETS
    )
    figures = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            figures += measured(name, Path(folder), short, 1 if short else rounds)
    publish("training", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
