"""Restyle existing widgets with a new stylesheet in turns of the event loop: those in sight first, and then painted."""

from __future__ import annotations

from time import perf_counter

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, QThread, QTimer
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

STYLED = Qt.WidgetAttribute.WA_WState_Polished
TURN = 0.006  # seconds in which widgets are styled, in one turn of the event loop


class Restyling(QObject):
    """Sets stylesheets of the program.

    `QApplication.setStyleSheet` styles every styled widget and all that is in it, so a widget once for each one around
    it, some ten times in this window. Without any stylesheet, and then with another one, Qt instead makes a new style
    and puts it once on each widget that it takes for styled. None is, until its turn comes or it is shown; windows keep
    their last picture until all that is in sight is styled. Before the event loop runs, that is done at once.
    """

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self._app = app
        self._waiting: dict[QWidget, None] = {}
        self._in_sight = 0  # of those, the first ones
        self._unpainted: list[QWidget] = []
        self._next = QTimer(self, singleShot=True, interval=0)
        self._next.timeout.connect(self._style_some)

    def set_sheet(self, sheet: str) -> bool:
        """Set the stylesheet; return whether what is in sight is styled, and painted, in turns that follow."""
        styled = [each for each in self._app.allWidgets() if each.testAttribute(STYLED)]
        in_turns = QThread.currentThread().loopLevel() > 0
        shown = [each for each in styled if each.isVisible()] if in_turns else []
        waiting = styled if in_turns else [each for each in styled if not each.isVisible()]
        for widget in waiting:
            widget.setAttribute(STYLED, False)
        self._app.setStyleSheet("")
        self._app.setStyleSheet(sheet)
        if waiting and not self._waiting:  # it sees every event, and a start makes thousands
            self._app.installEventFilter(self)
        late = self._waiting  # of the change before
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
        """Style the widgets that wait for it."""
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

    def _paint(self) -> None:
        """Paint the windows again, whose widgets in sight are styled."""
        windows, self._unpainted = self._unpainted, []
        for window in windows:
            if isValid(window):
                window.setUpdatesEnabled(True)

    def _style(self, widget: QWidget) -> None:
        del self._waiting[widget]
        if isValid(widget):
            self._app.style().polish(widget)
            widget.setAttribute(STYLED)
            QCoreApplication.sendEvent(widget, QEvent(QEvent.Type.StyleChange))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Style what waits before it is shown, with all that is in it."""
        shown = event.type() in (QEvent.Type.Show, QEvent.Type.ShowToParent)
        if shown and isinstance(watched, QWidget) and watched in self._waiting:
            for widget in (watched, *watched.findChildren(QWidget)):
                if widget in self._waiting:
                    self._style(widget)
        return False
