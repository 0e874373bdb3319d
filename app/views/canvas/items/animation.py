"""Animated moves of nodes to new positions: only the display moves, the document has changed already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import (
    QAbstractAnimation,
    QEasingCurve,
    QObject,
    QPointF,
    QVariantAnimation,
    Signal,
)

from app.builder.sheet import Comment
from app.views.ui import theme

if TYPE_CHECKING:
    from app.views.canvas.scene import CanvasScene

MILLISECONDS = 200
MOST = 400  # nodes; more cannot be led along in a frame's time


class Glide(QObject):
    """One animation at a time; `finish` ends it at once. `moving` reports begin and end."""

    moving = Signal(bool)

    def __init__(self, scene: CanvasScene, parent: QObject) -> None:
        super().__init__(parent)
        self._scene = scene
        self._ways: dict[str, tuple[QPointF, QPointF]] = {}
        self._notes: dict[str, tuple[Comment, Comment]] = {}
        self._moves = QVariantAnimation(self)
        self._moves.setStartValue(0.0)
        self._moves.setEndValue(1.0)
        self._moves.setDuration(MILLISECONDS)
        self._moves.setEasingCurve(QEasingCurve.Type.InOutCubic)
        self._moves.valueChanged.connect(self._show)
        self._moves.finished.connect(self._end)

    @property
    def running(self) -> bool:
        return self._moves.state() == QAbstractAnimation.State.Running

    @contextmanager
    def from_here(self) -> Iterator[None]:
        """Let what an edit moves glide from where it is seen now."""
        self.finish()
        positions = {node: item.pos() for node, item in self._scene.nodes.items()}
        notes = dict(self._scene.notes.comments)
        yield
        self._ways = {
            node: (start, item.pos())
            for node, start in positions.items()
            if (item := self._scene.nodes.get(node)) is not None and item.pos() != start
        }
        after = self._scene.notes.comments
        self._notes = {
            key: (note, after[key])
            for key, note in notes.items()
            if after.get(key, note) != note
        }
        if (
            self._ways
            and len(self._scene.nodes) <= MOST
            and not theme.manager().reduced_motion
        ):
            self._show(0.0)
            self._moves.start()
            self.moving.emit(True)

    def finish(self) -> None:
        """Stop; everything is where the project has it."""
        if self.running:
            self._moves.stop()
            self._end()

    def _show(self, share: float) -> None:
        if share >= 1:  # wires are routed again at the final position only
            return

        def between(start: float, end: float) -> float:
            return start + (end - start) * share

        notes = {
            key: replace(
                end,
                x=between(start.x, end.x),
                y=between(start.y, end.y),
                width=between(start.width, end.width),
                height=between(start.height, end.height),
            )
            for key, (start, end) in self._notes.items()
        }
        positions = {
            node: start + (end - start) * share
            for node, (start, end) in self._ways.items()
        }
        self._scene.drag(positions, notes, plain=True)

    def _end(self) -> None:
        self._scene.settle()
        self._ways, self._notes = {}, {}
        self.moving.emit(False)
