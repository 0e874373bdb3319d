"""Classes of one's own file and layers of torch that a drawing cannot name as they are: a generated layer each."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from app.builder.analysis import analyse
from app.cli import run
from app.project import custom_layers
from app.source.compiled import make_module
from app.sources.spec import InputSpec
from tests.features.importing.redrawn_nets import own_ops, redrawn
from tests.support.needs import needs


@pytest.fixture
def file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_trusted: None
) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path / "generated_net.py"
    sys.modules.pop("generated_net", None)


HEAD = """
import dataclasses
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.utils import parametrizations

class Out(NamedTuple):
    logits: torch.Tensor
    states: tuple
    cache: dict | None = None

@dataclasses.dataclass
class Config:
    width: int = 4
    act: type = nn.Tanh

class Head(nn.Module):
    \"\"\"It branches on a value, and returns a record.\"\"\"

    def __init__(self, config):
        super().__init__()
        self.fc, self.act = nn.Linear(config.width, config.width), config.act()

    def forward(self, x, scale: float = 1.0):
        y = self.act(self.fc(x)) * scale
        return Out(y * 2 if float(y.sum()) > 0 else y, (x, y + 1), {"steps": 3})

class _Private(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, x):
        return self.pair(x)

    def pair(self, x):
        return x * 2 if float(x.sum()) > 0 else x, x + 1
"""
RECORDS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)
        self.head, self.pair = Head(Config(act=nn.Sigmoid)), _Private(nn.Linear(2, 2))

    def forward(self, x):
        out = self.head(x, scale=0.5)
        one, other = self.pair(out.states[1])
        return self.last(out.logits + one - other), out[1][0]
"""


def test_a_class_of_ones_own_file_that_returns_a_record_is_one_node_with_an_output_for_each_tensor(
    file: Path,
) -> None:
    project, source = redrawn(file, HEAD + RECORDS, InputSpec((3, 4)))
    assert sorted(own_ops(project)) == [
        "custom.generated_net_Head:HeadLayer",
        "custom.generated_net_Private:PrivateLayer",
    ]
    outputs = custom_layers.ops_of(project)[
        "custom.generated_net_Head:HeadLayer"
    ].outputs
    assert [port.name for port in outputs] == ["logits", "states0", "states1"]
    assert (
        "self.last = nn.Linear(4, 3)" in source
        and "from generated_net_Head import HeadLayer\n" in source
    )
    texts = {Path(one).name: Path(one).read_text() for one in project.layer_files}
    assert (
        "super().__init__(Config(width=4, act=torch.nn.Sigmoid))"
        in texts["generated_net_Head.py"]
    )
    assert (
        "super().__init__(torch.nn.Linear(in_features=2, out_features=2))"
        in texts["generated_net_Private.py"]
    )


@pytest.mark.usefixtures("forked_trials")
@needs("export")
def test_a_model_of_ones_own_file_that_is_one_node_is_exported_with_the_fields_of_its_record(
    file: Path,
) -> None:
    given = {
        "Head(": "Net(",
        "config):": "width: int = 4):",
        "config.width": "width",
        "config.act": "nn.Tanh",
    }
    file.write_text(
        functools.reduce(lambda text, pair: text.replace(*pair), given.items(), HEAD)
    )
    out, code = file.parent / "net.tape", file.parent / "exported" / "model.py"
    code.parent.mkdir()
    assert (
        run(["import", f"{file}:Net", "--input", "3x4", "-o", str(out), "--trust"]) == 0
    )
    assert run(["export", str(out), "--code", str(code)]) == 0
    assert "from generated_net_Net import NetLayer" in code.read_text()
    assert (
        "return result.logits, result.states[0], result.states[1]\n"
        in (code.parent / "generated_net_Net.py").read_text()
    )


NORMS = """
def normed(layer):
    return nn.utils.spectral_norm(layer, n_power_iterations=2)

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = normed(nn.Conv2d(width, 2 * width, 3, padding=1, bias=False))
        self.skip = nn.Conv2d(width, 2 * width, 1)

    def forward(self, x):
        return nn.functional.leaky_relu(self.conv(x), 0.2) + self.skip(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(2), Block(4))
        self.up = parametrizations.spectral_norm(nn.ConvTranspose2d(8, 3, 2), eps=1e-6)
        self.fc = parametrizations.weight_norm(nn.Linear(3, 4))
        self.out = nn.utils.weight_norm(nn.Linear(4, 2), dim=None)

    def forward(self, x):
        return self.out(self.fc(self.up(self.blocks(x)).mean((2, 3))))
"""


def test_layers_with_spectral_norm_are_nodes_of_their_own_and_change_their_buffers_as_in_the_model(
    file: Path,
) -> None:
    project, source = redrawn(file, HEAD + NORMS, InputSpec((2, 2, 5, 5)))
    made = [op.rpartition(":")[2] for op in own_ops(project)]
    assert {
        "SpectralNormConv2d",
        "SpectralNormConvTranspose2d",
        "WeightNormLinear",
    } <= set(made)
    assert "self.skip = nn.Conv2d(" in source
    texts = "".join(Path(one).read_text() for one in project.layer_files)
    assert (
        'nn.utils.spectral_norm(self, "weight", n_power_iterations=2, eps=1e-12, dim=0)'
        in texts
    )
    assert (
        'nn.utils.parametrizations.spectral_norm(self, "weight", n_power_iterations=1, eps=1e-06, dim=1)'
        in texts
    )


DEPTH = """
def drop_path(x, rate, training):
    if rate == 0.0 or not training:
        return x
    keep = 1 - rate
    shape = (x.shape[0],) + (1,) * (x.ndim - 1)
    mask = keep + torch.rand(shape, dtype=x.dtype, device=x.device)
    mask.floor_()
    return x.div(keep) * mask

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        x = x + drop_path(self.one(self.norm(x)), 0.4, self.training)
        return x + drop_path(self.other(x).relu(), 0.2, self.training)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.last = nn.Sequential(Block(), Block()), nn.Linear(4, 2)

    def forward(self, x):
        x = self.blocks(x)
        if self.training:
            x = x + torch.randn_like(x) * 0.1
        return self.last(x.tanh())
"""


def test_stochastic_depth_within_layers_is_drawn_and_passed_on_by_the_mode(
    file: Path,
) -> None:
    project, source = redrawn(file, HEAD + DEPTH, InputSpec((3, 5, 4)))
    assert (
        set(own_ops(project)) == {"custom.by_mode:ByMode"}
        and len(own_ops(project)) == 3
    )
    assert len(project.blocks) >= 1 and source.count("nn.Linear(4, 4)") == 2
    net = make_module(analyse(project.graph, custom_layers.ops_of(project)).source)
    x = torch.randn(3, 5, 4)
    assert torch.equal(net.eval()(x), net(x)) and not torch.equal(
        net.train()(x), net(x)
    )
