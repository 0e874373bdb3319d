"""The first cure offered fits both neighbours; those that remove a node are last."""

from __future__ import annotations

import ast
from pathlib import Path

from app.builder.analysis import analyse
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import (
    ChooseData,
    Cure,
    InsertBefore,
    Problem,
    RemoveNode,
    SetParam,
    apply_cure,
)
from app.builder.graph import Edge, Graph, Node
from app.util.frozen import FrozenMap


def chain(*nodes: Node) -> Graph:
    edges = (
        Edge(a.id, 0, b.id, "input") for a, b in zip(nodes, nodes[1:], strict=False)
    )
    return Graph(FrozenMap({node.id: node for node in nodes}), tuple(edges))


def cures(graph: Graph, node: str) -> list[str]:
    problems = analyse(graph, catalog()).problems
    return [cure.label for each in problems if each.node == node for cure in each.cures]


INPUT = Node("i", "input", "input", FrozenMap(shape=(3, 8, 8)))
OUTPUT = Node("o", "output", "output", FrozenMap())


def conv(key: str, name: str, kind: str = "nn.Conv2d") -> Node:
    return Node(key, kind, name, FrozenMap(out_channels=4, kernel_size=3, padding=1))


def test_a_layer_of_another_rank_becomes_one_that_fits_both_sides() -> None:
    graph = chain(
        INPUT,
        conv("a", "conv1"),
        conv("b", "conv2", "nn.Conv1d"),
        conv("c", "conv3"),
        OUTPUT,
    )
    assert cures(graph, "b")[0] == "Use Conv2d"


def test_a_flatten_too_early_is_moved_or_removed() -> None:
    flatten = Node("f", "nn.Flatten", "flatten1", FrozenMap())
    linear = Node("l", "nn.Linear", "fc1", FrozenMap(out_features=5))
    offered = cures(chain(INPUT, flatten, conv("a", "conv1"), linear, OUTPUT), "a")
    assert (
        offered[0] == "Move flatten1 behind conv1" and offered[-1] == "Remove flatten1"
    )


def test_a_net_without_an_output_gets_one_behind_its_last_layer() -> None:
    linear = Node("l", "nn.Linear", "fc", FrozenMap(out_features=5))
    graph = chain(INPUT, linear)
    problem = next(p for p in analyse(graph).problems if p.code == "no-output")
    assert [cure.label for cure in problem.cures] == ["Add an Output after fc"]
    mended = analyse(apply_cure(graph, catalog(), problem.cures[0]))
    assert mended.runnable and mended.source.outputs == ("output",)


def shortcut() -> Graph:
    """conv1 with 4 channels, and conv2 behind it with 8, added."""
    wide = Node("b", "nn.Conv2d", "conv2", FrozenMap(out_channels=8, kernel_size=1))
    add = Node("s", "operator.add", "add", FrozenMap())
    nodes = (INPUT, conv("a", "conv1"), wide, add, OUTPUT)
    wires = (("i", "a"), ("a", "b"), ("a", "s", "input"), ("b", "s", "other"))
    edges = [Edge(w[0], 0, w[1], w[2] if len(w) > 2 else "input") for w in wires]
    edges.append(Edge("s", 0, "o", "input"))
    return Graph(FrozenMap({node.id: node for node in nodes}), tuple(edges))


def test_channels_that_differ_are_named_and_set_at_their_layer_as_the_last_cure() -> (
    None
):
    graph = shortcut()
    (problem,) = analyse(graph).problems
    assert "The channels (dimension 1) are 4 from conv1" in problem.reason
    labels = [cure.label for cure in problem.cures]
    assert labels[0].startswith("Insert Conv2d 1×1")
    assert labels[-1].startswith("Set conv") and "instead of" in labels[-1]
    for cure in problem.cures:
        assert not analyse(apply_cure(graph, catalog(), cure)).errors


def test_a_block_behind_a_flatten_is_mended_from_outside() -> None:
    inner = chain(INPUT, conv("a", "conv1"), OUTPUT)
    block = Block("Pictures", inner)
    ops = with_blocks(catalog(), FrozenMap({"Pictures": block}))
    flatten = Node("f", "nn.Flatten", "flatten1", FrozenMap())
    user = Node("u", "block.Pictures", "pictures", FrozenMap())
    linear = Node("l", "nn.Linear", "fc1", FrozenMap(out_features=5))
    edges = [
        Edge(a, 0, b, port)
        for a, b, port in (
            ("i", "f", "input"),
            ("f", "u", block.inputs[0].name),
            ("u", "l", "input"),
            ("l", "o", "input"),
        )
    ]
    nodes = {node.id: node for node in (INPUT, flatten, user, linear, OUTPUT)}
    graph = Graph(FrozenMap(nodes), tuple(edges))
    problem = next(p for p in analyse(graph, ops).errors if p.node == "u")
    assert [cure.label for cure in problem.cures] == [
        "Move flatten1 behind pictures",
        "Remove flatten1",
    ]
    assert not analyse(apply_cure(graph, ops, problem.cures[0]), ops).errors


def test_cures_of_any_problem_fit_first_then_add_and_change_what_was_chosen_last() -> (
    None
):
    noise = Cure("Replace by noise", (ChooseData(""),), replaces=True)
    removed = Cure("Remove a", (RemoveNode("a"),))
    insert = Cure("Insert Flatten", (InsertBefore("a", "input", "nn.Flatten"),))
    shape = Cure("Set shape", (SetParam("a", "shape", (5,)),))
    problem = Problem("error", "a", "", cures=(noise, removed, insert, shape))
    assert problem.cures == (shape, insert, noise, removed)


def test_every_problem_has_a_code() -> None:
    for file in (Path(__file__).parents[2] / "app").rglob("*.py"):
        calls = (
            n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)
        )
        for call in calls:
            if isinstance(call.func, ast.Name) and call.func.id == "Problem":
                assert any(k.arg == "code" for k in call.keywords), (file, call.lineno)
