"""Nets whose first dimension is not the batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.features.importing.compute.pipeline import project_of, with_batch
from app.project import custom_layers, file
from app.source.compiled import make_module, random_inputs
from app.sources.spec import InputSpec


class Encoder(nn.Module):
    """(T, N, C), as recurrent layers and transformers have it."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(7, 1, 8))
        self.memory = nn.GRU(8, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        x, _ = self.memory(x + self.places)
        return self.out(self.layer(x).mean(0))


class Relative(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.take = nn.Linear(8, 24)
        self.bias = nn.Parameter(torch.randn(7, 7))

    def forward(self, x):
        t, n, c = x.shape
        q, k, v = self.take(x).view(t, n, 3, 2, 4).unbind(2)
        weights = torch.einsum("inhd,jnhd->nhij", q, k) + self.bias
        return torch.einsum("nhij,jnhd->inhd", weights.softmax(-1), v).reshape(t, n, c)


class OnePicture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x)).mean((1, 2)))


class OnGraph(nn.Module):
    """Nodes, and which of them are neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x, neighbours):
        beside = torch.softmax(neighbours + torch.eye(neighbours.size(0)), -1)
        return beside @ self.layer(x)


@pytest.mark.parametrize(
    ("model", "shapes", "batch"),
    [
        (Encoder(), [(7, 2, 8)], 1),
        (Relative(), [(7, 2, 8)], 1),
        (OnePicture(), [(3, 8, 8)], None),
        (OnGraph(), [(10, 6), (10, 10)], None),
        (nn.Linear(4, 2), [(3, 4)], 0),
    ],
)
def test_the_batch_is_found_where_the_shapes_fit(model, shapes, batch) -> None:
    inputs = tuple(map(InputSpec, shapes))
    project = project_of(model, inputs, "it")
    project = with_batch(project, inputs, catalog())
    assert file.loads(file.dumps(project)) == project
    answer = analyse(project.graph, custom_layers.ops_of(project))
    assert not answer.errors and [spec.batch for spec in answer.source.inputs] == [
        batch
    ] * len(shapes)
    net = make_module(answer.source)
    net.load_state_dict(model.state_dict(), strict=True)
    net.double().eval(), model.double().eval()
    for samples in (2, 5):
        given = [x.double() for x in random_inputs(answer.source, samples)]
        if batch is None:
            assert [tuple(x.shape) for x in given] == shapes
        torch.testing.assert_close(net(*given), model(*given), rtol=1e-10, atol=1e-12)


def test_a_batch_that_no_dimension_can_be_is_a_problem() -> None:
    from tests.support.builder_nets import net

    graph = net(
        [
            ("input", "in", {"shape": (3,), "batch": 2}),
            ("nn.ReLU", "act", {}),
            ("output", "out", {}),
        ]
    )
    assert any(
        "batch is dimension 2" in problem.message for problem in analyse(graph).errors
    )
    graph = net(
        [
            ("input", "in", {"shape": (7, 8), "batch": 1}),
            ("nn.ReLU", "act", {}),
            ("output", "out", {}),
        ]
    )
    assert "(7, N, 8)" in analyse(graph).source.text


def test_a_model_whose_training_wants_two_samples_is_imported_with_one() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Dropout(),
    )
    project = project_of(model, (InputSpec((1, 3, 8, 8)),), "it")
    assert "with an input of 2×3×8×8" in project.notes
    net = make_module(analyse(project.graph, custom_layers.ops_of(project)).source)
    net.load_state_dict(model.state_dict(), strict=True)
    x = torch.randn(1, 3, 8, 8)
    assert torch.equal(net.eval()(x), model.eval()(x))
