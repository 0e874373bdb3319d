"""A pass that is played gives the gradients of torch's own, in torch's own order, on every kind of net."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from app.autograd.batch import TrainingBatch, compile_batch
from app.autograd.capture import ReadyLoss
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.playback.playback import Playback
from app.autograd.playback.steps import PassResult
from app.builder.analysis import analyse
from app.project.custom_layers import ops_of
from app.project.file import read
from app.source.compiled import random_inputs
from app.util.resources import path as resource_path
from app.util.torchvision_import import import_torchvision
from tests.support.playback_nets import NETS, Several, batch, loss

EXAMPLES = sorted(resource_path("examples").glob("*.tape"))


def both(
    graph: LiveGraph, seeds: Sequence[Tensor | None] | None = None
) -> tuple[dict[str, Tensor], PassResult]:
    """Play the graph, then run torch's backward on it: the gradients and the order are the same. -> the played ones."""
    model = graph.model
    assert model is not None
    playback = Playback(graph, seeds=seeds)
    stop = playback.run()
    assert (stop.reason, stop.node, playback.held_bytes) == ("end", None, 0)
    assert all(parameter.grad is None for parameter in model.parameters())
    played, ran = playback.gradients, []
    for place, node in enumerate(graph.nodes):
        node.register_prehook(lambda *_, place=place: ran.append(place))
    pairs = [
        (e, None if seeds is None else seeds[i])
        for i, e in enumerate(graph.ends)
        if e.requires_grad
    ]
    torch.autograd.backward([end for end, _ in pairs], [seed for _, seed in pairs])
    assert playback.result().order == graph.tape.order == tuple(ran)
    real = {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    assert set(played) == set(real)
    for name, gradient in real.items():
        assert (
            played[name].dtype == gradient.dtype
            and played[name].is_sparse == gradient.is_sparse
        )
        bound = 1e-12 if gradient.dtype == torch.float64 else 1e-6
        assert torch.allclose(
            played[name].to_dense(), gradient.to_dense(), rtol=bound, atol=bound
        ), name
    return played, playback.result()


def every_node_has_its_layer(graph: LiveGraph) -> None:
    """Outside the loss: a call of a module, and that of a parameter is its owner or around it."""
    for node in graph.tape.nodes:
        assert node.in_loss or node.call, node
        assert not node.parameters or any(
            name.startswith(node.layer) for name in node.parameters
        ), node


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETS)
def test_the_gradients_are_those_of_backward(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = batch()
    with TrainingBatch(NETS[name]().to(dtype), x.to(dtype), loss, y).hold() as graph:
        every_node_has_its_layer(graph)
        played, _ = both(graph)
        assert (
            sum(bool(gradient.to_dense().any()) for gradient in played.values())
            > len(played) / 2
        )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_play_as_they_train(path: Path) -> None:
    project = read(path)
    source = analyse(project.graph, ops_of(project)).source
    x = random_inputs(source, 2)

    square = ReadyLoss(nn.MSELoss(), lambda out, target: (out.mean(), target))
    with compile_batch(source, x, torch.zeros(()), square, 0).hold() as graph:
        assert all(node.in_loss or node.node is not None for node in graph.tape.nodes)
        both(graph)


@pytest.mark.parametrize("make", ["resnet18", "vit_b_16"])
def test_the_nets_of_torchvision_play_as_they_train(make: str) -> None:
    models = import_torchvision("models")
    # The layers of vit_b_16, fewer and narrower: all its 86 million weights are slow to draw, and make no other nodes.
    model = (
        models.resnet18()
        if make == "resnet18"
        else models.VisionTransformer(32, 16, 3, 12, 48, 192)
    )
    with TrainingBatch(
        model, torch.randn(2, 3, 32, 32), loss, torch.tensor([0, 1])
    ).hold() as graph:
        every_node_has_its_layer(graph)
        both(graph)


def test_mixed_precision_plays_as_it_trains() -> None:
    x, y = batch()
    torch.manual_seed(0)
    with TrainingBatch(NETS["residual"](), x, loss, y).hold(
        around=torch.autocast("cpu", torch.bfloat16)
    ) as graph:
        assert any(node.name == "ToCopyBackward0" for node in graph.tape.nodes)
        _, result = both(graph)
    dtypes = {
        edge.stats.dtype
        for record in result.records
        for edge in record.leaving
        if edge.stats
    }
    assert dtypes == {"float32", "bfloat16"}


def test_several_outputs_start_with_the_vectors_that_are_given() -> None:
    x, _ = batch()
    vectors = [torch.randn(6, 4), torch.randn(6, 3), None]
    with TrainingBatch(Several(), x).hold() as graph:
        assert len(graph.ends) == 3
        both(graph, vectors)
    with TrainingBatch(Several(), x).hold() as graph:
        with pytest.raises(ValueError, match="vector of that shape"):
            Playback(graph)
        with pytest.raises(
            ValueError, match=r"has shape \(6, 4\); its vector has \(2,\)"
        ):
            Playback(graph, seeds=[torch.ones(2), None, None])
        with pytest.raises(ValueError, match="3 outputs need as many"):
            Playback(graph, seeds=[None])
        with pytest.raises(ValueError, match="no gradient to propagate"):
            Playback(graph, seeds=[None, None, None])
        playback = Playback(graph, seeds=[1.0, None, None])
        playback.run()
        (want,) = torch.autograd.grad(
            graph.ends[0].sum(), graph.model.a.weight, retain_graph=True
        )  # type: ignore
        assert torch.equal(playback.gradients["a.weight"], want)
        unreached = playback.result().by_node[
            next(n.id for n in graph.tape.nodes if n.parameters == ("head.weight",))
        ]
        assert unreached.arriving == (None,) and "head.weight" not in playback.gradients


def test_hooks_run_as_in_backward() -> None:
    """Of tensors, of leaves and before nodes; each once, on the whole sum."""
    x, y = batch()
    torch.manual_seed(0)
    model = NETS["residual"]()
    with TrainingBatch(model, x, loss, y).hold() as graph:
        plain = Playback(graph)
        plain.run()
    calls: list[str] = []

    def hook(name: str, factor: float) -> Callable[[Any], Any]:
        def changed(gradient: Tensor) -> Tensor:
            calls.append(name)
            return gradient * factor

        return changed

    model.a.weight.register_hook(hook("leaf", 5.0))
    with TrainingBatch(model, x, loss, y).hold() as graph:
        model.kept.register_hook(hook("tensor", 3.0))  # type: ignore[union-attr, operator]
        first = next(
            i
            for i, n in enumerate(graph.tape.nodes)
            if n.layer == "a" and n.name == "AddmmBackward0"
        )
        graph.nodes[first].register_prehook(lambda gradients: (gradients[0] * 2.0,))
        playback = Playback(graph)
        playback.run()
        assert calls == ["tensor", "leaf"]
        hooked = {
            record.node: record.hooked for record in playback.records if record.hooked
        }
        assert hooked[first] == (0,) and len(hooked) == 3
        got = playback.gradients
        torch.testing.assert_close(got["a.weight"], plain.gradients["a.weight"] * 30)
        torch.testing.assert_close(got["a.bias"], plain.gradients["a.bias"] * 6)
        torch.testing.assert_close(got["b.weight"], plain.gradients["b.weight"] * 3)


def test_a_gradient_that_can_be_differentiated() -> None:
    """With `create_graph` the nodes that backward makes are counted, and the gradients lead on."""
    x, y = batch(features=8)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3))
    with TrainingBatch(model, x, loss, y).hold() as graph:
        parameters = dict(model.named_parameters())
        before = torch._C._autograd._get_sequence_nr()
        real = torch.autograd.grad(
            graph.ends[0], list(parameters.values()), create_graph=True
        )
        made = torch._C._autograd._get_sequence_nr() - before
        playback = Playback(graph, create_graph=True)
        playback.run()
        assert sum(record.made for record in playback.records) == made > 0
        ours = [playback.gradients[name] for name in parameters]
        second = [
            torch.autograd.grad(
                sum(g.square().sum() for g in gs), model[0].weight, retain_graph=True
            )[0]
            for gs in (real, ours)
        ]
        assert torch.allclose(*second, atol=1e-6) and bool(second[0].any())
    with TrainingBatch(model, x, loss, y).hold() as graph:
        playback = Playback(graph)
        playback.run()
        assert not any(record.made for record in playback.records)


