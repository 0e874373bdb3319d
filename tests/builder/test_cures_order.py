"""The first cure offered fits both neighbours; those that remove a node are last."""

from __future__ import annotations

import ast
from pathlib import Path

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import (
    ChooseData,
    Cure,
    InsertBefore,
    Problem,
    RemoveNode,
    SetParam,
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
