"""A model whose file turns switches of torch at import is trained, or refused with that line as the cause."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.forked_python import COMMAND, run_forked

NET = """
import torch
import warnings
from torch import nn

{}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(2, 2)

    def forward(self, x):
        return self.f(x)
"""


def forked(folder: Path, *words: str) -> CompletedProcess[str]:
    command = folder / "command.py"
    command.write_text(COMMAND)
    return run_forked(command, *words, cwd=folder)


def fresh(folder: Path, *words: str) -> CompletedProcess[str]:
    """Run it in a process that imports everything after the switch was turned."""
    return subprocess.run(
        [sys.executable, "-m", "app.main", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("switch", "start", "code", "words"),
    [
        (
            "torch.set_grad_enabled(False)",
            forked,
            1,
            "Its file turns gradients off for all of torch (line 6 of net.py).",
        ),
        ("torch.set_default_dtype(torch.float64)", forked, 0, ""),
        ("warnings.simplefilter('error')", fresh, 0, ""),
    ],
)
def test_a_run_of_a_file_that_turns_a_switch_ends_well_or_names_its_line(
    switch: str,
    start: Callable[..., CompletedProcess[str]],
    code: int,
    words: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "net.py").write_text(NET.format(switch))
    asked = [
        "train",
        "net.py:Net",
        "--trust",
        "--input",
        "4x2",
        "--on",
        "moons",
        "--epochs",
        "1",
        "--out",
        "out",
    ]
    done = start(tmp_path, *asked)
    assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (
        code,
        True,
        False,
    ), done.stderr
    assert (
        "Put a layer with weights" not in done.stderr
        and "out_features" not in done.stderr
    )
