"""Muted nodes are passed by, frozen ones do not learn: in shapes, in source, in the file."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.edits import edits
from app.builder.graph import Graph
from app.project import file
from app.project.project import Project
from app.source.compiled import make_module

OPS = catalog()


def chain(*ops: str) -> Project:
    project, last = edits.add(Project(), OPS, ops[0], (0.0, 0.0))
    for op in ops[1:]:
        project, last = edits.add_behind(project, OPS, op, last, (0.0, 0.0))
    return project


def flagged(graph: Graph, *names: str, **flags: bool) -> Graph:
    for node in graph.nodes.values():
        if node.name in names:
            graph = graph.with_node(replace(node, **flags))
    return graph


def node(graph: Graph, name: str) -> str:
    return next(each.id for each in graph.nodes.values() if each.name == name)


def test_a_muted_layer_is_left_out_and_its_value_goes_on() -> None:
    graph = flagged(
        chain("input", "nn.Conv2d", "nn.ReLU", "output").graph, "conv1", muted=True
    )
    analysis = analyse(graph)
    assert analysis.runnable and "conv1" not in analysis.source.text
    assert str(analysis.values[node(graph, "conv1"), 0]) == "N×1×28×28"
    assert node(graph, "conv1") not in analysis.assumed and not analysis.problems
    assert make_module(analysis.source)(torch.zeros(2, 1, 28, 28)).shape == (
        2,
        1,
        28,
        28,
    )
    assert analysis.total_parameters == 0


@given(st.sets(st.integers(1, 6)))
def test_any_layers_of_a_chain_can_be_muted(which: set[int]) -> None:
    graph = chain(
        "input", *["nn.Conv2d", "nn.ReLU", "nn.BatchNorm2d"] * 2, "output"
    ).graph
    layers = list(graph.nodes)[1:-1]
    for index in which:
        graph = graph.with_node(replace(graph.nodes[layers[index - 1]], muted=True))
    analysis = analyse(graph)
    assert analysis.runnable
    assert len(list(make_module(analysis.source).children())) == 6 - len(which)


def test_the_branch_behind_a_muted_merge_is_not_needed() -> None:
    """A muted add hands on its first input; what only fed the other one is left out, with a word."""
    project = chain("input", "nn.Conv2d", "operator.add", "output")
    project, relu = edits.add_behind(
        project, OPS, "nn.ReLU", node(project.graph, "input"), (0.0, 0.0)
    )
    project = edits.connect(project, OPS, relu, 0, node(project.graph, "add1"), "other")
    analysis = analyse(flagged(project.graph, "add1", muted=True))
    assert relu not in analysis.live and "relu" not in analysis.source.text
    assert any(
        problem.node == relu and problem.severity == "warning"
        for problem in analysis.problems
    )


def test_a_muted_layer_without_input_gives_nothing() -> None:
    graph = flagged(chain("nn.ReLU", "nn.ReLU", "output").graph, "relu1", muted=True)
    analysis = analyse(graph)
    assert any(problem.node == node(graph, "relu2") for problem in analysis.errors)


def test_frozen_layers_do_not_learn() -> None:
    graph = flagged(
        chain("input", "nn.Conv2d", "nn.ReLU", "nn.Conv2d", "output").graph,
        "conv1",
        frozen=True,
    )
    analysis = analyse(graph)
    assert (
        "self.conv1 = nn.Conv2d(1, 32, 3).requires_grad_(False)" in analysis.source.text
    )
    learns = {
        name: value.requires_grad
        for name, value in make_module(analysis.source).named_parameters()
    }
    assert learns == {
        "conv1.weight": False,
        "conv1.bias": False,
        "conv2.weight": True,
        "conv2.bias": True,
    }


@pytest.mark.parametrize(
    "flags", [{"muted": True}, {"frozen": True}, {"muted": True, "frozen": True}]
)
def test_both_survive_the_file_and_the_clipboard(flags: dict[str, bool]) -> None:
    project = chain("input", "nn.Conv2d", "output")
    project = edits.changed(project, flagged(project.graph, "conv1", **flags))
    assert file.loads(file.dumps(project)) == project
    piece = edits.copy(project, project.graph.nodes)
    pasted, new = edits.paste(project, piece, 8, 8)
    assert sum(pasted.graph.nodes[each].muted for each in new) == flags.get(
        "muted", False
    )
    assert sum(pasted.graph.nodes[each].frozen for each in new) == flags.get(
        "frozen", False
    )
