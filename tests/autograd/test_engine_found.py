"""What is read off a pass: recorded norms, the gain of each layer, dead units, and where the first NaN came from."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from app.autograd.batch import TrainingBatch, compile_batch
from app.autograd.diagnostics.dead_units import dead_units
from app.autograd.diagnostics.gradient_gain import ladder
from app.autograd.diagnostics.nonfinite import ForwardWatch
from app.autograd.playback.playback import Playback
from app.autograd.playback.recording import record
from app.source.generated import InputSpec, Source
from app.util.frozen import FrozenMap
from tests.support.playback_nets import NETS, batch, loss

# -- recorded ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["residual", "recurrent", "shared", "custom", "sparse", "complex", "attention"],
)
def test_a_real_pass_is_recorded_as_it_is_played(name: str) -> None:
    torch.manual_seed(0)
    x, y = batch()
    model = NETS[name]()
    with TrainingBatch(model, x, loss, y).hold() as graph:
        playback = Playback(graph)
        playback.run()
        played, tape = playback.result(), graph.tape
        with record(graph.ends) as recorder:
            graph.ends[0].backward()
        recorded = recorder.finish()
    assert recorded.fits(tape) and recorded.order == played.order
    assert dict(recorded.edge_norms) == pytest.approx(played.edge_norms, rel=1e-5)
    assert dict(recorded.node_norms) == pytest.approx(played.node_norms, rel=1e-5)
    assert all(map(math.isfinite, recorded.edge_norms.values()))


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("pool", [nn.MaxPool2d, nn.MaxPool3d])
def test_the_norm_behind_pooling_is_that_of_the_gradient_there(
    pool: Any, apart: bool
) -> None:
    torch.manual_seed(0)
    flat = pool is nn.MaxPool2d
    layers = (
        [pool(2), pool(2, padding=1)]
        if apart
        else [pool(3, stride=1), pool(2, dilation=2)]
    )
    x = torch.randn((2, 3, 9, 9) if flat else (1, 2, 9, 9, 9), requires_grad=True)
    inputs = [x * 1.0]
    for layer in layers:
        inputs.append(layer(inputs[-1]))
        inputs[-1].retain_grad()
    inputs[0].retain_grad()
    value = (inputs[-1] ** 2).sum()
    with record(value) as recorder:
        value.backward()
    found = recorder.finish()
    names = [found.names[node] for node in found.order]
    pooled = [
        node
        for node, name in zip(found.order, names, strict=True)
        if name.startswith("MaxPool")
    ]
    assert len(pooled) == len(layers)
    for node, given in zip(pooled, reversed(inputs[:-1]), strict=True):
        assert found.edge_norms[node, 0] == pytest.approx(
            given.grad.norm().item(), rel=1e-5
        )


def test_a_recorder_changes_nothing_and_leaves_nothing() -> None:
    x, y = batch()
    torch.manual_seed(0)
    model = NETS["residual"]()
    F.cross_entropy(model(x), y).backward()
    plain = [
        parameter.grad.clone()
        for parameter in model.parameters()
        if parameter.grad is not None
    ]
    model.zero_grad()
    value = F.cross_entropy(model(x), y)
    with record(value, scale=4.0) as recorder:
        (value * 1.0).backward(retain_graph=True)
        assert all(
            torch.equal(p.grad, g)
            for p, g in zip(model.parameters(), plain, strict=True)
        )  # type: ignore
    first = recorder.finish()
    value.backward()
    assert recorder.finish() == first  # the hooks are off
    assert first.node_norms[0] == pytest.approx(
        0.25
    )  # a gradient scaler's factor is divided out


def test_the_recorder_tells_the_first_node_that_is_not_finite() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    value = x.sqrt().mul(2).sum()
    with record(value) as recorder:
        value.backward()
    recorded = recorder.finish()
    bad = {
        source
        for (source, _), norm in recorded.edge_norms.items()
        if not math.isfinite(norm)
    }
    assert (
        recorded.names[next(node for node in recorded.order if node in bad)]
        == "SqrtBackward0"
    )


# -- gain --------------------------------------------------------------------------------------------------------------


class Chain(nn.Module):
    """Layers that each multiply the gradient by `factor`."""

    def __init__(self, factor: float, layers: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(layers))
        for parameter in self.parameters():
            parameter.data = torch.eye(4) * factor

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize(
    ("factor", "kind", "title"),
    [(0.125, "vanishes", "layers.2"), (20.0, "explodes", "layers.3"), (1.0, "", "")],
)
def test_the_first_layer_that_loses_the_gradient_is_named(
    factor: float, kind: str, title: str
) -> None:
    x = torch.ones(2, 4, requires_grad=True)
    with TrainingBatch(Chain(factor), x, lambda out, _: out.sum()).hold() as graph:
        playback = Playback(graph)
        playback.run()
        found = ladder(graph.tape, playback.result())
    assert [rung.title for rung in found.rungs] == [
        f"layers.{n}" for n in (5, 4, 3, 2, 1, 0)
    ]
    for steps, rung in enumerate(found.rungs, start=1):
        assert rung.gain == pytest.approx(factor) and rung.reach == pytest.approx(
            factor**steps
        )
        assert rung.parameters is not None
    assert [(lost.kind, lost.title) for lost in found.lost] == (
        [(kind, title)] if kind else []
    )
    assert not kind or found.lost[0].rule.endswith(
        {"vanishes": "less than 0.001", "explodes": "more than 1000"}[kind]
    )


def test_a_skip_shows_in_the_gain() -> None:
    x, y = batch()
    torch.manual_seed(0)
    with TrainingBatch(NETS["residual"](), x, loss, y).hold() as graph:
        with record(graph.ends) as recorder:
            graph.ends[0].backward()
        found = ladder(graph.tape, recorder.finish())
    assert [rung.title for rung in found.rungs] == [
        "head",
        "Residual",
        "relu",
        "b",
        "a",
    ]
    first = found["layer:a"]
    assert (
        first.gain is None and first.leaving is None and first.arriving is not None
    )  # nothing lies before it
    assert found.lost == ()


# -- dead --------------------------------------------------------------------------------------------------------------


def test_dead_units_are_seen_forward_and_backward() -> None:
    x, y = batch()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():
        model[0].bias[[1, 4]] = -100.0  # type: ignore[index, operator]
    with TrainingBatch(model, x, loss, y).hold() as graph:
        playback = Playback(graph)
        playback.run()
        found = {
            (dead.layer, dead.what): dead
            for dead in dead_units(graph, playback.gradients)
        }
    assert set(found) == {("1", "activation"), ("0", "output"), ("2", "input")}
    assert all(set(dead.which) >= {1, 4} and dead.units == 5 for dead in found.values())
    assert (
        found["0", "output"].parameter == "0.weight"
        and found["1", "activation"].share >= 0.4
    )


def test_rows_of_a_table_and_living_units_are_not_dead() -> None:
    model = nn.Sequential(
        nn.Embedding(50, 4), nn.Conv1d(3, 2, 2), nn.Flatten(), nn.Linear(6, 3)
    )
    torch.manual_seed(0)
    with TrainingBatch(
        model, torch.arange(6).view(2, 3), loss, torch.tensor([0, 1])
    ).hold() as graph:
        playback = Playback(graph)
        playback.run()
        assert dead_units(graph, playback.gradients) == ()


# -- not finite --------------------------------------------------------------------------------------------------------

TEXT = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        x = self.fc(x)
        x = x - x
        return x / x
"""
SOURCE = Source(
    TEXT,
    (InputSpec("x", (8,)),),
    ("out",),
    FrozenMap(n1=(8, 11), n2=(12,), n3=(13,)),
    FrozenMap(n1="fc"),
)


