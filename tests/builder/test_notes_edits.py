"""Comments, frames and bends as values: what is taken along, what is kept, what goes."""

from __future__ import annotations

import pytest

from app.builder.arrange import DEFAULT
from app.builder.catalog.catalog import catalog
from app.builder.edits import bends, edits
from app.builder.edits import comments as notes_edits
from app.builder.edits.comments import Area
from app.builder.graph import Edge
from app.builder.sheet import COMMENT, FRAME, Comment
from app.project.project import Project

OPS = catalog()


@pytest.fixture
def row() -> Project:
    """input -> relu1 -> tanh1 -> output in a row, 240 apart."""
    project, last = edits.add(Project(), OPS, "input", (0.0, 0.0))
    for i, op in enumerate(("nn.ReLU", "nn.Tanh", "output"), start=1):
        project, last = edits.add_behind(project, OPS, op, last, (240.0 * i, 0.0))
    return project


def named(project: Project, name: str) -> str:
    return next(node.id for node in project.graph.nodes.values() if node.name == name)


def wire(project: Project, source: str, target: str) -> Edge:
    ends = (named(project, source), named(project, target))
    return next(
        edge for edge in project.graph.edges if (edge.source, edge.target) == ends
    )


SIZES = {f"n{i}": DEFAULT for i in range(1, 20)}


def test_a_frame_stands_round_its_nodes_and_takes_them_along(row: Project) -> None:
    held = {named(row, "relu1"), named(row, "tanh1")}
    project, frame = notes_edits.frame(row, held, SIZES, "act")
    nodes, notes = notes_edits.taken_along(project, [frame], SIZES)
    assert nodes == held and notes == {frame}
    moved = notes_edits.shift(project, nodes, notes, 8.0, 16.0)
    assert moved.positions[named(row, "relu1")] == (248.0, 16.0)
    assert moved.positions[named(row, "input")] == (0.0, 0.0)
    assert (moved.comments[frame].x, moved.comments[frame].y) == (
        project.comments[frame].x + 8,
        project.comments[frame].y + 16,
    )


def test_a_frame_in_a_frame_goes_along_and_the_outer_one_stays(row: Project) -> None:
    project, inner = notes_edits.frame(row, [named(row, "relu1")], SIZES, "inner")
    project, outer = notes_edits.frame(
        project, [named(row, "tanh1")], SIZES, "outer", [inner]
    )
    assert notes_edits.taken_along(project, [outer], SIZES)[1] == {inner, outer}
    assert notes_edits.taken_along(project, [inner], SIZES)[1] == {inner}


def test_a_comment_takes_nothing_along(row: Project) -> None:
    project, note = notes_edits.add(row, Comment("here", -50.0, -50.0, 900.0, 300.0))
    assert notes_edits.taken_along(project, [note], SIZES) == (frozenset(), {note})


def test_a_marquee_means_comments_that_it_touches_and_frames_that_it_encloses(
    row: Project,
) -> None:
    project, frame = notes_edits.frame(row, [named(row, "relu1")], SIZES, "")
    project, note = notes_edits.add(project, Comment("", 250.0, 200.0, 100.0, 40.0))
    assert notes_edits.touched(project.comments, Area(240, 0, 300, 220)) == {note}
    assert notes_edits.touched(project.comments, Area(100, -100, 500, 300)) == {
        note,
        frame,
    }


def test_fit_write_tint_resize_and_remove(row: Project) -> None:
    project, frame = notes_edits.frame(row, row.graph.nodes, SIZES, "all")
    wide = notes_edits.resize(project, frame, Area(-500, -500, 1500, 500))
    assert notes_edits.fit(wide, [frame], SIZES) == project
    small = notes_edits.resize(project, frame, Area(0, 0, 1, 1)).comments[frame]
    assert (
        small.width == notes_edits.LEAST_WIDTH
        and small.height == notes_edits.LEAST_HEIGHT
    )
    assert (
        notes_edits.write(project, frame, "whole", 900.0).comments[frame].height
        == 900.0
    )
    assert notes_edits.tint(project, [frame], "conv").comments[frame].color == "conv"
    assert notes_edits.remove(project, [frame]) == row


