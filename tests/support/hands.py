"""Hands at the whole window, that count: clicks of a mouse, or steps of the keys alone."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from app.views.ui.docks import TabbedPane
from app.views.ui.present import present
from tests.support.whole_window import WholeWindow

LEFT, NONE = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
Until = Callable[[Callable[[], bool]], None]  # lets the window live until a condition


class Mouse:
    """A hand that counts its clicks."""

    def __init__(self, window: WholeWindow, until: Until) -> None:
        self.window, self.until, self.clicks = window, until, 0

    def click(self, widget: QWidget, spot: QPoint | None = None) -> None:
        self.until(lambda: widget.isVisible() and widget.isEnabled())
        self.clicks += 1
        QTest.mouseClick(
            widget, LEFT, pos=spot if spot is not None else widget.rect().center()
        )

    def tab(self, pane: TabbedPane, key: str) -> None:
        bar = pane.tabs
        self.click(bar, bar.tabRect(bar.index(key)).center())

    def data(self, name: str) -> None:
        """Choose data in the list of the page Training."""
        source = self.window.training_form.data.source
        self.click(source)
        view = source.view()
        self.until(view.isVisible)
        index = source.model().index(source.findText(name), 0)
        view.setCurrentIndex(index)
        self.clicks += 1  # Qt takes none so soon after it has opened the list
        QTest.keyClick(view, Qt.Key.Key_Return)
        assert source.currentText() == name

    def start_net(self) -> None:
        self.click(self.window.training_form.data.start_net)

    def run(self) -> None:
        self.until(lambda: not self.window.run_control.blocked)
        self.click(self.window.toolbar.deck.transport.button("run"))

    def predict(self) -> None:
        """Follow the message that says that a run is done."""
        (done,) = (each for each in self.window.toasts.toasts() if each.button)
        self.click(present(done.button))


class Keyboard:
    """Hands on the keys alone, which go to what has the focus. A step is a chord, or words and Enter."""

    def __init__(self, window: WholeWindow, until: Until) -> None:
        self.window, self.until, self.steps = window, until, 0

    @property
    def focus(self) -> QWidget:
        top = QApplication.activeModalWidget() or self.window
        top.activateWindow()  # as a window manager does when a dialog has closed
        self.until(top.isActiveWindow)
        return top.focusWidget() or top

    def press(self, key: Qt.Key, chord: Qt.KeyboardModifier = NONE) -> None:
        self.steps += 1
        QTest.keyClick(self.focus, key, chord)

    def type(self, words: str) -> None:
        QTest.keyClicks(self.focus, words)
        self.press(Qt.Key.Key_Return)

    def find(self, words: str) -> None:
        self.press(Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
        self.type(words)
