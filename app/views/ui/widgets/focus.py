"""Keyboard focus across rebuilds: passed on to a successor widget, never left on an arbitrary one, and back from a
form to where the user works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from PySide6.QtCore import QObject, Qt, QTimer, Slot
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QGraphicsView,
    QLineEdit,
    QPlainTextEdit,
    QWidget,
)
from shiboken6 import isValid


def focus_in(container: QWidget) -> QWidget | None:
    """Return the widget with the window's focus if it is `container` or inside it, else None.

    `QWidget.focusWidget` of a child widget would return the one that had the focus last, however long ago.
    """
    widget = container.window().focusWidget()
    return (
        widget
        if widget is not None
        and (widget is container or container.isAncestorOf(widget))
        else None
    )


def take_typed(window: QWidget) -> None:
    """Commit pending text of the field with the focus, as if the user left it for a moment."""
    field = window.focusWidget()
    if isinstance(field, QLineEdit | QPlainTextEdit) and field.hasFocus():
        field.clearFocus()
        field.setFocus()


@contextmanager
def keeping_focus(container: QWidget) -> Iterator[None]:
    """Move the focus, around a rebuild of `container`, to the successor of the widget that had it.

    The successor has the same class and accessible name, or else the same position. Text being typed moves along,
    with its cursor.
    """
    before = focus_in(container)
    if before is None or before is container:
        yield
        return
    kind, name = type(before), _name(before)
    alike = _focusable(container, kind)
    position = alike.index(before) if before in alike else 0
    same_named = [widget for widget in alike if _name(widget) == name]
    number = same_named.index(before) if before in same_named else 0
    text = (
        (before.text(), before.cursorPosition())
        if isinstance(before, QLineEdit)
        else None
    )
    yield
    alike = _focusable(container, kind)
    if before in alike and focus_in(container) is before:
        return
    same_named = [widget for widget in alike if _name(widget) == name]
    if same_named:
        heir = same_named[min(number, len(same_named) - 1)]
        _give(heir, container)
        if text is not None and isinstance(heir, QLineEdit):
            heir.setText(text[0])
            heir.setCursorPosition(text[1])
    elif alike:
        _give(alike[min(position, len(alike) - 1)], container)


def _give(heir: QWidget, container: QWidget) -> None:
    """Focus a widget that may have been created in this turn: a layout shows new widgets only in the next one."""
    above: QWidget | None = heir
    while above is not None and above is not container:
        above.setVisible(True)
        above = above.parentWidget()
    heir.setFocus(Qt.FocusReason.OtherFocusReason)


def _name(widget: QWidget) -> str:
    text = getattr(widget, "text", None)
    return widget.accessibleName() or (
        text() if callable(text) and not isinstance(widget, QLineEdit) else ""
    )


def _focusable(container: QWidget, kind: type[QWidget]) -> list[QWidget]:
    """Return the focusable widgets of a class in `container`, in order of creation."""

    def hidden(widget: QWidget) -> bool:
        return widget.isHidden() and widget.testAttribute(
            Qt.WidgetAttribute.WA_WState_ExplicitShowHide
        )

    def takes_focus(widget: QWidget) -> bool:
        takes = widget.focusPolicy() != Qt.FocusPolicy.NoFocus and widget.isEnabled()
        above: QWidget | None = widget
        while takes and above is not None and above is not container:
            takes, above = not hidden(above), above.parentWidget()
        return takes

    return [
        widget
        for widget in container.findChildren(kind)
        if type(widget) is kind and takes_focus(widget)
    ]


WORKPLACE = "workplace"  # property of other widgets that are lists of rows


def go_back(widget: QWidget) -> bool:
    """Return the focus from a form to the canvas or list that had it before; False in a window without a home."""
    home = widget.window().findChild(
        FocusHome, options=Qt.FindChildOption.FindDirectChildrenOnly
    )
    return isinstance(home, FocusHome) and home.go_back()


class FocusHome(QObject):
    """Returns the focus of a window to a home widget when the one that had it is hidden, disabled or deleted.

    Qt would pass it on in the tab order, where the next keys have an effect that the user did not intend.
    `home()` returns the widget for the window's keys, or None to accept Qt's choice.
    """

    def __init__(self, window: QWidget, home: Callable[[], QWidget | None]) -> None:
        super().__init__(window)
        self._window, self._home = window, home
        self._workplace: QWidget | None = None
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.focusChanged.connect(self._changed)

    @Slot("QWidget*", "QWidget*")
    def _changed(self, old: QWidget | None, new: QWidget | None) -> None:
        if new is not None and _is_workplace(new) and new.window() is self._window:
            self._workplace = new
        if old is None or not isValid(old) or old.window() is not self._window:
            return
        if new is None:
            QTimer.singleShot(0, self, self._find)
        elif new.window() is self._window and not (old.isVisible() and old.isEnabled()):
            self.go_home()

    def _find(self) -> None:
        """Focus the home widget if none has the focus: it was deleted, unless another window is active."""
        if QApplication.focusWidget() is None and self._window.isActiveWindow():
            self.go_home()

    def go_home(self) -> bool:
        """Focus the home; False if it is not in sight."""
        home = self._home()
        if home is None or not home.isVisible() or not home.isEnabled():
            return False
        home.setFocus(Qt.FocusReason.OtherFocusReason)
        return True

    def go_back(self) -> bool:
        """Focus the canvas or list that had the focus last, else the home; False if neither is in sight."""
        workplace = self._workplace
        if (
            workplace is not None
            and isValid(workplace)
            and workplace.isVisible()
            and workplace.isEnabled()
        ):
            workplace.setFocus(Qt.FocusReason.OtherFocusReason)
            return True
        return self.go_home()


def _is_workplace(widget: QWidget) -> bool:
    return isinstance(widget, (QGraphicsView, QAbstractItemView)) or bool(
        widget.property(WORKPLACE)
    )
