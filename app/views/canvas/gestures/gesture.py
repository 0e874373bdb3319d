"""What every mouse gesture on the canvas is: `start`, any number of `move`, then `finish` or `cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, Qt

if TYPE_CHECKING:
    from app.views.canvas.view import CanvasView

Modifiers = Qt.KeyboardModifier


class Gesture:
    """One gesture. `point` is on the scene; `keys` are the modifiers held.

    While `scrolls`, the view moves along when the pointer is held at its edge; a gesture that comes `from_outside`
    crosses the edge on its way and has to have been inside first.
    """

    scrolls = False
    from_outside = False

    def __init__(self, view: CanvasView, point: QPointF) -> None:
        self.view, self.scene, self.commands = view, view.canvas_scene, view.commands
        self.began = point

    def start(self, keys: Modifiers) -> None:
        """The button went down."""

    def move(self, point: QPointF, keys: Modifiers) -> None:
        """The pointer moved."""

    def finish(self, point: QPointF, keys: Modifiers) -> None:
        """The button went up: do it."""

    def cancel(self) -> None:
        """Leave everything as it was."""
