"""A large sheet comes onto the canvas a few nodes a turn of the event loop, so that the window answers meanwhile."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtGui import QInputEvent
from PySide6.QtWidgets import QGraphicsView

from app.builder.graph import Graph
from app.builder.placing import with_places
from app.builder.sheet import Positions, Sheet
from app.frozen import FrozenMap
from app.views.canvas.scene import CanvasScene

if TYPE_CHECKING:
    from app.builder.analysis import Analysis

MANY = 300  # new nodes; fewer come at once
FIRST = 60  # nodes of the first turn
SLICE = 0.015  # seconds that a turn may take about
TURN = 1  # millisecond: a timer of none comes before the window answers


class Growth(QObject):
    """Shows sheets in the scene: at once, or, where many nodes are new, in turns until all of it is there.

    Meanwhile the view hears no mouse and no key. `said(words)` tells how far it is, "" at the end; `grown` comes then.
    """

    said = Signal(str)
    began = Signal()
    grown = Signal()

    def __init__(self, scene: CanvasScene, view: QGraphicsView, parent: QObject) -> None:
        super().__init__(parent)
        self._scene, self._view = scene, view
        self._target: Sheet | None = None
        self._learnt: set[str] = set()  # of these something is known that they do not show yet
        self._chunk = FIRST
        self._turn = QTimer(self, singleShot=True, interval=TURN, timeout=self._go_on)

    @property
    def growing(self) -> bool:
        """Whether nodes are still to come."""
        return self._target is not None

    @property
    def active(self) -> bool:
        """Whether something is still to be drawn."""
        return self._target is not None or bool(self._learnt)

    def learn(self, analysis: Analysis) -> None:
        """Show shapes, counts and problems, at once or in turns."""
        self._learnt |= self._scene.learn(analysis)
        if self._target is None and len(self._learnt) <= MANY:
            self._show_learnt(len(self._learnt))
        elif not self._turn.isActive():
            self._turn.start()

    def show(self, sheet: Sheet) -> None:
        """Bring the scene in line with a sheet, at once or in turns."""
        new = sum(node not in self._scene.nodes for node in sheet.graph.nodes)
        if new <= MANY:
            self._end(sheet)
            return
        if self._target is None:
            self._chunk = FIRST
            for widget in (self._view, self._view.viewport()):
                widget.installEventFilter(self)
            self.began.emit()
        self._target = with_places(sheet)
        self._scene.coming = self._target.positions
        self._turn.start()

    def _end(self, sheet: Sheet) -> None:
        was, self._target = self._target, None
        self._scene.coming = None
        self._scene.show_project(sheet)
        if was is not None:
            self._chunk = FIRST
            for widget in (self._view, self._view.viewport()):
                widget.removeEventFilter(self)
            self.said.emit("")
            self.grown.emit()

    def _show_learnt(self, count: int) -> None:
        self._learnt &= self._scene.nodes.keys()
        chunk = set(islice(self._learnt, count))
        self._learnt -= chunk
        self._scene.show_known(chunk, last=not self._learnt)

    def _go_on(self) -> None:
        began = perf_counter()
        if self._target is not None:
            self._grow(self._target)
        elif self._learnt:
            self._show_learnt(self._chunk)
        took = perf_counter() - began
        self._chunk = max(10, min(self._chunk * 2, int(self._chunk * SLICE / took)))
        if self.active:
            self._turn.start()

    def _grow(self, target: Sheet) -> None:
        nodes, shown = target.graph.nodes, self._scene.nodes
        left = [node for node in nodes if node not in shown]
        if len(left) <= self._chunk:
            self._end(target)
            return
        taken = shown.keys() | set(left[: self._chunk])
        self._scene.show_project(_part(target, taken))
        self.said.emit(f"Drawing {len(nodes) - len(left) + self._chunk:,} of {len(nodes):,} nodes …")

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        drops = (QEvent.Type.DragEnter, QEvent.Type.DragMove, QEvent.Type.Drop)
        return isinstance(event, QInputEvent) or event.type() in drops


def _part(sheet: Sheet, taken: set[str]) -> Sheet:
    """The sheet as if it had some of its nodes alone."""
    graph = sheet.graph
    nodes = FrozenMap({key: node for key, node in graph.nodes.items() if key in taken})
    edges = tuple(edge for edge in graph.edges if edge.source in taken and edge.target in taken)
    positions: Positions = FrozenMap({node: place for node, place in sheet.positions.items() if node in taken})
    return cast(Sheet, replace(cast(Any, sheet), graph=Graph(nodes, edges), positions=positions))