def test_a_run_beside_it_does_not_notice() -> None:
    """The part that is computed again draws the numbers of the forward, and the generator stands where it stood."""
    x, y = batch()
    model = NETS["checkpoint"]()
    state = torch.get_rng_state()
    with TrainingBatch(model, x, loss, y).hold() as graph:
        assert torch.equal(torch.get_rng_state(), state)
        playback = Playback(graph)
        playback.run()
        while playback.back():
            continue
        playback.run()
        assert torch.equal(torch.get_rng_state(), state)


def test_gradients_that_are_there_stay_untouched() -> None:
    x, y = batch()
    model = NETS["reentrant"]()
    there = {
        name: torch.full_like(parameter, 7.0)
        for name, parameter in model.named_parameters()
    }
    for name, parameter in model.named_parameters():
        parameter.grad = there[name]
    with TrainingBatch(model, x, loss, y).hold() as graph:
        playback = Playback(graph)
        playback.run()
        assert all(
            parameter.grad is there[name]
            for name, parameter in model.named_parameters()
        )
        assert all(bool((gradient == 7.0).all()) for gradient in there.values())
        inside = next(record for record in playback.records if record.inside)
        assert {name for name, _ in inside.inside} == {
            n for n, _ in model.named_parameters() if n.startswith("inner")
        }
