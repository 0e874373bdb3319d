"""Scene of the tape's graph: laid out again when groups expand or collapse, repainted only where a state changes.

Items are made for what comes into sight near; from afar one item paints all.
"""

# A whole, which its parts import for type checkers alone: an item reads its scene.
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import QPointF, QRectF, QTimer, Signal
from PySide6.QtWidgets import QGraphicsScene

from app.diagram.diagram import Drawing
from app.diagram.layout import (
    HEADER,
    KnownPlaces,
    Layout,
    Progress,
    Rect,
    arrange,
    no_progress,
)
from app.views.autograd.graph.arrow_paths import ArrowPath
from app.views.autograd.graph.faces import PLAIN, ItemState
from app.views.autograd.graph.layers import (
    Marks,
    OverviewMembers,
    TapeOverview,
    TapeSight,
)
from app.views.autograd.graph.parts import (
    BoxPart,
    DrawnParts,
    GroupPart,
    Part,
    Place,
    label_of,
    places,
)
from app.views.autograd.graph.playback_paint import PlayedParts
from app.views.ui.graphview.minimap import MapShapes
from app.views.ui.graphview.spatial import LEFT, RIGHT, RectIndex, bounds, nearest
from app.views.ui.graphview.sprites import NearLayer
from app.views.ui.theme import current, manager

MARGIN = 40.0
INDEXING = 0.4  # of the time in which a drawing is laid out and made ready to be shown


class ArrangedDrawing(Struct, frozen=True, eq=False):
    """A drawing with its layout and parts, and, if it was made ready for that, the index of what is where and what is
    painted from afar."""

    layout: Layout
    parts: DrawnParts
    page: tuple[float, float] = (0.0, 0.0)
    index: RectIndex[Place] | None = None
    members: OverviewMembers | None = None

    def scale_in(self, room: tuple[float, float], edge: float = 0.0) -> float:
        """Return the scale at which it fits a room, with an edge around it."""
        width, height = self.layout.width + 2 * edge, self.layout.height + 2 * edge
        return min(room[0] / max(width, 1.0), room[1] / max(height, 1.0))

    @classmethod
    def indexed(
        cls, layout: Layout, parts: DrawnParts, page: tuple[float, float]
    ) -> ArrangedDrawing:
        """Make it ready to be shown; usable on any thread."""
        index = places(parts.drawing, layout)
        index.build()
        members = OverviewMembers.of(parts.drawing, layout)
        return cls(layout, parts, page, index, members)


def _nothing() -> ArrangedDrawing:
    return ArrangedDrawing(Layout({}, {}, (), (), 0.0, 0.0), DrawnParts(Drawing(())))


def arranged(
    drawing: Drawing,
    page: tuple[float, float],
    row: float | None = None,
    indexed: bool = False,
    previous: KnownPlaces | None = None,
    progress: Progress = no_progress,
) -> ArrangedDrawing:
    """Lay a drawing out in the form of `page`, or in rows of a given width; usable on any thread. See `arrange`."""
    parts = DrawnParts(drawing)
    share = 1 - INDEXING if indexed else 1.0
    layout = arrange(
        drawing,
        parts.sizes(),
        row,
        page=page,
        known=previous,
        progress=lambda done: progress(share * done),
    )
    if not indexed:
        return ArrangedDrawing(layout, parts, page)
    progress(1 - INDEXING / 2)
    return ArrangedDrawing.indexed(layout, parts, page)


