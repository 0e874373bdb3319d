"""A project is trained as a job of a real SLURM that ends it again and again, and has the losses of one run.

    python -m tests.slow.slurm_requeue [ENDS] [--seed N]

SLURM's daemons for one node, started here. At random steps the job is paused and resumed, as from the window, and gets
SIGUSR1, as by `#SBATCH --signal=B:USR1@120`, or is queued again by `scontrol requeue`, or its processes are killed, or
its node fails: the daemon there and all that it began are killed. Of each end: the steps that are computed again, and
the seconds until the next first step.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.engine.watched.follow import WatchedRunControl, follow
from app.features.places import values
from app.features.places.cli import elsewhere
from app.features.places.values import Place
from app.training.events import Finished, Noticed, Paused, Started, StepDone
from app.util.resources import path as resource
from tests.support.slurm_queue import Slurm

ROOT = Path(__file__).resolve().parents[2]
SAVE_EVERY = 7  # steps
KINDS = ("SIGUSR1", "scontrol requeue", "killed", "node lost")
HARD = KINDS[2:]  # that leave no time for a checkpoint
STEPS = 23 * 40  # of the digits, in as many epochs
TEMPLATE = """#!/bin/sh
#SBATCH --requeue
#SBATCH --time=60
#SBATCH --signal=B:USR1@120
exec @COMMAND@
"""


class End(NamedTuple):
    """What ended a job and at which step, the seconds until its next first step, and the steps that were lost."""

    kind: str
    asked: int
    seconds: float
    lost: int


def end(queue: Slurm, job: str, kind: str) -> None:
    """End a job."""
    if kind == "SIGUSR1":
        queue.run("scancel", "--signal=USR1", "--batch", job)
    elif kind == "killed":
        queue.run("scancel", "--signal=KILL", "--full", job)
        wait(lambda: queue.state_of(job) not in ("RUNNING", "COMPLETING"))
        queue.run("scontrol", "requeue", job)
    elif kind == "node lost":
        queue.lose_node()
    else:
        queue.run("scontrol", "requeue", job)


def wait(condition: Any, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.05)


def tried(
    queue: Slurm, folder: Path, count: int, seed: int
) -> tuple[list[End], list[str], int]:
    """Train as a job that is ended so many times; return the ends, the faults, and the steps."""
    moments = random.Random(seed)
    at = sorted(moments.sample(range(10, STEPS - 40, 20), count))
    template, out = folder / "queue.sbatch", folder / "out"
    template.write_text(TEMPLATE)
    values.save({"cluster": Place("cluster", "", sys.executable, str(template))})
    project = str(resource("examples", "digits.tape"))
    given = ["--device", "cpu", "--epochs", "40", "--save-every", str(SAVE_EVERY)]
    with subprocess.Popen(
        [sys.executable, "-m", "app.main", "train", project, *given]
        + ["--at", "cluster", "--out", str(out)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as terminal:
        assert terminal.stderr is not None
        address = terminal.stderr.readline().split("watched in ")[1].strip()
        there = Path(address.partition(":")[2]).parent
        job, done, faults = (there / "job").read_text(), [], []
        control, asked, began, kind = WatchedRunControl(), 0, 0.0, ""
        starts = newest = 0
        for event in follow(Path(elsewhere.frames_here(address)), control, 0.01):
            match event:
                case Started():
                    starts += 1
                    if starts > 1:
                        done.append(
                            End(
                                kind,
                                asked,
                                time.monotonic() - began,
                                newest - event.resumed_at,
                            )
                        )
                case StepDone():
                    newest = event.step
                    if at and newest >= at[0]:
                        control.pause()
                        at.pop(0)
                case Paused():
                    kind, asked, began = (
                        KINDS[len(done) % len(KINDS)],
                        newest,
                        time.monotonic(),
                    )
                    control.resume()
                    end(queue, job, kind)
                case Noticed() if "(PENDING," in event.message and starts:
                    queue.start_now(job)
                case Finished() if event.reason != "done":
                    faults.append(f"it ended: {event.note}")
        for line in terminal.stderr:
            if "Error" in line:
                faults.append(line)
        if terminal.wait():
            faults.append(f"exit status {terminal.returncode}")
    return done, faults + compared(out, folder), newest


def compared(out: Path, folder: Path) -> list[str]:
    """Compare the frames and weights of a job with those of its script, run once."""
    alone = subprocess.run(
        [sys.executable, str(out / "train.py"), "--device", "cpu", "--json"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    faults = []
    if losses(alone.stdout) != losses((out / "frames.jsonl").read_text()):
        faults.append("losses differ")
    if (out / "weights.pt").read_bytes() != (
        folder / "trained" / "weights.pt"
    ).read_bytes():
        faults.append("weights differ")
    return faults


def losses(text: str) -> dict[int, float]:
    """Return the last loss that was told of each step."""
    events = (json.loads(line) for line in text.splitlines())
    return {e["step"]: e["loss"] for e in events if e["event"] == "step"}


def main(count: int, seed: int) -> int:
    """Print the table; return 1 on a fault."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for variable in ("CONFIG", "STATE", "CACHE"):
            os.environ[f"XDG_{variable}_HOME"] = str(folder / variable.lower())
        (folder / "slurm").mkdir()
        try:
            queue = Slurm(folder / "slurm")
        except pytest.skip.Exception as error:
            print(error)
            return 0
        os.environ.update(queue.environment)
        try:
            done, faults, steps = tried(queue, folder, count, seed)
        finally:
            queue.close()
    print("| ended by | at step | steps lost | seconds until it went on |")
    print("| --- | ---: | ---: | ---: |")
    for each in done:
        print(f"| {each.kind} | {each.asked} | {each.lost} | {each.seconds:.1f} |")
        if each.lost > (SAVE_EVERY if each.kind in HARD else 0):
            faults.append(f"{each.lost} steps were lost by {each.kind}")
    if len(done) != count:
        faults.append(f"it was started again {len(done)} times, and not {count}")
    print(f"{steps:,} steps; {', '.join(faults) or 'nothing differs'}")
    return int(bool(faults))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("ends", type=int, nargs="?", default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sys.exit(main(options.ends, options.seed))
