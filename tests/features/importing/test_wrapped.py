"""`tapedeck import` of models with parts that torch.compile, DataParallel or torch.jit.script have wrapped."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

from app.cli import run

WRAPPED = """
import torch
from torch import nn

class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.g(torch.relu(self.f(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = PART
        self.wrapped = nn.DataParallel(Body())

    def forward(self, x):
        return self.first(x) + self.wrapped(x)
"""


def imported(folder: Path, part: str, name: str) -> list[str]:
    """Import the model with this part; return the keys of its weights."""
    Path(f"{name}.py").write_text(WRAPPED.replace("PART", part))
    assert (
        run(
            [
                "import",
                f"{name}.py:Net",
                "--trust",
                "--input",
                "2x4",
                "--out",
                f"{name}.tape",
            ]
        )
        == 0
    )
    return sorted(load_file(folder / f"{name}.safetensors"))


def keys(prefix: str) -> list[str]:
    return [
        f"{prefix}.{layer}.{tensor}" for layer in "fg" for tensor in ("bias", "weight")
    ]


def test_compiled_and_parallel_parts_are_drawn_call_by_call_with_the_keys_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = imported(
        tmp_path, "torch.compile(Body(), backend='eager')", "with_compiled"
    )
    assert found == sorted([*keys("first._orig_mod"), *keys("wrapped.module")])
    out = capsys.readouterr()
    assert (
        "Checked against the model" in out.out + out.err
        and "is one node" not in out.out + out.err
    )


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_a_scripted_part_is_one_node_among_the_compiled_and_parallel_ones_with_the_true_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    part = "torch.jit.script(Body()); self.compiled = torch.compile(Body(), backend='eager')"
    found = imported(tmp_path, part, "with_scripted")
    assert found == sorted(
        [*keys("first"), *keys("compiled._orig_mod"), *keys("wrapped.module")]
    )
    out = capsys.readouterr()
    text = out.out + out.err
    assert "Checked against the model" in text and "get_ident" not in text
    assert (
        "first (Body) is one node, run by its own code: it is compiled by torch.jit, so its Python code"
        in text
    )
