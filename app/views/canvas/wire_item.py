"""A wire on the scene with its shape label; `layers` paints the visible ones."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPainterPathStroker, QPen

from app.builder.graph import Edge
from app.views.canvas.items.geometry import text_width
from app.views.ui import theme
from app.views.ui.graphview.overview import RepaintTarget
from app.views.ui.graphview.routes import LABEL_RISE, Route
from app.views.ui.graphview.small_names import LEGIBLE, SMALLEST, SQUEEZED
from app.views.ui.graphview.spatial import RectIndex
from app.views.ui.theme import Theme
from app.views.ui.widgets.painting import TextLine

REACH = 12.0  # how wide a press may miss a wire, in all
LABEL_HEIGHT = 18.0
LABEL_PAD = 8.0
READABLE = SMALLEST / theme.ROLES["shape"][0]  # below this zoom labels do not shrink
LEAST_ZOOM = READABLE / 2  # below it no shape is shown
SQUEEZED_MOST = 0.5  # how narrow letters become where the wire is pointed at
MARGIN = 5.0  # pixels of the screen between a small label and the nodes beside it
NORMAL, ERROR, ASSUMED = "normal", "error", "assumed"
DASHES = {ERROR: (6.0, 4.0), ASSUMED: (3.0, 4.0)}


class WireItem:
    """One wire. `edge` is the wire of the graph; its label, `chip`, is painted above all wires.

    It keeps its area in `index` up to date. `rank` orders crossing wires.
    """

    def __init__(
        self, edge: Edge, way: Route, ground: RepaintTarget, index: RectIndex[Edge]
    ) -> None:
        self.edge = edge
        self.chip = WireChip()
        self.rank = 0
        self._ground, self._index = ground, index
        self._route = way
        self._text = ""
        self._state = NORMAL
        self._selected = self._hovered = False
        self._width: float | None = None  # by activation size during a run
        self._below = self._crowded = False
        self._shown = True
        self._hit: QPainterPath | None = None
        self._ready: tuple[Theme, QPen] | None = None
        self._extent = QRectF()
        self._measure()

    # --- Appearance

    @property
    def route(self) -> Route:
        return self._route

    @property
    def label(self) -> str:
        return self._text

    @property
    def state(self) -> str:
        return self._state

    @property
    def extent(self) -> QRectF:
        """All that is painted of it, on the scene."""
        return self._extent

    @property
    def raised(self) -> bool:
        """Return whether it is painted above the others."""
        return self._selected

    def isVisible(self) -> bool:
        return self._shown

    def set_route(self, way: Route) -> None:
        if way != self._route:
            self._route, self._hit = way, None
            self._measure()

    def set_label(self, text: str, state: str) -> bool:
        """Show a shape, and whether it is known, assumed or wrong; return whether that changed."""
        if (text, state) == (self._text, self._state):
            return False
        other = state != self._state
        self._text, self._state = text, state
        if self._crowded and not other and not self._labelled():
            self.chip.set(text, state, self._selected)
        else:
            self._measure(other)
        return True

    def set_below(self, below: bool) -> None:
        """Put the label under the wire, where another rises from the same port."""
        if below != self._below:
            self._below = below
            self._measure(False)

    def set_crowded(self, crowded: bool) -> None:
        """Hide the label if another shows the same in its place."""
        if crowded != self._crowded:
            self._crowded = crowded
            if self._text:
                self._measure(False)

    def set_width(self, width: float | None) -> None:
        """Set the width by the size of its value; None is the plain width."""
        if width != self._width:
            self._width = width
            self._measure()

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
            self._measure()

    def set_shown(self, shown: bool) -> None:
        """Hide it while its end is being taken elsewhere."""
        self._shown = shown
        self._measure()

    def retheme(self) -> None:
        self._measure()

    def remove(self) -> None:
        """Remove it from the index."""
        self._index.remove(self.edge)
        self._ground.touch(self, self._extent)

    def _measure(self, line: bool = True) -> None:
        """Update its area and repaint: line and label, or the label alone."""
        before = (
            self._extent
            if line
            else self.chip.extent
            if self.chip.visible
            else QRectF()
        )
        reach = max(self._width or 2.0, 3.0)
        self.chip.set(self._text, self._state, self._selected)
        drop = 2 * LABEL_RISE if self._below else 0.0
        self.chip.place = self._route.label + QPointF(
            -self.chip.width / 2, drop - LABEL_HEIGHT / 2
        )
        self.chip.visible = self._shown and self._labelled()
        extent = self._route.bounds.adjusted(-reach, -reach, reach, reach)
        if self.chip.visible:
            extent = extent.united(self.chip.extent)
        if extent != self._extent:
            self._extent = extent
            self._index.put(self.edge, extent)
        after = extent if line else self.chip.extent if self.chip.visible else QRectF()
        if line:
            self._ready = None
        for area in (before, after):
            if not area.isEmpty():
                self._ground.touch(self, area)

    def _labelled(self) -> bool:
        """Return whether the label is shown: it needs room, unless the wire is selected or hovered."""
        highlighted = self._selected or self._hovered
        room = self._route.run >= self.chip.width + 10 and not self._crowded
        return bool(self._text) and (highlighted or room)

    def label_scale(self, zoom: float) -> tuple[float, float] | None:
        """Return how much wider and higher the label is painted at a zoom, None if it is not.

        Zoomed out it has the size at which it can just be read, narrowed to the level stretch of the wire.
        """
        plain = (1.0, 1.0) if self.chip.visible and zoom >= LEGIBLE else None
        if zoom >= READABLE or not self._text or self._crowded or not self._shown:
            return plain
        scale = READABLE / zoom
        room = (self._route.run - 2 * MARGIN / zoom) / self.chip.width
        highlighted = self._selected or self._hovered
        if room >= scale * (SQUEEZED_MOST if highlighted else SQUEEZED):
            return min(scale, room), scale
        return plain

    # --- Hits and painting

    def shape(self) -> QPainterPath:
        """Return the area that a press hits."""
        if self._hit is None:
            stroker = QPainterPathStroker()
            stroker.setWidth(REACH)
            self._hit = stroker.createStroke(self._route.path)
        return self._hit

    def paint(self, painter: QPainter) -> None:
        now = theme.current()
        if self._ready is None or self._ready[0] is not now:
            self._ready = (now, self._pen(now))
        painter.strokePath(self._route.path, self._ready[1])

    def far_color(self, now: Theme) -> QColor:
        """Return its colour in the overview."""
        return self._color(now)

    def _color(self, now: Theme) -> QColor:
        if self._state == ERROR:
            return now.error
        if self._selected:
            return now.accent
        if self._state == ASSUMED:
            return now.wireIdle
        if self._width is not None:
            return now.wireTrain
        return now.text3 if self._hovered else now.wire

    def _pen(self, now: Theme) -> QPen:
        width = (self._width or 2.0) * theme.manager().strokes
        pen = QPen(
            self._color(now),
            width + (0.5 if self._hovered and not self._selected else 0.0),
        )
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
        dash = DASHES.get(self._state)
        if dash:
            pen.setDashPattern([length / pen.widthF() for length in dash])
        return pen


class WireChip:
    """A shape label. Labels with one text look alike: `look` is what their picture depends on."""

    __slots__ = ("text", "state", "selected", "place", "visible")

    def __init__(self) -> None:
        self.text, self.state, self.selected = "", NORMAL, False
        self.place = QPointF()
        self.visible = False

    @property
    def appearance(self) -> tuple[str, str, bool]:
        return self.text, self.state, self.selected

    @property
    def width(self) -> float:
        return text_width(self.text, "shape") + 2 * LABEL_PAD

    @property
    def rect(self) -> QRectF:
        """Its frame on the scene."""
        return QRectF(self.place.x(), self.place.y(), self.width, LABEL_HEIGHT)

    @property
    def extent(self) -> QRectF:
        """All that is painted of it, on the scene, however far it is zoomed out."""
        more = (READABLE / LEAST_ZOOM - 1) / 2
        return self.rect.adjusted(
            -self.width * more - 1,
            -LABEL_HEIGHT * more - 1,
            self.width * more + 1,
            LABEL_HEIGHT * more + 1,
        )

    def isVisible(self) -> bool:
        return self.visible

    def set(self, text: str, state: str, selected: bool) -> None:
        """Show a text in the look of its wire."""
        self.text, self.state, self.selected = text, state, selected


def paint_chip(
    painter: QPainter,
    look: tuple[str, str, bool],
    width: float,
    scale: tuple[float, float],
) -> None:
    """Put a label down with its centre at the origin."""
    painter.scale(*scale)
    painter.translate(-width / 2, -LABEL_HEIGHT / 2)
    text, state, selected = look
    now = theme.current()
    fill, border, ink = now.panel, now.line2, now.text2
    if state == ERROR:
        fill, border, ink = now.errorBg, now.error, now.error
    elif selected:
        fill, border, ink = now.accentBg, now.accent, now.text
    elif state == ASSUMED:
        border, ink = now.line3, now.text3
    pen = QPen(border, 1)
    if state == ASSUMED:
        pen.setDashPattern([3, 3])
    painter.setPen(pen)
    painter.setBrush(fill)
    painter.drawPath(_chip(width))
    line = TextLine(text, "shape", scene=True)
    line.draw(painter, LABEL_PAD, (LABEL_HEIGHT - line.height) / 2, ink)


@lru_cache(maxsize=512)
def _chip(width: float) -> QPainterPath:
    path = QPainterPath()
    path.addRoundedRect(QRectF(0.5, 0.5, width - 1, LABEL_HEIGHT - 1), 8.5, 8.5)
    return path
