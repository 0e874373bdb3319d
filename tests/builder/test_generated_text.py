"""What the program writes is formatted, imports what it uses, uses what it makes, and runs by itself."""

from __future__ import annotations

import ast
import builtins
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from app.builder.analysis import analyse
from app.builder.codegen.call_code import WIDTH
from app.engine.tasks.import_model import make_torchvision
from app.engine.tasks.import_pipeline import project_of
from app.project import custom_layers, file
from app.source.compiled import make_module, random_inputs
from app.source.generated import Source
from app.sources.spec import InputSpec
from app.util.resources import path as resource_path
from tests.support.forked_python import run_forked

EXAMPLES = sorted((resource_path() / "examples").glob("*.tape"))
MODELS = {
    "resnet50": (2, 3, 64, 64),
    "densenet121": (2, 3, 64, 64),
    "swin_t": (1, 3, 56, 56),
    "convnext_tiny": (2, 3, 64, 64),
    "mobilenet_v3_small": (2, 3, 64, 64),
    "googlenet": (2, 3, 64, 64),
    "shufflenet_v2_x0_5": (2, 3, 64, 64),
    "fasterrcnn_mobilenet_v3_large_320_fpn.backbone": (2, 3, 64, 64),
}


def of_example(path: Path) -> Source:
    project = file.read(path)
    return analyse(project.graph, custom_layers.ops_of(project)).source


def of_model(name: str) -> Source:
    project = project_of(
        make_torchvision(name, {}, empty=True), (InputSpec(MODELS[name]),), name
    )
    return analyse(project.graph, custom_layers.ops_of(project)).source


TEXTS = [
    *(pytest.param(of_example, path, id=path.stem) for path in EXAMPLES),
    *(pytest.param(of_model, name, id=name) for name in MODELS),
]


def ruff(text: str, *command: str) -> str:
    """What ruff has to say of a text, with its own defaults."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--isolated",
            "--line-length",
            str(WIDTH),
            "-",
        ],
        input=text,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize(("made", "of"), TEXTS)
def test_the_text_is_formatted_and_uses_all_that_it_imports_and_makes(
    made: Callable[..., Source], of
) -> None:
    source = made(of)
    assert not ruff(source.text, "format", "--diff")
    assert not ruff(source.text, "check", "--select", "F,E,W,I")
    tree = ast.parse(source.text)
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    read = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert imported <= read and imported <= {"torch", "F", "nn", "ops"}
    bound = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert read <= imported | bound | set(dir(builtins))


CLEAN = """
import importlib.util, json, sys
sys.modules.update({name: None for name in ["app", *sys.modules] if name.partition(".")[0] in ("app", "tests")})
spec = importlib.util.spec_from_file_location("net", sys.argv[1])
net = importlib.util.module_from_spec(spec)
spec.loader.exec_module(net)
print(json.dumps([list(value.shape) for value in net.Net().state_dict().values()]))
"""


def test_the_text_runs_where_nothing_of_the_program_is(tmp_path) -> None:
    source = of_model("mobilenet_v3_small")
    (tmp_path / "net.py").write_text(source.text)
    (tmp_path / "clean.py").write_text(CLEAN)
    done = run_forked(tmp_path / "clean.py", str(tmp_path / "net.py"))
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout) == [
        list(value.shape) for value in make_module(source).state_dict().values()
    ]


class Windows(nn.Module):
    """Cuts a picture into windows of a size of its own."""

    def __init__(self, side: int, channels: int) -> None:
        super().__init__()
        self.side = side
        self.mix = nn.Parameter(torch.randn(side * side, side * side))
        self.bias = nn.Parameter(torch.randn(2 * channels, channels))

    def forward(self, x):
        n, c, h, w = x.shape
        down, right = (
            (self.side - h % self.side) % self.side,
            (self.side - w % self.side) % self.side,
        )
        y = F.pad(x, (0, right, 0, down))
        high, wide = y.shape[2] // self.side, y.shape[3] // self.side
        y = y.reshape(n, c, high, self.side, wide, self.side).permute(0, 1, 2, 4, 3, 5)
        y = (y.reshape(n, c, high * wide, self.side**2) @ self.mix).reshape(
            n, c, high, wide, self.side, self.side
        )
        y = y.permute(0, 1, 2, 4, 3, 5).reshape(
            n, c, high * self.side, wide * self.side
        )
        kept = torch.zeros(h, w, device=x.device)
        kept[:-1, 1:] = 1
        return y[:, :, :h, :w] * kept + F.conv2d(
            x, (self.bias[: self.bias.shape[1]])[:, :, None, None]
        )


def test_the_text_is_the_net_for_other_sizes_than_those_of_the_import() -> None:
    model = nn.Sequential(
        Windows(4, 3), Windows(5, 3), nn.Conv2d(3, 6, 3, stride=2), Windows(3, 6)
    ).double()
    project = project_of(model, (InputSpec((1, 3, 18, 18), "float64"),), "windows")
    source = analyse(project.graph, custom_layers.ops_of(project)).source
    assert source.text.count("class ") == 2 and ".clone()" not in source.text
    ours = make_module(source).double()
    ours.load_state_dict(model.state_dict(), strict=True)
    for shape in ((1, 3, 18, 18), (3, 3, 21, 30)):
        x = torch.randn(shape, dtype=torch.float64)
        torch.testing.assert_close(ours(x), model(x), rtol=1e-10, atol=1e-12)


class Normed(nn.Module):
    """A normalization by hand, of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale, self.shift = (
            nn.Parameter(torch.ones(channels)),
            nn.Parameter(torch.zeros(channels)),
        )
        self.channels = channels

    def forward(self, x):
        x = F.layer_norm(
            x.permute(0, 2, 3, 1), (self.channels,), self.scale, self.shift, 1e-6
        )
        return x.permute(0, 3, 1, 2)


def test_a_size_of_one_dimension_stays_one_where_a_function_wants_it() -> None:
    model = nn.Sequential(Normed(3), nn.Conv2d(3, 6, 1), Normed(6)).double()
    project = project_of(model, (InputSpec((2, 3, 4, 4), "float64"),), "normed")
    source = analyse(project.graph, custom_layers.ops_of(project)).source
    assert source.text.count("class ") == 2
    ours = make_module(source).double()
    ours.load_state_dict(model.state_dict(), strict=True)
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(ours(x), model(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_takes_what_it_says(path: Path) -> None:
    source = of_example(path)
    given = random_inputs(source, 2)
    output = make_module(source)(*given)
    assert given and len(output if isinstance(output, torch.Tensor) else output[0]) == 2
