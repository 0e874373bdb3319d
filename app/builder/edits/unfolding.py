"""Unfolding of block instances in place, and the room that they take on their sheet.

An unfolded instance shows its block's sheet. So what is unfolded within a block is unfolded in all of its instances,
and each sheet that shows one makes room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from app.builder import layout
from app.builder.arrange import ROW_WIDTH, WIDTHS, Size
from app.builder.blocks import block_of, contained
from app.builder.edits import edits
from app.builder.edits.blocks import NETWORK, Whole, sheet_named, sheets, with_sheet
from app.builder.sheet import Comment, Point, Sheet
from app.util.frozen import FrozenMap

W = TypeVar("W", bound=Whole)
S = TypeVar("S", bound=Sheet)

MANY = 400  # nodes; rows of more stay as wide as they were, since trying others takes too long

Sizes = Callable[[Any, str], Sequence[Mapping[str, Size]]]


def shown_within(
    project: Whole, name: str, nodes: Collection[str] | None = None
) -> dict[str, frozenset[str]]:
    """Return the unfolded nodes by sheet, as far as visible from the sheet `name`, or from some nodes of it."""
    unfolded_by_sheet: dict[str, frozenset[str]] = {}
    waiting = [name]
    for sheet in waiting:
        drawn = sheet_named(project, sheet)
        here = (
            drawn.unfolded
            if sheet != name or nodes is None
            else drawn.unfolded & frozenset(nodes)
        )
        unfolded_by_sheet[sheet] = here
        for node in here:
            inner = block_of(drawn.graph.nodes[node].op)
            if (
                inner in project.blocks
                and inner not in unfolded_by_sheet
                and inner not in waiting
            ):
                waiting.append(inner)
    return unfolded_by_sheet


def one_level(
    project: Whole, name: str, nodes: Collection[str] | None = None
) -> dict[str, frozenset[str]]:
    """Return the unfolded nodes by sheet after unfolding every visible folded instance."""
    further: dict[str, frozenset[str]] = {}
    for sheet in shown_within(project, name, nodes):
        drawn = sheet_named(project, sheet)
        unfoldable = instances_on(project, sheet)
        if sheet == name and nodes is not None:
            unfoldable &= frozenset(nodes)
        if not unfoldable <= drawn.unfolded:
            further[sheet] = drawn.unfolded | unfoldable
    return further


def instances_on(project: Whole, name: str) -> frozenset[str]:
    """Return the nodes of a sheet that can be unfolded."""
    graph = sheet_named(project, name).graph
    ops = {op for op in graph.ops if block_of(op) in project.blocks}
    return (
        frozenset(node.id for node in graph.nodes.values() if node.op in ops)
        if ops
        else frozenset()
    )


def with_unfolded(
    project: W,
    unfolded_by_sheet: Mapping[str, Collection[str]],
    sizes: Sizes,
    room: Size | None = None,
) -> W:
    """Set the unfolded instances by name of the sheet; sheets that are not listed stay unchanged.

    `sizes(project, sheet)` returns the sizes of a sheet's nodes, then those for which it may have been laid out. A
    sheet in automatic layout is laid out again, for a window of the size of `room`; on any other the surroundings are
    shifted, and shifted back when the instance is folded.
    """
    touched: set[str] = set()
    after = project
    for name in _inner_first(project):
        drawn = sheet_named(after, name)
        chosen = (
            frozenset(unfolded_by_sheet[name]) & instances_on(project, name)
            if name in unfolded_by_sheet
            else drawn.unfolded
        )
        if chosen == drawn.unfolded and not _shows(drawn, touched):
            continue
        touched.add(name)
        after = with_sheet(
            after, name, cast(Sheet, replace(cast(Any, drawn), unfolded=chosen))
        )
        after = _with_room_on(project, after, name, sizes, room)
    return after


def with_room_for(
    before: W, after: W, block: str, sizes: Sizes, room: Size | None = None
) -> W:
    """Make room, after an edit of a block, on every sheet that shows an unfolded instance of it."""
    touched = {block}
    if block not in before.blocks or block not in after.blocks:
        return after
    if not any(_shows(sheet, touched) for _, sheet in sheets(after)):
        return after
    for name in _inner_first(after):
        if name != block and _shows(sheet_named(after, name), touched):
            touched.add(name)
            after = _with_room_on(before, after, name, sizes, room)
    return after


def _shows(sheet: Sheet, blocks: Collection[str]) -> bool:
    """Return whether a sheet has an unfolded instance of one of these blocks."""
    nodes = sheet.graph.nodes
    return any(block_of(nodes[node].op) in blocks for node in sheet.unfolded)


def _with_room_on(
    before: Whole, after: W, name: str, sizes: Sizes, room: Size | None
) -> W:
    now = sizes(after, name)[0]
    return with_sheet(
        after,
        name,
        _with_room(sheet_named(after, name), sizes(before, name), now, room),
    )


def _inner_first(project: Whole) -> list[str]:
    """List all sheets, innermost blocks first."""
    order: dict[str, None] = {}
    for name in project.blocks:
        if name not in order:
            order |= dict.fromkeys((*contained(name, project.blocks), name))
    return [*order, NETWORK]


# --- Room ---------------------------------------------------------------------------------------------------------


def _with_room(
    sheet: S,
    before: Sequence[Mapping[str, Size]],
    now: Mapping[str, Size],
    room: Size | None,
) -> S:
    """Make room for nodes whose size changed."""
    positions, nodes = sheet.positions, list(sheet.graph.nodes)
    other = [
        node
        for node in nodes
        if node in positions and before[0].get(node, now[node]) != now[node]
    ]
    if not other:
        return sheet
    if positions.keys() == sheet.graph.nodes.keys():
        widths = (
            [ROW_WIDTH, *(room.width * times for times in WIDTHS)]
            if room
            else [ROW_WIDTH]
        )
        for sizes in before:
            width = layout.current_row_width(sheet, sizes, widths)
            if width is not None:
                if room and len(nodes) <= MANY:
                    width = layout.row_width(sheet, now, room)
                return layout.laid_out(sheet, nodes, now, width)
    smaller = [node for node in other if now[node].height < before[0][node].height]
    sizes = dict(before[0])
    for node in [*reversed(smaller), *(node for node in other if node not in smaller)]:
        sheet = _making_way(sheet, node, sizes, now[node])
        sizes[node] = now[node]
    return sheet


class _Way:
    """How the surroundings of a node shift when it is resized around its port line.

    What is entirely above moves up, what is below moves down, and anything else after it moves right. This can be
    decided from positions before or after, so that folding reverts unfolding exactly.
    """

    def __init__(self, at: Point, old: Size, new: Size) -> None:
        self.left, self.top = at
        self.right, self.bottom = self.left + old.width, self.top + old.height
        self.up = new.anchor - old.anchor
        self.down = (new.height - new.anchor) - (old.height - old.anchor)
        self.wider = new.width - old.width

    def shift(self, left: float, top: float, bottom: float) -> Point:
        """Return the shift of something that extends from `top` to `bottom`."""
        if bottom <= self.top:
            return 0.0, -self.up
        if top >= self.bottom:
            return 0.0, self.down
        return (self.wider, 0.0) if left >= self.right else (0.0, 0.0)

    def note(self, note: Comment) -> Comment:
        """Shift a comment or frame; one around the node grows with it."""
        right, bottom = note.x + note.width, note.y + note.height
        if (
            note.x <= self.left
            and note.y <= self.top
            and right >= self.right
            and bottom >= self.bottom
        ):
            higher = note.height + self.up + self.down
            return replace(
                note, y=note.y - self.up, width=note.width + self.wider, height=higher
            )
        dx, dy = self.shift(note.x, note.y, bottom)
        return replace(note, x=note.x + dx, y=note.y + dy)


def _making_way(sheet: S, node: str, sizes: Mapping[str, Size], new: Size) -> S:
    """Resize one node and shift its surroundings."""
    x, y = sheet.positions[node]
    way = _Way((x, y), sizes[node], new)
    positions: dict[str, Point] = {}
    for other, (left, top) in sheet.positions.items():
        dx, dy = (
            way.shift(left, top, top + sizes[other].height)
            if other in sizes
            else (0.0, 0.0)
        )
        positions[other] = (left + dx, top + dy)
    positions[node] = (x, y - way.up)
    bends = {
        wire: tuple(_moved(way, point) for point in points)
        for wire, points in sheet.bends.items()
    }
    notes = {key: way.note(note) for key, note in sheet.comments.items()}
    return edits.changed(
        sheet,
        positions=FrozenMap(positions),
        comments=FrozenMap(notes),
        bends=FrozenMap(bends),
    )


def _moved(way: _Way, point: Point) -> Point:
    dx, dy = way.shift(point[0], point[1], point[1])
    return point[0] + dx, point[1] + dy
