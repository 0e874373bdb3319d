"""A node on the scene: holds its face, its place and its state, is painted by the painter.

It is no item of Qt's: thousands of those cost more to keep than to paint. `layers` paints all that are in sight.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter, QPen, QPixmap

from app.builder.graph import Edge
from app.util.formatting import figure
from app.util.lru import LruCache, Same
from app.views.canvas.items.faces import Face, Inner, Pin
from app.views.canvas.items.geometry import (
    OUTLINE,
    PICTURES,
    PORT_REACH,
    STRIP,
    Shape,
    fold_area,
)
from app.views.canvas.items.node_shapes import plan_of, shape_of
from app.views.canvas.items.painter import NodeLook, heat_cells, paint_note, paint_ports
from app.views.canvas.wire_item import NORMAL, WireItem
from app.views.ui import theme
from app.views.ui.graphview.overview import RepaintTarget
from app.views.ui.graphview.spatial import RectIndex
from app.views.ui.graphview.sprites import Hashed
from app.views.ui.theme import Theme

MOST_CELLS, FEWEST_CELLS = 40, 24

_versions = itertools.count()  # of all nodes, so that no two looks have the same


class NodeItem:
    """One node. The scene sets what it shows; it knows where its ports are.

    `rank` orders overlapping nodes; `version` changes whenever it looks different.
    """

    def __init__(
        self, node: str, face: Face, ground: RepaintTarget, shape: Shape | None = None
    ) -> None:
        self.node = node
        self.rank = 0
        self.version = next(_versions)
        self._ground = ground
        self._face = face
        self._norms: tuple[list[float | None], float, float] | None = None
        self._newest: float | None = None  # norm
        self._heat: tuple[float, str] | None = None
        self._cells: QPixmap | None = None
        self._pictures: tuple[QImage, ...] = ()
        self._words = ""
        self._selected = self._hovered = False
        self._marks: dict[tuple[bool, int], str] = {}
        self._place = QPointF()
        self._shape = shape or shape_of(face)
        self._body = self._shape.rect
        self._look: NodeLook | None = None
        self._looks_like: tuple[int, Hashed] | None = None
        self._inner: InnerLook | None = None

    # --- Appearance

    @property
    def face(self) -> Face:
        return self._face

    @property
    def geometry(self) -> Shape:
        return self._shape

    @property
    def body(self) -> QRectF:
        """The node's rectangle on the scene."""
        return QRectF(self._body)

    @property
    def edges(self) -> tuple[float, float, float, float]:
        """The left, top, right and bottom of the node on the scene."""
        return self._body.getCoords()  # type: ignore[return-value]

    @property
    def own_extent(self) -> QRectF:
        """All that is painted of it, from its top left corner."""
        return self._shape.rect.adjusted(-OUTLINE, -OUTLINE, OUTLINE, OUTLINE)

    @property
    def extent(self) -> QRectF:
        """All that is painted of it, on the scene."""
        return self._body.adjusted(-OUTLINE, -OUTLINE, OUTLINE, OUTLINE)

    @property
    def raised(self) -> bool:
        """Return whether it is painted above the others."""
        return self._selected

    @property
    def level(self) -> tuple[bool, bool, int]:
        """Return the stacking order: unfolded blocks below everything, selected nodes on top."""
        return self._face.inside is None, self._selected, self.rank

    @property
    def has_norms(self) -> bool:
        """Return whether it has a gradient strip."""
        return self._norms is not None

    @property
    def inner(self) -> InnerLook | None:
        """Return the visible inside of an unfolded block."""
        if self._inner is None and self._face.inside is not None:
            self._inner = rendering_of(self._face.inside)
        return self._inner

    def within(self, point: QPointF) -> tuple[tuple[str, ...], bool]:
        """Return the path to the innermost node at a point of the scene, through unfolded blocks, and whether the point
        is on that node's fold button (this node's if the path is empty)."""
        here = point - self._place
        inner = self.inner
        if inner is not None:
            for item in reversed(inner.nodes_in(QRectF(here.x(), here.y(), 0.1, 0.1))):
                if item.body.contains(here):
                    way, folds = item.within(here)
                    return (item.node, *way), folds
        return (), fold_area(self._face, self._shape).contains(here)

    def pos(self) -> QPointF:
        """Return its top left corner on the scene."""
        return QPointF(self._place)

    def x(self) -> float:
        return self._place.x()

    def y(self) -> float:
        return self._place.y()

    @property
    def text(self) -> str:
        """All its text: name, layer with its values, and details."""
        return "\n".join(
            line for line in (self.face.name, self.face.line, self.face.detail) if line
        )

    def words_of(self, way: Sequence[str]) -> str:
        """Describe a node inside by its path: its name, its op and its output shape."""
        hit = self._inside(way)
        if hit is None:
            return ""
        item, inner = hit
        lines = [item.text]
        lines += [
            inner.inner.carried.get((item.node, number), "")
            for number in range(len(item.face.outputs))
        ]
        return "\n".join(line for line in lines if line)

    def face_at(self, way: Sequence[str]) -> Face | None:
        """Return the face of a node inside, None if it is not visible."""
        hit = self._inside(way)
        return hit[0].face if hit is not None else None

    def _inside(self, way: Sequence[str]) -> tuple[NodeItem, InnerLook] | None:
        """Return a node inside and its container."""
        item, inner = self, self.inner
        for number, step in enumerate(way):
            inner = item.inner if number else inner
            if inner is None or step not in inner.nodes:
                return None
            item = inner.nodes[step]
        return (item, inner) if inner is not None and way else None

    def set_pos(self, position: QPointF) -> None:
        """Move it."""
        if position == self._place:
            return
        self._ground.touch(self, self.extent)
        self.put(position)
        self._ground.touch(self, self.extent)

    def put(self, position: QPointF) -> None:
        """Move it, of which the scene knows already."""
        self._place = QPointF(position)
        self._body = self._shape.rect.translated(self._place)

    def set_face(self, face: Face) -> bool:
        """Set another face; return whether shape or pins changed, so that wires must be routed again."""
        if face == self._face:
            return False
        before, self._face = self._face, face
        if self._norms is not None:
            self._words = (
                self._gradient_words()
            )  # the number of parameters may be known only now
        return self._remake() or _ends(before) != _ends(face)

    def retheme(self) -> None:
        """Apply changed colours and fonts."""
        self._cells = self._strip()
        self._remake()

    def set_gradients(
        self, norms: Sequence[float] | None, low: float, high: float
    ) -> bool:
        """Show the gradient strip, oldest norm first, or none; return whether the shape changed."""
        if norms is None and self._norms is None:
            return False
        self._norms = None if norms is None else (cells_of(norms), low, high)
        self._newest = None if norms is None or not len(norms) else float(norms[-1])
        return self._show_strip(self._gradient_words())

    def _gradient_words(self) -> str:
        return (
            f"grad {figure(self._newest, 2)}"
            if self._newest is not None and self._face.count
            else ""
        )

    def set_heat(self, place: float | None, text: str) -> bool:
        """Show a place on the ramp, from 0 to 1, as a strip of one colour, or none; return whether the shape changed.

        Gradients take precedence.
        """
        heat = None if place is None else (place, text)
        if heat == self._heat:
            return False
        self._heat = heat
        return self._show_strip(self._words if self._norms is not None else "")

    def set_pictures(self, pictures: Sequence[QImage]) -> bool:
        """Show small pictures in the node, or none; return whether the shape changed. They take precedence."""
        if not pictures and not self._pictures:
            return False
        had, self._pictures = bool(self._pictures), tuple(pictures)
        if had and pictures:
            self.repaint()
            return False
        return self._remake()

    def _strip(self) -> QPixmap | None:
        if self._norms is not None:
            return heat_cells(*self._norms)
        if self._heat is None:
            return None
        cell = QPixmap(1, 1)
        cell.fill(theme.heat(self._heat[0]))
        return cell

    def _show_strip(self, text: str) -> bool:
        """Repaint the strip and set its text; return whether the shape changed."""
        had, self._cells = self._cells is not None, self._strip()
        if self._norms is None and self._heat is not None and self._face.tall:
            text = self._heat[1]
        if had and self._cells is not None and text == self._words:
            self.repaint()
            return False
        self._words = text
        return self._remake()

    def _remake(self) -> bool:
        strip = STRIP if self._cells is not None else 0.0
        shape = shape_of(self._face, PICTURES if self._pictures else strip)
        other = shape != self._shape
        if other:
            self._ground.touch(self, self.extent)
            self._shape = shape
            self._body = shape.rect.translated(self._place)
        self._look = self._inner = None
        self.repaint()
        return other

    def repaint(self) -> None:
        """Mark the appearance as changed."""
        self.version = next(_versions)
        self._ground.touch(self, self.extent)

    def set_state(
        self, *, selected: bool | None = None, hovered: bool | None = None
    ) -> None:
        """Show or end a state; None leaves it as it is."""
        new = (
            self._selected if selected is None else selected,
            self._hovered if hovered is None else hovered,
        )
        if new != (self._selected, self._hovered):
            self._selected, self._hovered = new
            self.repaint()

    def set_marks(self, marks: dict[tuple[bool, int], str]) -> None:
        """Ring ports while a wire is drawn; an empty mapping ends it."""
        if marks != self._marks:
            self._marks = marks
            self.repaint()

    def far_color(self, now: Theme) -> QColor:
        """Return the colour of its category."""
        return now.categories.get(self._face.category, now.line3)

    def far_ring(self, now: Theme) -> QColor | None:
        """Return the colour of its state for the overview, None for no state."""
        if self._face.state == "error":
            return now.error
        return now.accent if self._selected else now.text3 if self._hovered else None

    # --- Ports

    def input_point(self, number: int) -> QPointF:
        return self._place + self._shape.input(number)

    def output_point(self, number: int) -> QPointF:
        return self._place + self._shape.output(number)

    def input_number(self, port: str, index: int = 0) -> int:
        """Return the index of the pin for a wire into `port`."""
        return self._face.number_of(port, index)

    def port_at(
        self, point: QPointF, reach: float = PORT_REACH
    ) -> tuple[bool, int, Pin] | None:
        """Return the nearest port within reach of a point of the scene: (is an output, number, pin)."""
        best, nearest = None, reach
        for is_output, pins in ((False, self._face.inputs), (True, self._face.outputs)):
            for number, pin in enumerate(pins):
                port_point = (
                    self.output_point(number) if is_output else self.input_point(number)
                )
                distance = math.hypot(
                    port_point.x() - point.x(), port_point.y() - point.y()
                )
                if distance <= nearest:
                    best, nearest = (is_output, number, pin), distance
        return best

    # --- Painting

    @property
    def picture(self) -> tuple[Hashable, int]:
        """Return the sprite's cache key and version.

        Equal appearances share a key, so that a node that reappears, for example by undo, finds its sprite. With a
        strip or marks, which rarely recur, the key is the item itself.
        """
        strip = self._pictures or self._cells is not None
        if strip or self._marks or self._face.inside is not None:
            return self, self.version
        if self._looks_like is None or self._looks_like[0] != self.version:
            look = Hashed(
                (
                    self._face,
                    self._shape,
                    self._words,
                    self._selected,
                    self._hovered,
                    self._norms is None,
                )
            )
            self._looks_like = self.version, look
        return self._looks_like[1], 0

    def paint(self, painter: QPainter, zoom: float, area: QRectF | None = None) -> None:
        """Paint it with its top left corner at the origin, for a zoom; texts are laid out on first use.

        Of an unfolded block, paint the wires that touch `area`, without nodes and labels inside.
        """
        if self._look is None:
            self._look = NodeLook(
                self._face, self._shape, self._words, counted=self._norms is not None
            )
        self._look.paint(
            painter, hovered=self._hovered, selected=self._selected, zoom=zoom
        )
        inner = self.inner
        if inner is not None:
            inner.paint_wires(painter, area or self.own_extent, self._shape)
        if self._pictures:
            self._look.paint_pictures(painter, self._pictures)
        elif self._cells is not None:
            self._look.paint_strip(painter, self._cells)
        paint_ports(painter, self._look, self._selected, self._marks)


