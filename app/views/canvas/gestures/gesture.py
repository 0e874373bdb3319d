"""What a mouse gesture is (`start`, any number of `move`, then `finish` or `cancel`), and what it shows meanwhile."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPen
from PySide6.QtWidgets import (
    QApplication,
    QGraphicsItem,
)

from app.builder.arrange import Size
from app.builder.graph import Edge
from app.views.canvas.items.faces import Pin
from app.views.canvas.items.painter import paint_port
from app.views.ui import theme
from app.views.ui.graphview.routes import free_end
from app.views.ui.widgets.painting import Drawn

if TYPE_CHECKING:
    from app.views.canvas.view import CanvasView

LAYER = 9.0
REACH = 12.0  # what is painted around an area, at most


class Preview(Drawn, QGraphicsItem):
    """Something painted in an area before everything else, for as long as a gesture lasts."""

    def __init__(self, area: QRectF) -> None:
        super().__init__()
        self._area = area
        self.setZValue(LAYER)

    def set_area(self, area: QRectF) -> None:
        self.prepareGeometryChange()
        self._area = area

    def remove(self) -> None:
        """Take it off the scene, if it is on one."""
        if self.scene() is not None:
            self.scene().removeItem(self)

    def boundingRect(self) -> QRectF:
        return self._area.adjusted(-REACH, -REACH, REACH, REACH)


class MarqueePreview(Preview):
    """The box about nodes."""

    def __init__(self) -> None:
        super().__init__(QRectF())

    def draw(self, painter: QPainter) -> None:
        now = theme.current()
        pen = QPen(now.accent, 1)
        pen.setCosmetic(True)
        painter.setPen(pen)
        painter.setBrush(theme.faded(now.accent, 0.10))
        painter.drawRect(self._area)


class WirePreview(Preview):
    """A wire being drawn, from its fast end to the pointer or to the port that it would end at."""

    def __init__(self, fast: QPointF, from_output: bool, kind: str) -> None:
        super().__init__(QRectF())
        self._fast, self._from_output = fast, from_output
        self._pin = Pin("", kind)
        self._end = fast
        self._path = QPainterPath()
        self._fits = self._refused = False

    def set_end(self, end: QPointF, fits: bool, refused: bool) -> None:
        self._end, self._fits, self._refused = end, fits, refused
        self._path = free_end(self._fast, end, self._from_output)
        self.set_area(self._path.boundingRect())

    def draw(self, painter: QPainter) -> None:
        now = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pen = QPen(now.error if self._refused else now.accent, 2)
        if not self._fits:
            pen.setDashPattern([2.5, 2])
        painter.strokePath(self._path, pen)
        if not self._fits and not self._refused:
            paint_port(painter, self._end, self._pin, now.accent, now.canvas)


class GhostPreview(Preview):
    """Where a new node would be."""

    def __init__(self, size: Size) -> None:
        super().__init__(QRectF(0, 0, size.width, size.height))

    def draw(self, painter: QPainter) -> None:
        now = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pen = QPen(now.accent, 1.5, Qt.PenStyle.CustomDashLine)
        pen.setDashPattern([3, 2.4])
        painter.setPen(pen)
        painter.setBrush(theme.faded(now.raised, 0.7))
        painter.drawRoundedRect(self._area, 6, 6)


Modifiers = Qt.KeyboardModifier


class Hit(Struct, frozen=True):
    """The target at a point of the scene: a port of a node, a node, a wire, one of its bends, a note, or nothing.

    `grip` names the edges of a note that are dragged, by the letters l, r, t, b. `inside` is the path to a node in an
    unfolded block; `folds` means that a press unfolds or folds the block at the end of that path.
    """

    node: str | None = None
    pin: Pin | None = None
    is_output: bool = False
    wire: Edge | None = None
    bend: int | None = None
    note: str | None = None
    grip: str = ""
    inside: tuple[str, ...] = ()
    folds: bool = False


NOTHING = Hit()


class Gesture:
    """One gesture. `point` is on the scene; `keys` are the modifiers held.

    With `scrolls`, the view scrolls when the pointer is held at its edge; a gesture that starts `from_outside` crosses
    the edge on its way and must have been inside first.
    """

    scrolls = False
    from_outside = False

    def __init__(self, view: CanvasView, point: QPointF) -> None:
        self.view, self.scene, self.commands = view, view.canvas_scene, view.commands
        self.began = point

    def start(self, keys: Modifiers) -> None:
        """Handle the button press."""

    def move(self, point: QPointF, keys: Modifiers) -> None:
        """Handle a move of the pointer."""

    def finish(self, point: QPointF, keys: Modifiers) -> None:
        """Handle the button release: apply the gesture."""

    def cancel(self) -> None:
        """Leave everything as it was."""


class Drag(Gesture):
    """A gesture that begins once the pointer has moved far enough; a press without that is a `click`.

    The view scrolls during it, and overlays that it would disturb are hidden.
    """

    def begin(self) -> None:
        """Handle the first move that is far enough."""

    def drag(self, point: QPointF, keys: Modifiers) -> None:
        """Handle every such move."""

    def drop(self, point: QPointF) -> None:
        """Apply the gesture."""

    def click(self, keys: Modifiers) -> None:
        """Handle a press that did not move."""

    def revert(self) -> None:
        """Take back what is shown."""

    def move(self, point: QPointF, keys: Modifiers) -> None:
        if not self.scrolls:
            step = (point - self.began) * self.view.zoom
            least = min(QApplication.startDragDistance(), 6)
            if math.hypot(step.x(), step.y()) < least:
                return
            self.scrolls = True
            self.view.dragging.emit(True)
            self.begin()
        self.drag(point, keys)

    def finish(self, point: QPointF, keys: Modifiers) -> None:
        if self.scrolls:
            self.view.dragging.emit(False)
            self.drop(point)
        else:
            self.click(keys)

    def cancel(self) -> None:
        self.view.dragging.emit(False)
        self.revert()
