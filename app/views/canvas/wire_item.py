"""A wire on the scene with the shape label that stands on it."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPainterPathStroker, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.builder.graph import Edge
from app.views import theme
from app.views.canvas.routes import LABEL_RISE, Route
from app.views.theme import Theme
from app.views.widgets.painting import TextLine

LAYER = 0.0
RAISED = 0.5
LABELS = 1.0  # over all wires, under all nodes
REACH = 12.0  # how wide a press may miss a wire, in all
LABEL_HEIGHT = 18.0
LABEL_PAD = 8.0
NORMAL, ERROR, ASSUMED = "normal", "error", "assumed"
DASHES = {ERROR: (6.0, 4.0), ASSUMED: (3.0, 4.0)}


class WireItem(QGraphicsItem):
    """One wire. `edge` is what it draws; its label, `chip`, is an item of its own, above all wires."""

    def __init__(self, edge: Edge, way: Route) -> None:
        super().__init__()
        self.edge = edge
        self.chip = ChipItem()
        self._route = way
        self._text = ""
        self._state = NORMAL
        self._selected = self._hovered = False
        self._width: float | None = None  # by activation size while a run goes on
        self._below = self._crowded = False
        self._hit: QPainterPath | None = None
        self._ready: tuple[Theme, QPen] | None = None
        self._bounds = QRectF()
        self._measure()
        self.setZValue(LAYER)

    # --- What it shows

    @property
    def way(self) -> Route:
        return self._route

    @property
    def label(self) -> str:
        return self._text

    @property
    def state(self) -> str:
        return self._state

    def set_route(self, way: Route) -> None:
        self._route, self._hit = way, None
        self._measure()

    def set_label(self, text: str, state: str) -> None:
        """Show a shape, and whether it is known, assumed or wrong."""
        if (text, state) != (self._text, self._state):
            self._text, self._state = text, state
            self._measure()
            self.update()

    def set_below(self, below: bool) -> None:
        """Put the label under the wire, where another rises from the same port."""
        if below != self._below:
            self._below = below
            self._measure()

    def set_crowded(self, crowded: bool) -> None:
        """Hide the label because another says the same in its place."""
        if crowded != self._crowded:
            self._crowded = crowded
            self._measure()

    def set_width(self, width: float | None) -> None:
        """Draw it as wide as what it carries is large; None is the plain width."""
        if width != self._width:
            self._width = width
            self._measure()
            self.update()

    def set_state(self, *, selected: bool | None = None, hovered: bool | None = None) -> None:
        """Show or end a state; None leaves it as it is."""
        new = (self._selected if selected is None else selected, self._hovered if hovered is None else hovered)
        if new != (self._selected, self._hovered):
            self._selected, self._hovered = new
            self.setZValue(RAISED if self._selected else LAYER)
            self._measure()
            self.update()

    def set_shown(self, shown: bool) -> None:
        """Hide it while its end is being taken elsewhere."""
        self.setVisible(shown)
        self.chip.setVisible(shown and self._labelled())

    def retheme(self) -> None:
        self.chip.forget()
        self._measure()
        self.update()

    def _measure(self) -> None:
        self._ready = None
        reach = max(self._width or 2.0, 3.0)
        bounds = self._route.path.boundingRect().adjusted(-reach, -reach, reach, reach)
        if bounds != self._bounds:
            self.prepareGeometryChange()
            self._bounds = bounds
        self.chip.set(self._text, self._state, self._selected)
        drop = 2 * LABEL_RISE if self._below else 0.0
        self.chip.setPos(self._route.label + QPointF(-self.chip.width / 2, drop - LABEL_HEIGHT / 2))
        self.chip.setVisible(self._labelled() and self.isVisible())

    def _labelled(self) -> bool:
        """A label needs its width; one that is asked for stands even where it covers something."""
        asked = self._selected or self._hovered
        room = self._route.run >= self.chip.width + 10 and not self._crowded
        return bool(self._text) and (asked or room)

    # --- Qt

    def boundingRect(self) -> QRectF:
        return self._bounds

    def shape(self) -> QPainterPath:
        if self._hit is None:
            stroker = QPainterPathStroker()
            stroker.setWidth(REACH)
            self._hit = stroker.createStroke(self._route.path)
        return self._hit

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        now = theme.current()
        if self._ready is None or self._ready[0] is not now:
            self._ready = (now, self._pen(now))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.strokePath(self._route.path, self._ready[1])

    def far_color(self, now: Theme) -> QColor:
        """Its colour from afar."""
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
        width = self._width or 2.0
        pen = QPen(self._color(now), width + (0.5 if self._hovered and not self._selected else 0.0))
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
        dash = DASHES.get(self._state)
        if dash:
            pen.setDashPattern([length / pen.widthF() for length in dash])
        return pen


class ChipItem(QGraphicsItem):
    """A shape label."""

    def __init__(self) -> None:
        super().__init__()
        self._line = TextLine("", "shape")
        self._state, self._selected = NORMAL, False
        self.setZValue(LABELS)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self.setCacheMode(QGraphicsItem.CacheMode.DeviceCoordinateCache)
        self.setVisible(False)

    @property
    def width(self) -> float:
        return self._line.width + 2 * LABEL_PAD

    def set(self, text: str, state: str, selected: bool) -> None:
        """Show a text in the look of its wire."""
        if text != self._line.text:
            self.prepareGeometryChange()
            self._line = TextLine(text, "shape")
        if (state, selected) != (self._state, self._selected):
            self._state, self._selected = state, selected
            self.setZValue(LABELS + (0.5 if selected else 0.0))
            self.update()

    def forget(self) -> None:
        """Font and colours are others now."""
        self.prepareGeometryChange()
        self._line = TextLine(self._line.text, "shape")
        self.update()

    def boundingRect(self) -> QRectF:
        return QRectF(-1, -1, self.width + 2, LABEL_HEIGHT + 2)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        now = theme.current()
        fill, line, text = now.panel, now.line2, now.text2
        if self._state == ERROR:
            fill, line, text = now.errorBg, now.error, now.error
        elif self._selected:
            fill, line, text = now.accentBg, now.accent, now.text
        elif self._state == ASSUMED:
            line, text = now.line3, now.text3
        pen = QPen(line, 1)
        if self._state == ASSUMED:
            pen.setDashPattern([3, 3])
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(pen)
        painter.setBrush(fill)
        painter.drawPath(_chip(self.width))
        self._line.draw(painter, LABEL_PAD, (LABEL_HEIGHT - self._line.height) / 2, text)


@lru_cache(maxsize=512)
def _chip(width: float) -> QPainterPath:
    path = QPainterPath()
    path.addRoundedRect(QRectF(0.5, 0.5, width - 1, LABEL_HEIGHT - 1), 8.5, 8.5)
    return path
