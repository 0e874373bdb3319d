"""Apply a new stylesheet to existing widgets in steps, visible widgets first, then repaint once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

STYLED, OWN = Qt.WidgetAttribute.WA_WState_Polished, Qt.WidgetAttribute.WA_SetStyle


class Restyling(QObject):
    """Sets the application's stylesheet without blocking the event loop.

    `QApplication.setStyleSheet` polishes every polished widget with all its descendants, so each widget once per
    ancestor, about ten times in this window. If the stylesheet is removed first, Qt creates a new style instead and
    polishes each widget once that is marked as polished. Here that mark is cleared, and each widget is polished, and
    gets its `StyleChange` event, in a step of `styling_shown` or `styling_rest`, or when it is shown. What was not
    taken of the steps of one change is taken in those of the next.
    """

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self._app = app
        self._shown: dict[
            QWidget, None
        ] = {}  # to be polished before anything is painted
        self._rest: dict[QWidget, None] = {}
        self._silent: list[QWidget] = []  # to which Qt sends no StyleChange
        self._unpainted: list[QWidget] = []
        self._filters = False

    def hold(self) -> None:
        """Have visible windows keep their picture until `paint`."""
        if not self._unpainted:
            self._unpainted = [
                widget
                for widget in self._app.topLevelWidgets()
                if widget.isVisible() and widget.updatesEnabled()
            ]
            for window in self._unpainted:
                window.setUpdatesEnabled(False)

    def setting(self, sheet: str, widgets: Sequence[QWidget]) -> Iterator[None]:
        """Set the stylesheet; `widgets` are all there are."""
        for widget in widgets:
            if isValid(widget):
                self._mark(widget)
                yield
        self._app.setStyleSheet("")
        self._app.setStyleSheet(sheet)
        while self._silent:
            widget = self._silent.pop()
            if isValid(widget):
                widget.setAttribute(OWN, False)
                yield

    def _mark(self, widget: QWidget) -> None:
        """Have Qt neither polish a widget when the stylesheet is set, nor send it a StyleChange."""
        if widget.testAttribute(STYLED):
            widget.setAttribute(STYLED, False)
            (self._shown if widget.isVisible() else self._rest)[widget] = None
        # Qt sends no StyleChange to widgets with WA_SetStyle. (An event filter in Python that drops the event for
        # 2,000 widgets takes 0.1 s.)
        if not widget.testAttribute(OWN):
            widget.setAttribute(OWN)
            self._silent.append(widget)

    def styling_shown(self) -> Iterator[None]:
        """Polish visible widgets, one per step."""
        return self._styling(self._shown)

    def styling_rest(self) -> Iterator[None]:
        """Polish hidden widgets, one per step."""
        return self._styling(self._rest)

    def _styling(self, waiting: dict[QWidget, None]) -> Iterator[None]:
        # Only while needed: it filters every event of the program.
        if (self._shown or self._rest) and not self._filters:
            self._filters = True
            self._app.installEventFilter(self)
        while waiting:
            self._style(next(iter(waiting)))
            yield
        if self._filters and not self._shown and not self._rest:
            self._filters = False
            self._app.removeEventFilter(self)

    def paint(self) -> None:
        """Repaint the windows, from now on as they are."""
        windows, self._unpainted = self._unpainted, []
        for window in windows:
            if isValid(window):
                window.setUpdatesEnabled(True)
                # What was to be updated before counts as requested, so Qt would wait for another event to paint it.
                QCoreApplication.postEvent(window, QEvent(QEvent.Type.UpdateRequest))

    def _style(self, widget: QWidget) -> None:
        self._shown.pop(widget, None)
        self._rest.pop(widget, None)
        if isValid(widget):
            self._app.style().polish(widget)
            widget.setAttribute(STYLED)
            QCoreApplication.sendEvent(widget, QEvent(QEvent.Type.StyleChange))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Polish a remaining widget and its descendants before it is shown."""
        if event.type() not in (
            QEvent.Type.Show,
            QEvent.Type.ShowToParent,
        ) or not isinstance(watched, QWidget):
            return False
        if watched in self._rest or watched in self._shown:
            for widget in (watched, *watched.findChildren(QWidget)):
                if widget in self._rest or widget in self._shown:
                    self._style(widget)
        return False
