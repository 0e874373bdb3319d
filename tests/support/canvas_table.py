"""A canvas on a small network and hands to work on it, for the tests of what hands do."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QMimeData, QPoint, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.builder.catalog.catalog import catalog
from app.builder.edits import edits
from app.project.document import Document
from app.project.project import Project
from app.views.canvas import Canvas
from app.views.canvas.view import MIME
from app.views.selection import Selection

OPS = catalog()
LEFT, MIDDLE = Qt.MouseButton.LeftButton, Qt.MouseButton.MiddleButton
NONE, SHIFT = Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ShiftModifier
CTRL, ALT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.AltModifier


def small() -> Project:
    """input -> conv1 -> relu1 -> output in one row, and fc1 alone below."""
    project, last = edits.add(Project(), OPS, "input", (0.0, 4.0))
    for i, op in enumerate(("nn.Conv2d", "nn.ReLU", "output"), start=1):
        y = 4.0 if op == "nn.Conv2d" else 15.0
        project, last = edits.add_behind(project, OPS, op, last, (240.0 * i, y))
    project, _ = edits.add(project, OPS, "nn.Linear", (240.0, 164.0))
    return project


class Table:
    """A canvas on a small network, and hands to work on it, speaking of nodes by name."""

    def __init__(self, qtbot, project: Project) -> None:
        self.document, self.selection = Document(project), Selection()
        self.canvas = Canvas(self.document, self.selection, OPS)
        qtbot.addWidget(self.canvas)
        self.canvas.resize(1280, 800)
        with qtbot.waitActive(self.canvas):
            self.canvas.show()
            self.canvas.activateWindow()
        self.canvas.frame_all()
        QApplication.processEvents()
        self.view, self.scene = self.canvas.view, self.canvas.scene
        self.view.setFocus()
        self.said: list[str] = []
        self.left_selected: set[str] = (
            set()
        )  # what the last step left selected; undoing it may end that
        self.canvas.said.connect(self.said.append)

    def id(self, name: str) -> str:
        return next(
            node.id
            for node in self.document.project.graph.nodes.values()
            if node.name == name
        )

    def names(self) -> set[str]:
        return {
            self.document.project.graph.nodes[node].name for node in self.selection.ids
        }

    def wires(self) -> set[tuple[str, str, str]]:
        graph = self.document.project.graph
        return {
            (graph.nodes[e.source].name, graph.nodes[e.target].name, e.port)
            for e in graph.edges
        }

    def at(self, point: QPointF) -> QPoint:
        return self.view.mapFromScene(point)

    def body(self, name: str) -> QPoint:
        return self.at(self.scene.nodes[self.id(name)].body.center() + QPointF(10, 12))

    def output(self, name: str, number: int = 0) -> QPoint:
        return self.at(self.scene.nodes[self.id(name)].output_point(number))

    def input(self, name: str, number: int = 0) -> QPoint:
        return self.at(self.scene.nodes[self.id(name)].input_point(number))

    def wire(self, source: str, target: str) -> QPoint:
        """A spot on a wire clear of its label."""
        start, end = self.output(source), self.input(target)
        return start + (end - start) / 2

    def empty(self) -> QPoint:
        return self.at(QPointF(500, 330))

    def drag(
        self, start: QPoint, end: QPoint, keys=NONE, button=LEFT, stops: int = 4
    ) -> None:
        port = self.view.viewport()
        QTest.mousePress(port, button, keys, start)
        for i in range(1, stops + 1):
            send_move(port, start + (end - start) * i / stops, button, keys)
        QTest.mouseRelease(port, button, keys, end)

    def click(self, spot: QPoint, keys=NONE) -> None:
        QTest.mouseClick(self.view.viewport(), LEFT, keys, spot)

    def key(self, key: Qt.Key, keys=NONE) -> None:
        QTest.keyClick(self.view, key, keys)

    def type(self, text: str) -> None:
        QTest.keyClicks(self.canvas.search.field, text)

    def drop(self, op: str, spot: QPoint) -> bool:
        data = QMimeData()
        data.setData(MIME, op.encode())
        port, action = self.view.viewport(), Qt.DropAction.CopyAction
        enter = QDragEnterEvent(spot, action, data, LEFT, NONE)
        QApplication.sendEvent(port, enter)
        if not enter.isAccepted():
            return False
        QApplication.sendEvent(port, QDragMoveEvent(spot, action, data, LEFT, NONE))
        QApplication.sendEvent(
            port, QDropEvent(QPointF(spot), action, data, LEFT, NONE)
        )
        return True


def send_move(widget, spot: QPoint, button, keys) -> None:
    """A move with the button held, which QTest.mouseMove does not say."""
    from PySide6.QtGui import QMouseEvent

    glob = QPointF(widget.mapToGlobal(spot))
    move = QMouseEvent(
        QEvent.Type.MouseMove,
        QPointF(spot),
        glob,
        Qt.MouseButton.NoButton,
        button,
        keys,
    )
    QApplication.sendEvent(widget, move)


def one_step(table: Table, gesture: Callable[[], object], text: str) -> Project:
    """Do it; exactly one undo step with this text must come of it, and undo must lead back. Returns the new project."""
    before, count = table.document.project, table.document.undo_stack.index()
    gesture()
    after, table.left_selected = table.document.project, table.names()
    assert table.document.undo_stack.index() == count + 1
    assert table.document.undo_stack.undoText() == text
    table.document.undo_stack.undo()
    assert table.document.project == before
    table.document.undo_stack.redo()
    assert table.document.project == after
    return after


def no_step(table: Table, gesture: Callable[[], object]) -> None:
    before, count = table.document.project, table.document.undo_stack.index()
    gesture()
    assert table.document.project is before
    assert table.document.undo_stack.index() == count
