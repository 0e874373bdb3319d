"""The backward pass of a snippet, step by step: the one that torch itself ran, else one that is run behind it."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as with_values

from app.engine.values import Codec
from app.features.snippets.values import ready
from tests.features.snippets.snippet_answers import ran

NET = """x = torch.linspace(-1, 1, 12).view(4, 3)
w = torch.ones(3, 3, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
h = torch.tanh(x @ w + b)
y = h * h + h.exp() @ w
loss = y.pow(2).mean()
"""


def timeless(result):
    return [with_values(record, seconds=0.0) for record in result.records]


def test_the_pass_that_torch_ran_tells_what_a_replay_of_the_same_graph_tells() -> None:
    watched = ran(NET + "loss.backward()", play=True).graph
    replayed = ran(NET, play=True).graph
    assert (
        watched.freed_at == 7
        and replayed.freed_at is None
        and watched.stopped == replayed.stopped == ""
    )
    assert watched.played.order == watched.tape.order == replayed.tape.order
    ours, theirs = timeless(watched.played), timeless(replayed.played)
    assert [one.arriving for one in ours] == [one.arriving for one in theirs]
    assert [one.leaving for one in ours] == [one.leaving for one in theirs]
    assert [one.fan_ins for one in ours] == [one.fan_ins for one in theirs] and any(
        one.fan_ins for one in ours
    )
    assert [(one.released, one.held) for one in ours] == [
        (one.released, one.held) for one in theirs
    ]
    assert all(record.seconds >= 0 for record in watched.played.records)


def test_the_gradients_of_leaves_are_those_that_the_snippet_has() -> None:
    answer = ran(NET + "loss.backward()", play=True)
    norms = {
        answer.graph.tape.nodes[node].parameters: norm
        for node, norm in answer.graph.played.node_norms.items()
        if answer.graph.tape.nodes[node].parameters
    }
    assert norms == {
        (name,): pytest.approx(answer.tensor(name).grad_norm) for name in ("w", "b")
    }


def without_addresses(text: str) -> str:
    return re.sub("0x[0-9a-f]+", "", text)


@pytest.mark.parametrize("one", ready(), ids=lambda one: one.key)
def test_a_ready_snippet_leaves_the_same_with_and_without(one) -> None:
    plain, played = ran(one.text), ran(one.text, play=True)
    assert (plain.ended, plain.tensors, plain.words) == (
        played.ended,
        played.tensors,
        played.words,
    )
    assert without_addresses(plain.output) == without_addresses(played.output)
    assert (plain.error and plain.error.message) == (
        played.error and played.error.message
    )
    bare = [replace(graph, played=None, stopped="") for graph in played.graphs]
    assert [graph.tape.order for graph in bare] == [
        graph.tape.order for graph in plain.graphs
    ]
    for graph in played.graphs[:1]:
        assert graph.played is not None or graph.stopped or graph.freed_at is not None
        if graph.played is not None:
            assert graph.played.order == graph.tape.order[: len(graph.played.order)]
            assert graph.stopped or len(graph.played.order) == len(graph.tape.order)
    assert Codec(0).decode(*Codec(1).encode(played)).graphs == played.graphs


def test_a_hook_of_the_text_prints_as_often_as_the_text_has_it() -> None:
    hook = "handle = w.register_hook(lambda g: print('hooked'))\n"
    assert ran(NET + hook + "loss.backward()", play=True).output == "hooked\n"
    assert ran(NET + hook, play=True).output == "", "no line of it runs backward"


def test_a_node_that_fails_ends_the_pass_before_it() -> None:
    answer = ran(
        "w = torch.ones(3, requires_grad=True)\nh = w.exp()\nz = h.sin() * 2\nh.add_(1)\n"
        "loss = z.sum()\nloss.backward()",
        play=True,
    )
    graph = answer.graph
    assert answer.error is not None and graph.played is not None
    assert (
        0 < len(graph.played.records) < len(graph.tape.order)
        and "modified by an inplace operation" in graph.stopped
    )


def test_gradients_of_some_tensors_alone_are_said_to_be_that() -> None:
    answer = ran(
        "w = torch.ones(3, requires_grad=True)\nloss = (w.exp() * w).sum()\n"
        "g, = torch.autograd.grad(loss, w)",
        play=True,
    )
    graph = answer.graph
    assert (
        graph.freed_at == 3
        and "torch ran" in graph.stopped
        and "only the gradients of some tensors" in graph.stopped
    )


def test_the_second_of_two_passes_is_the_one_that_is_told() -> None:
    answer = ran(
        NET + "loss.backward(retain_graph=True)\n(loss * 10).backward()", play=True
    )
    assert answer.graph.freed_at == 8
    kept = ran(
        NET + "loss.backward(retain_graph=True)\nloss.backward(torch.tensor(3.0))",
        play=True,
    ).graph
    assert kept.played.records[0].norm == 3.0


def test_vector_jacobian_product_starts_with_the_vector_and_without_one_with_ones() -> (
    None
):
    text = "x = torch.ones(4, requires_grad=True)\ny = x * 3\n"
    given = ran(
        text + "y.backward(torch.tensor([1.0, 2.0, 2.0, 4.0]))", play=True
    ).graph
    assert given.played.records[0].norm == 5.0 and given.played.records[-1].norm == 15.0
    assert ran(text, play=True).graph.played.records[0].norm == 2.0


def test_a_named_tensor_below_the_one_that_backward_began_at_is_played_with_what_arrived_there() -> (
    None
):
    text = "x = torch.ones(4, requires_grad=True)\nh = x.exp()\ny = h * h\n(y * 3).sum().backward()\n"
    answer = ran(text, play=True)
    graph = answer.graph_of("y")
    assert (
        graph is not None
        and graph.freed_at == 4
        and graph.stopped == ""
        and graph.played is not None
    )
    assert (
        graph.played.order == graph.tape.order and graph.played.records[0].norm == 6.0
    ), "3 for each of four"
    leaf = next(node.id for node in graph.tape.nodes if node.parameters == ("x",))
    assert graph.played.node_norms[leaf] == pytest.approx(answer.tensor("x").grad_norm)
    assert graph.played.records[-1].held == 0 and all(
        one.held >= 0 for one in graph.played.records
    )


def test_a_pass_from_a_tensor_without_a_name_is_played_where_nothing_else_has_a_graph() -> (
    None
):
    graph = ran(
        "x = torch.ones(3, requires_grad=True)\n(x * 2).sum().backward()", play=True
    ).graph
    assert (graph.name, graph.freed_at, graph.stopped) == (
        "backward() in line 2",
        2,
        "",
    )
    assert graph.played.order == graph.tape.order and len(graph.tape.nodes) == 3


def test_why_a_graph_is_not_played_is_said_truly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.features.snippets.compute.run.MOST_PLAYED", 3)
    monkeypatch.setattr("app.features.snippets.compute.snippet_tape.MOST_PLAYED", 3)
    for more in ("", "loss.backward()"):
        graph = ran(NET + more, play=True).graph
        assert (
            graph.played is None
            and "nodes, and of a file those of up to 3 are played" in graph.stopped
        )
