"""The interface of the canvas for other features: positions, selection, new nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from app.builder.arrange import Size
from app.builder.sheet import Sheet
from app.views.ui.dialogs.ask import PromptBox
from app.views.ui.present import present

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas

NARROWEST, LOWEST, MARGIN = (
    640.0,
    320.0,
    96.0,
)  # of the room that a whole drawing is to be seen in, px


class CanvasFacade:
    """Facade of the canvas, which its own feature `attach`es.

    `ask_box` prompts next to the selection. `of_node` and `of_op` add entries to context menus: of the selected node,
    and of an op of the palette.
    """

    ask_box: PromptBox

    def __init__(self) -> None:
        self._canvas: Canvas | None = None
        self.of_node: list[Callable[[], list[QAction]]] = []
        self.of_op: list[Callable[[QMenu, str, QPoint], None]] = []

    def attach(self, canvas: Canvas, ask: PromptBox) -> None:
        """Set the canvas and its prompt."""
        self._canvas, self.ask_box = canvas, ask
        canvas.more_actions = lambda: [
            action for offer in self.of_node for action in offer()
        ]

    @property
    def _there(self) -> Canvas:
        return present(self._canvas)

    def say(self, message: str) -> None:
        """Show a short message at the bottom of the canvas."""
        self._there.say(message)

    def take_focus(self) -> None:
        """Give the canvas the keyboard."""
        self._there.view.setFocus(Qt.FocusReason.OtherFocusReason)

    def add_op(self, key: str) -> None:
        """Put a new node on the sheet in front."""
        self._there.add_op(key)

    @property
    def project(self) -> Sheet:
        """Return the sheet in front, with a position for every node."""
        return self._there.commands.project

    def with_positions(self, sheet: Sheet) -> Sheet:
        """Return a graph with a position for each node that has none."""
        return self._there.with_positions(sheet)

    @property
    def room(self) -> Size:
        """Return the size of the viewport, px."""
        there = self._there
        return Size(
            max(there.width() - MARGIN, NARROWEST),
            max(there.height() - MARGIN, LOWEST),
            0.0,
        )

    def reveal(self, nodes: Iterable[str]) -> None:
        """Move nodes into the view, at the zoom that it has."""
        self._there.reveal(nodes)

    def frame_selection(self) -> None:
        """Fit the selection, or everything, into the view."""
        self._there.frame_selection()

    def put_callout_away(self) -> None:
        """Close the callout of a problem, which the Problems panel also shows."""
        callout = self._there.callout
        if callout.problem is not None:
            callout.dismiss()

    def spot(self) -> QPoint:
        """Return the point below the selection, in pixels of the window."""
        canvas = self._there
        area = canvas.scene.rect_of(canvas.selection.ids)
        if area.isEmpty():
            return canvas.mapTo(canvas.window(), QPoint(24, 48))
        return canvas.mapTo(
            canvas.window(), canvas.on_canvas(area).bottomLeft().toPoint()
        ) + QPoint(0, 8)

    def ask(
        self,
        title: str,
        text: str,
        hint: str,
        answer: Callable[[str], str],
        at: QPoint | None = None,
    ) -> None:
        """Prompt below the selection, or at a point of the window; `answer` returns "" or the reason for refusing."""
        self.ask_box.open_at(at or self.spot(), title, text, hint, answer)
