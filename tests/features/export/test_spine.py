"""The whole spine by mouse and keys alone: assemble, wire, type, train, export, and the export stands by itself.

Qt's offscreen platform has no drag and drop, its "minimal" one has; so the test runs itself again there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QScrollArea, QWidget

from app.features.export.export_dialog import ExportDialog
from app.project.document import Document
from app.views.settings import Settings
from app.views.ui import theme
from tests.support.whole_window import WholeWindow

LEFT, NONE = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
CTRL = Qt.KeyboardModifier.ControlModifier

# What is dragged out of the palette: what is typed to find it, and where it lands (column, row).
LAYERS = (
    ("Input", (0, 0)),
    ("Conv2d", (1, 0)),
    ("nn.ReLU", (2, 0)),
    ("MaxPool2d", (0, 1)),
    ("nn.Flatten", (1, 1)),
    ("nn.Linear", (2, 1)),
    ("Output", (3, 1)),
)
CHAIN = ("input", "conv1", "relu1", "pool1", "flatten1", "fc1", "output")


class Hand:
    """Mouse and keys on the real window. Nothing here calls a method that changes anything."""

    def __init__(self, window: WholeWindow, qtbot) -> None:
        self.window, self.qtbot = window, qtbot

    def at(self, widget: QWidget, point: QPoint) -> QPoint:
        return widget.mapTo(widget.window(), point)

    def click(self, widget: QWidget, point: QPoint | None = None) -> None:
        place = self.at(widget, point or widget.rect().center())
        QTest.mouseClick(widget.window().windowHandle(), LEFT, NONE, place)

    def scroll_to(self, widget: QWidget) -> None:
        """Bring a widget of a dialog into sight, which on this platform's screen of 240x320 scrolls."""
        for area in widget.window().findChildren(QScrollArea):
            if area.isAncestorOf(widget):
                area.ensureWidgetVisible(widget)

    def keys(self, text: str) -> None:
        """Type into whatever has the keyboard."""
        focus = QApplication.focusWidget()
        assert focus is not None
        QTest.keyClicks(focus, text)

    def key(self, key: Qt.Key, modifiers: Qt.KeyboardModifier = NONE) -> None:
        QTest.keyClick(QApplication.focusWidget() or self.window, key, modifiers)

    def fill(self, field: QWidget, text: str) -> None:
        """Click into a field, replace what stands there, Enter."""
        line = field if isinstance(field, QLineEdit) else field.findChild(QLineEdit)
        assert line is not None

        def focused() -> bool:
            self.click(line)  # a form that has just come may still be laid out
            return line.hasFocus()

        self.until(focused)
        self.key(Qt.Key.Key_A, CTRL)
        self.keys(text)
        self.key(Qt.Key.Key_Return)

    def drag_layer(self, query: str, target: QPoint) -> None:
        """Type in the palette's search, then drag the row that it marks onto the canvas."""
        palette = self.window.palette_view
        self.click(palette.field)
        self.key(Qt.Key.Key_A, CTRL)
        self.keys(query)
        tree = palette.tree
        row = tree.visualRect(tree.currentIndex())  # the best match is marked
        start = self.at(tree.viewport(), row.center())
        self._drag(start, self.at(self.window.canvas.view.viewport(), target))
        self.click(palette.field)
        self.key(Qt.Key.Key_Escape)

    def _drag(self, start: QPoint, end: QPoint) -> None:
        """A drag and drop has an event loop of its own, so the mouse goes on by timer."""
        handle = self.window.windowHandle()
        path = [start + (end - start) * i / 6 for i in range(1, 7)]

        def go() -> None:
            if path:
                QTest.mouseMove(handle, path.pop(0))
                QTimer.singleShot(5, go)
            else:
                QTest.mouseRelease(handle, LEFT, NONE, end)

        before = len(self.window.document.project.graph.nodes)
        QTest.mousePress(handle, LEFT, NONE, start)
        QTimer.singleShot(5, go)
        QTest.mouseMove(handle, start + QPoint(18, 4))
        self.until(lambda: len(self.window.document.project.graph.nodes) == before + 1)
        # Without a window manager the picture under the pointer has taken the keyboard.
        self.window.activateWindow()
        self.until(self.window.isActiveWindow)

    def wire(self, source: str, target: str) -> None:
        """Press on an output port, let go on an input port."""
        view = self.window.canvas.view
        nodes = self.window.canvas.scene.nodes
        start = self.at(
            view.viewport(), view.mapFromScene(nodes[self.id(source)].output_point(0))
        )
        end = self.at(
            view.viewport(), view.mapFromScene(nodes[self.id(target)].input_point(0))
        )
        handle = self.window.windowHandle()
        before = len(self.window.document.project.graph.edges)
        QTest.mousePress(handle, LEFT, NONE, start)
        for i in range(1, 5):
            QTest.mouseMove(handle, start + (end - start) * i / 4)
        QTest.mouseRelease(handle, LEFT, NONE, end)
        assert len(self.window.document.project.graph.edges) == before + 1, (
            f"no wire from {source} to {target}"
        )

    def select(self, name: str) -> None:
        view = self.window.canvas.view
        body = self.window.canvas.scene.nodes[self.id(name)].body
        where = view.mapFromScene(body.center())
        # What is wrong at the node that was selected before is said over its neighbours, until that is known anew.
        self.until(
            lambda: self.window.live.up_to_date and not self.lies_under_callout(where)
        )
        self.click(view.viewport(), where)
        assert self.window.selection.ids == {self.id(name)}

    def lies_under_callout(self, where: QPoint) -> bool:
        callout = self.window.canvas.callout
        return callout.isVisible() and callout.geometry().contains(where)

    def set_param(self, node: str, name: str, text: str) -> None:
        self.select(node)
        form = self.window.inspector.node_page.form
        self.fill(form.editor(name), text)

    def id(self, name: str) -> str:
        return next(
            node.id
            for node in self.window.document.project.graph.nodes.values()
            if node.name == name
        )

    def until(self, condition: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(condition)


def again_on_a_platform_with_drags() -> None:
    """Run this very file in a process whose Qt has drag and drop."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    environment = {**os.environ, "QT_QPA_PLATFORM": "minimal"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_assemble_train_and_export_by_hand(qtbot, qapp, tmp_path: Path) -> None:
    if QGuiApplication.platformName() != "minimal":
        again_on_a_platform_with_drags()
        return
    window = open_window(qtbot, qapp)
    try:
        hand = Hand(window, qtbot)
        assemble(hand)
        train(hand)
        export(hand, tmp_path / "out")
    finally:
        window.session.close_and_wait()
        window.document.undo_stack.setClean()  # closing asks nothing
        assert window.close()


def open_window(qtbot, qapp) -> WholeWindow:
    theme.apply(qapp, "dark")
    window = WholeWindow(Settings("TapedeckTest", "spine"))
    window.resize(1280, 800)
    window.show()
    window.activateWindow()
    window.start()
    qtbot.waitUntil(lambda: window.live.torch is not None)
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    return window


def assemble(hand: Hand) -> None:
    window = hand.window
    for query, (column, row) in LAYERS:
        hand.drag_layer(query, QPoint(30 + 190 * column, 110 + 130 * row))
    assert {node.name for node in window.document.project.graph.nodes.values()} == set(
        CHAIN
    )
    for source, target in zip(CHAIN, CHAIN[1:], strict=False):
        hand.wire(source, target)
    # What it has of the data; typed again it is no step.
    hand.set_param("input", "shape", "1, 8, 8")
    hand.set_param("conv1", "padding", "1")
    hand.set_param("fc1", "out_features", "10")
    hand.until(lambda: window.live.up_to_date and not window.live.errors)
    steps = window.document.undo_stack.count()
    assert steps == len(LAYERS) + len(CHAIN) - 1 + 2, "each gesture is one undo step"
    undo_and_redo(hand, window.document, steps)


def undo_and_redo(hand: Hand, document: Document, steps: int) -> None:
    whole = document.project
    hand.click(hand.window.canvas.view.viewport(), QPoint(400, 400))
    for _ in range(steps):
        hand.key(Qt.Key.Key_Z, CTRL)
    assert not document.project.graph.nodes
    for _ in range(steps):
        hand.key(Qt.Key.Key_Y, CTRL)
    assert document.project == whole


def train(hand: Hand) -> None:
    window = hand.window
    hand.until(lambda: window.live.up_to_date and not window.run_control.blocked)
    hand.click(window.toolbar.deck.transport.button("run"))
    hand.until(lambda: bool(window.session.runs))
    hand.until(lambda: not window.session.active)
    assert window.session.state == "done", window.session.current.failed
    assert window.session.history.epochs["val_accuracy"][-1] >= 0.97


def export(hand: Hand, folder: Path) -> None:
    """By keyboard; the files then stand by themselves in a clean process, bit for bit."""
    window = hand.window
    hand.click(window.toolbar.export)
    hand.until(lambda: bool(window.findChildren(ExportDialog)))
    (dialog,) = window.findChildren(ExportDialog)
    hand.until(dialog.isVisible)
    certify = dialog.boxes["certify"]
    with hand.qtbot.waitSignal(window.export_control.proved) as proved:
        hand.scroll_to(dialog.folder)
        hand.click(dialog.folder)
        hand.key(Qt.Key.Key_A, CTRL)
        hand.keys(str(folder))
        if not certify.isChecked():
            hand.scroll_to(certify)
            hand.click(
                certify, certify.rect().center() - QPoint(certify.width() // 2 - 12, 0)
            )
        assert certify.isChecked()
        hand.click(dialog.export_button)
    assert {"model.py", "weights.safetensors", "train.py"} <= {
        path.name for path in folder.iterdir()
    }
    answer = proved.args[0].certificate
    assert answer.passed and all(one.equal for one in answer.checks), answer.lines


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
