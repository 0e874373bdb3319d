"""Keyboard focus: a view that is rebuilt keeps it only where it had it, and it never lands on a widget by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from PySide6.QtCore import QObject, Qt, QTimer, Slot
from PySide6.QtWidgets import QApplication, QLineEdit, QWidget
from shiboken6 import isValid


def focus_in(place: QWidget) -> QWidget | None:
    """Return the widget inside `place`, or `place` itself, that has the focus of its window; None if it is elsewhere.

    `QWidget.focusWidget` of anything but a window answers with the widget that had the focus last, however long ago.
    """
    widget = place.window().focusWidget()
    return widget if widget is not None and (widget is place or place.isAncestorOf(widget)) else None


@contextmanager
def keeping_focus(place: QWidget) -> Iterator[None]:
    """Around a rebuild of what is in `place`: the focus goes to the successor of the widget that had it, if one did.

    The successor is of the same class and has the same accessible name, or else the same position. A text that is being
    typed, with its caret, goes along.
    """
    before = focus_in(place)
    if before is None or before is place:
        yield
        return
    kind, name = type(before), _name(before)
    alike = _shown(place, kind)
    position = alike.index(before) if before in alike else 0
    same_named = [one for one in alike if _name(one) == name]
    number = same_named.index(before) if before in same_named else 0
    text = (before.text(), before.cursorPosition()) if isinstance(before, QLineEdit) else None
    yield
    alike = _shown(place, kind)
    if before in alike and focus_in(place) is before:
        return
    same_named = [one for one in alike if _name(one) == name]
    if same_named:
        heir = same_named[min(number, len(same_named) - 1)]
        _give(heir, place)
        if text is not None and isinstance(heir, QLineEdit):
            heir.setText(text[0])
            heir.setCursorPosition(text[1])
    elif alike:
        _give(alike[min(position, len(alike) - 1)], place)


def _give(heir: QWidget, place: QWidget) -> None:
    """Focus a widget that may have been made in this turn: a layout shows its new widgets in the next one."""
    above: QWidget | None = heir
    while above is not None and above is not place:
        above.setVisible(True)
        above = above.parentWidget()
    heir.setFocus(Qt.FocusReason.OtherFocusReason)


def _name(widget: QWidget) -> str:
    text = getattr(widget, "text", None)
    return widget.accessibleName() or (text() if callable(text) and not isinstance(widget, QLineEdit) else "")


def _shown(place: QWidget, kind: type[QWidget]) -> list[QWidget]:
    """The widgets of a class in `place` that can have the focus, in the order in which they were made."""

    def hidden(widget: QWidget) -> bool:
        return widget.isHidden() and widget.testAttribute(Qt.WidgetAttribute.WA_WState_ExplicitShowHide)

    def takes_focus(widget: QWidget) -> bool:
        takes = widget.focusPolicy() != Qt.FocusPolicy.NoFocus and widget.isEnabled()
        above: QWidget | None = widget
        while takes and above is not None and above is not place:
            takes, above = not hidden(above), above.parentWidget()
        return takes

    return [one for one in place.findChildren(kind) if type(one) is kind and takes_focus(one)]


class FocusHome(QObject):
    """Moves the focus of a window home when the widget that had it is hidden, disabled or deleted.

    Qt gives it to whatever comes next in the tab order, where the next keys would do something that nobody meant.
    `home()` returns the widget that the window's keys are for, or None to leave Qt's choice.
    """

    def __init__(self, window: QWidget, home: Callable[[], QWidget | None]) -> None:
        super().__init__(window)
        self._window, self._home = window, home
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.focusChanged.connect(self._changed)

    @Slot("QWidget*", "QWidget*")
    def _changed(self, old: QWidget | None, new: QWidget | None) -> None:
        if old is None or not isValid(old) or old.window() is not self._window:
            return
        if new is None:
            QTimer.singleShot(0, self, self._find)
        elif new.window() is self._window and not (old.isVisible() and old.isEnabled()):
            self._go()

    def _find(self) -> None:
        """Nothing has the focus: a widget was deleted that had it, or the person is in another window."""
        if QApplication.focusWidget() is None and self._window.isActiveWindow():
            self._go()

    def _go(self) -> None:
        home = self._home()
        if home is not None and home.isVisible() and home.isEnabled():
            home.setFocus(Qt.FocusReason.OtherFocusReason)
