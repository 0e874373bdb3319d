"""Tensors that are in no state_dict stand in the source: as a word, as numbers, or as a text."""

from __future__ import annotations

import ast

import pytest
import torch
from torch import nn

from app.builder.codegen import tensor_literals, tensor_values
from app.features.importing.compute.lowering.lowering import LONGEST
from app.features.importing.compute.pipeline import project_of
from app.features.importing.values import ModelImportError
from app.sources.spec import InputSpec
from tests.features.importing.importer.test_models import code_of, drawn, same


class Holding(nn.Module):
    """Adds what it holds: a buffer that is in no state_dict, and a plain attribute."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("held", value, persistent=False)
        self.plain = value.clone()

    def forward(self, x):
        return (
            self.linear(x)
            + self.held.float().mean()
            + (x[:, :1, None] * self.plain).sum()
        )


class Rotating(nn.Module):
    def __init__(self, places: int = 7) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        angles = torch.outer(torch.arange(float(places)), 1 / 10 ** torch.arange(4.0))
        self.register_buffer(
            "turns", torch.polar(torch.ones_like(angles), angles), persistent=False
        )

    def forward(self, x):
        x = self.linear(x)
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns).flatten(2).type_as(x)


class Looking(nn.Module):
    """A table of places as in windowed attention, under one name and as one tensor of two modules."""

    def __init__(self, side: int = 9) -> None:
        super().__init__()
        at = torch.stack(
            torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        ).flatten(1)
        apart = (at[:, :, None] - at[:, None, :]).abs()
        self.register_buffer("places", apart[0] * side + apart[1], persistent=False)
        self.bias = nn.Parameter(torch.randn(2, side * side))

    def forward(self, x):
        return x.unsqueeze(1) + self.bias[:, self.places]


def test_many_values_are_a_text_that_comes_back_to_the_bit() -> None:
    project = same(Looking(), torch.randn(3, 81, 81))
    text = code_of(project).text
    assert "unpacked(" in text and text.startswith(
        "import base64\nimport zlib\n\nimport torch\n"
    )
    assert len(text) < 4000 and max(map(len, text.split("\n"))) <= 120
    held = tensor_values.packed(values := torch.randn(50, 60, dtype=torch.bfloat16))
    assert torch.equal(tensor_values.unpacked(held, torch.bfloat16, (50, 60)), values)


def test_complex_values_are_packed() -> None:
    same(Rotating(), torch.randn(3, 7, 8))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (torch.zeros(100, 100), "torch.zeros(100, 100)"),
        (torch.ones(70, 90).bool(), "torch.ones(70, 90, dtype=torch.bool)"),
        (torch.full((5000,), 3), "torch.full((5000,), 3, dtype=torch.int64)"),
        (torch.eye(80), "torch.eye(80)"),
        (torch.arange(6000).view(60, 100), "torch.arange(6000).view(60, 100)"),
        (torch.ones(1, 90, 90).tril(), "torch.ones(1, 90, 90).tril()"),
        (
            torch.ones(90, 90, dtype=torch.bool).triu(),
            "torch.ones(90, 90, dtype=torch.bool).triu()",
        ),
        (torch.tensor([0.5, -1.0]), "torch.tensor([0.5, -1.0], dtype=torch.float32)"),
    ],
)
def test_what_a_word_says_is_said_so(value, written) -> None:
    assert (
        code_of(same(Holding(value), torch.randn(3, 8))).text.count(
            f"nn.Buffer({written}, persistent=False)"
        )
        == 2
    )


def test_what_is_too_much_for_source_is_refused_with_the_cure() -> None:
    with pytest.raises(ModelImportError, match="register it as a buffer that is"):
        project_of(Holding(torch.randn(LONGEST)), (InputSpec((3, 8)),), "it")


@pytest.mark.parametrize(
    "text",
    ['a"+__import__("os")', "a\nb", "", "{" * (tensor_literals.LONGEST + 1), "é"],
)
def test_no_text_changes_the_source(text) -> None:
    assert not tensor_literals.is_packed(text)


def test_a_text_of_other_values_is_a_problem_of_its_node() -> None:
    from app.builder.analysis import analyse

    project = drawn(Looking(), (3, 81, 81))
    node = next(node for node in project.graph.nodes.values() if node.op == "packed")
    from msgspec.structs import replace

    for wrong in ("00000", "c-muNXs~BsU~m8c1cLzp"):
        changed = replace(node, params=node.params.set("values", wrong))
        graph = replace(project.graph, nodes=project.graph.nodes.set(node.id, changed))
        assert any(problem.node == node.id for problem in analyse(graph).errors)
        ast.parse(analyse(graph).source.text)


class Cached(nn.Module):
    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("table", table)

    def forward(self, x):
        return self.linear(x) * self.table


class Twice(nn.Module):
    """One buffer under two names, which are both keys."""

    def __init__(self) -> None:
        super().__init__()
        table = torch.randn(8)
        self.first, self.second = Cached(table), Cached(table)

    def forward(self, x):
        return self.second(self.first(x))


def test_a_buffer_under_two_names_is_a_buffer_under_each() -> None:
    project = same(Twice(), torch.randn(3, 8))
    assert project.blocks.keys() == {"Cached"}


def test_statistics_that_two_normalizations_share_are_not_drawn_apart() -> None:
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4))
    net[2].running_mean = net[0].running_mean
    with pytest.raises(ModelImportError, match="are the same tensor"):
        project_of(net, (InputSpec((3, 4)),), "it")
