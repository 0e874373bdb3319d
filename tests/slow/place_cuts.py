"""A script at a place is followed and steered over a line that is cut again and again.

    python -m tests.slow.place_cuts [CUTS] [--seed N]

A real sshd on loopback, and a proxy before it that cuts, halves or delays what passes at random moments. A terminal
(`tapedeck run --on`) and what the window does (`tapedeck PLACE:frames.jsonl`) follow one script, which is also held
while the line is cut. Every line that it prints and every frame has to arrive once, the script to compute what it
computes alone, and what was paused to be paused still.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.engine.watched.follow import WatchedRunControl, follow
from app.features.places import values
from app.features.places.cli import elsewhere
from app.features.places.values import Place
from app.training.events import Noticed, Paused, Resumed, StepDone
from tests.support.cut_proxy import CutProxy
from tests.support.ssh_host import SshHost

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os, sys, time, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(net.parameters())
count, steps = int(sys.argv[2]) if len(sys.argv) > 2 else 0, 0
while steps < count if count else not os.path.exists(sys.argv[1]):
    loss = net(torch.randn(16, 32)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    print(steps, loss.item().hex(), flush=True)
    time.sleep(0.0 if count else 0.002)
sys.exit(7)
"""
PATIENCE = 120.0  # seconds
KINDS = ("cut", "halved", "delayed")


class Cut(NamedTuple):
    """What was done to the line, the seconds until the follower was back, and whether the script was held then."""

    kind: str
    seconds: float
    held: bool


class Outcome(NamedTuple):
    cuts: list[Cut]
    steps: int
    faults: list[str]


class _Follower:
    """Follows the frames as the window does, on a thread."""

    def __init__(self, path: str) -> None:
        self.file, self.control = Path(path), WatchedRunControl()
        self.losses: list[tuple[int, float]] = []
        self.paused = False
        self.backs = 0
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        for event in follow(self.file, self.control, 0.01):
            match event:
                case StepDone():
                    self.losses.append((event.step, event.loss))
                case Paused() | Resumed():
                    self.paused = isinstance(event, Paused)
                case Noticed() if "is back" in event.message:
                    self.backs += 1

    @property
    def step(self) -> int:
        return self.losses[-1][0] if self.losses else 0

    def ask(self, do: str) -> dict[str, Any]:
        return self.control.ask(do).result(PATIENCE)

    def join(self) -> None:
        self._thread.join(PATIENCE)


def until(condition: Callable[[], bool], what: str) -> float:
    """Wait for a condition; return the seconds that took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > PATIENCE:
            raise TimeoutError(what)
        time.sleep(0.005)
    return time.monotonic() - began


def tried(host: SshHost, cuts: int, seed: int) -> Outcome:
    """Run the script at a place, cut the line so many times, and compare."""
    moments = random.Random(seed)
    proxy = CutProxy(host.port)
    host.add_host("cut", port=proxy.port)
    values.save({"gpubox": Place("gpubox", "cut", sys.executable)})
    (host.home / "train.py").write_text(SCRIPT)
    end = host.home / "end"
    terminal = subprocess.Popen(
        [sys.executable, "-m", "app.main", "run", "--on", "gpubox"]
        + ["train.py", str(end)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    printed: list[bytes] = []
    assert terminal.stdout is not None and terminal.stderr is not None
    reading = threading.Thread(target=lambda: printed.extend(terminal.stdout))  # type: ignore[arg-type]
    reading.start()
    address = terminal.stderr.readline().decode().split("watched in ")[1].strip()
    silent = threading.Thread(target=terminal.stderr.read)
    silent.start()
    follower = _Follower(elsewhere.frames_here(address))
    until(lambda: follower.control.commands and follower.step > 0, "the first step")
    done = []
    for number in range(cuts):
        time.sleep(moments.random() / 3)
        done.append(_cut(proxy, follower, KINDS[number % 3], number % 4 == 3))
    end.touch()
    follower.join()
    reading.join(PATIENCE)
    faults = _faults(Path(address.split(":")[1]), follower, printed, end)
    if terminal.wait(PATIENCE) != 7:
        faults.append(f"exit status {terminal.returncode}")
    silent.join()
    proxy.close()
    return Outcome(done, follower.step, faults)


def _cut(proxy: CutProxy, follower: _Follower, kind: str, holds: bool) -> Cut:
    """Cut the line, while the script is held or not, and wait until the follower is back."""
    if holds:
        follower.control.pause()
        until(lambda: follower.paused, "a pause")
    before, backs = follower.step, follower.backs
    if kind == "cut":
        proxy.cut()
    elif kind == "halved":
        proxy.halve()
    else:
        proxy.delay(0.3)
    if not holds:
        return Cut(kind, until(lambda: follower.step > before, "a step"), False)
    seconds = 0.0
    if kind == "cut":
        seconds = until(lambda: follower.backs > backs, "the line")
    try:
        held = bool(follower.ask("ping")["paused"]) and follower.step == before
    except RuntimeError:  # the line was halved by this very command
        until(lambda: follower.backs > backs, "the line")
        held = bool(follower.ask("ping")["paused"]) and follower.step == before
    follower.control.resume()
    until(lambda: not follower.paused, "going on")
    return Cut(kind, seconds, held)


def _faults(
    path: Path, follower: _Follower, printed: list[bytes], end: Path
) -> list[str]:
    """Compare what arrived with what the script wrote, and that with what it computes alone."""
    faults = []
    frames = path.read_bytes()
    lines = follower.file.read_bytes().splitlines(keepends=True)
    if b"".join(line for line in lines if b"The line to gpubox" not in line) != frames:
        faults.append("frames differ")
    output = path.with_name("output.txt").read_bytes()
    if b"".join(printed) != output:
        faults.append("what was printed differs")
    script = str(end.with_name("train.py"))
    count = len(output.splitlines())
    alone = subprocess.run(
        [sys.executable, script, "-", str(count)], stdout=subprocess.PIPE, check=False
    )
    if alone.stdout != output:
        faults.append("the script computed something else than alone")
    losses = [f"{step} {loss.hex()}" for step, loss in follower.losses]
    if losses != output.decode().splitlines():
        faults.append("losses that were followed differ from those that were printed")
    return faults


def main(cuts: int, seed: int) -> int:
    """Print the table; return 1 on a fault."""
    with tempfile.TemporaryDirectory() as name:
        for variable in ("CONFIG", "STATE", "CACHE"):
            os.environ[f"XDG_{variable}_HOME"] = str(Path(name, variable.lower()))
        try:
            host = SshHost(Path(name, "host"))
        except pytest.skip.Exception as error:
            print(error)
            return 0
        os.environ["PATH"] = f"{host.bin}:{os.environ['PATH']}"
        try:
            outcome = tried(host, cuts, seed)
        finally:
            host.close()
    print("| the line is | times | back after, median | at most | held, still held |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for kind in KINDS:
        of_kind = [cut for cut in outcome.cuts if cut.kind == kind]
        seconds = [cut.seconds for cut in of_kind] or [0.0]
        paused = sum(cut.held for cut in of_kind)
        print(
            f"| {kind} | {len(of_kind)} | {statistics.median(seconds):.2f} s | {max(seconds):.2f} s | {paused} |"
        )
    print(f"{outcome.steps:,} steps; {', '.join(outcome.faults) or 'nothing differs'}")
    return int(bool(outcome.faults))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("cuts", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sys.exit(main(options.cuts, options.seed))
