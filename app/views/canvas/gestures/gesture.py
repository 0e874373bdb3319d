"""What every mouse gesture on the canvas is: `start`, any number of `move`, then `finish` or `cancel`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import QPointF, Qt
from PySide6.QtWidgets import QApplication

from app.builder.graph import Edge
from app.views.canvas.items.faces import Pin

if TYPE_CHECKING:
    from app.views.canvas.view import CanvasView

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
