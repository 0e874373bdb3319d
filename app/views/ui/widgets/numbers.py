"""Number fields: a single number, or several as in 3 × 3."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QFontMetrics,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.util.formatting import number_text
from app.views.ui import icons
from app.views.ui.layouts import hbox
from app.views.ui.theme import grown
from app.views.ui.widgets.fields import HEIGHT, TextField
from app.views.ui.widgets.painting import label

ARROWS = 16  # width of the part with the arrows, px
NARROW = 46  # a field that is narrower has no arrows but those of the keyboard, px
HOLD, REPEAT = 400, 60  # ms
STEP_KEYS: dict[int, int] = {
    Qt.Key.Key_Up: 1,
    Qt.Key.Key_Down: -1,
    Qt.Key.Key_PageUp: 10,
    Qt.Key.Key_PageDown: -10,
}


def read_number(
    text: str, kind: str = "int", optional: bool = False
) -> int | float | None:
    """Parse a typed number; a Unicode minus sign counts as a hyphen.

    Raises:
        ValueError: with the message for the user.

    >>> read_number("−3"), read_number("1e-3", "float"), read_number("None", optional=True)
    (-3, 0.001, None)
    """
    plain = text.strip().replace("−", "-").replace("\u2009", "")
    if optional and plain in ("None", "none"):
        return None
    example = (
        "an integer, such as 64" if kind == "int" else "a number, such as 0.1 or 1e-3"
    )
    problem = f"Type {example}{', or None' if optional else ''}."
    try:
        number = int(plain) if kind == "int" else float(plain)
    except ValueError:
        raise ValueError(problem) from None
    if isinstance(number, float) and not math.isfinite(number):
        raise ValueError(problem)
    return number


def stepped(value: int | float, steps: int, step: float | None = None) -> int | float:
    """Return `value` after `steps` steps up or, below 0, down.

    Without a `step`, a whole number moves by 1 and a float in its leading digit, so that 0.001 goes to 0.002 and back,
    and below it to 0.0009.

    >>> stepped(64, 1), stepped(0.001, 1), stepped(0.001, -1), stepped(0.25, 1), stepped(0.0, 1)
    (65, 0.002, 0.0009, 0.35, 0.1)
    """
    if isinstance(value, int):
        return value + steps * int(step or 1)
    exact = Decimal(repr(value))
    for _ in range(abs(steps)):
        size = (
            Decimal(str(step))
            if step
            else _leading(exact, towards_zero=(exact > 0) == (steps < 0))
        )
        exact += size if steps > 0 else -size
    return float(exact)


def _leading(value: Decimal, towards_zero: bool) -> Decimal:
    """Return the weight of the first digit: 0.25 has 0.1. For a power of ten towards zero, that of the next digit."""
    if value == 0:
        return Decimal("0.1")
    weight = Decimal(1).scaleb(value.adjusted())
    return weight / 10 if towards_zero and abs(value) == weight else weight


class NumberField(TextField):
    """A number with arrows. Up and Down step, Page Up and Page Down step by ten, at once.

    Args:
        kind: int or float.
        minimum, maximum: The bounds, both allowed values; None for no bound.
        step: What one step adds; by default see `stepped`.
        optional: Whether None can be typed.
    """

    def __init__(
        self,
        value: int | float | None = 0,
        kind: str = "int",
        minimum: float | None = None,
        maximum: float | None = None,
        step: float | None = None,
        optional: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        self._kind, self._minimum, self._maximum = kind, minimum, maximum
        self._step, self._optional = step, optional
        self._held = 0
        super().__init__(value, self._parse_bounded, number_text, parent)
        self._repeat = QTimer(self)
        self._repeat.timeout.connect(self._repeat_step)
        self._fit_margins()

    def _parse_bounded(self, text: str) -> int | float | None:
        number = read_number(text, self._kind, self._optional)
        if number is not None and self._minimum is not None and number < self._minimum:
            raise ValueError(f"At least {number_text(self._bound(self._minimum))}.")
        if number is not None and self._maximum is not None and number > self._maximum:
            raise ValueError(f"At most {number_text(self._bound(self._maximum))}.")
        return number

    def _bound(self, bound: float) -> int | float:
        return int(bound) if bound == int(bound) and abs(bound) < 1e15 else bound

    def step_by(self, steps: int) -> None:
        """Go up or down as the arrows do, not beyond the bounds."""
        if self.isReadOnly() or not self.isEnabled():
            return
        zero = 0 if self._kind == "int" else 0.0
        self.commit()  # what is typed is the number that is stepped
        start = self.value() if self.value() is not None else zero
        value = stepped(
            int(start) if self._kind == "int" else float(start), steps, self._step
        )
        if self._minimum is not None:
            value = max(value, type(value)(self._minimum))
        if self._maximum is not None:
            value = min(value, type(value)(self._maximum))
        self.setText(number_text(value))
        self._set_typing(False)
        self._set_unread(None)
        self._accept(value)

    def _fit_margins(self) -> None:
        self.setTextMargins(
            0, 0, 18 if self._linked else ARROWS if self._has_arrows() else 0, 0
        )

    def _has_arrows(self) -> bool:
        return not self._linked and self.width() >= NARROW

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_margins()

    def sizeHint(self) -> QSize:
        digits = max(len(self.text()), 3)
        return QSize(
            QFontMetrics(self.font()).horizontalAdvance("0") * digits + ARROWS + 18,
            grown(HEIGHT, "label"),
        )

    # mouse and keys

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = STEP_KEYS.get(event.key())
        if steps is not None:
            self.step_by(steps)
            self.selectAll()
        else:
            super().keyPressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self._clicked and self.hasFocus() and event.angleDelta().y():
            self.step_by(1 if event.angleDelta().y() > 0 else -1)
            event.accept()
        else:
            event.ignore()

    def _arrow_at(self, event: QMouseEvent) -> int:
        """1 over the upper arrow, -1 over the lower one, else 0."""
        if not self._has_arrows() or event.position().x() < self.width() - ARROWS - 2:
            return 0
        return 1 if event.position().y() < self.height() / 2 else -1

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._clicked = True
        self._held = (
            self._arrow_at(event) if event.button() == Qt.MouseButton.LeftButton else 0
        )
        if self._held:
            self.step_by(self._held)
            self._repeat.start(HOLD)
        else:
            super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if not self._held:
            self.setCursor(
                Qt.CursorShape.ArrowCursor
                if self._arrow_at(event)
                else Qt.CursorShape.IBeamCursor
            )
            super().mouseMoveEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._repeat.stop()
        if not self._held:
            super().mouseReleaseEvent(event)
        self._held = 0

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self._arrow_at(event):
            self.mousePressEvent(event)  # a fast second click is a second step
        else:
            super().mouseDoubleClickEvent(event)

    def _repeat_step(self) -> None:
        self._repeat.setInterval(REPEAT)
        self.step_by(self._held)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._has_arrows():
            return
        painter = QPainter(self)
        x, middle = self.width() - ARROWS - 1, self.height() / 2
        value = self.value()
        at_top = (
            value is not None and self._maximum is not None and value >= self._maximum
        )
        at_bottom = (
            value is not None and self._minimum is not None and value <= self._minimum
        )
        icons.draw(
            painter, "chevron-up", self._arrow_color(1, at_top), x, middle - 9, 9
        )
        icons.draw(
            painter, "chevron-down", self._arrow_color(-1, at_bottom), x, middle, 9
        )
        painter.end()

    def _arrow_color(self, arrow: int, at_end: bool) -> str:
        if at_end or not self.isEnabled():
            return "text4"
        return "text" if self._held == arrow else "text3"


class NumbersField(QWidget):
    """A number a dimension, with × between: `3 × 3`. Of any length, it is one field: `64 × 12 × 12`.

    While all are equal, an edit of the first sets all of them, and an edit of another one sets that one alone.

    Its value is a tuple; where all are equal, an edit gives the plain number, which PyTorch takes
    for all dimensions alike.

    Args:
        count: How many numbers; 0 for any length.
    """

    edited = Signal(object)
    rejected = Signal(str)
    restored = Signal()

    def __init__(
        self,
        count: int = 2,
        value: Any = 0,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> None:
        super().__init__()
        self._minimum = minimum
        self._value: Any = value
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(grown(HEIGHT, "label"))
        layout = hbox(on=self, margins=0, spacing=6 if count < 3 else 3)
        if count:
            first = (
                value[0]
                if isinstance(value, tuple) and value
                else value
                if not isinstance(value, tuple)
                else 0
            )
            self._fields: list[TextField] = [
                self._field(first, minimum, maximum) for _ in range(count)
            ]
        else:
            self._fields = [TextField(value, self._read_any, self._show_any, self)]
        for i, field in enumerate(self._fields):
            if i:
                layout.addWidget(label("×", "caption", "text3"))
            layout.addWidget(field, 1)
            if count > 2:
                field.setMinimumWidth(34)
            field.edited.connect(partial(self._edit, i))
            field.rejected.connect(self.rejected)
            field.restored.connect(self.restored)
        self._any = not count
        self.setFocusProxy(self._fields[0])
        self.set_value(value)

    def _field(
        self, value: Any, minimum: float | None, maximum: float | None
    ) -> TextField:
        """Create the field of one number."""
        return NumberField(value, "int", minimum, maximum, parent=self)

    def _read_any(self, text: str) -> tuple[Any, ...]:
        parts = [p for p in re.split(r"[×x,\s()]+", text.strip()) if p]
        if not parts:
            raise ValueError("Type integers, such as 64 × 12 × 12.")
        numbers = tuple(int(read_number(part) or 0) for part in parts)
        if self._minimum is not None and any(n < self._minimum for n in numbers):
            raise ValueError(f"Each at least {number_text(int(self._minimum))}.")
        return numbers

    @staticmethod
    def _show_any(value: Any) -> str:
        return (
            " × ".join(map(number_text, value))
            if isinstance(value, tuple)
            else number_text(value)
        )

    def value(self) -> Any:
        """Return the value as it was set, until it is edited; then a tuple, or one number if all are equal."""
        return self._value

    def set_value(self, value: Any) -> None:
        """Show a tuple, or one number for all dimensions.

        Raises:
            ValueError: the tuple has another length than this field.
        """
        for field, number in self._parts(value):
            field.set_value(number)
        self._value = value

    def refuse(self, value: Any) -> None:
        """Go back to `value`; what was typed stays until it is edited, see `TextField.refuse`."""
        for field, number in self._parts(value):
            field.refuse(number)
        self._value = value

    def _parts(self, value: Any) -> list[tuple[TextField, Any]]:
        """Pair the fields with their part of a value."""
        values = (
            value
            if isinstance(value, tuple)
            else (value,) * (1 if self._any else len(self._fields))
        )
        return (
            [(self._fields[0], values)]
            if self._any
            else list(zip(self._fields, values, strict=True))
        )

    def pending(self) -> Any:
        """Return what `value` would be if typed text were committed."""
        values = tuple(field.pending() for field in self._fields)
        return values[0] if self._any or len(set(values)) == 1 else values

    def _edit(self, number: int, value: Any) -> None:
        if number == 0 and not self._any and self._equal:
            for field in self._fields[1:]:
                field.set_value(value)
        if self._any:
            values = self._fields[0].value()
        else:
            values = tuple(field.value() for field in self._fields)
        same = all(v == values[0] for v in values) and (
            len(values) == 1 or not self._any
        )
        self._value = values[0] if same else values
        self.edited.emit(self._value)

    @property
    def _equal(self) -> bool:
        """Whether all dimensions had one value before the edit that is being handled."""
        return not isinstance(self._value, tuple) or len(set(self._value)) == 1

    def fields(self) -> tuple[TextField, ...]:
        """Return the single fields, first dimension first."""
        return tuple(self._fields)

    def set_hint(self, text: str) -> None:
        self._each(lambda field: field.set_hint(text))

    def set_invalid(self, message: str | None) -> None:
        """Mark all of them as wrong, or, with None, as right."""
        self._each(lambda field: field.set_invalid(message))

    def invalid(self) -> str | None:
        return next(
            (field.invalid() for field in self._fields if field.invalid()), None
        )

    def unread(self) -> str | None:
        """Return why the text of one of them is no number, or None."""
        return next((field.unread() for field in self._fields if field.unread()), None)

    def _each(self, do: Callable[[TextField], None]) -> None:
        for field in self._fields:
            do(field)
