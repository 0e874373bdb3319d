"""Restyle existing widgets with a new stylesheet: visible ones at once, hidden ones in later turns."""

from __future__ import annotations

from time import perf_counter

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, QTimer
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

STYLED = Qt.WidgetAttribute.WA_WState_Polished
TURN = 0.006  # seconds in which widgets that are out of sight are styled, in one turn of the event loop


class Restyling(QObject):
    """Sets stylesheets of the program.

    `QApplication.setStyleSheet` styles every styled widget and all that is in it, so a widget once for each one around
    it, some ten times in this window. Without any stylesheet, and then with another one, Qt instead makes a new style
    and puts it once on each widget that it takes for styled. Those out of sight are not, until their turn comes or they
    are shown.
    """

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self._app = app
        self._waiting: dict[QWidget, None] = {}
        self._next = QTimer(self, singleShot=True, interval=0)
        self._next.timeout.connect(self._style_some)

    def set_sheet(self, sheet: str) -> None:
        """Set the stylesheet; `finish` styles the hidden widgets at once."""
        hidden = [each for each in self._app.allWidgets() if not each.isVisible() and each.testAttribute(STYLED)]
        for widget in hidden:
            widget.setAttribute(STYLED, False)
        self._app.setStyleSheet("")
        self._app.setStyleSheet(sheet)
        if hidden and not self._waiting:  # it sees every event, and a start makes thousands
            self._app.installEventFilter(self)
        self._waiting |= dict.fromkeys(hidden)
        if self._waiting:
            self._next.start()

    def finish(self) -> None:
        """Style the widgets that wait for it."""
        while self._waiting:
            self._style_some()

    def _style_some(self) -> None:
        end = perf_counter() + TURN
        while self._waiting and perf_counter() < end:
            self._style(next(iter(self._waiting)))
        if self._waiting:
            self._next.start()
        else:
            self._app.removeEventFilter(self)

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
