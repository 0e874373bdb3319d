"""A model whose tensors have several dtypes keeps each of them, from its file to what is exported of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from app.cli import run
from tests.support import own_code
from tests.support.needs import needs

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6).to(torch.bfloat16)
        self.last = nn.Linear(6, 2)
        self.register_buffer("table", torch.tensor([-3, 0, 127, -128, 5, 1], dtype=torch.int8))

    def forward(self, x):
        h = self.first(x.to(torch.bfloat16)).relu()
        return self.last(h.to(torch.float32) + self.table)
"""


def net_of(path: Path) -> nn.Module:
    names: dict[str, type[nn.Module]] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names["Net"]().eval()


def altered(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Other values of the same dtypes, with all bits that a float has."""
    torch.manual_seed(5)
    return {
        name: torch.randn(value.shape).to(value.dtype)
        if value.is_floating_point()
        else value - 7
        for name, value in state.items()
    }


def bits(state: dict[str, torch.Tensor]) -> dict[str, tuple[torch.dtype, bytes]]:
    return {
        name: (value.dtype, value.contiguous().view(torch.uint8).numpy().tobytes())
        for name, value in state.items()
    }


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@needs("export")
def test_tensors_of_several_dtypes_are_bit_for_bit_those_of_the_model(
    suffix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from safetensors.torch import load_file

    from tests.features.export.export_here import work_here

    work_here(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    own_code.trust("net.py:Net")
    theirs = net_of(Path("net.py"))
    state = theirs.state_dict()
    if suffix == ".safetensors":  # other values, from a state_dict
        state = altered(state)
        theirs.load_state_dict(state)
    torch.save(state, "start.pt")

    assert run(["import", "net.py:Net", "--input", "2x4", "-o", "p.tape"]) == 0
    assert "gradients in bfloat16 and float32" in capsys.readouterr().out
    assert run(["import", "start.pt", "--into", "p.tape", "--strict"]) == 0
    weights = Path(f"weights{suffix}")
    asked = ["--code", "model.py", "--weights", str(weights), "--certify"]
    assert run(["export", "p.tape", *asked]) == 0
    certified = capsys.readouterr().out
    assert "gradients in train mode, bfloat16 and float32 (5 tensors)" in certified
    assert "buffers in train mode, int8 (1 tensor)" in certified
    assert "outputs in eval mode, float32" in certified

    loaded = torch.load(weights) if suffix == ".pt" else load_file(weights)
    assert bits(loaded) == bits(state)
    ours = net_of(Path("model.py"))
    ours.load_state_dict(loaded)
    assert bits(ours.state_dict()) == bits(state)
    x = torch.randn(3, 4)
    outputs = {name: net(x) for name, net in {"ours": ours, "theirs": theirs}.items()}
    assert torch.equal(outputs["ours"], outputs["theirs"])
