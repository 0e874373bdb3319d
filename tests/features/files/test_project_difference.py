"""What differs between two versions of a project is all told, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from app.builder.blocks import Block
from app.builder.graph import Edge, Node
from app.builder.origin import Origin
from app.builder.sheet import Comment
from app.features.files.project_difference import differences, lines, summary
from app.project import file
from app.project.project import LessonWork, Project
from app.sources.opened import OpenedModel
from app.sources.spec import parse_source
from app.training.config import Choice
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path

ONE = file.read(resource_path("examples", "digits.tape"))
CONV = next(node for node in ONE.graph.nodes.values() if node.name == "conv1")
NEW = Node("new", "nn.ReLU", "relu9")
EDGE = Edge(CONV.id, 0, "new", "input")
COMMENT = Comment("look here", 0, 0, 10, 10)

CHANGES: dict[str, tuple[Project, str]] = {
    "name": (replace(ONE, name="mine"), "~ name “digits” → “mine”"),
    "node": (replace(ONE, graph=ONE.graph.with_node(NEW)), "+ relu9 (nn.ReLU)"),
    "wire": (
        replace(ONE, graph=ONE.graph.with_node(NEW).with_edge(EDGE)),
        "+ wire conv1 → relu9",
    ),
    "param": (
        replace(ONE, graph=ONE.graph.with_param(CONV.id, "out_channels", 7)),
        "~ conv1: out_channels 32 → 7",
    ),
    "new param": (
        replace(ONE, graph=ONE.graph.with_param(CONV.id, "stride", 2)),
        "~ conv1: stride default → 2",
    ),
    "muted": (
        replace(ONE, graph=ONE.graph.with_node(replace(CONV, muted=True))),
        "~ conv1: muted False → True",
    ),
    "moved": (
        replace(ONE, positions=ONE.positions.set(CONV.id, (1.0, 2.0))),
        "~ 1 node moved",
    ),
    "comment": (replace(ONE, comments=FrozenMap(c1=COMMENT)), "+ comment “look here”"),
    "bend": (
        replace(ONE, bends=FrozenMap({ONE.graph.edges[0]: ((1.0, 1.0),)})),
        "~ bends of wires",
    ),
    "block": (replace(ONE, blocks=FrozenMap(B=Block("B"))), "+ B"),
    "unfolded": (
        replace(ONE, unfolded=frozenset({CONV.id})),
        "~ which blocks are unfolded",
    ),
    "layer file": (replace(ONE, layer_files=("/l.py",)), "+ /l.py"),
    "origin": (
        replace(ONE, origin=Origin("m.py:Net", "0")),
        "~ imported from no model → m.py:Net",
    ),
    "model": (
        replace(ONE, opened=OpenedModel(parse_source("m.py:Net"))),
        "~ a drawing → m.py:Net",
    ),
    "lesson": (
        replace(ONE, lesson=LessonWork("04-shapes", reached=("a", "b"))),
        "~ lesson 04-shapes, 2 goals reached",
    ),
    "notes": (replace(ONE, notes="a\nb"), "~ notes “” → “a b”"),
    "optimizer": (
        replace(
            ONE,
            training=replace(ONE.training, optimizer=Choice("Adam", FrozenMap(lr=0.5))),
        ),
        "~ optimizer.lr 0.001 → 0.5",
    ),
    "data": (
        replace(ONE, data=replace(ONE.data, shuffle=not ONE.data.shuffle)),
        "~ shuffle True → False",
    ),
}


def test_nothing_differs_from_itself() -> None:
    assert (
        differences(ONE, ONE) == ()
        and differences(ONE, file.loads(file.dumps(ONE))) == ()
    )


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_in_both_directions(name: str) -> None:
    after, line = CHANGES[name]
    assert line in lines(differences(ONE, after))
    back = lines(differences(after, ONE))
    assert len(back) == len(lines(differences(ONE, after)))
    if line.startswith("+"):
        assert f"-{line[1:]}" in back


def test_every_field_of_a_project_is_looked_at() -> None:
    """A field that is added to Project and forgotten here would differ unsaid."""
    touched = {
        name
        for after, _ in CHANGES.values()
        for name in Project.__struct_fields__
        if _differs(after, name)
    }
    assert touched == set(Project.__struct_fields__)


def _differs(after: Project, field: str) -> Any:
    return getattr(after, field) != getattr(ONE, field)


def test_a_change_inside_of_a_block_says_where() -> None:
    before = replace(ONE, blocks=FrozenMap(B=Block("B", ONE.graph, ONE.positions)))
    after = replace(
        ONE,
        blocks=FrozenMap(
            B=Block("B", ONE.graph.with_param(CONV.id, "stride", 2), ONE.positions)
        ),
    )
    assert lines(differences(before, after)) == (
        "@ Block B",
        "~ conv1: stride default → 2",
    )


def test_the_summary_counts() -> None:
    graph = ONE.graph.with_node(NEW).with_node(replace(NEW, id="newer", name="relu8"))
    after = replace(ONE, graph=graph, training=replace(ONE.training, epochs=2, seed=9))
    assert summary(differences(ONE, after)) == "2 nodes added, 2 settings changed"
    assert summary(()) == ""
