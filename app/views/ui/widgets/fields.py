"""Form fields. All of them have `value()`, `set_value(v)`, `edited(object)` and `set_invalid(message | None)`.

`edited` is emitted with every valid value that the user enters, also while typing; invalid text is marked immediately
and emitted as `rejected(str)` when the field loses the focus. `set_value` emits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QPainter, QPaintEvent, QWheelEvent
from PySide6.QtWidgets import QComboBox, QLineEdit, QSizePolicy, QWidget

from app.views.ui import icons
from app.views.ui.widgets.painting import set_property

HEIGHT = 24


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
        self._hint = text
        self._mark()

    def set_invalid(self, message: str | None) -> None:
        """Mark the value as invalid, with the reason as tool tip; None removes the mark."""
        self._found = message
        self._mark()

    def invalid(self) -> str | None:
        """Return the error message, or None."""
        return self._unread or self._found

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
        self._linked = False
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(44)
        self.textEdited.connect(self._read)
        self.set_value(value)

    def value(self) -> Any:
        """Return the last valid value."""
        return self._value

    def set_value(self, value: Any) -> None:
        """Show a value. While the user types, text that already means this value is left as it is.

        So is newer text, if `value` is one that this field emitted earlier: whoever handles `edited` may be slow.
        """
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

    def _came_back(self, value: Any) -> bool:
        """Return whether this field emitted the value itself, so that it needs no update."""
        places = [place for place, given in enumerate(self._emitted) if self._equal(given, value)]
        if not places:
            self._emitted.clear()
            return False
        del self._emitted[: places[-1] + 1]
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
        try:
            value = self._parse(text)
        except ValueError as problem:
            self._set_unread(str(problem))
            return
        self._set_unread(None)
        self._accept(value)

    def _accept(self, value: Any) -> None:
        if not self._equal(value, self._value):
            self._value = value
            self._emitted.append(value)
            self.edited.emit(value)

    def _settle(self) -> None:
        """Rewrite the value in its normal form; emit `rejected` if the text was invalid."""
        problem = self._unread
        self._emitted.clear()
        self.setText(self._show(self._value))
        self._set_unread(None)
        if problem is not None:
            self.rejected.emit(problem)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if event.reason() != Qt.FocusReason.PopupFocusReason:
            self._settle()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._unread is None:
            self._settle()
            self.selectAll()
            super().keyPressEvent(event)
        elif event.key() == Qt.Key.Key_Escape and (self._unread is not None or self.text() != self._show(self._value)):
            self._emitted.clear()
            self.setText(self._show(self._value))
            self._set_unread(None)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self._linked:
            painter = QPainter(self)
            icons.draw(painter, "link", "text3", self.width() - 20, (self.height() - 12) / 2, 12)
            painter.end()


class ChoiceField(Marked, QComboBox):
    """One of a few values. The wheel changes it only while it has the focus.

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
        parent: QWidget | None = None,
        *,
        pairs: bool = False,
    ) -> None:
        super().__init__(parent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(6)
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._show = show
        self._values: list[Any] = []
        for choice in choices:
            self.add_choice(*(choice if pairs else (choice,)))
        self._emitted: Any = None
        self.activated.connect(self._emit_edited)
        if self._values:
            self.set_value(self._values[0] if value is None and None not in self._values else value)

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
        same = (i for i, own in enumerate(self._values) if type(own) is type(value) and own == value)
        index = next(same, len(self._values))
        if index < len(self._values):
            self._set_unread(None)
        else:
            self.add_choice(value)
            self._set_unread(f"{self._show(value)} is not one of {', '.join(map(self._show, self._values[:-1]))}.")
        self.setCurrentIndex(index)
        self._emitted = value

    def _emit_edited(self) -> None:
        value = self.value()
        if type(value) is not type(self._emitted) or value != self._emitted:
            self._emitted = value
            self._set_unread(None)
            self.edited.emit(value)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
            self._emit_edited()
        else:
            event.ignore()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        super().keyPressEvent(event)
        self._emit_edited()  # letters and arrows choose without `activated`
