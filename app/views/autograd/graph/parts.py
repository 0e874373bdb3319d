"""Boxes, open groups and arrows of the graph: positions, current states, and lookup by area."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from PySide6.QtCore import QLineF, QPointF, QRectF
from PySide6.QtGui import QPainter, QPainterPath, QPainterPathStroker

from app.diagram.diagram import Drawing
from app.diagram.layout import HEADER, Layout, Rect
from app.views.autograd.graph.arrow_paths import arrow_head, arrow_path, shortened
from app.views.autograd.graph.faces import BoxFace, GroupFace, ItemState
from app.views.autograd.graph.overview_item import DIMMED, Route
from app.views.autograd.graph.playback_paint import FADED, EdgeFlow, Played
from app.views.ui.graphview.spatial import RectIndex
from app.views.ui.graphview.sprites import Hashed
from app.views.ui.theme import current

EDITED = "The incoming gradient was edited"
RING = 4.0  # around a box
TAG = 12.0  # that the tag of a box reaches over its edges

T = TypeVar("T")
# ("box", id), ("group", id), ("arrow", number) or ("label", number)
Place = tuple[str, Any]


class Part:
    """A box or an open group: something with a position that can be hovered, selected and linked."""

    def __init__(self, key: str, link: str | None, rect: Rect) -> None:
        self.key, self.link, self.place = key, link, rect
        self._state = ItemState()
        self._played: Played | None = None
        self._looks_like: Hashed | None = None

    @property
    def extent(self) -> QRectF:
        """All that is painted of it, on the scene."""
        return QRectF(*self.place).adjusted(-RING, -RING, RING, RING)

    def opacity(self) -> float:
        """Return the opacity: parts off the highlighted path, and those that have run, are dimmed."""
        return (
            DIMMED
            if self._state.dimmed
            else FADED
            if self._played is not None and self._played.faded
            else 1.0
        )

    def state(self) -> ItemState:
        return self._state

    def set_state(self, state: ItemState) -> None:
        self._state, self._looks_like = state, None

    def played(self) -> Played | None:
        """Return the progress of the playback in this part."""
        return self._played

    def set_played(self, played: Played | None) -> None:
        self._played, self._looks_like = played, None


class BoxPart(Part):
    """A backward operation, a leaf or a folded group."""

    def __init__(self, face: BoxFace, rect: Rect) -> None:
        super().__init__(face.box.id, face.box.link, rect)
        self.face = face
        self.corner = QPointF(rect.x, rect.y)
        out = TAG if face.box.tags else RING
        self.own_extent = QRectF(
            -out, -RING, rect.width + 2 * out, rect.height + RING + out
        )

    def paint(self, zoom: float, painter: QPainter) -> None:
        """Paint it with its top left corner at the origin, with texts that can be read at a zoom."""
        self.face.paint(painter, current(), self._state, zoom=zoom, played=self._played)

    @property
    def foldable(self) -> bool:
        return self.face.box.shape == "folded"

    @property
    def picture(self) -> Hashable:
        """Return the sprite's cache key: boxes that look alike share it."""
        if self._looks_like is None:
            box, state = self.face.box, self._state
            ringed = state.hovered, state.selected, state.linked
            look = (
                box.shape,
                box.title,
                box.subtitle,
                box.lines,
                box.chips,
                box.tags,
                box.category,
                ringed,
                self._played,
            )
            self._looks_like = Hashed(look)
        return self._looks_like

    @property
    def tooltip(self) -> str:
        """Return all its text, for a tooltip."""
        box = self.face.box
        chips = (chip.text for chip in box.chips)
        edited = EDITED if self._played is not None and self._played.edited else ""
        return "\n".join(
            filter(
                None,
                (box.title, box.subtitle, *box.lines, *chips, *box.tags[:1], edited),
            )
        )


class GroupPart(Part):
    """The frame of an open group; its header folds it."""

    def __init__(self, face: GroupFace, rect: Rect) -> None:
        super().__init__(face.group.id, face.group.link, rect)
        self.face = face

    @property
    def tooltip(self) -> str:
        """Return the text of its header, for a tooltip."""
        group = self.face.group
        return "\n".join(filter(None, (group.title, group.caption)))

    def in_header(self, at: QPointF) -> bool:
        """Return whether a point of the scene is in the header."""
        return (
            0 <= at.y() - self.place.y <= HEADER
            and 0 <= at.x() - self.place.x <= self.place.width
        )

    def on_chevron(self, at: QPointF) -> bool:
        return self.in_header(at) and at.x() - self.place.x <= 20


class ArrowPath(NamedTuple):
    """Where an arrow runs, on the scene; `line` where it is straight."""

    path: QPainterPath
    head: QPainterPath
    line: QLineF | None

    @classmethod
    def from_route(cls, route: Route, flow: EdgeFlow | None = None) -> ArrowPath:
        """Build the painted arrow of a route with its flow: a thick line ends within its head."""
        head = arrow_head(arrow_path(route), 7.0 if flow is None else 6.0 + flow.width)
        shaft = route if flow is None else shortened(route, 5 + flow.width / 2)
        (ax, ay), (bx, by) = shaft[0], shaft[-1]
        straight = len(route) == 2 and (abs(ay - by) < 0.5 or abs(ax - bx) < 0.5)
        return cls(
            arrow_path(shaft), head, QLineF(ax, ay, bx, by) if straight else None
        )

    def near(self, at: QPointF) -> bool:
        """Return whether a point of the scene is on it."""
        stroker = QPainterPathStroker()
        stroker.setWidth(6)
        return stroker.createStroke(self.path).contains(at)


def places(drawing: Drawing, layout: Layout) -> RectIndex[Place]:
    """Index the positions of all parts of a drawing."""
    index: RectIndex[Place] = RectIndex()
    for kind, rects in (("box", layout.boxes), ("group", layout.groups)):
        for key, rect in rects.items():
            index.put((kind, key), QRectF(*rect))
    for number, route in enumerate(layout.routes):
        xs, ys = [x for x, _ in route], [y for _, y in route]
        left, top = min(xs), min(ys)
        index.put(
            ("arrow", number),
            QRectF(left - 8, top - 8, max(xs) - left + 16, max(ys) - top + 16),
        )
    for number, at in enumerate(layout.labels):
        if at is not None and drawing.arrows[number].label:
            index.put(("label", number), QRectF(at[0] - 60, at[1] - 10, 120, 20))
    return index


class Parts(Mapping[str, T], Generic[T]):
    """Parts by key; one that is asked for and not there yet is made. `made` are those that are."""

    def __init__(self, rects: Mapping[str, Rect], make: Callable[[str], T]) -> None:
        self.rects = rects
        self.made: dict[str, T] = {}
        self._make = make

    def __getitem__(self, key: str) -> T:
        item = self.made.get(key)
        if item is None:
            if key not in self.rects:
                raise KeyError(key)
            item = self.made[key] = self._make(key)
        return item

    def __contains__(self, key: object) -> bool:
        return key in self.rects

    def __iter__(self) -> Iterator[str]:
        return iter(self.rects)

    def __len__(self) -> int:
        return len(self.rects)