def _ends(face: Face) -> list[tuple[str, int]]:
    """Return the wire ends of a face, in order."""
    return [(pin.port, pin.index) for pin in face.inputs]


def cells_of(norms: Sequence[float]) -> list[float | None]:
    """Return the norms in 24 to 40 cells: averaged if there are more, padded with None if there are fewer.

    >>> len(cells_of([1.0] * 100)), cells_of([1.0])[:2]
    (40, [1.0, None])
    """
    count = len(norms)
    if count > MOST_CELLS:
        edges = [round(i * count / MOST_CELLS) for i in range(MOST_CELLS + 1)]
        return [
            sum(norms[a:b]) / (b - a) for a, b in zip(edges, edges[1:], strict=False)
        ]
    return [*(float(norm) for norm in norms), *([None] * max(0, FEWEST_CELLS - count))]


# --- Insides of unfolded blocks --------------------------------------------------------------------------------------


class _Still:
    """Repaint interface of an inside, which never changes."""

    def touch(self, item: object, area: QRectF) -> None:
        return


class InnerLook:
    """The nodes and wires of an inside, in the frame's own pixels, found by area."""

    def __init__(self, inner: Inner) -> None:
        self.plan = plan = plan_of(inner.drawn)
        self.inner = inner
        ground = _Still()
        self.nodes: dict[str, NodeItem] = {}
        self.node_index: RectIndex[str] = RectIndex()
        for rank, (node, position) in enumerate(plan.places.items()):
            item = self.nodes[node] = NodeItem(
                node, inner.faces[node], ground, plan.shapes[node]
            )
            item.rank = rank
            item.set_pos(position)
            self.node_index.put(node, item.body)
        self.wires: dict[Edge, WireItem] = {}
        self.wire_index: RectIndex[Edge] = RectIndex()
        for rank, (edge, way) in enumerate(plan.ways.items()):
            wire = self.wires[edge] = WireItem(edge, way, ground, self.wire_index)
            wire.rank = rank
            wire.set_label(inner.carried.get((edge.source, edge.output), ""), NORMAL)

    def wires_in(self, area: QRectF) -> Iterator[WireItem]:
        """Yield the wires that touch an area of the frame; their routes are relative to `plan.shift`."""
        for edge in self.wire_index.inside(area.translated(-self.plan.shift)):
            yield self.wires[edge]

    def paint_wires(self, painter: QPainter, area: QRectF, shape: Shape) -> None:
        """Paint frames of notes and the wires that an area touches, those to the outputs on to the frame's side."""
        for frame_rect, text, color in self.plan.frames:
            if frame_rect.intersects(area):
                paint_note(painter, frame_rect, text, color)
        shift = self.plan.shift
        painter.translate(shift)
        for wire in self.wires_in(area):
            wire.paint(painter)
        painter.translate(-shift)
        if shape.width > self.plan.width:
            painter.setPen(
                QPen(
                    theme.current().wire,
                    2 * theme.manager().strokes,
                    Qt.PenStyle.SolidLine,
                    Qt.PenCapStyle.FlatCap,
                )
            )
            for y in self.plan.outputs:
                painter.drawLine(QPointF(self.plan.width, y), QPointF(shape.width, y))

    def nodes_in(self, area: QRectF) -> list[NodeItem]:
        """Return the nodes that touch an area of the frame, in order."""
        return sorted(
            (self.nodes[node] for node in self.node_index.inside(area)),
            key=lambda item: item.rank,
        )


_looks: LruCache[InnerLook] = LruCache(512)


def rendering_of(inner: Inner) -> InnerLook:
    """Return the rendering of an instance's inside; instances that look the same share it."""
    return _looks.get_or_compute(Same(inner), lambda: InnerLook(inner))


def forget() -> None:
    """Forget renderings after a change of fonts or colours."""
    _looks.clear()
