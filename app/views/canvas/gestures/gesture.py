"""What every mouse gesture on the canvas is: `start`, any number of `move`, then `finish` or `cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, Qt

if TYPE_CHECKING:
    from app.views.canvas.view import CanvasView

Modifiers = Qt.KeyboardModifier


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
