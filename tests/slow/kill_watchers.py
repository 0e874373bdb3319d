"""Kill those who watch a script, again and again: it neither stalls nor ends, and computes what it would alone.

Each watcher is a process that follows the frames, pauses the script, takes steps and lets it go on, until SIGKILL comes
at a random moment; every fifth is stopped (SIGSTOP) for a while first.

    python -m tests.slow.kill_watchers [KILLS]
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import os, sys, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(net.parameters())
count = int(sys.argv[2]) if len(sys.argv) > 2 else 0
losses = []
while len(losses) < count if count else not os.path.exists(sys.argv[1]):
    loss = net(torch.randn(16, 32)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(len(losses), hash(tuple(losses)))
"""
WATCHER = """
import sys, threading, random, time
from pathlib import Path
from app.engine.watched.follow import WatchedRunControl, follow
control = WatchedRunControl()
def play():
    while not control.commands:
        time.sleep(0.01)
    while True:
        random.choice((control.pause, control.step, control.resume))()
        time.sleep(random.random() / 50)
threading.Thread(target=play, daemon=True).start()
for event in follow(Path(sys.argv[1]), control, 0.01):
    print(".", flush=True)
"""


def steps_of(frames: Path) -> int:
    """Return how many steps the frames tell of."""
    return frames.read_bytes().count(b'"event": "step"')


def killed(frames: Path, number: int) -> bool:
    """Start a watcher and kill it; return whether the script went on within ten seconds."""
    watcher = subprocess.Popen(
        [sys.executable, "-c", WATCHER, str(frames)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert watcher.stdout is not None
    watcher.stdout.readline()
    time.sleep(random.random() / 5)
    if number % 5 == 0:
        watcher.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
    watcher.kill()
    watcher.communicate()
    before, patience = steps_of(frames), time.monotonic() + 10.0
    while steps_of(frames) <= before and time.monotonic() < patience:
        time.sleep(0.02)
    return steps_of(frames) > before


def main(kills: int) -> int:
    """Print the counts; return 1 if a script stalled, died or differed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script, end = folder / "train.py", folder / "end"
        script.write_text(SCRIPT)
        launcher = [sys.executable, str(ROOT / "tapedeck" / "script.py"), name]
        running = subprocess.Popen(
            [*launcher, str(script), str(end)], stdout=subprocess.PIPE, text=True
        )
        frames = folder / "frames.jsonl"
        while not frames.exists() or not steps_of(frames):
            time.sleep(0.05)
        stalled = sum(not killed(frames, number) for number in range(kills))
        died = running.poll() is not None
        end.touch()
        said = running.communicate()[0].strip()
        count = said.partition(" ")[0]
        alone = subprocess.check_output(
            [sys.executable, str(script), str(end), count], text=True
        ).strip()
    differed = said != alone
    print(
        f"{kills} watchers killed over {count} steps: {stalled} stalls, {int(died)} deaths, {int(differed)} differences"
    )
    return int(bool(stalled or died or differed))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
