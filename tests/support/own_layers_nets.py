"""A file of layers for tests, and a net over its classes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from app.builder.catalog import custom
from app.builder.catalog.catalog import Catalog, catalog
from app.builder.graph import Edge, Graph, Node
from app.project.project import Project
from app.source import layer_files
from app.util.frozen import FrozenMap

LAYERS = '''"""Layers of my own."""
import torch
from torch import Tensor, nn
from torch.autograd import Function


class Scaled(nn.Module):
    """Multiplies by weights that learn."""

    def __init__(self, features: int, start: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((features,), start))

    def forward(self, x: Tensor, power: int = 1) -> Tensor:
        return x * self.weight ** power


class Clip(Function):
    """Clamps, and doubles the gradient of what it let through."""

    @staticmethod
    def forward(ctx, x, low: float = -1.0, high: float = 1.0):
        ctx.save_for_backward(x)
        ctx.bounds = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        low, high = ctx.bounds
        return 2 * grad * ((x > low) & (x < high)), None, None


class Bad(nn.Module):
    def __init__(self, act: nn.Module):
        super().__init__()
        self.act = act

    def forward(self, x):
        return self.act(x)
'''

SCALED, CLIP = "custom.my_layers:Scaled", "custom.my_layers:Clip"


def marking(marker: Path) -> str:
    """The text of a file that leaves a mark when it is run, by whatever way."""
    return (
        f"import pathlib\npathlib.Path({str(marker)!r}).write_text('it ran')\n" + LAYERS
    )


def write(folder: Path, text: str = LAYERS, name: str = "my_layers.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def trust(path: Path) -> None:
    """As a person does, and as if its first import had been tried before."""
    layer_files.allow(layer_files.digest(custom.read_text(path)), tried=True)


def ops_with(*paths: Path) -> Catalog:
    return custom.with_custom(catalog(), custom.read_files(paths))


def chain(rows: Iterable[tuple[str, dict[str, object]]]) -> Graph:
    """Calls one behind the other; each takes what comes at its first port, called `x` in classes of files."""
    graph = Graph()
    before = None
    for number, (op, params) in enumerate(rows, 1):
        name = op.rpartition(":")[2].rpartition(".")[2].lower()
        graph = graph.with_node(
            Node(f"n{number}", op, f"{name}{number}", FrozenMap(params))
        )
        if before is not None:
            graph = graph.with_edge(
                Edge(before, 0, f"n{number}", "x" if custom.is_custom(op) else "input")
            )
        before = f"n{number}"
    return graph


def net() -> Graph:
    """A net on digits with a layer and a Function of the file."""
    return chain(
        [
            ("input", {"shape": (1, 8, 8)}),
            ("nn.Flatten", {}),
            ("nn.Linear", {"out_features": 16}),
            (CLIP, {"high": 0.5}),
            (SCALED, {"features": 16, "power": 2}),
            ("nn.Linear", {"out_features": 10}),
            ("output", {}),
        ]
    )


def project(path: Path) -> Project:
    return Project(name="own", graph=net(), layer_files=(str(path),))
