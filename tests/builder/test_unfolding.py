"""What is unfolded is part of a sheet: what stands around makes room, and has it back when it is folded."""

from __future__ import annotations

import json

from app.builder.arrange import DEFAULT, WIDTHS, Size, arrange
from app.builder.blocks import block_of
from app.builder.catalog.catalog import catalog
from app.builder.edits import (
    bends,
    blocks,
    comments,
    edits,
    expand_block,
    make_block,
    unfolding,
)
from app.builder.sheet import FRAME, Comment
from app.project import file
from app.project.project import Project
from app.views.canvas import clipboard
from tests.support.unfold_blocks import net

LARGE = Size(600.0, 300.0, 90.0)


def sizes(project: Project, name: str) -> list[dict[str, Size]]:
    """An unfolded block is large, and larger with another unfolded in it."""
    sheet = blocks.sheet_named(project, name)

    def size(node: str) -> Size:
        if node not in sheet.unfolded:
            return DEFAULT
        more = 200.0 * len(
            project.blocks[block_of(sheet.graph.nodes[node].op)].unfolded
        )
        return Size(LARGE.width + more, LARGE.height + more, LARGE.anchor)

    return [{node: size(node) for node in sheet.graph.nodes}]


def with_unfolded(project: Project, *nodes: str, sheet: str = "") -> Project:
    return unfolding.with_unfolded(project, {sheet: nodes}, sizes)


def named(project: Project, name: str) -> str:
    return next(node.id for node in project.graph.nodes.values() if node.name == name)


def test_room_is_made_and_given_back() -> None:
    project, _ = net()
    stage, cell, relu, linear = (
        named(project, name) for name in ("stage1", "cell1", "relu1", "fc1")
    )
    project, above = comments.add(project, Comment("above", 300.0, -200.0, 208.0, 64.0))
    project, around = comments.add(
        project, Comment("around", 200.0, -60.0, 300.0, 200.0, FRAME)
    )
    project = bends.with_points(project, project.graph.into(relu)[0], [(700.0, -20.0)])
    after = with_unfolded(project, stage)
    places, was = after.positions, project.positions
    right, down = (
        LARGE.width - DEFAULT.width,
        LARGE.height - LARGE.anchor - DEFAULT.height + DEFAULT.anchor,
    )
    up = LARGE.anchor - DEFAULT.anchor
    assert places[stage] == (was[stage][0], was[stage][1] - up)  # its port line stays
    assert places[cell] == (was[cell][0] + right, was[cell][1])
    assert places[linear] == (was[linear][0], was[linear][1] + down)
    assert after.comments[above].y == -200.0 - up
    frame = after.comments[around]
    assert (frame.y, frame.width, frame.height) == (
        -60.0 - up,
        300.0 + right,
        200.0 + up + down,
    )
    assert next(iter(after.bends.values())) == ((700.0, -20.0 - up),)
    assert with_unfolded(after) == project
    both = with_unfolded(project, stage, cell)
    assert with_unfolded(both) == project


def test_a_sheet_as_it_was_laid_out_is_laid_out_anew() -> None:
    project, _ = net()
    project = edits.changed(project, positions=arrange(project.graph, {}))
    after = unfolding.with_unfolded(
        project, {"": [named(project, "stage1")]}, sizes, Size(1200, 700, 0)
    )
    assert after.positions != project.positions
    widths = [1200 * times for times in WIDTHS]
    assert after.positions in [
        arrange(after.graph, sizes(after, "")[0], width) for width in widths
    ]
    folded = unfolding.with_unfolded(after, {"": []}, sizes, Size(1200, 700, 0))
    assert folded.positions in [arrange(folded.graph, {}, width) for width in widths]
    assert with_unfolded(folded, named(project, "stage1")).graph is project.graph


def test_what_is_unfolded_in_a_block_is_so_wherever_it_is_seen() -> None:
    project, _ = net()
    stage, cell = named(project, "stage1"), named(project, "cell1")
    once = with_unfolded(project, stage)
    twice = with_unfolded(once, "n2", sheet="Stage")
    assert (
        twice.blocks["Stage"].unfolded == {"n2"}
        and twice.blocks["Cell"] is project.blocks["Cell"]
    )
    assert (
        twice.positions[cell][0] == once.positions[cell][0] + 200.0
    )  # the network makes room too
    inner = twice.blocks["Stage"].positions
    assert (
        inner["n3"][0]
        == project.blocks["Stage"].positions["n3"][0] + LARGE.width - DEFAULT.width
    )
    assert with_unfolded(twice, sheet="Stage") == once
    folded = with_unfolded(project, "n2", sheet="Stage")
    assert folded.positions == project.positions  # nobody sees it


def test_level_by_level() -> None:
    project, _ = net()
    stage, cell = named(project, "stage1"), named(project, "cell1")
    first = unfolding.one_level(project, "")
    assert first == {"": {stage, cell}}
    project = unfolding.with_unfolded(project, first, sizes)
    second = unfolding.one_level(project, "")
    assert second == {"Stage": {"n2", "n3"}}
    project = unfolding.with_unfolded(project, second, sizes)
    assert unfolding.one_level(project, "") == {}
    assert unfolding.shown_within(project, "") == {
        "": {stage, cell},
        "Stage": {"n2", "n3"},
        "Cell": frozenset(),
    }
    assert unfolding.one_level(project, "", [named(project, "relu1")]) == {}


def test_only_instances_of_blocks_unfold() -> None:
    project, ops = net()
    stage = named(project, "stage1")
    project = with_unfolded(project, stage, named(project, "relu1"), "nobody")
    assert project.unfolded == {stage}
    assert edits.replace_op(project, ops, stage, "nn.ReLU").unfolded == frozenset()
    assert edits.delete(project, [stage]).unfolded == frozenset()
    assert edits.delete_and_reconnect(project, ops, [stage]).unfolded == frozenset()


def test_copies_stay_unfolded() -> None:
    project, _ = net()
    stage = named(project, "stage1")
    project = with_unfolded(project, stage)
    piece = edits.copy(project, [stage, named(project, "cell1")])
    pasted, new = edits.paste(project, piece, 32, 32)
    assert len(pasted.unfolded) == 2 and len(pasted.unfolded & new) == 1
    text = clipboard.to_text(piece, project.blocks)
    again, *_ = clipboard.from_text(text, catalog())
    assert again.unfolded == piece.unfolded


def test_a_block_taken_apart_or_made_keeps_what_is_unfolded() -> None:
    project, ops = net(unfolded=True)
    stage, cell = named(project, "stage1"), named(project, "cell1")
    expanded, new = expand_block.expand(project, "", ops, stage)
    assert len(expanded.unfolded) == 1 and expanded.unfolded <= new
    project = with_unfolded(project, cell)
    made, _ = make_block.make_block(project, "", ops, [stage, cell], "Both")
    assert made.unfolded == frozenset() and made.blocks["Both"].unfolded == {cell}


def test_it_is_saved_and_files_without_it_open() -> None:
    project, _ = net(unfolded=True)
    project = with_unfolded(project, named(project, "stage1"))
    data = file.dumps(project)
    assert file.loads(data) == project
    raw = json.loads(data)
    raw["unfolded"] = [*raw["unfolded"], "not there"]
    assert file.loads(json.dumps(raw).encode()) == project
    del raw["unfolded"], raw["blocks"][1]["unfolded"]
    old = file.loads(json.dumps(raw).encode())
    assert old.unfolded == old.blocks["Stage"].unfolded == frozenset()
