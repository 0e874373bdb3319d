"""One tensor under two names: an import draws it, counts it once, and writes it as people do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from app.builder.analysis import analyse
from app.builder.shapes.cost import cost
from app.project import custom_layers
from app.source.compiled import make_module
from tests.features.importing.importer.test_models import code_of, drawn, same


class Language(nn.Module):
    """The head is the table of the words, as language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.mix = (
            nn.Embedding(11, 6),
            nn.Sequential(nn.Linear(6, 6), nn.Tanh()),
        )
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x):
        return self.head(self.mix(self.wte(x)))


class Stack(nn.Module):
    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.embed, self.layers = (
            table,
            nn.ModuleList([nn.Linear(6, 6) for _ in range(2)]),
        )

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class Encoder(nn.Module):
    """A table that the model has beside the module that uses it, and a layer of two names deep inside."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Embedding(11, 6)
        self.encoder, self.other = Stack(self.shared), Stack(nn.Embedding(11, 6))
        self.other.layers[1].weight = self.encoder.layers[0].weight

    def forward(self, x):
        return self.encoder(x) + self.other(x)


@pytest.mark.parametrize("make", [Language, Encoder])
def test_a_tensor_of_two_names_stays_one(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = make()
    project = same(model, torch.randint(0, 11, (3, 4)))
    whole = sum(parameter.numel() for parameter in model.parameters())
    ours = make_module(code_of(project))
    assert sum(parameter.numel() for parameter in ours.parameters()) == whole
    ops = custom_layers.ops_of(project)
    assert (
        analyse(project.graph, ops).total_parameters
        == cost(project.graph, ops).parameters
        == whole
    )
    names = dict(model.named_parameters(remove_duplicate=False))
    mine = dict(ours.named_parameters(remove_duplicate=False))
    assert names.keys() == mine.keys()
    for one in names:
        for other in names:
            assert (names[one] is names[other]) == (mine[one] is mine[other])


def test_it_is_written_as_people_write_it() -> None:
    project = drawn(Language(), (3, 4), dtype="int64")
    assert "        self.head.weight = self.wte.weight\n" in code_of(project).text
