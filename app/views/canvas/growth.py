"""A large sheet comes onto the canvas a few nodes a turn of the event loop, so that the window answers meanwhile."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtGui import QInputEvent
from PySide6.QtWidgets import QGraphicsView

from app.builder.layout.layout import with_places
from app.builder.sheet import Sheet
from app.views.canvas.items.sheet_part import SheetPart
from app.views.canvas.scene import CanvasScene

if TYPE_CHECKING:
    from app.builder.results import Analysis

MANY = 300  # new nodes; fewer come at once
MANY_WIRES = 1000  # new ones; fewer come with their nodes
FIRST = 60  # nodes of the first turn
LEAST = 10  # of any turn,
LEAST_OF_WIRES = 40  # and as soon as only wires come, which few nodes have in common
SLICE = 0.01  # seconds that a turn may take about
TURN = 1  # millisecond: a timer of none comes before the window answers


class Growth(QObject):
    """Shows sheets in the scene: at once or, with many new nodes, in several turns of the event loop.

    Meanwhile the view ignores mouse and keys. `said(words)` reports progress, "" at the end; `grown` follows. `busy`
    reports the begin and the end of these turns, of drawing or of showing an analysis.
    """

    said = Signal(str)
    began = Signal()
    grown = Signal()
    busy = Signal(bool)

    def __init__(
        self, scene: CanvasScene, view: QGraphicsView, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._scene, self._view = scene, view
        self._target: Sheet | None = None
        self._part: SheetPart | None = None  # of the target
        # Of these something is known that they do not show yet, those of the lowest rank last: neighbours are painted
        # together, so that taking them together paints least.
        self._learnt: list[str] = []
        self._chunk = FIRST
        self._turn = QTimer(self, singleShot=True, interval=TURN)
        self._turn.timeout.connect(self._go_on)

    @property
    def growing(self) -> bool:
        """Return whether nodes are still to be added."""
        return self._target is not None

    @property
    def active(self) -> bool:
        """Return whether anything is still to be drawn."""
        return self._target is not None or bool(self._learnt)

    def learn(self, analysis: Analysis) -> None:
        """Show shapes, counts and problems, at once or in turns."""
        nodes = self._scene.nodes
        learnt = (self._scene.learn(analysis) | set(self._learnt)) & nodes.keys()
        self._learnt = sorted(learnt, key=lambda node: -nodes[node].rank)
        if self._target is None and len(self._learnt) <= MANY:
            self._show_learnt(len(self._learnt))
        elif not self._turn.isActive():
            self._hold()
            self._turn.start()

    def show(self, sheet: Sheet) -> None:
        """Update the scene to a sheet, at once or in turns."""
        new = sum(node not in self._scene.nodes for node in sheet.graph.nodes)
        if (
            new <= MANY
            and len(sheet.graph.edges) - len(self._scene.wires) <= MANY_WIRES
        ):
            self._end(sheet)
            return
        if self._target is None:
            self._chunk = FIRST
            for widget in (self._view, self._view.viewport()):
                widget.installEventFilter(self)
            self._hold()
            self.began.emit()
        self._target, self._part = with_places(sheet), None
        self._scene.coming = self._target.positions
        self._turn.start()

    def _end(self, sheet: Sheet) -> None:
        was, self._target, self._part = self._target, None, None
        self._scene.coming = None
        self._scene.show_project(sheet)
        if was is not None:
            self._chunk = FIRST
            if not self._learnt:
                self._release()
            for widget in (self._view, self._view.viewport()):
                widget.removeEventFilter(self)
            self.said.emit("")
            self.grown.emit()

    def _hold(self) -> None:
        if not self._scene.wiring.held:
            self._scene.wiring.hold()
            self.busy.emit(True)

    def _release(self) -> None:
        if self._scene.wiring.held:
            self._scene.wiring.release()
            self.busy.emit(False)

    def _show_learnt(self, count: int) -> None:
        self._learnt, chunk = (
            self._learnt[: max(len(self._learnt) - count, 0)],
            set(self._learnt[-count:]),
        )
        self._scene.show_known(chunk & self._scene.nodes.keys(), last=not self._learnt)
        if not self._learnt:
            self._release()

    def _go_on(self) -> None:
        began = perf_counter()
        if self._target is not None:
            self._grow(self._target)
        elif self._learnt:
            self._show_learnt(self._chunk)
        took = perf_counter() - began
        least = (
            LEAST_OF_WIRES if self._part is not None and self._part.peopled else LEAST
        )
        self._chunk = max(least, min(self._chunk * 2, int(self._chunk * SLICE / took)))
        if self.active:
            self._turn.start()

    def _grow(self, target: Sheet) -> None:
        if self._part is None:
            self._part = SheetPart(target, self._scene.nodes, self._scene.wires)
        if self._part.remaining <= self._chunk:
            self._end(target)
            return
        self._scene.show_project(self._part.take(self._chunk))
        count = len(target.graph.nodes)
        self.said.emit(f"Drawing {self._part.nodes:,} of {count:,} nodes…")

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        drops = (QEvent.Type.DragEnter, QEvent.Type.DragMove, QEvent.Type.Drop)
        return isinstance(event, QInputEvent) or event.type() in drops
