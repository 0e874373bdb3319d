"""A sheet as a picture: every wire once, blocks as groups, shapes on wires, names that nobody would choose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.diagram import Unfolded, to_drawing
from app.cli import run
from app.diagram.diagram import Drawing
from app.graphviz_export import has_dot, render, to_dot
from app.project.custom_layers import ops_of
from app.project.file import read
from app.project.project import Project
from app.util.resources import path as resource_path
from tests.support.needs import needs


def example(name: str) -> Project:
    return read(resource_path("examples") / f"{name}.tape")


def drawn(project: Project, unfolded: Unfolded) -> Drawing:
    ops = ops_of(project)
    return to_drawing(project, ops, analyse(project.graph, ops), unfolded, project.name)


def test_a_plain_net_has_a_box_a_node_and_an_arrow_a_wire() -> None:
    project = example("digits")
    drawing = drawn(project, "as drawn")
    assert len(drawing.boxes) == len(project.graph.nodes) and not drawing.groups
    assert [(arrow.source, arrow.target) for arrow in drawing.arrows] == [
        (edge.source, edge.target) for edge in project.graph.edges
    ]
    conv = next(box for box in drawing.boxes if box.title == "conv1")
    assert (conv.subtitle, conv.category, conv.lines) == (
        "Conv2d 1→32, 3×3",
        "conv",
        ("320 params",),
    )
    assert drawing.arrows[0].label == "N×1×8×8"


def test_blocks_are_groups_and_wires_lead_into_them() -> None:
    project = example("Residual net on digits")
    closed, open_ = drawn(project, "none"), drawn(project, "all")
    assert [box.title for box in closed.boxes if box.shape == "folded"] == [
        "stage1 ×3",
        "down",
        "stage2 ×2",
    ]
    assert [group.title for group in open_.groups] == ["stage1 ×3", "down", "stage2 ×2"]
    inner = {box.id: box for box in open_.boxes if box.group == open_.groups[0].id}
    assert {box.title for box in inner.values()} == {
        "conv1",
        "bn1",
        "relu1",
        "conv2",
        "bn2",
        "add",
        "relu2",
    }
    entering = [
        arrow
        for arrow in open_.arrows
        if arrow.target in inner and arrow.source not in inner
    ]
    assert sorted(inner[arrow.target].title for arrow in entering) == ["add", "conv1"]
    assert {arrow.label for arrow in entering} == {"N×32×8×8"} and len(
        {arrow.source for arrow in entering}
    ) == 1
    leaving = [
        arrow
        for arrow in open_.arrows
        if arrow.source in inner and arrow.target not in inner
    ]
    assert {inner[arrow.source].title for arrow in leaving} == {"relu2"}
    assert not any(box.category == "io" and box.group for box in open_.boxes)


def test_what_is_unfolded_on_the_canvas_is_open() -> None:
    project = example("Residual net on digits")
    down = next(node.id for node in project.graph.nodes.values() if node.name == "down")
    drawing = drawn(replace(project, unfolded=frozenset({down})), "as drawn")
    assert [group.title for group in drawing.groups] == ["down"]
    assert all(box.link == down for box in drawing.boxes if box.group is not None)


def test_without_shapes_it_is_drawn_all_the_same() -> None:
    project = example("Residual net on digits")
    drawing = to_drawing(project, ops_of(project), None, "all")
    assert len(drawing.boxes) == 31 and {arrow.label for arrow in drawing.arrows} == {
        ""
    }


@pytest.mark.skipif(not has_dot(), reason="Graphviz's dot is not installed")
def test_graphviz_finds_every_block_whatever_the_names() -> None:
    project = example("Residual net on digits")
    hostile = ['"', "\\", "<b>", "a\nb", "é漢字", "node", "&lt;", "}", "%", "x;y", " "]
    graph = project.graph
    for node, name in zip(list(graph.nodes), hostile, strict=True):
        graph = graph.with_name(node, name)
    drawing = to_drawing(
        replace(project, graph=graph), ops_of(project), None, "all", '"}'
    )
    objects = json.loads(render(to_dot(drawing), "json"))["objects"]
    assert (
        sum(one["name"].startswith("cluster") for one in objects)
        == len(drawing.groups)
        == 3
    )
    assert len(objects) == len(drawing.groups) + len(drawing.boxes)


@needs("export")
def test_the_command_draws_a_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = str(resource_path("examples") / "Residual net on digits.tape")
    whole, folded = tmp_path / "net.json", tmp_path / "folded.dot"
    assert run(["export", project, "--drawing", str(whole), "--unfolded"]) == 0
    assert run(["export", project, "--drawing", str(folded), "--folded"]) == 0
    assert capsys.readouterr().out.split("\n")[:2] == [str(whole), str(folded)]
    assert len(json.loads(whole.read_text("utf-8"))["groups"]) == 3
    assert "subgraph" not in folded.read_text("utf-8")
    assert run(["export", project, "--drawing", str(tmp_path / "net.gif")]) == 2
    assert (
        "net.gif ends in .gif; --drawing writes .svg or .pdf or .png or .tex or .dot or .json"
        in capsys.readouterr().err
    )
