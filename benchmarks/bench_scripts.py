"""Scripts under `tapedeck run`: their speed by CPU time against the same steps unwatched, and their memory.

Slices of one training, watched and not, take turns in one process. The resident memory is that of `tapedeck run` at the
end of 20,000 steps less that of a plain run.

    python benchmarks/bench_scripts.py [short]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from _report import Figure, publish
from torch import Tensor, nn

import tapedeck

ROOT = Path(__file__).resolve().parent.parent
Made = tuple[nn.Module, Tensor, Callable[..., torch.optim.Optimizer]]
ROUNDS, SECONDS, STEPS = 40, 0.25, 20_000

SCRIPT = """
import sys, torch
from torch import nn
steps = int(sys.argv[1])
torch.set_num_threads(1)  # several wait for one another on a shared machine
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(net.parameters())
x, y = torch.randn(64, 64), torch.randint(0, 10, (64,))
for _ in range(steps):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
page = int(open("/proc/self/statm").read().split()[1])
print(page * 4096 / 2**20)
"""


def mlp() -> Made:
    layers = [
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    ]
    return nn.Sequential(*layers), torch.randn(64, 64), torch.optim.Adam


def convolutions() -> Made:
    layers = [
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 144, 10),
    ]
    return nn.Sequential(*layers), torch.randn(64, 1, 16, 16), torch.optim.SGD


def transformer() -> Made:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return (
        nn.Sequential(nn.TransformerEncoder(layer, 4), nn.Linear(64, 10)),
        torch.randn(16, 32, 64),
        torch.optim.AdamW,
    )


def speed(name: str, make: Callable[[], Made], rounds: int) -> Figure:
    """Steps a second of CPU time, watched and not, in turns."""
    net, x, kind = make()
    optimizer = kind(net.parameters(), lr=1e-3)

    def steps(seconds: float) -> float:
        """Steps a second."""
        began, count = process_time(), 0
        while (now := process_time()) - began < seconds:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            count += 1
        return count / (now - began)

    steps(SECONDS)
    ours, theirs = [], []
    for number in range(rounds):
        for watched in (True, False) if number % 2 else (False, True):
            if watched:
                with (
                    tempfile.TemporaryDirectory() as folder,
                    tapedeck.watch(net, optimizer, folder=folder, quiet=True),
                ):
                    steps(0.05)  # finds the model
                    ours.append(steps(SECONDS))
            else:
                steps(0.05)
                theirs.append(steps(SECONDS))
    return Figure(
        f"speed of a {name} watched",
        "steps/s",
        tuple(ours),
        tuple(theirs),
        0.95,
        more_is_better=True,
    )


def memory(rounds: int, steps: int) -> Figure:
    """MB more at the end of a run."""
    more = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        for _ in range(rounds):
            launcher = [str(ROOT / "tapedeck" / "script.py"), folder]
            ends = [
                float(
                    subprocess.check_output(
                        [sys.executable, *before, str(script), str(steps)], text=True
                    )
                )
                for before in ([], launcher)
            ]
            more.append(ends[1] - ends[0])
    return Figure(
        f"resident memory more after {steps:,} steps", "MB", tuple(more), aim=20.0
    )


def main() -> None:
    torch.set_num_threads(1)
    short = "short" in sys.argv
    rounds = 1 if short else ROUNDS
    nets = (
        ("3-layer MLP of 64", mlp),
        ("small convolutional net", convolutions),
        ("4-layer transformer", transformer),
    )
    figures = [speed(name, make, rounds) for name, make in nets]
    figures.append(memory(1 if short else 3, 1000 if short else STEPS))
    publish("scripts", figures)


if __name__ == "__main__":
    main()
