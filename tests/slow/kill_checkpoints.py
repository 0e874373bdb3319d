"""kill -9 at random moments of writing checkpoints: does the run go on, bit for bit?

A child takes a run that saves after every batch and is killed again and again, at a random moment after its first
checkpoint; each next child goes on from the newest checkpoint that can be read. At the end the losses that were kept,
and the weights, are held against those of a run that nobody disturbed.

    python -m tests.slow.kill_checkpoints --kills 200
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS_A_LIFE = 40  # about as many batches as a child lives to see

# A child imports torch once, forks a life, and forks the next when that one has been killed.
CHILD = """
import os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from app.project.project import Project
from app.runs import store
from app.runs.resume import going_on
from app.runs.recorder import Recorder
from app.training.checkpoints import checkpoint
from app.training.loop import train
from app.training.events import StepDone
from tests.slow.kill_checkpoints import a_job

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
job = a_job(steps)
next(train(job, threads=1))  # what is imported on the way to the first batch

def say(*words):
    # In one write: of a line in several (Python unbuffered), a kill could leave half, to which the next one is added.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def live():
    kept = store.listed(folder)
    kept = kept[0] if kept else store.begin(folder, Project("killed", data=job.data, training=job.training))
    resume = checkpoint.newest(kept.checkpoints)
    there = (lambda: going_on(kept, resume)) if resume else None
    recorder = Recorder(kept, Project("killed", data=job.data, training=job.training), job.source.text, there)
    problem = recorder.begin()
    assert not problem, problem
    for event in train(job, threads=1, folder=recorder.checkpoints, resume=resume):
        recorder.take(event)
        if isinstance(event, StepDone):
            say("step", event.step)
    recorder.close()
    say("end", type(event).__name__, getattr(event, "message", ""))

for line in sys.stdin:
    child = os.fork()
    if not child:
        try:
            live()
        finally:
            os._exit(0)
    say("born", child)
    os.waitpid(child, 0)
    say("gone")
"""


def a_job(steps: int):  # type: ignore[no-untyped-def]
    """A net with dropout and a batch norm, Adam with a schedule; a checkpoint after each batch."""
    from app.training.config import Choice, Schedule
    from app.util.frozen import FrozenMap
    from tests.support.training_jobs import SMALL_NET, job

    schedule = Schedule(Choice("CosineAnnealingLR", FrozenMap(T_max=200)), "step", 5)
    return job(
        SMALL_NET,
        epochs=10**6,
        max_steps=steps,
        save_every=1,
        schedule=schedule,
        batch_size=128,
    )


@dataclass(frozen=True)
class Outcome:
    """`unreadable` counts checkpoints that were cut off; `equal` says that every loss and weight is the same."""

    kills: int
    while_writing: int
    unreadable: int
    steps: int
    equal: bool
    seconds: float


def killed_and_resumed(folder: Path, kills: int, choose: random.Random) -> Outcome:
    """Kill a run so many times, let it come to its end, and compare."""
    import numpy as np
    import torch

    from app.runs import store, tables
    from app.training.checkpoints import checkpoint
    from app.training.control import Control
    from app.training.events import StepDone
    from app.training.loop import train

    began, steps = time.perf_counter(), kills * STEPS_A_LIFE // 4
    command = [sys.executable, "-c", CHILD, str(folder / "runs"), str(steps)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert parent.stdin is not None and parent.stdout is not None
    done, torn, unreadable, ended = 0, 0, 0, ""
    while not ended:
        parent.stdin.write("\n")
        parent.stdin.flush()
        child = int(parent.stdout.readline().split()[1])
        lives = choose.randint(1, 8)
        for line in parent.stdout:
            if line.startswith("end"):
                ended = line
            elif line.startswith("gone"):
                break
            elif line.startswith("step") and done < kills:
                lives -= 1
                if not lives:
                    time.sleep(choose.random() * 0.02)
                    os.kill(child, signal.SIGKILL)
                    done += 1
        (kept,) = store.listed(folder / "runs")
        torn += any(kept.checkpoints.glob(".tapedeck-*"))
        for file in kept.checkpoints.glob("*.pt"):
            try:
                checkpoint.load(file)
            except checkpoint.CheckpointError:
                unreadable += 1
    parent.stdin.close()
    parent.wait()
    (kept,) = store.listed(folder / "runs")
    told = tables.read(kept.folder / store.STEPS)[1]
    control, wanted = Control(), []
    before = torch.get_num_threads()
    try:
        for event in train(a_job(steps), control, threads=1):
            if isinstance(event, StepDone):
                wanted.append((event.step, event.loss))
    finally:
        torch.set_num_threads(before)
    assert control.result is not None and control.result.state_dict is not None
    weights = checkpoint.load(kept.checkpoints / checkpoint.LAST)["model"]
    equal = told[[0, 2]].T.tolist() == [
        [float(step), loss] for step, loss in wanted
    ] and all(
        np.array_equal(weights[name].numpy(), value.numpy())
        for name, value in control.result.state_dict.items()
    )
    return Outcome(
        done, torn, unreadable, len(wanted), equal, time.perf_counter() - began
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = killed_and_resumed(
            Path(folder), options.kills, random.Random(options.seed)
        )
    print(
        f"{outcome.kills} kills, {outcome.while_writing} of them in the midst of a file, "
        f"{outcome.unreadable} checkpoints that cannot be read, {outcome.steps} steps, "
        f"equal to the undisturbed run: {outcome.equal}, {outcome.seconds:.0f} s"
    )
    return 0 if outcome.equal and not outcome.unreadable else 1


if __name__ == "__main__":
    sys.exit(main())
