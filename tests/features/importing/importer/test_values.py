"""What an import keeps of a model's values: weights unless they are left out, buffers and constants always."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file
from torch import nn

from app.builder.analysis import analyse
from app.cli import run
from app.preflight import preflight
from app.project import custom_layers
from app.project import file as project_file
from app.project.drawing_digest import imported as imported_net
from app.project.weights import model_buffers
from app.training.setup.initial_weights import initial_weights
from tests.support.needs import needs

# A causal mask, a bias by relative places, places of tokens, statistics, and values that are in no state_dict.
TEXT = """
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)).view(1, 1, 6, 6))
        places = torch.arange(6)
        self.register_buffer("index", (places[:, None] - places[None, :] + 5) % 7)
        self.table = nn.Parameter(torch.randn(11, 2) * 0.1)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = F.linear(x, self.qkv.weight, self.qkv.bias).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / 2 + F.embedding(self.index, self.table).permute(2, 0, 1)
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
        return (scores @ v).transpose(1, 2).reshape(b, t, c)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.empty(1, 6, 8))
        nn.init.trunc_normal_(self.places, std=0.02)
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("shift", torch.rand(8))
        self.register_buffer("hidden", torch.rand(8), persistent=False)
        self.loose = torch.rand(8, dtype=torch.float64).float()
        self.first, self.second = Attention(), Attention()
        self.norm = nn.BatchNorm1d(8)
        self.norm.running_mean.uniform_()

    def forward(self, x):
        x = x * self.scale + self.places + self.shift
        x = self.second(self.first(x) + self.hidden)
        return self.norm(x.transpose(1, 2)) + self.loose.unsqueeze(1)


def make():
    torch.manual_seed(4)
    return Net()
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "masked.py"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def imported(file: Path) -> dict[str, Path]:
    """Projects of the model, with the defaults and without its weights."""
    found = {}
    for name, more in {"default": [], "bare": ["--no-weights"]}.items():
        found[name] = file.parent / f"{name}.tape"
        asked = [
            "import",
            f"{file}:make()",
            "--input",
            "2x6x8",
            "--trust",
            "-o",
            str(found[name]),
            *more,
        ]
        assert run(asked) == 0
    return found


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = found
    spec.loader.exec_module(found)
    return found


def source_of(project: project_file.Project):
    return analyse(project.graph, custom_layers.ops_of(project)).source


def gradients(net: nn.Module, x: torch.Tensor, train: bool) -> dict[str, torch.Tensor]:
    """Outputs, gradients and buffers of one step in double precision."""
    net.double().train(train)
    net.zero_grad()
    leaf = x.clone().requires_grad_()
    y = net(leaf)
    y.pow(2).sum().backward()
    found = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    return {
        "y": y.detach(),
        "x": leaf.grad,
        **found,
        **{n: b.clone() for n, b in net.named_buffers()},
    }


@pytest.mark.parametrize("train", [False, True])
@needs("export")
def test_an_import_without_options_is_exported_as_the_source_model(
    imported, file, tmp_path, train
) -> None:
    code, weights = tmp_path / "model.py", tmp_path / "w.safetensors"
    assert (
        run(
            [
                "export",
                str(imported["default"]),
                "--code",
                str(code),
                "--weights",
                str(weights),
            ]
        )
        == 0
    )
    ours = module_of(code).Net()
    ours.load_state_dict(load_file(weights), strict=True)
    theirs = module_of(file).make()
    x = torch.randn(3, 6, 8, dtype=torch.float64)
    one, other = gradients(ours, x, train), gradients(theirs, x, train)
    assert set(one) >= set(other) - {"hidden"} and torch.isfinite(one["y"]).all()
    for key in set(other) - {"hidden"}:
        torch.testing.assert_close(
            one[key], other[key], rtol=1e-10, atol=1e-12, msg=key
        )


def test_without_its_weights_every_buffer_is_still_that_of_the_model(
    imported, file
) -> None:
    project = project_file.read(imported["bare"])
    source = source_of(project)
    state = initial_weights(source, project.training.seed, project.training.start)
    theirs = module_of(file).make().state_dict()
    buffers = [
        key
        for key in theirs
        if "weight" not in key and "bias" not in key and key not in ("places",)
    ]
    buffers = [key for key in buffers if not key.endswith("table")]
    assert set(buffers) >= {
        "first.mask",
        "second.index",
        "scale",
        "shift",
        "norm.running_mean",
    }
    assert all(torch.equal(state[key], theirs[key]) for key in buffers)
    assert not torch.equal(
        state["norm.weight"] * 0 + state["first.qkv.weight"][0, 0],
        theirs["norm.weight"],
    )
    held = load_file(project.training.start.path)
    assert (
        set(held)
        == set(project.origin.buffers)
        == {"first.index", "second.index", "shift", "norm.running_mean"}
    )


def test_random_weights_leave_the_buffers_and_other_weights_without_them_are_warned_about(
    imported, tmp_path
) -> None:
    project = project_file.read(imported["default"])
    source = source_of(project)
    begins = model_buffers.random_start(project)
    state = initial_weights(source, 0, begins)
    held = load_file(project.training.start.path)
    assert torch.equal(state["first.index"], held["first.index"]) and torch.equal(
        state["shift"], held["shift"]
    )
    assert not torch.equal(state["first.qkv.weight"], held["first.qkv.weight"])
    assert (
        model_buffers.lost_buffers(project_file.with_start(project, begins), source)
        == ()
    )
    (warning,) = model_buffers.lost_buffers(
        project_file.with_start(project, None), source
    )
    assert (
        warning.severity == "warning"
        and "4 buffers differ from those of masked.py:make()" in warning.message
    )
    assert warning.cures[0].settings == {"start": begins}
    project = project_file.with_start(project, None)
    assert warning in preflight.problems(
        project, analyse(project.graph, custom_layers.ops_of(project))
    )


def test_the_files_of_the_source_are_copied_with_the_project(
    imported, tmp_path
) -> None:
    project = project_file.read(imported["default"])
    start = replace(
        project.training.start, keys=("shift",), path=project.training.start.path
    )
    other = tmp_path / "other"
    other.mkdir()
    project_file.write(project_file.with_start(project, start), other / "copy.tape")
    again = project_file.read(other / "copy.tape")
    files = (again.origin.weights, again.origin.reference)
    assert [Path(file.path).name for file in files] == [
        "copy.safetensors",
        "copy.reference.safetensors",
    ]
    assert all(
        Path(file.path).parent == other and Path(file.path).is_file() for file in files
    )
    assert again.origin == replace(project.origin, weights=files[0], reference=files[1])
    assert not imported_net(again, source_of(again)).edited