def test_a_copy_takes_notes_and_bends_along(row: Project) -> None:
    between = wire(row, "relu1", "tanh1")
    project = bends.with_points(row, between, [(420.0, 90.0)])
    project = bends.with_points(project, wire(row, "tanh1", "output"), [(700.0, 90.0)])
    project, frame = notes_edits.frame(
        project, [named(row, "relu1"), named(row, "tanh1")], SIZES, "act"
    )
    piece = edits.copy(project, [named(row, "relu1"), named(row, "tanh1")], [frame])
    assert list(piece.bends) == [between]
    pasted, new = edits.paste(project, piece, 10.0, 20.0)
    assert len(new) == 2
    (note,) = pasted.comments.keys() - project.comments.keys()
    assert (pasted.comments[note].kind, pasted.comments[note].x) == (
        FRAME,
        project.comments[frame].x + 10,
    )
    (led,) = pasted.bends.keys() - project.bends.keys()
    assert {led.source, led.target} == new and pasted.bends[led] == ((430.0, 110.0),)


def test_a_bend_is_put_on_the_nearest_stretch(row: Project) -> None:
    led = wire(row, "relu1", "tanh1")
    project, first = bends.add(row, led, (400.0, 100.0), (360.0, 36.0), (480.0, 36.0))
    project, second = bends.add(
        project, led, (450.0, 80.0), (360.0, 36.0), (480.0, 36.0)
    )
    assert (first, second) == (0, 1)
    assert project.bends[led] == ((400.0, 100.0), (450.0, 80.0))
    project = bends.move(project, led, 1, (456.0, 88.0))
    assert bends.remove(project, led, 0).bends[led] == ((456.0, 88.0),)
    assert bends.with_points(project, led, ()) == row


def test_bends_go_along_where_both_ends_do(row: Project) -> None:
    led = wire(row, "relu1", "tanh1")
    project = bends.with_points(row, led, [(420.0, 90.0)])
    both = edits.move(project, [led.source, led.target], 8.0, 0.0)
    assert both.bends[led] == ((428.0, 90.0),)
    assert edits.move(project, [led.source], 8.0, 0.0).bends == project.bends


def test_a_node_on_a_wire_takes_over_its_bends(row: Project) -> None:
    led = wire(row, "relu1", "tanh1")
    project = bends.with_points(row, led, [(390.0, 90.0), (470.0, 90.0)])
    inserted, new = edits.insert(project, OPS, "nn.Dropout", led, (430.0, 90.0))
    assert inserted.bends[inserted.graph.into(new)[0]] == ((390.0, 90.0),)
    assert inserted.bends[inserted.graph.out_of(new)[0]] == ((470.0, 90.0),)
    again = edits.delete_and_reconnect(inserted, OPS, [new])
    assert again.bends == project.bends
    assert not edits.delete(inserted, [new]).bends


def test_another_op_in_its_place_keeps_the_bends(row: Project) -> None:
    project = bends.with_points(row, wire(row, "relu1", "tanh1"), [(390.0, 90.0)])
    replaced = edits.replace_op(project, OPS, named(row, "tanh1"), "operator.add")
    assert list(replaced.bends.values()) == [((390.0, 90.0),)]


def test_notes_follow_a_new_layout(row: Project) -> None:
    project, frame = notes_edits.frame(
        row, [named(row, "relu1"), named(row, "tanh1")], SIZES, "act"
    )
    project, note = notes_edits.add(
        project, Comment("in", 0.0, -60.0, 100.0, 40.0, COMMENT)
    )
    places = project.positions.update(
        {named(row, "input"): (0.0, 100.0), named(row, "tanh1"): (240.0, 300.0)}
    )
    comments = notes_edits.carried(
        project.comments, project.positions, places, SIZES, fit_frames=True
    )
    assert comments[frame].width == 136 + 2 * notes_edits.PAD
    assert (comments[note].x, comments[note].y) == (0.0, 40.0)