def test_the_first_nan_of_the_forward_has_its_line() -> None:
    x, y = batch()
    with ForwardWatch(SOURCE) as watch:
        compile_batch(SOURCE, x, y, nn.CrossEntropyLoss(), 0).hold().release()
    found = watch.found
    assert found is not None
    assert (found.op, found.value, found.made_here, found.line, found.node) == (
        "div",
        "NaN",
        True,
        13,
        "n3",
    )
    place = "In the forward pass, div of the network's own code, line 13 produced the first NaN."
    assert found.sentence() == f"{place} Here it divides by 0 at 18 of 18 elements."


def test_where_a_nan_came_in_and_where_an_inf_is_wanted() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
    x, y = batch()
    with ForwardWatch(model=model) as watch:
        model(x)
    assert watch.found is None
    x[2, 3] = float("nan")
    with ForwardWatch(model=model) as watch:
        model(x)
    assert watch.found is not None and (watch.found.layer, watch.found.made_here) == (
        "0",
        False,
    )
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    mask = torch.full((3, 3), float("-inf")).triu(1)
    with ForwardWatch(model=attention) as watch:
        attention(*[torch.randn(2, 3, 8)] * 3, attn_mask=mask)
    assert watch.found is None
    with ForwardWatch(model=model) as watch:
        F.cross_entropy(model(torch.randn(6, 8)), y) + torch.zeros(1).log()
    assert watch.found is not None and (
        watch.found.op,
        watch.found.value,
        watch.found.in_loss,
    ) == ("log", "Inf", True)
