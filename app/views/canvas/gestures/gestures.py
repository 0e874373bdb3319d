"""Mouse gestures, each an object: `start`, any number of `move`, then `finish` or `cancel`. They end in one command.

A gesture has the view and the scene; temporary changes (moved nodes, rings, a loose wire) it reverts itself, so that
cancelling leaves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QPointF, QRectF, Qt

from app.builder.edits import comments
from app.builder.graph import Edge
from app.views.canvas.gestures.draw_wire import from_port
from app.views.canvas.gestures.gesture import (
    Drag,
    Gesture,
    GhostPreview,
    MarqueePreview,
    Modifiers,
)
from app.views.canvas.gestures.moving import BendWire, Move, ResizeNote
from app.views.canvas.items.geometry import GRID, snapped

if TYPE_CHECKING:
    from app.views.canvas.view import CanvasView


class Pan(Gesture):
    """Take hold of the canvas and move it. Works on the window's pixels, since the scene moves under the pointer."""

    def __init__(self, view: CanvasView, point: QPointF, position: QPoint) -> None:
        super().__init__(view, point)
        self._last = position

    def start(self, keys: Modifiers) -> None:
        self.view.viewport().setCursor(Qt.CursorShape.ClosedHandCursor)

    def move_pixels(self, position: QPoint) -> None:
        step = position - self._last
        self._last = position
        self.view.pan(step.x(), step.y())

    def finish(self, point: QPointF, keys: Modifiers) -> None:
        self.cancel()

    def cancel(self) -> None:
        self.view.viewport().unsetCursor()


class Marquee(Drag):
    """Draw a box about nodes and notes. Shift adds to the selection, Ctrl toggles in it; a click on nothing selects
    nothing."""

    def __init__(self, view: CanvasView, point: QPointF) -> None:
        super().__init__(view, point)
        self._before, self._noted = view.selection.ids, view.canvas_scene.notes.selected
        self._box = MarqueePreview()

    def begin(self) -> None:
        self.scene.addItem(self._box)

    def drag(self, point: QPointF, keys: Modifiers) -> None:
        area = QRectF(self.began, point).normalized()
        self._box.set_area(area)
        sides = comments.Area(area.left(), area.top(), area.right(), area.bottom())
        nodes = frozenset(self.scene.index.inside(area))
        notes = comments.touched(self.scene.notes.comments, sides)
        self.commands.select(
            _chosen(self._before, nodes, keys), _chosen(self._noted, notes, keys)
        )

    def click(self, keys: Modifiers) -> None:
        if not keys & (Modifiers.ControlModifier | Modifiers.ShiftModifier):
            self.commands.select(())

    def drop(self, point: QPointF) -> None:
        self._box.remove()

    def revert(self) -> None:
        self._box.remove()
        self.commands.select(self._before, self._noted)


def _chosen(
    before: frozenset[str], inside: frozenset[str], keys: Modifiers
) -> frozenset[str]:
    if keys & Modifiers.ControlModifier:
        return before ^ inside
    return before | inside if keys & Modifiers.ShiftModifier else inside


class DropOp(Gesture):
    """A layer dragged in from the palette: a preview on the grid, and the wire that it would be inserted on
    highlighted."""

    scrolls = True
    from_outside = True

    def __init__(self, view: CanvasView, point: QPointF, op: str) -> None:
        super().__init__(view, point)
        self._op = op
        self._size = view.canvas_scene.size_of(op)
        self._ghost = GhostPreview(self._size)
        self._wire: Edge | None = None

    def start(self, keys: Modifiers) -> None:
        self.scene.addItem(self._ghost)
        self.move(self.began, keys)

    def move(self, point: QPointF, keys: Modifiers) -> None:
        self._wire = self._wire_under(point)
        corner = point - QPointF(self._size.width / 2, self._size.anchor)
        on_wire = self._wire is not None
        self._ghost.setPos(
            snapped(corner, self._size.anchor)
            if on_wire
            else self.scene.corner_of_new(self._op, point)
        )
        self.scene.set_hovered(None, self._wire)

    def _wire_under(self, point: QPointF) -> Edge | None:
        spec = self.scene.catalog[self._op]
        if not spec.inputs or not spec.outputs:
            return None
        reach = GRID * 1.5
        return self.scene.wire_near(
            QRectF(point.x() - reach, point.y() - reach, 2 * reach, 2 * reach)
        )

    def finish(self, point: QPointF, keys: Modifiers) -> None:
        wire = self._wire_under(point)
        self.cancel()
        if wire is not None:
            self.commands.insert(self._op, wire, point)
        else:
            self.commands.add_at(self._op, point)

    def cancel(self) -> None:
        self._ghost.remove()
        self.scene.set_hovered(None)


def begin(view: CanvasView, point: QPointF, keys: Modifiers) -> Gesture | None:
    """Return the gesture for a press of the left button; cutting a wire and folding a block happen at once."""
    hit = view.canvas_scene.hit(point, view.zoom)
    if hit.wire is not None:
        if keys & Modifiers.AltModifier:
            view.commands.cut_wire(hit.wire)
            return None
        return BendWire(view, point, hit.wire, hit.bend)
    if hit.pin is not None:
        return from_port(view, point, hit)
    if hit.note is not None and hit.grip:
        return ResizeNote(view, point, hit.note, hit.grip)
    if hit.node is not None and hit.folds:
        view.commands.select([hit.node])
        view.fold_wanted.emit(hit.node, hit.inside)
        return None
    if hit.node is not None or hit.note is not None:
        return Move(view, point, hit.node, hit.note)
    return Marquee(view, point)
