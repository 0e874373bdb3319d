"""Warnings of the user's model name the user's file, not this program's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import commands

ROOT = Path(__file__).resolve().parents[2]
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x)
        nn.functional.softmax(y)
        nn.functional.mse_loss(y, y[:1])
        return y.reshape(-1, 2, 2).T.sum()
"""
SCRIPT = """
import torch
from torch import nn
from net import Net

model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model._is_replica = True
model.zero_grad()
for _ in range(2):
    model(torch.randn(2, 4)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LINES = (12, 13, 14)


def warned(folder: Path, *command: str) -> list[str]:
    """Return where each warning of a command was shown, without the folder."""
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "HOME": str(folder), "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = [
        line.split(": ")[0] for line in done.stderr.splitlines() if "Warning: " in line
    ]
    return [Path(place).name for place in shown]


@pytest.mark.parametrize("command", sorted({"draw", "autograd"} & commands().keys()))
def test_warnings_of_a_model_name_its_lines(tmp_path: Path, command: str) -> None:
    (tmp_path / "net.py").write_text(NET)
    words = (
        "-m",
        "tapedeck",
        command,
        "net.py:Net",
        "--trust",
        "--input",
        "2x4",
        "--out",
    )
    places = warned(tmp_path, *words, "made.svg" if command == "draw" else "made.json")
    assert places and set(places) <= {f"net.py:{line}" for line in LINES}


def test_warnings_of_a_watched_script_are_where_they_are_alone(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "train.py").write_text(SCRIPT)
    alone = warned(tmp_path, "train.py")
    assert "train.py:9" in alone
    for options in ((), ("--capture", "1", "--out", "step.json")):
        command = ("-m", "tapedeck", "run", *options, "train.py")
        assert warned(tmp_path, *command) == alone, options
