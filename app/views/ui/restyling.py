"""Apply a new stylesheet to existing widgets in several event loop turns, visible widgets first, then repaint once."""

from __future__ import annotations

from time import perf_counter

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, QThread, QTimer, Signal
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

STYLED, OWN = Qt.WidgetAttribute.WA_WState_Polished, Qt.WidgetAttribute.WA_SetStyle
TURN = 0.006  # seconds in which widgets are styled, in one turn of the event loop


class Restyling(QObject):
    """Sets the application's stylesheet without blocking the event loop.

    `QApplication.setStyleSheet` polishes every polished widget with all its descendants, so each widget once per
    ancestor, about ten times in this window. If the stylesheet is removed first, Qt creates a new style instead and
    polishes each widget once that is marked as polished. Here that mark is cleared, and each widget is polished, and
    gets its `StyleChange` event, in a later turn or when it is shown; windows are not repainted until all visible
    widgets are polished, nor before `release` after a `hold`. Before the event loop runs, visible widgets are polished
    at once.
    """

    done = Signal()  # all widgets are polished

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self._app = app
        self._waiting: dict[QWidget, None] = {}
        self._in_sight = 0  # how many of them are visible: the first ones
        self._unpainted: list[QWidget] = []
        self.held = False  # until `release`
        self._next = QTimer(self, singleShot=True, interval=0)
        self._next.timeout.connect(self._style_some)

    def set_sheet(self, sheet: str) -> bool:
        """Set the stylesheet; return whether visible widgets are polished and repainted in later turns. `begin` starts
        with that, once the fonts of classes are set again, which Qt forgets with the stylesheet."""
        every = self._app.allWidgets()
        styled = [each for each in every if each.testAttribute(STYLED)]
        in_turns = QThread.currentThread().loopLevel() > 0
        shown = [each for each in styled if each.isVisible()] if in_turns else []
        waiting = styled if in_turns else [each for each in styled if not each.isVisible()]
        for widget in waiting:
            widget.setAttribute(STYLED, False)
        # Widgets get their StyleChange in their turns. To one with a style of its own Qt sends none.
        silent = every if in_turns else []
        for widget in silent:
            widget.setAttribute(OWN)
        self._app.setStyleSheet("")
        self._app.setStyleSheet(sheet)
        for widget in silent:
            widget.setAttribute(OWN, False)
        late = self._waiting  # widgets of the previous change that were not polished yet
        self._waiting = dict.fromkeys(shown) | dict.fromkeys(waiting) | late
        self._in_sight = len(shown)
        if shown and not self._unpainted:
            self._unpainted = [
                each for each in self._app.topLevelWidgets() if each.isVisible() and each.updatesEnabled()
            ]
            for window in self._unpainted:
                window.setUpdatesEnabled(False)
        return bool(shown)

    def begin(self) -> None:
        """Polish what waits for it, from the next turn on."""
        if self._waiting:
            self._app.installEventFilter(self)  # only while needed: it filters every event of the program
            if not self.held:
                self._next.start()

    def hold(self) -> None:
        """Polish, repaint and emit nothing before `release`: a font set after its widget is polished may be lost."""
        self.held = True

    def release(self) -> None:
        """Polish, and repaint as soon as all visible widgets are polished."""
        self.held = False
        if self._waiting:
            self._next.start()
        else:
            self._paint()
            self.done.emit()

    def finish(self) -> None:
        """Polish all remaining widgets now."""
        while self._waiting:
            self._style_some()

    def _style_some(self) -> None:
        end = perf_counter() + TURN
        while self._waiting and perf_counter() < end:
            self._style(next(iter(self._waiting)))
            self._in_sight = max(self._in_sight - 1, 0)
        if not self._in_sight and not self.held:
            self._paint()
        if self._waiting:
            self._next.start()
            return
        self._app.removeEventFilter(self)
        if not self.held:
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
        shown = event.type() in (QEvent.Type.Show, QEvent.Type.ShowToParent)
        if shown and isinstance(watched, QWidget) and watched in self._waiting:
            for widget in (watched, *watched.findChildren(QWidget)):
                if widget in self._waiting:
                    self._style(widget)
        return False
