"""One tensor under two names: drawn, written, counted once, untied, and what edits do to it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import apply_cure
from app.builder.edits.make_block import BlockError, make_block
from app.builder.graph import Edge, Graph, Node, Tie, merged
from app.project import file
from app.project.file import ProjectFileError
from app.project.project import Project
from app.util.frozen import FrozenMap


def net(name: str = "weight") -> Graph:
    nodes = (
        Node("a", "input", "x", FrozenMap({"shape": (4,)})),
        Node("b", "nn.Linear", "up", FrozenMap({"out_features": 4})),
        Node("c", "nn.ReLU", "act"),
        Node(
            "d",
            "nn.Linear",
            "down",
            FrozenMap({"out_features": 4}),
            tied=FrozenMap({name: Tie("b", "weight")}),
        ),
        Node("e", "output", "y"),
    )
    wires = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"))
    return Graph(
        FrozenMap({n.id: n for n in nodes}),
        tuple(Edge(a, 0, b, "input") for a, b in wires),
    )


def test_a_click_unties_it() -> None:
    answer = analyse(net())
    assert (
        answer.total_parameters == 16 + 4 + 4
        and "self.down.weight = self.up.weight" in answer.source.text
    )
    (told,) = answer.problems
    assert (
        told.severity == "info" and told.message == "down.weight is tied to up.weight"
    )
    after = analyse(apply_cure(net(), catalog(), told.cures[0]))
    assert (
        after.total_parameters == 40
        and not after.problems
        and ".weight =" not in after.source.text
    )


def test_what_cannot_be_one_tensor_says_so() -> None:
    (error,) = analyse(net("bias")).errors
    assert error.node == "d" and "4×4" in error.reason
    assert not analyse(apply_cure(net("bias"), catalog(), error.cures[0])).errors


def test_edits_keep_ties_whole() -> None:
    assert not net().without_nodes(["b"]).nodes["d"].tied
    graph, ids = merged(net(), net())
    assert graph.nodes[ids["d"]].tied["weight"].node == ids["b"]
    with pytest.raises(BlockError, match="both must be in the block"):
        make_block(Project(graph=net()), "", catalog(), ["d"], "Half")
    shared = net().with_shared("d", "b")
    assert not shared.nodes["d"].tied


def test_a_file_keeps_them_and_what_it_says_never_becomes_code() -> None:
    project = Project(graph=net())
    assert file.loads(file.dumps(project)).graph == net()
    for name in ('weight = __import__("os")', "a b", 'x"]', "class"):
        bad = net(name)
        with pytest.raises(ProjectFileError, match="is not a parameter name"):
            file.loads(file.dumps(replace(project, graph=bad)))
    lost = net().with_node(
        replace(net().nodes["d"], tied=FrozenMap({"weight": Tie("z", "weight")}))
    )
    with pytest.raises(ProjectFileError, match="which does not exist here"):
        file.loads(file.dumps(replace(project, graph=lost)))
