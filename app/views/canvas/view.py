"""The view of the scene: zooms, pans, passes mouse and drag events to gestures. It decides nothing itself."""

# A whole, which its parts import for type checkers alone: a gesture moves the view that it began in.
from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
)
from PySide6.QtWidgets import QGraphicsView, QWidget

from app.views.canvas.commands import Commands
from app.views.canvas.gestures import gestures
from app.views.canvas.gestures.gesture import Gesture, Hit
from app.views.canvas.scene import CanvasScene
from app.views.selection import Selection
from app.views.ui.graphview.pan_zoom_view import PanZoomView
from app.views.ui.widgets.painting import KEY_REASONS

MIME = "application/x-tapedeck-op"
SIZING = {
    **dict.fromkeys(("l", "r"), Qt.CursorShape.SizeHorCursor),
    **dict.fromkeys(("t", "b"), Qt.CursorShape.SizeVerCursor),
    **dict.fromkeys(("lt", "rb"), Qt.CursorShape.SizeFDiagCursor),
    **dict.fromkeys(("rt", "lb"), Qt.CursorShape.SizeBDiagCursor),
}


class CanvasView(PanZoomView):
    """Shows the scene. Signals carry points of the scene, `refusal` and `hint` of the viewport."""

    refusal = Signal(str, QPoint)
    hint = Signal(str, QPoint)
    search_wanted = Signal(QPointF)
    loose_end = Signal(
        str, bool, object, QPointF
    )  # node, from an output, pin, drop point
    open_wanted = Signal(str)
    inside_wanted = Signal(str, object)  # node, path from it to a node inside
    fold_wanted = Signal(str, object)  # the same: unfold or fold the block at its end
    note_wanted = Signal(str)
    parameter_wanted = Signal(
        str, int, str, object, QPointF
    )  # source, output, target, names, drop point
    pressed = Signal()
    menu_wanted = Signal(object, QPoint)
    menu_key = Signal()
    dragging = Signal(bool)
    focus_ring = Signal(bool)

    SHOWS_END = False

    def __init__(
        self,
        scene: CanvasScene,
        commands: Commands,
        selection: Selection,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(scene, parent)
        self.canvas_scene, self.commands, self.selection = scene, commands, selection
        self._gesture: Gesture | None = None
        self._button = Qt.MouseButton.NoButton
        self.pointer = QPointF()
        self.setOptimizationFlag(QGraphicsView.OptimizationFlag.DontSavePainterState)
        self.setAcceptDrops(True)
        self.viewport().setMouseTracking(True)
        self.setAccessibleName("Canvas")
        self.setAccessibleDescription(
            "Network diagram. Arrow keys follow the wires, Tab adds a layer."
        )
        scene.redrawn.connect(self.widen)
        self.widen()

    def whole_area(self) -> QRectF:
        return self.canvas_scene.content_rect()

    def zoom_changed(self, zoom: float) -> None:
        self.canvas_scene.set_zoom(zoom)

    # --- Gestures

    @property
    def gesture(self) -> Gesture | None:
        """Return the current gesture."""
        return self._gesture

    @property
    def busy(self) -> bool:
        """Return whether there is a gesture."""
        return self._gesture is not None

    def cancel_gesture(self) -> bool:
        """Cancel the gesture; False if there is none."""
        gesture, self._gesture = self._gesture, None
        if gesture is not None:
            gesture.cancel()
        return gesture is not None

    def _begin(self, gesture: Gesture | None, event: QMouseEvent) -> None:
        self.cancel_gesture()
        self._gesture, self._button = gesture, event.button()
        if gesture is not None:
            gesture.start(event.modifiers())

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.pressed.emit()
        point = self.mapToScene(event.position().toPoint())
        self.pointer = point
        left, middle = Qt.MouseButton.LeftButton, Qt.MouseButton.MiddleButton
        if self._gesture is not None:
            if event.button() == Qt.MouseButton.RightButton:
                self.cancel_gesture()
        elif event.button() == middle or (event.button() == left and self.space_held):
            self._begin(gestures.Pan(self, point, event.position().toPoint()), event)
        elif event.button() == left:
            self._begin(gestures.begin(self, point, event.modifiers()), event)
        event.accept()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        position = event.position().toPoint()
        point = self.mapToScene(position)
        self.pointer = point
        if isinstance(self._gesture, gestures.Pan):
            self._gesture.move_pixels(position)
        elif self._gesture is not None:
            self._gesture.move(point, event.modifiers())
        else:
            self._hover(point)
        event.accept()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self._gesture is not None and event.button() == self._button:
            gesture, self._gesture = self._gesture, None
            gesture.finish(
                self.mapToScene(event.position().toPoint()), event.modifiers()
            )
        event.accept()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        point = self.mapToScene(event.position().toPoint())
        if event.button() == Qt.MouseButton.LeftButton:
            hit = self.canvas_scene.hit(point, self.zoom)
            if hit.node is not None and hit.folds:
                self.fold_wanted.emit(hit.node, hit.inside)
            elif hit.node is not None and hit.inside:
                self.inside_wanted.emit(hit.node, hit.inside)
            elif hit.node is not None and hit.pin is None:
                self.open_wanted.emit(hit.node)
            elif hit.wire is not None and hit.bend is not None:
                self.commands.notes.unbend(hit.wire, hit.bend)
            elif hit.wire is not None:
                self.commands.notes.bend(hit.wire, point)
            elif hit.note is not None:
                self.note_wanted.emit(hit.note)
            elif hit.node is None:
                self.search_wanted.emit(point)
        event.accept()

    def _hover(self, point: QPointF) -> None:
        hit = self.canvas_scene.hit(point, self.zoom)
        self.canvas_scene.set_hovered(hit.node, hit.wire)
        self.canvas_scene.notes.set_hovered(hit.note)
        self.selection.hover(hit.node)
        cursor = self._cursor(hit)
        if self.space_held:
            cursor = Qt.CursorShape.OpenHandCursor
        if self.viewport().cursor().shape() != cursor:
            self.viewport().setCursor(cursor)

    @staticmethod
    def _cursor(hit: Hit) -> Qt.CursorShape:
        if hit.grip:
            return SIZING[hit.grip]
        if hit.bend is not None:
            return Qt.CursorShape.SizeAllCursor
        if hit.folds:
            return Qt.CursorShape.PointingHandCursor
        return (
            Qt.CursorShape.CrossCursor
            if hit.pin is not None
            else Qt.CursorShape.ArrowCursor
        )

    def leaveEvent(self, event: QEvent) -> None:
        if self._gesture is None:
            self.canvas_scene.set_hovered(None)
            self.canvas_scene.notes.set_hovered(None)
            self.selection.hover(None)
        super().leaveEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self.focus_ring.emit(False)
        super().focusOutEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        self.focus_ring.emit(event.reason() in KEY_REASONS)
        super().focusInEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Space:
            super().keyPressEvent(event)
        else:
            event.ignore()  # every other key is an action's

    def keyReleaseEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Space:
            super().keyReleaseEvent(event)
        else:
            event.ignore()

    def focusNextPrevChild(self, forward: bool) -> bool:
        return not forward and super().focusNextPrevChild(
            False
        )  # Tab opens the search, Shift+Tab leaves

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self.cancel_gesture()
        if event.reason() == QContextMenuEvent.Reason.Keyboard:
            self.menu_key.emit()
        else:
            hit = self.canvas_scene.hit(self.mapToScene(event.pos()), self.zoom)
            self.menu_wanted.emit(hit, event.globalPos())
        event.accept()

    # --- Drops from the palette

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        op = bytes(event.mimeData().data(MIME).data()).decode("utf-8", "replace")
        if op not in self.canvas_scene.catalog:
            event.ignore()
            return
        self.cancel_gesture()
        self._gesture = gestures.DropOp(
            self, self.mapToScene(event.position().toPoint()), op
        )
        self._gesture.start(event.modifiers())
        event.acceptProposedAction()

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        if isinstance(self._gesture, gestures.DropOp):
            self._gesture.move(
                self.mapToScene(event.position().toPoint()), event.modifiers()
            )
            event.acceptProposedAction()
        else:
            event.ignore()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        if isinstance(self._gesture, gestures.DropOp):
            self.cancel_gesture()

    def dropEvent(self, event: QDropEvent) -> None:
        gesture, self._gesture = self._gesture, None
        if not isinstance(gesture, gestures.DropOp):
            event.ignore()
            return
        gesture.finish(self.mapToScene(event.position().toPoint()), event.modifiers())
        event.acceptProposedAction()
        self.setFocus()

    # --- Painting

    def tip_at(self, position: QPoint) -> str:
        """Describe the port, wire, node or note at a point."""
        scene = self.canvas_scene
        hit = scene.hit(self.mapToScene(position), self.zoom)
        if hit.node is not None and hit.pin is not None:
            side = "output" if hit.is_output else "input"
            carried = (
                scene.analysis.values.get((hit.node, hit.pin.index))
                if scene.analysis and hit.is_output
                else None
            )
            name = f"{side} {hit.pin.port}" if hit.pin.port != side else side
            return f"{name} ({hit.pin.kind})" + (
                f"\n{carried}" if carried is not None else ""
            )
        if hit.wire is not None:
            wire = hit.wire
            return f"{scene.graph.nodes[wire.source].name} to {wire.port} of {scene.graph.nodes[wire.target].name}"
        if hit.node is not None and hit.folds:
            return "Fold or unfold (U)"
        if hit.node is not None and hit.inside:
            return scene.nodes[hit.node].words_of(hit.inside)
        if hit.node is not None:
            problems = scene.problems.get(hit.node, ())
            return "\n".join(
                (
                    scene.nodes[hit.node].text,
                    *(problem.message for problem in problems[:1]),
                )
            )
        note = scene.notes.comments.get(hit.note) if hit.note is not None else None
        return note.text if note is not None else ""