class TapeScene(QGraphicsScene):
    """Boxes and groups by key. `chosen` emits the key of the selected box or group, "" for none; `redrawn` is emitted
    when there is another drawing."""

    chosen = Signal(str)
    redrawn = Signal()
    hovered = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.drawing: Drawing | None = None
        self._far = False
        self._linked: frozenset[str] = frozenset()
        self.played = PlayedParts(self)
        self.near = NearLayer(partial(TapeSight, self), QTimer(self))
        self.near.setZValue(2)
        self.addItem(self.near)
        self.empty()
        manager().changed.connect(self._repaint)

    def show_drawing(
        self, drawing: Drawing, page: tuple[float, float], row: float | None = None
    ) -> float:
        """Lay a drawing out in the form of `page`, in place of the old one; what is selected stays if it can.

        `row` asks for rows of a given width instead; returns the width that a row has now.
        """
        return self.show_arranged(arranged(drawing, page, row))

    def show_arranged(self, done: ArrangedDrawing) -> float:
        """Show a drawing that is laid out, in place of the old one; return the width that a row has now."""
        current, layout = self._current, done.layout
        self._start(done)
        self.setSceneRect(
            self.content_rect().adjusted(-MARGIN, -MARGIN, MARGIN, MARGIN)
        )
        self.set_linked(self._linked)
        for key in (current, f"fold:{current}", current.removeprefix("fold:")):
            if key in self.boxes or key in self.groups:
                self.choose(key)
                break
        self.redrawn.emit()
        return max(layout.width, done.page[0])

    def redraw_in_place(self, drawing: Drawing) -> None:
        """Show other texts and tags in the boxes and groups there are; nothing moves, and what is selected stays."""
        assert len(drawing.boxes) == len(self._drawing.boxes)
        self._take(DrawnParts(drawing))
        self.near.update()
        self.redrawn.emit()

    def empty(self) -> None:
        """Remove the drawing."""
        self.near.forget()
        self._start(_nothing())
        self.drawing = None
        self.redrawn.emit()

    def _start(self, done: ArrangedDrawing) -> None:
        for old in self.items():
            if old is not self.near:
                self.removeItem(old)
        self.layout_ = done.layout
        self._hover: str | None = None
        self._current = ""
        self._states: dict[str, ItemState] = {}
        self._way: frozenset[str] = frozenset()
        self._on_way: frozenset[str] = frozenset()  # with the groups around it
        self._ways: dict[int, ArrowPath] = {}
        self.played.forget()
        for cached_name in ("_index", "_touching", "_by_link", "_frame_of", "_order"):
            self.__dict__.pop(cached_name, None)
        if done.index is not None:
            self.__dict__["_index"] = done.index
        self._take(done.parts)
        self.far = TapeOverview(self._drawing, done.layout, done.members)
        self._marks = Marks(self.content_rect())
        for item in (self.far, self._marks):
            item.setVisible(self._far)
            self.addItem(item)
        self.near.update()

    def _take(self, parts: DrawnParts) -> None:
        self.drawing = parts.drawing
        self._drawing = parts.drawing
        self.boxes, self.groups = parts.boxes, parts.groups
        for among in (self.boxes, self.groups):
            among.dress = self._dress
        parts.put(self.layout_)

    def _dress(self, part: Part) -> None:
        part.set_state(self._states.get(part.key, self._plain(part.key)))
        part.set_played(self.played.boxes.get(part.key))

    def _repaint(self) -> None:
        self.far.forget()
        self.near.forget()
        self.update()

    # -- contents ------------------------------------------------------------------------------------------------------

    @cached_property
    def _frame_of(self) -> dict[str, str | None]:
        """The open group around a box or an open group."""
        frames = {box.id: box.group for box in self._drawing.boxes}
        frames.update((group.id, group.parent) for group in self._drawing.groups)
        return frames

    @cached_property
    def _touching(self) -> dict[str, list[int]]:
        """The arrows at a box, by their numbers."""
        arrow_numbers: dict[str, list[int]] = defaultdict(list)
        for number, arrow in enumerate(self._drawing.arrows):
            arrow_numbers[arrow.source].append(number)
            arrow_numbers[arrow.target].append(number)
        return arrow_numbers

    @cached_property
    def _by_link(self) -> dict[str, list[str]]:
        """Map nodes of the canvas to the boxes and groups outlined for them, without nested ones."""
        links = {group.id: group.link for group in self._drawing.groups}
        keys_by_link: dict[str, list[str]] = defaultdict(list)
        for group in self._drawing.groups:
            if (
                group.link is not None
                and links.get(group.parent or "") != group.link
                and group.id in self.groups
            ):
                keys_by_link[group.link].append(group.id)
        for box in self._drawing.boxes:
            if box.link is not None and links.get(box.group or "") != box.link:
                keys_by_link[box.link].append(box.id)
        return keys_by_link

    @cached_property
    def _index(self) -> RectIndex[Place]:
        return places(self._drawing, self.layout_)

    def hits_in(self, area: QRectF) -> dict[str, list[Any]]:
        """Return the keys of what touches an area, by kind: groups, arrows, boxes and labels."""
        hits: dict[str, list[Any]] = defaultdict(list)
        for kind, key in self._index.inside(area):
            hits[kind].append(key)
        return hits

    def outermost_first(self, groups: Iterable[str]) -> list[GroupPart]:
        """Return groups before those that are in them."""
        return [self.groups[key] for key in sorted(groups, key=self._order.__getitem__)]

    @cached_property
    def _order(self) -> dict[str, int]:
        """Number the groups: parents before children."""
        return {group.id: number for number, group in enumerate(self._drawing.groups)}

    def path_of(self, number: int) -> ArrowPath:
        """Return the path of an arrow."""
        way = self._ways.get(number)
        if way is None:
            way = self._ways[number] = ArrowPath.from_route(
                self.layout_.routes[number], self.played.flows.get(number)
            )
        return way

    def label_at(self, number: int) -> tuple[str, int]:
        """Return the current label of an arrow, a shape or a norm, and its colour if it has one."""
        flow = self.played.flows.get(number)
        if flow is not None and flow.label:
            return flow.label, flow.color(current()).rgba()
        return label_of(self._drawing.arrows[number]), 0

    def tip_at(self, at: QPointF) -> str:
        """Return the tooltip at a point of the scene; "" in the overview."""
        here = (
            []
            if self._far
            else self._index.inside(QRectF(at.x() - 3, at.y() - 3, 6, 6))
        )
        box_or_group = self.part_at(at)
        flows = self.played.flows
        for kind, key in here:
            if kind == "label" and key in flows:
                return f"{label_of(self._drawing.arrows[key])}\n{flows[key].words}"
        if here and (
            isinstance(box_or_group, BoxPart)
            or (box_or_group is not None and box_or_group.in_header(at))
        ):
            return box_or_group.tooltip
        over = (
            key
            for kind, key in here
            if kind == "arrow" and key in flows and self.path_of(key).near(at)
        )
        return next((flows[number].words for number in over), "")

    def touch(
        self, box_or_group: Part | None = None, arrows: Iterable[int] = ()
    ) -> None:
        """Repaint a part, or some arrows with their labels; everything if none is given."""
        areas = [box_or_group.extent] if box_or_group is not None else []
        for number in arrows:
            self._ways.pop(number, None)
            areas += [
                self._index[key].adjusted(-4, -4, 4, 4)
                for key in (("arrow", number), ("label", number))
                if key in self._index
            ]
        for area in areas:
            self.near.update(area)
        if not areas:
            self.near.update()

    def part(self, key: str) -> BoxPart | GroupPart | None:
        """Return the box or open group of a key; a closed group is found by its group's key too."""
        for name, among in (
            (key, self.boxes),
            (key, self.groups),
            (f"fold:{key}", self.boxes),
        ):
            if name in among:
                return among[name]
        return None

    def link_of(self, key: str) -> str | None:
        """Return the node of the canvas for a box or group."""
        box_or_group = self.part(key) if key else None
        return box_or_group.link if box_or_group is not None else None

    def rect_of(self, key: str) -> Rect | None:
        """Return the rectangle of a box or open group."""
        return (
            self.layout_.boxes.get(key)
            or self.layout_.groups.get(key)
            or self.layout_.boxes.get(f"fold:{key}")
        )

    def boxes_in(self, key: str) -> frozenset[str]:
        """Return the visible boxes in a group, or the box itself."""
        if key not in self.groups:
            return frozenset({key}) if key in self.boxes else frozenset()
        inside = {key}
        for group in self._drawing.groups:  # a parent comes before what is in it
            if group.parent in inside:
                inside.add(group.id)
        return frozenset(box.id for box in self._drawing.boxes if box.group in inside)

    # -- states --------------------------------------------------------------------------------------------------------

    def current_key(self) -> str:
        return self._current

    def choose(self, key: str) -> None:
        """Select a box or a group, "" for nothing."""
        if key == self._current:
            return
        before, self._current = self._current, key
        for old, on in ((before, False), (key, True)):
            box_or_group = self.part(old) if old else None
            if box_or_group is not None:
                self._change(box_or_group.key, selected=on)
                if numbers := self._touching.get(box_or_group.key):
                    self.touch(None, numbers)
        self.chosen.emit(key)

    def is_marked(self, number: int) -> bool:
        """Return whether an arrow is highlighted: at the selection or on the highlighted path."""
        arrow = self._drawing.arrows[number]
        touched = bool(self._current) and self._current in (arrow.source, arrow.target)
        return touched or (bool(self._way) and not self.is_dimmed(number))

    def _plain(self, key: str) -> ItemState:
        """Return the default state of a box or group."""
        return (
            ItemState(dimmed=True) if self._way and key not in self._on_way else PLAIN
        )

    def _change(self, key: str, **states: bool) -> None:
        self._put_state(key, **states)
        self._tell_marks()

    def _put_state(self, key: str, **states: bool) -> None:
        state = replace(self._states.get(key, self._plain(key)), **states)
        self._states[key] = state
        box_or_group = self.boxes.made.get(key) or self.groups.made.get(key)
        if box_or_group is not None:
            box_or_group.set_state(state)
            self.touch(box_or_group)

    def _tell_marks(self) -> None:
        if self._far:
            shown = [(self.rect_of(key), state) for key, state in self._states.items()]
            self._marks.set_marked(
                (QRectF(*rect), state) for rect, state in shown if rect is not None
            )

    def set_ran(self, ran: list[QRectF], after: QRectF | None) -> None:
        """Set the boxes that have run and the next one, for the overview."""
        self._marks.set_ran(ran, after)

    def set_linked(self, links: frozenset[str]) -> None:
        """Outline the groups of these nodes of the canvas."""
        self._linked = links
        keys = {key for link in links for key in self._by_link.get(link, ())}
        before = {key for key, state in self._states.items() if state.linked}
        for key in before ^ keys:
            self._put_state(key, linked=key in keys)
        self._tell_marks()

    def linked_parts(self) -> list[Part]:
        """Return the outlined groups and boxes."""
        keys = [key for key, state in self._states.items() if state.linked]
        return [
            box_or_group for key in keys if (box_or_group := self.part(key)) is not None
        ]

    def set_highlighted(self, boxes: frozenset[str]) -> None:
        """Highlight these boxes and the arrows between them, and dim the rest; none ends that."""
        if boxes == self._way:
            return
        self._way, self._on_way = boxes, boxes | self._frames_of(boxes)
        self.far.set_highlighted(boxes)
        for key, item in (*self.boxes.made.items(), *self.groups.made.items()):
            self._states[key] = state = replace(
                item.state, dimmed=bool(boxes) and key not in self._on_way
            )
            item.set_state(state)
        self.touch()
        self._tell_marks()

    def _frames_of(self, boxes: frozenset[str]) -> frozenset[str]:
        """Return the groups around some boxes."""
        frames: set[str] = set()
        for box in boxes:
            frame = self._frame_of[box]
            while frame is not None and frame not in frames:
                frames.add(frame)
                frame = self._frame_of[frame]
        return frozenset(frames)

    @property
    def highlighted(self) -> frozenset[str]:
        """Return the highlighted boxes."""
        return self._way

    def is_dimmed(self, number: int) -> bool:
        """Return whether an arrow is off the highlighted path."""
        arrow = self._drawing.arrows[number]
        return bool(self._way) and not (
            arrow.source in self._way and arrow.target in self._way
        )

    def set_far(self, far: bool) -> None:
        """From afar texts cannot be read, and everything is painted at once."""
        if far == self._far:
            return
        self._far = far
        self.near.setVisible(not far)
        self.far.setVisible(far)
        self._marks.setVisible(far)
        self._tell_marks()

    def hover(self, key: str | None) -> None:
        """Set the box or group header under the pointer."""
        if key == self._hover:
            return
        for old, on in ((self._hover, False), (key, True)):
            if old and self.rect_of(old) is not None:
                self._change(old, hovered=on)
        self._hover = key
        self.hovered.emit(self.link_of(key) if key else None)

    def content_rect(self) -> QRectF:
        """Return the bounding rectangle of everything."""
        return QRectF(0, 0, self.layout_.width, self.layout_.height)

    def map_shapes(self) -> MapShapes:
        """Return the outermost groups and boxes, for a minimap."""
        rects, complete = self.far.map_rects()
        return MapShapes(rects, complete=complete)

    # -- places --------------------------------------------------------------------------------------------------------

    def part_at(self, at: QPointF) -> BoxPart | GroupPart | None:
        """Return the box at a point of the scene, or the group with its header there."""
        here = self._index.inside(QRectF(at.x() - 0.5, at.y() - 0.5, 1, 1))
        for kind, key in here:
            if kind == "box" and QRectF(*self.layout_.boxes[key]).contains(at):
                return self.boxes[key]
        groups = [self.layout_.groups[key] for kind, key in here if kind == "group"]
        inner = min(groups, key=lambda rect: rect.width * rect.height, default=None)
        if inner is None or not 0 <= at.y() - inner.y <= HEADER:
            return None
        return next(
            self.groups[key]
            for kind, key in here
            if kind == "group" and self.layout_.groups[key] is inner
        )

    def neighbour(self, key: str, direction: tuple[int, int]) -> str:
        """Return the next box for an arrow key: left and right along the gradients, those of parameters last; else the
        nearest in that direction, "" at the end. From the header of an open group, its first box; without one the
        first of all."""
        rects = self.layout_.boxes
        if key not in rects:
            inside = self.boxes_in(key) if key in self.groups else rects
            return next((box.id for box in self._drawing.boxes if box.id in inside), "")
        arrows = [
            self._drawing.arrows[number] for number in self._touching.get(key, ())
        ]
        ends = []
        if direction == LEFT:
            ends = [arrow.target for arrow in arrows if arrow.source == key]
        elif direction == RIGHT:
            ends = [arrow.source for arrow in arrows if arrow.target == key]
        main = [end for end in ends if self.boxes[end].box.shape != "leaf"] or ends
        if main:
            level = rects[key].center[1]
            return min(main, key=lambda end: abs(rects[end].center[1] - level))
        centers = {other: rect.center for other, rect in rects.items()}
        return nearest(centers, key, direction) or ""

    def innermost_at(self, at: QPointF) -> str:
        """Return the key of the box at a point of the scene, or of the innermost open group around it; "" for none."""
        here = self._index.inside(QRectF(at.x() - 0.5, at.y() - 0.5, 1, 1))
        parts = [key for kind, key in here if kind in ("box", "group")]
        return min(parts, key=lambda key: self._size_of(key), default="")

    def nearest_box(self, at: QPointF, area: QRectF) -> str:
        """Return the key of the box in an area whose middle is nearest to a point; "" for none."""
        boxes = [key for kind, key in self._index.inside(area) if kind == "box"]

        def away(key: str) -> float:
            x, y = self.layout_.boxes[key].center
            return math.hypot(x - at.x(), y - at.y())

        return min(boxes, key=away, default="")

    def _size_of(self, key: str) -> float:
        rect = self.rect_of(key)
        return rect.width * rect.height if rect is not None else math.inf

    def area_of(self, parts: Iterable[Part]) -> QRectF:
        """Return the bounding rectangle of some boxes and groups."""
        return bounds(part.extent for part in parts)

    def area_of_boxes(self, keys: Iterable[str]) -> QRectF:
        """Return the bounding rectangle of boxes by key."""
        return bounds(QRectF(*self.layout_.boxes[key]) for key in keys)
