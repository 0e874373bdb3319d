"""Apply a new stylesheet to existing widgets in several event loop turns, visible widgets first, then repaint once."""

from __future__ import annotations

from time import perf_counter

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, QThread, QTimer, Signal
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

STYLED = Qt.WidgetAttribute.WA_WState_Polished
TURN = 0.006  # seconds in which widgets are styled, in one turn of the event loop


class Restyling(QObject):
    """Sets the application's stylesheet without blocking the event loop.

    `QApplication.setStyleSheet` polishes every polished widget with all its descendants, so each widget once per
    ancestor, about ten times in this window. If the stylesheet is removed first, Qt creates a new style instead and
    polishes each widget once that is marked as polished. Here that mark is cleared, and each widget is polished, and
    gets its `StyleChange` event, in a later turn or when it is shown; windows are not repainted until all visible
    widgets are polished. Before the event loop runs, visible widgets are polished at once.
    """

    done = Signal()  # all widgets are polished

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self._app = app
        self._waiting: dict[QWidget, None] = {}
        self._in_sight = 0  # how many of them are visible: the first ones
        self._unpainted: list[QWidget] = []
        self._setting = False  # widgets get their StyleChange in their turns
        self._next = QTimer(self, singleShot=True, interval=0)
        self._next.timeout.connect(self._style_some)

    def set_sheet(self, sheet: str) -> bool:
        """Set the stylesheet; return whether visible widgets are polished and repainted in later turns."""
        styled = [each for each in self._app.allWidgets() if each.testAttribute(STYLED)]
        in_turns = QThread.currentThread().loopLevel() > 0
        shown = [each for each in styled if each.isVisible()] if in_turns else []
        waiting = styled if in_turns else [each for each in styled if not each.isVisible()]
        for widget in waiting:
            widget.setAttribute(STYLED, False)
        if (waiting or in_turns) and not self._waiting:  # only while needed: it filters every event of the program
            self._app.installEventFilter(self)
        self._setting = in_turns
        self._app.setStyleSheet("")
        self._app.setStyleSheet(sheet)
        self._setting = False
        late = self._waiting  # widgets of the previous change that were not polished yet
        self._waiting = dict.fromkeys(shown) | dict.fromkeys(waiting) | late
        self._in_sight = len(shown)
        if shown and not self._unpainted:
            self._unpainted = [
                each for each in self._app.topLevelWidgets() if each.isVisible() and each.updatesEnabled()
            ]
            for window in self._unpainted:
                window.setUpdatesEnabled(False)
        if self._waiting:
            self._next.start()
        return bool(shown)

    def finish(self) -> None:
        """Polish all remaining widgets now."""
        while self._waiting:
            self._style_some()

    def _style_some(self) -> None:
        end = perf_counter() + TURN
        while self._waiting and perf_counter() < end:
            self._style(next(iter(self._waiting)))
            self._in_sight = max(self._in_sight - 1, 0)
        if not self._in_sight:
            self._paint()
        if self._waiting:
            self._next.start()
        else:
            self._app.removeEventFilter(self)
            self.done.emit()

    def _paint(self) -> None:
        """Enable updates again once all visible widgets are polished, which repaints the windows."""
        windows, self._unpainted = self._unpainted, []
        for window in windows:
            if isValid(window):
                window.setUpdatesEnabled(True)
                # What was to be updated before counts as requested, so Qt would wait for another event to paint it.
                QCoreApplication.postEvent(window, QEvent(QEvent.Type.UpdateRequest))

    def _style(self, widget: QWidget) -> None:
        del self._waiting[widget]
        if isValid(widget):
            self._app.style().polish(widget)
            widget.setAttribute(STYLED)
            QCoreApplication.sendEvent(widget, QEvent(QEvent.Type.StyleChange))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Polish a remaining widget and its descendants before it is shown."""
        if self._setting:
            return event.type() == QEvent.Type.StyleChange
        shown = event.type() in (QEvent.Type.Show, QEvent.Type.ShowToParent)
        if shown and isinstance(watched, QWidget) and watched in self._waiting:
            for widget in (watched, *watched.findChildren(QWidget)):
                if widget in self._waiting:
                    self._style(widget)
        return False
