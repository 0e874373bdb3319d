"""Form fields. All of them have `value()`, `set_value(v)`, `edited(object)` and `set_invalid(message | None)`.

Typed text counts when it is committed: `edited` is emitted at Enter, when the focus or the mouse goes elsewhere, and
before a shortcut acts. Esc restores the value. Enter and Esc return the focus to where the user came from (see
`focus.go_back`). Invalid text is marked immediately and emitted as `rejected(str)` when the field loses the focus.
`set_value` emits nothing. The wheel changes a field that was clicked, and scrolls over any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QLineEdit,
    QSizePolicy,
    QStyle,
    QStyleOptionComboBox,
    QWidget,
)
from shiboken6 import isValid

from app.views.ui import icons
from app.views.ui.theme import grown
from app.views.ui.widgets.focus import go_back
from app.views.ui.widgets.painting import set_property

HEIGHT = 24
ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)
MODIFIERS = (
    Qt.Key.Key_Control,
    Qt.Key.Key_Shift,
    Qt.Key.Key_Alt,
    Qt.Key.Key_AltGr,
    Qt.Key.Key_Meta,
)

if TYPE_CHECKING:
    _Widget = QWidget  # which every field that is `Marked` is
else:
    _Widget = object


class Marked(_Widget):
    """Error state of a field: text that does not parse, or a message set from outside."""

    _unread: str | None = None
    _found: str | None = None
    _hint = ""

    def set_hint(self, text: str) -> None:
        """Set the tool tip for the valid state."""
        if text != self._hint:
            self._hint = text
            self._mark()

    def set_invalid(self, message: str | None) -> None:
        """Mark the value as invalid, with the reason as tool tip; None removes the mark."""
        self._found = message
        self._mark()

    def invalid(self) -> str | None:
        """Return the error message, or None."""
        return self._unread or self._found

    def unread(self) -> str | None:
        """Return why the text is no value, or None."""
        return self._unread

    def _set_unread(self, message: str | None) -> None:
        if message != self._unread:
            self._unread = message
            self._mark()

    def _mark(self) -> None:
        message = self.invalid()
        set_property(self, "invalid", message is not None)
        self.setToolTip(message or self._hint)
        self.setAccessibleDescription(message or self._hint)


class TextField(Marked, QLineEdit):
    """A line edit for a typed value.

    Args:
        parse: Text to value; raises ValueError with the message for the user.
        show: Value to text.
    """

    edited = Signal(object)
    rejected = Signal(str)
    restored = Signal()  # a refused text gave way to the value

    def __init__(
        self,
        value: Any = "",
        parse: Callable[[str], Any] = str,
        show: Callable[[Any], str] = str,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._parse, self._show = parse, show
        self._emitted: list[Any] = []  # emitted, and not yet set again from outside
        self._linked = self._typing = self._clicked = self._in_menu = False
        self._refused = self._unseen = self._leaving = False
        self.setFixedHeight(grown(HEIGHT, "label"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(44)
        self.textEdited.connect(self._read)
        self.set_value(value)

    def value(self) -> Any:
        """Return the value committed last."""
        return self._value

    def set_value(self, value: Any) -> None:
        """Show a value; text that is being typed stays, and is compared with this value when it is committed.

        A value is ignored if this field emitted it, and others after it: a handler of `edited` may be slow.
        """
        if self._typing and self.hasFocus():
            if not self._came_back(value) or not self._emitted:
                self._value = value
            return
        self._set_typing(False)
        self._refused = self._unseen = False
        back = self.hasFocus() and self._came_back(value)
        if back and self._emitted:
            return  # later values are pending
        self._value = value
        if back and (self._unread is not None or self._shows(value)):
            return
        if not (self.hasFocus() and self._unread is None and self._shows(value)):
            self.setText(self._show(value))
            self.setCursorPosition(0)
        self._set_unread(None)

    def refuse(self, value: Any) -> None:
        """Go back to `value`, because the one that was committed was not taken. Its text stays, so that the reason can
        be read and the text corrected: until Esc, or until the user leaves the field once more.
        """
        self._value = value
        self._emitted.clear()
        self._refused = not self._typing and not self._shows(value)
        self._unseen = self._refused and (self._leaving or not self.hasFocus())

    def unseen(self) -> bool:
        """Return whether the text was refused when the user had left, or was leaving."""
        return self._unseen

    def _came_back(self, value: Any) -> bool:
        """Return whether this field emitted the value itself, so that it needs no update."""
        indices = [
            index
            for index, emitted in enumerate(self._emitted)
            if self._equal(emitted, value)
        ]
        if not indices:
            self._emitted.clear()
            return False
        del self._emitted[: indices[-1] + 1]
        return True

    def _shows(self, value: Any) -> bool:
        try:
            return self._equal(self._parse(self.text()), value)
        except ValueError:
            return False

    @staticmethod
    def _equal(a: Any, b: Any) -> bool:
        """Return whether values are equal, with equal types: True is not 1, and 1 is not 1.0."""
        return type(a) is type(b) and a == b

    def set_linked(self, linked: bool) -> None:
        """Show a value that comes from elsewhere: read only, with a link icon at the right."""
        self._linked = linked
        self.setReadOnly(linked)
        set_property(self, "linked", linked)
        self._fit_margins()

    def _fit_margins(self) -> None:
        self.setTextMargins(0, 0, 18 if self._linked else 0, 0)

    def _read(self, text: str) -> None:
        """Check the text that is being typed."""
        self._set_typing(True)
        self._refused = self._unseen = False
        try:
            self._parse(text)
        except ValueError as problem:
            self._set_unread(str(problem))
        else:
            self._set_unread(None)

    def _set_typing(self, typing: bool) -> None:
        if typing != self._typing:
            self._typing = typing
            application = QApplication.instance()
            assert application is not None
            (
                application.installEventFilter
                if typing
                else application.removeEventFilter
            )(self)

    def pending(self) -> Any:
        """Return the value that the text means; the committed one if it is invalid."""
        try:
            return self._parse(self.text()) if self._typing else self._value
        except ValueError:
            return self._value

    def commit(self) -> None:
        """Take typed text as the value if it is valid, and emit it if that is another one."""
        if self._typing and self._unread is None:
            self._set_typing(False)
            self._accept(self._parse(self.text()))

    def _commit_leaving(self) -> None:
        self._leaving = True
        self.commit()
        self._leaving = False

    def discard(self) -> None:
        """Drop typed text: show the value."""
        self._set_typing(False)
        self._emitted.clear()
        self._set_unread(None)
        self.setText(self._show(self._value))
        if self._refused:
            self._refused = self._unseen = False
            self.restored.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """While text is being typed: commit it before a click elsewhere acts, and before a window closes.

        Not every button takes the focus when it is clicked.
        """
        if watched is not self and self._typing and watched.isWidgetType():
            pressed = event.type() == QEvent.Type.MouseButtonPress and not self._in_menu
            if pressed or event.type() == QEvent.Type.Close:
                self._commit_leaving()
        return super().eventFilter(watched, event)

    def event(self, event: QEvent) -> bool:
        """Commit before a key acts that is none of the text: a shortcut."""
        if ends_click(event):
            self._clicked = False
        done = super().event(event)
        if (
            event.type() == QEvent.Type.ShortcutOverride
            and not event.isAccepted()
            and isinstance(event, QKeyEvent)
        ):
            if event.key() not in (*MODIFIERS, *ENTER, Qt.Key.Key_Escape):
                self._commit_leaving()
        return done

    def _accept(self, value: Any) -> None:
        if not self._equal(value, self._value):
            self._value = value
            self._emitted.append(value)
            self.edited.emit(value)

    def _settle(self) -> None:
        """Commit, and show the value in its normal form; emit `rejected` if the text was invalid."""
        problem, text = self._unread, self.text()
        self.commit()
        if problem is not None or (
            text != self._show(self._value) and not self._stays()
        ):
            self.discard()
        self._emitted.clear()
        if problem is not None:
            self.rejected.emit(problem)

    def _stays(self) -> bool:
        """Return whether a refused text stays in sight."""
        return self._refused and (self._unseen or self.hasFocus())

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self._unseen = False

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if event.reason() != Qt.FocusReason.PopupFocusReason:
            self._clicked = False
            self._settle()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in ENTER and not (self._typing and self.invalid()):
            self._settle()
            self.selectAll()
            super().keyPressEvent(event)
            if (
                isValid(self)
                and self.hasFocus()
                and not self._refused
                and go_back(self)
            ):
                event.accept()
        elif event.key() in ENTER:
            event.accept()  # no dialog is closed by a text that it does not take
        elif event.key() == Qt.Key.Key_Escape:
            restored = self._typing or self.text() != self._show(self._value)
            self.discard()
            if not go_back(self) and not restored:
                super().keyPressEvent(event)
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._clicked = True
        super().mousePressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self._in_menu = True  # whose own commands act on the text
        super().contextMenuEvent(event)
        self._in_menu = False

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self._linked:
            painter = QPainter(self)
            icons.draw(
                painter,
                "link",
                "text3",
                self.width() - 20,
                (self.height() - 12) / 2,
                12,
            )
            painter.end()


def ends_click(event: QEvent) -> bool:
    """Return whether a field that was clicked is no longer turned by the wheel: a key was pressed, such as a digit or
    that of a command, or the pointer left. Who then scrolls a form does not mean the field.
    """
    return event.type() in (QEvent.Type.ShortcutOverride, QEvent.Type.Leave)


class ElidingComboBox(QComboBox):
    """Ends its text with an ellipsis where it is cut; its window shows the whole text as a tool tip."""

    def initStyleOption(self, option: QStyleOptionComboBox) -> None:
        super().initStyleOption(option)
        style, sub_control = self.style(), QStyle.SubControl.SC_ComboBoxEditField
        room = (
            style.subControlRect(
                QStyle.ComplexControl.CC_ComboBox, option, sub_control, self
            ).width()
            - 2
        )
        room -= 0 if option.currentIcon.isNull() else option.iconSize.width() + 4
        option.currentText = self.fontMetrics().elidedText(
            option.currentText, Qt.TextElideMode.ElideRight, room
        )


class StillComboBox(ElidingComboBox):
    """A combo box that the wheel does not change."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class ChoiceField(Marked, ElidingComboBox):
    """One of a few values.

    Args:
        choices: Values, or pairs of (value, text) where `pairs` is set.
        show: Value to text, where there are no pairs.
    """

    edited = Signal(object)

    def __init__(
        self,
        choices: Iterable[Any] = (),
        value: Any = None,
        show: Callable[[Any], str] = str,
        *,
        pairs: bool = False,
    ) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.setMinimumContentsLength(6)
        self.setFixedHeight(grown(HEIGHT, "label"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._clicked = False
        self._show = show
        self._values: list[Any] = []
        for choice in choices:
            self.add_choice(*(choice if pairs else (choice,)))
        self._emitted: Any = None
        self.activated.connect(self._emit_edited)
        if self._values:
            self.set_value(
                self._values[0] if value is None and None not in self._values else value
            )

    def add_choice(self, value: Any, text: str | None = None) -> None:
        """Add a value to choose."""
        self._values.append(value)
        self.addItem(self._show(value) if text is None else text)

    def clear_choices(self) -> None:
        """Remove all choices."""
        self._values.clear()
        self.clear()
        self._emitted = None

    def choices(self) -> tuple[Any, ...]:
        return tuple(self._values)

    def value(self) -> Any:
        return self._values[self.currentIndex()] if self.currentIndex() >= 0 else None

    def set_value(self, value: Any) -> None:
        """Show a value; one that is not among the choices is added and marked invalid, so that it is not lost."""
        same = (
            i
            for i, choice in enumerate(self._values)
            if type(choice) is type(value) and choice == value
        )
        index = next(same, len(self._values))
        if index < len(self._values):
            self._set_unread(None)
        else:
            self.add_choice(value)
            self._set_unread(
                f"{self._show(value)} is not one of {', '.join(map(self._show, self._values[:-1]))}."
            )
        self.setCurrentIndex(index)
        self._emitted = value

    def _emit_edited(self) -> None:
        value = self.value()
        if type(value) is not type(self._emitted) or value != self._emitted:
            self._emitted = value
            self._set_unread(None)
            self.edited.emit(value)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._clicked = True
        super().mousePressEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if event.reason() != Qt.FocusReason.PopupFocusReason:
            self._clicked = False

    def event(self, event: QEvent) -> bool:
        if ends_click(event):
            self._clicked = False
        return super().event(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self._clicked and self.hasFocus():
            super().wheelEvent(event)
            self._emit_edited()
        else:
            event.ignore()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (*ENTER, Qt.Key.Key_Escape) and go_back(self):
            return
        super().keyPressEvent(event)
        self._emit_edited()  # letters and arrows choose without `activated`
