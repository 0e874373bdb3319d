"""Hierarchical layout of a drawing: positions of boxes and groups, routes of arrows.

Each group is laid out separately, innermost first, and is one box in its parent's layout, so a group is always a
rectangle without foreign boxes. An arrow that crosses a group's border is routed to a port on the border and continued
in the parent. A box with `Box.under` is placed below its parent box as part of one tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from app.diagram.diagram import Arrow, Box, Drawing, Group
from app.diagram.layered import Layered
from app.diagram.layout_model import Link, Placed, Point, Rect, Rows, Spacing, Vertex
from app.diagram.routes import simplified

HEADER = 22.0
PAD = 10.0
PAGE = (1100.0, 650.0)
WASTE = 1.5
TRIES = (1.0, 1.2, 1.4, 0.85)  # factors of the estimated row width that are tried
ACCEPTED_SCALE = 0.95  # fraction of the best scale at which an earlier try is accepted
_LINE = 17.0
_CHARACTER = 7.0
OFTEN = 500  # arrows between two calls of `progress`
HANG_DOWN = 16.0
HANG_APART = 8.0
PLACING = 0.75  # of the time is spent on placing boxes, the rest on leading arrows

KnownPlaces = dict[Hashable, Placed]
Progress = Callable[[float], object]


class Piece(Struct, eq=False):
    """A unit of placement: a box with the boxes under it, the topmost first in `rects`, or a group.

    `rects` are relative to its corner; its corner is at (`x`, `y`) of what it is placed in. `group` is the group of its
    boxes, `first` the place of its first box in the drawing.
    """

    width: float
    height: float
    rects: dict[str, Rect]
    group: str | None = None
    first: int = -1
    x: float = 0.0
    y: float = 0.0


# An arrow's number, and the left and right ends of its part within a group; None is a port on the group's border.
_Segment = tuple[int, Piece | None, Piece | None]


def no_progress(_done: float) -> None:
    """Ignore the progress of a layout."""


class Sizes(Struct, frozen=True):
    """Measured in pixels: boxes (width, height), least widths of groups' headers, and widths of arrows' labels."""

    boxes: Mapping[str, tuple[float, float]]
    headers: Mapping[str, float] = {}
    labels: Mapping[str, float] = {}

    @classmethod
    def measured(
        cls,
        drawing: Drawing,
        box_size: Callable[[Box], tuple[float, float]],
        header: Callable[[Group], float],
        label: Callable[[Arrow], float],
    ) -> Sizes:
        """Measure all parts of a drawing; boxes that read alike once."""
        by_look: dict[tuple[object, ...], tuple[float, float]] = {}
        boxes = {}
        for box in drawing.boxes:
            look = (box.shape, box.title, box.subtitle, box.lines, box.chips)
            if look not in by_look:
                by_look[look] = box_size(box)
            boxes[box.id] = by_look[look]
        headers = {group.id: max(header(group), 4 * PAD) for group in drawing.groups}
        labelled = (arrow for arrow in drawing.arrows if arrow.label)
        return cls(boxes, headers, {arrow.label: label(arrow) for arrow in labelled})


class Layout(Struct, frozen=True):
    """Rectangles by id; `routes[i]` and `labels[i]` (the label's middle) belong to `drawing.arrows[i]`.

    A route runs from the arrow's source to its target: level and upright pieces are lines, slanting ones are curves
    that leave and arrive level (upright for an arrow to a box that hangs under its source).
    """

    boxes: Mapping[str, Rect]
    groups: Mapping[str, Rect]
    routes: tuple[tuple[Point, ...], ...]
    labels: tuple[Point | None, ...]
    width: float
    height: float


def arrange(
    drawing: Drawing,
    sizes: Sizes | None = None,
    width: float | None = None,
    spacing: Spacing | None = None,
    page: tuple[float, float] = PAGE,
    *,
    known: KnownPlaces | None = None,
    progress: Progress = no_progress,
) -> Layout:
    """Lay out a drawing in rows of at most `width` pixels; None chooses a width that matches the aspect ratio of
    `page`.

    `sizes` are those that the painter measured; without them they are estimated from the texts' lengths. `known` are
    groups that were placed before, by their contents, and takes up those that are placed now: equal layers are placed
    once, and so is what stays open while another group opens. `progress` is called often with the fraction that is
    done, and may raise to end the layout.
    """
    if not drawing.boxes:
        return Layout({}, {}, (), (), 0.0, 0.0)
    measured = sizes or estimated_sizes(drawing)
    known = {} if known is None else known
    return _Arranger(
        drawing, measured, width, spacing or Spacing(), page, known, progress
    ).run()


def estimated_sizes(drawing: Drawing) -> Sizes:
    """Estimate sizes from the number of characters, for callers without font metrics."""

    def box_size(box: Box) -> tuple[float, float]:
        texts = [
            box.title,
            box.subtitle,
            *box.lines,
            "  ".join(chip.text for chip in box.chips),
        ]
        rows = 1 + bool(box.subtitle) + len(box.lines) + bool(box.chips)
        return max(map(len, texts)) * _CHARACTER + 18, rows * _LINE + 10

    return Sizes.measured(
        drawing,
        box_size,
        lambda group: (len(group.title) + len(group.caption) + 8) * _CHARACTER,
        lambda arrow: len(arrow.label) * _CHARACTER + 10,
    )


def row_width(
    sizes: Iterable[tuple[float, float]], spacing: Spacing, page: tuple[float, float]
) -> float:
    """Estimate the row width at which boxes of these sizes match a page's aspect ratio; at least the page's width.

    Counts each box with the gaps around it, and some waste in rows of unequal boxes.
    """
    area = sum((w + 1.6 * spacing.column) * (h + spacing.band) for w, h in sizes)
    return max(page[0], math.sqrt(area * WASTE * page[0] / page[1]))


class _Arranger:
    """The state of one call of `arrange`."""

    def __init__(
        self,
        drawing: Drawing,
        sizes: Sizes,
        width: float | None,
        spacing: Spacing,
        page: Point,
        known: KnownPlaces,
        progress: Progress,
    ) -> None:
        self.drawing, self.sizes, self.spacing = drawing, sizes, spacing
        self.known, self.progress = known, progress
        self.placed, self.all_parts = 0, len(drawing.boxes) + len(drawing.groups)
        self.limit, self.page = width, page
        self.boxes = {box.id: box for box in drawing.boxes}
        self.parents = {group.id: group.parent for group in drawing.groups}
        self.pieces: list[Piece] = []
        self.piece_of: dict[str, Piece] = {}
        self.group_pieces = {
            group.id: Piece(0.0, 0.0, {}, group.id) for group in drawing.groups
        }
        # y of the ports at which an arrow crosses a group's border, from the group's top.
        self.ports: dict[tuple[str | None, int, str], float] = {}
        # Group of the segment -> arrow -> its points from left to right, relative to the corner of the group's content.
        self.segments: dict[str | None, dict[int, list[Point]]] = {}
        self.label_at: list[tuple[str | None, Point] | None] = [None] * len(
            drawing.arrows
        )
        self._chains: dict[str | None, list[str | None]] = {}
        self._leftwards = drawing.direction == "RL"

    def run(self) -> Layout:
        members = self._members()
        links = self._links_by_group()
        for group in sorted(self.parents, key=lambda g: -len(self._enclosing(g))):
            if group in members:
                self._arrange_group(group, members[group], links.get(group, []))
                members.setdefault(self.parents[group], []).append(
                    self.group_pieces[group]
                )
        width, height = self._arrange_inside(None, members[None], links.get(None, []))
        return self._layout(width, height)

    def _members(self) -> dict[str | None, list[Piece]]:
        """Make a piece of each box that hangs under none and those under it; return the pieces of each group."""
        tops, children = self._tops(), dict[str, list[str]]()
        for box in self.drawing.boxes:
            if box.under is not None and tops[box.id] != box.id:
                children.setdefault(box.under, []).append(box.id)
        members: dict[str | None, list[Piece]] = {None: []}
        for number, box in enumerate(self.drawing.boxes):
            around = box.group
            while around is not None and self.group_pieces[around].first < 0:
                self.group_pieces[around].first = number
                around = self.parents[around]
            if tops.get(box.id, box.id) == box.id:
                piece = hanging_piece(box.id, children, self.sizes.boxes)
                piece.group, piece.first = box.group, number
                for box_id in piece.rects:
                    self.piece_of[box_id] = piece
                members.setdefault(box.group, []).append(piece)
                self.pieces.append(piece)
        return members

    def _tops(self) -> dict[str, str]:
        """Map each box that may hang under another to the box at the top of its piece."""
        tops: dict[str, str] = {}
        for start, first in self.boxes.items():
            if first.under is None:
                continue
            trail, box = [], start
            while box not in tops:
                trail.append(box)
                above = self.boxes[box].under
                if (
                    above is None
                    or self.boxes[above].group != self.boxes[box].group
                    or above in trail
                ):
                    tops[box] = box
                    break
                box = above
            for passed in trail:
                tops[passed] = tops[box]
        return tops

    def _ends(self, arrow: Arrow) -> tuple[str, str]:
        """Return (left end, right end); gradients run leftwards."""
        return (
            (arrow.target, arrow.source)
            if self._leftwards
            else (arrow.source, arrow.target)
        )

    def _enclosing(self, group: str | None) -> list[str | None]:
        """Return a group and its ancestors, innermost first; None, the whole drawing, is last."""
        enclosing = self._chains.get(group)
        if enclosing is None:
            enclosing = self._chains[group] = [group]
            while enclosing[-1] is not None:
                enclosing.append(self.parents[enclosing[-1]])
        return enclosing

    def _apart(
        self, left: str | None, right: str | None
    ) -> tuple[list[str | None], list[str | None], str | None]:
        """Return the groups around the one but not the other, innermost first, and the innermost around both."""
        around_left, around_right = self._enclosing(left), self._enclosing(right)
        common = 0
        for left_group, other in zip(
            reversed(around_left), reversed(around_right), strict=False
        ):
            if left_group != other:
                break
            common += 1
        return around_left[:-common], around_right[:-common], around_left[-common]

    def _links_by_group(self) -> dict[str | None, list[_Segment]]:
        """Return the segments of each group."""
        links: dict[str | None, list[_Segment]] = {}
        for number, arrow in enumerate(self.drawing.arrows):
            left, right = self._ends(arrow)
            left_piece, right_piece = self.piece_of[left], self.piece_of[right]
            if left_piece is right_piece:
                continue
            left_group, right_group = left_piece.group, right_piece.group
            if left_group == right_group:
                links.setdefault(left_group, []).append(
                    (number, left_piece, right_piece)
                )
                continue
            left_apart, right_apart, shared = self._apart(left_group, right_group)
            for group in left_apart:
                assert group is not None
                links.setdefault(group, []).append((number, left_piece, None))
                left_piece = self.group_pieces[group]
            for group in right_apart:
                assert group is not None
                links.setdefault(group, []).append((number, None, right_piece))
                right_piece = self.group_pieces[group]
            links.setdefault(shared, []).append((number, left_piece, right_piece))
        return links

    def _arrange_group(
        self, group: str, members: list[Piece], links: list[_Segment]
    ) -> None:
        width, height = self._arrange_inside(group, members, links)
        piece = self.group_pieces[group]
        piece.width, piece.height = width + 2 * PAD, height + HEADER + 2 * PAD

    def _arrange_inside(
        self, group: str | None, members: list[Piece], links: list[_Segment]
    ) -> tuple[float, float]:
        """Place the members of a group relative to its content's corner; return the content's size."""
        members.sort(key=_first)
        index = {piece: number for number, piece in enumerate(members)}
        vertices = [Vertex(piece.width, piece.height) for piece in members]
        inner_links: list[Link] = []
        ports: dict[tuple[str, Piece | None, float], int] = {}

        def port_vertex(
            pin: Literal["first", "last"], piece: Piece | None, height: float
        ) -> int:
            """Return the vertex of a port; arrows to the same point inside share one."""
            key = (pin, piece, height)
            if key not in ports:
                ports[key] = len(vertices)
                vertices.append(Vertex(0.0, 0.0, pin, 1))
            return ports[key]

        arrows, labels = self.drawing.arrows, self.sizes.labels
        for number, left, right in links:
            arrow = arrows[number]
            left_end, right_end = self._ends(arrow)
            tail_dy = (
                0.0 if left is None else self._port_y(left, number, left_end, "right")
            )
            head_dy = (
                0.0 if right is None else self._port_y(right, number, right_end, "left")
            )
            tail = port_vertex("first", right, head_dy) if left is None else index[left]
            head = port_vertex("last", left, tail_dy) if right is None else index[right]
            label = (
                labels.get(arrow.label, 0.0)
                if arrow.label and left is not None and right is not None
                else 0.0
            )
            inner_links.append(Link(tail, head, tail_dy, head_dy, label))
        limit = row_width(
            [(v.width, v.height) for v in vertices], self.spacing, self.page
        )
        if self.limit is not None:
            limit = self.limit if group is None else 0.8 * self.limit
        placed = self._placed(vertices, inner_links, limit, group)
        self.placed += len(members)
        self.progress(PLACING * self.placed / self.all_parts)
        width = placed.width
        if group is not None:
            width = max(width, self.sizes.headers.get(group, 0.0) - 2 * PAD)
        # Content narrower than the group's header is centred.
        shift = (width - placed.width) / 2
        for piece, (x, y) in zip(
            members, placed.corners, strict=False
        ):  # ports have corners too
            piece.x, piece.y = x + shift, y
        segments = self.segments[group] = {}
        for (number, left, right), link, route, at in zip(
            links, inner_links, placed.routes, placed.labels, strict=True
        ):
            segments[number] = points = (
                [(px + shift, py) for px, py in route] if shift else list(route)
            )
            if group is not None and left is None:
                points[0] = (-PAD, points[0][1])
                self.ports[(group, number, "left")] = points[0][1] + HEADER + PAD
            if group is not None and right is None:
                points[-1] = (width + PAD, points[-1][1])
                self.ports[(group, number, "right")] = points[-1][1] + HEADER + PAD
            if link.label_width and at is not None:
                self.label_at[number] = (group, (at[0] + shift, at[1]))
        return width, placed.height

    def _placed(
        self, vertices: list[Vertex], links: list[Link], limit: float, group: str | None
    ) -> Placed:
        """Place the vertices, or take the places of equal ones that were placed before."""
        content = (tuple(vertices), tuple(links), self.spacing)
        key = (*content, limit, self.limit, self.page if group is None else None)
        one_row = self.known.get(content) if group is not None else None
        if one_row is not None and one_row.width <= limit:
            return one_row
        placed = self.known.get(key)
        if placed is None:
            done = PLACING * self.placed / self.all_parts
            layered = Layered(
                vertices, links, self.spacing, tick=lambda: self.progress(done)
            )
            placed = self._place_rows(layered, limit, group)
            if group is not None and layered.is_one_row(Rows(limit)):
                self.known[content] = placed  # at every limit that it fits
            if len(vertices) > 1:
                self.known[key] = placed
        return placed

    def _place_rows(self, layered: Layered, limit: float, group: str | None) -> Placed:
        """Place at the row limit; without one, at the first tried limit with nearly the best scale on the page."""
        if group is not None or self.limit is not None or layered.is_chain:
            return layered.arrange(Rows(limit))
        tries = [Rows(max(limit * times, self.page[0])) for times in TRIES]
        promised = layered.by_scale_bound(tries, self.page)
        good = {
            rows for most, rows in promised if most > ACCEPTED_SCALE * promised[0][0]
        }
        return layered.arrange(next(rows for rows in tries if rows in good))

    def _port_y(self, piece: Piece, number: int, end: str, side: str) -> float:
        """Return the y at which an arrow to or from the box `end` meets this side of a piece, from the piece's top."""
        rect = piece.rects.get(end)
        return (
            self.ports[(piece.group, number, side)]
            if rect is None
            else rect.y + rect.height / 2
        )

    def _layout(self, width: float, height: float) -> Layout:
        """Translate everything to the drawing's coordinates."""
        corner: dict[str | None, Point] = {None: (0.0, 0.0)}
        groups: dict[str, Rect] = {}
        for group in sorted(self.parents, key=lambda g: len(self._enclosing(g))):
            piece = self.group_pieces[group]
            if piece.width:
                x, y = _plus(corner[self.parents[group]], (piece.x, piece.y))
                groups[group] = Rect(x, y, piece.width, piece.height)
                corner[group] = (x + PAD, y + HEADER + PAD)
        boxes: dict[str, Rect] = {}
        for piece in self.pieces:
            x, y = corner[piece.group]
            x, y = x + piece.x, y + piece.y
            for box, rect in piece.rects.items():
                boxes[box] = Rect(x + rect.x, y + rect.y, rect.width, rect.height)
        routes = []
        for number, arrow in enumerate(self.drawing.arrows):
            if not number % OFTEN:
                self.progress(
                    PLACING + (1 - PLACING) * number / len(self.drawing.arrows)
                )
            routes.append(self._route(number, arrow, corner, boxes))
        labels = tuple(
            None if at is None else _plus(corner[at[0]], at[1]) for at in self.label_at
        )
        return Layout(boxes, groups, tuple(routes), labels, width, height)

    def _route(
        self,
        number: int,
        arrow: Arrow,
        corner: Mapping[str | None, Point],
        boxes: Mapping[str, Rect],
    ) -> tuple[Point, ...]:
        left, right = self._ends(arrow)
        left_piece, right_piece = self.piece_of[left], self.piece_of[right]
        # The piece of a box that has boxes hanging under it can be wider than the box, so the ends are the boxes' own.
        left_rect, right_rect = boxes[left], boxes[right]
        if left_piece is right_piece:
            return self._route_within(arrow, left_piece, boxes)
        start, end = left_rect.x + left_rect.width, right_rect.x
        left_group, right_group = left_piece.group, right_piece.group
        if left_group == right_group:
            segment = self.segments[left_group][number]
            if len(segment) == 2 and abs(start - end) > 0.01:
                down = corner[left_group][1]
                first, last = (start, segment[0][1] + down), (end, segment[1][1] + down)
                return (first, last) if arrow.source == left else (last, first)
            way = [left_group]
        else:
            left_apart, right_apart, shared = self._apart(left_group, right_group)
            way = [*left_apart, shared, *reversed(right_apart)]
        all_points: list[Point] = []
        for group in way:
            dx, dy = corner[group]
            all_points += [(x + dx, y + dy) for x, y in self.segments[group][number]]
        all_points[0], all_points[-1] = (
            (start, all_points[0][1]),
            (end, all_points[-1][1]),
        )
        points = simplified(all_points)
        return tuple(points if arrow.source == left else points[::-1])

    def _route_within(
        self, arrow: Arrow, piece: Piece, boxes: Mapping[str, Rect]
    ) -> tuple[Point, ...]:
        """Lead an arrow from a box to itself, or to another of the same piece."""
        source, target = boxes[arrow.source], boxes[arrow.target]
        if arrow.source == arrow.target:
            return _loop(source)
        if (
            self.boxes[arrow.target].under == arrow.source
            and next(iter(piece.rects)) != arrow.target
        ):
            return _down(source, target)
        return source.center, target.center


def _first(piece: Piece) -> int:
    return piece.first


def _plus(a: Point, b: Point) -> Point:
    return a[0] + b[0], a[1] + b[1]


def _down(above: Rect, below: Rect) -> tuple[Point, ...]:
    """From the lower edge of a box to the upper edge of one that hangs under it, upright where that is possible."""
    inset = min(8.0, above.width / 2)
    x = min(max(below.center[0], above.x + inset), above.right - inset)
    return (x, above.bottom), (below.center[0], below.y)


def _loop(box: Rect) -> tuple[Point, ...]:
    """Out on the right, over the box, and in again on the left."""
    level, left, right, above = box.center[1], box.x - 12, box.right + 12, box.y - 10
    return (
        (box.right, level),
        (right, level),
        (right, above),
        (left, above),
        (left, level),
        (box.x, level),
    )


# --- Boxes that hang under others


def hanging_piece(
    top: str,
    children: Mapping[str, list[str]],
    sizes: Mapping[str, tuple[float, float]],
) -> Piece:
    """Build the tree of a box: each child below its parent, leaves all on the lowest level."""
    if top not in children:
        width, height = sizes[top]
        return Piece(width, height, {top: Rect(0.0, 0.0, width, height)})
    order = [top]
    for box in order:
        order.extend(children.get(box, ()))
    level = {top: 0}
    for box in order:
        level.update((child, level[box] + 1) for child in children.get(box, ()))
    lowest = max(level.values())
    for box in order:
        if box != top and box not in children:
            level[box] = lowest
    heights = [
        max((sizes[box][1] for box in order if level[box] == n), default=0.0)
        for n in range(lowest + 1)
    ]
    spread: dict[str, float] = {}
    for box in reversed(order):
        spread[box] = max(sizes[box][0], _row_width(children.get(box, ()), spread))
    rects: dict[str, Rect] = {}
    left = {top: 0.0}
    for box in order:
        width, height = sizes[box]
        y = sum(heights[: level[box]]) + HANG_DOWN * level[box]
        rects[box] = Rect(left[box] + (spread[box] - width) / 2, y, width, height)
        x = left[box] + (spread[box] - _row_width(children.get(box, ()), spread)) / 2
        for child in children.get(box, ()):
            left[child] = x
            x += spread[child] + HANG_APART
    return Piece(spread[top], sum(heights) + HANG_DOWN * lowest, rects)


def _row_width(boxes: Sequence[str], widths: Mapping[str, float]) -> float:
    return sum(widths[box] for box in boxes) + HANG_APART * max(len(boxes) - 1, 0)
