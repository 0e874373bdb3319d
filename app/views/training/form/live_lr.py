"""The settings that can change during a run: the learning rate of each parameter group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app.training.config import MOST_PARAMETER
from app.training.history import MAIN
from app.util.formatting import figure
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Button, NumberField
from app.views.ui.widgets.painting import label

WHY = (
    "Only the learning rate can change during a run, since the optimizer reads it at every step. The curves mark the "
    "step; from that step, results differ from those without the change."
)
SCHEDULED = " A schedule continues in proportion to the new rate."
GROUPS = " Other parameter groups keep their rates."


class RateLine(QWidget):
    """The current rate of a group and a field for a new one. `rate_requested(rate)` requests it."""

    rate_requested = Signal(float)

    def __init__(self) -> None:
        super().__init__()
        self._name, self._rate = "", math.nan
        self._typed = False  # typed and not applied yet
        self.now = label("", "label", "text2", wrap=True)
        self.field = NumberField(0.001, "float", 0, MOST_PARAMETER)
        self.field.textEdited.connect(lambda _text: self.field.set_invalid(None))
        self.field.edited.connect(self._edited)
        self.field.returnPressed.connect(self.apply)
        self.button = Button("Set")
        self.button.setToolTip("Apply this rate (Enter)")
        self.button.clicked.connect(self.apply)
        row = hbox((self.field, 1), self.button, spacing=8)
        vbox(self.now, row, on=self, margins=0, spacing=4)

    def begin(self, name: str) -> None:
        """Reset for another run or group, whose rate is not known yet."""
        self._name, self._rate, self._typed = name, math.nan, False
        self.field.set_invalid(None)
        self._show()

    def _edited(self, _value: object) -> None:
        self._typed = True

    def show_rate(self, rate: float) -> None:
        """Show the rate of the newest step, nan if the optimizer has none."""
        if rate != self._rate and rate == rate:
            first, self._rate = self._rate != self._rate, rate
            if first or not (self._typed or self.field.hasFocus()):
                self.field.set_value(self._shown_rate())
            self._show()

    def _shown_rate(self) -> float:
        return float(f"{self._rate:.3g}")

    def _show(self) -> None:
        finite = self._rate == self._rate
        caption = (
            f"Learning rate of {self._name}"
            if self._name
            else "Learning rate of the run"
        )
        self.now.setText(f"{caption}: {figure(self._rate)} now" if finite else caption)
        self.field.setAccessibleName(caption)
        self.field.setEnabled(finite)
        self.button.setEnabled(finite)

    def apply(self) -> None:
        """Request the rate in the field, unless that is no number, which the field says, or the present rate."""
        rate = self.field.value()
        if self.field.unread() or rate == self._shown_rate():
            return
        if isinstance(rate, int | float) and rate > 0:
            self.field.set_invalid(None)
            self._typed = False
            self.rate_requested.emit(float(rate))
        else:
            self.field.set_invalid("A learning rate must be above 0.")


class LiveRate(QWidget):
    """A line per parameter group, the main one first. `rate_requested(rate, path)` requests a new rate; `path` is ""
    for the main group."""

    rate_requested = Signal(float, str)

    def __init__(self) -> None:
        super().__init__()
        self.why = label(WHY + SCHEDULED, "caption", "text3", wrap=True)
        self._names: tuple[str, ...] = ()
        self.lines: list[RateLine] = []
        self._column = vbox(spacing=8)
        vbox(self._column, self.why, on=self, margins=(0, 6, 0, 0), spacing=4)
        self.begin()

    @property
    def field(self) -> NumberField:
        """The field of the main group."""
        return self.lines[0].field

    @property
    def button(self) -> Button:
        """The button of the main group."""
        return self.lines[0].button

    def begin(self) -> None:
        """Reset for another run, whose groups and rates are not known yet."""
        self._set_names(("",))
        self.lines[0].begin("")

    def _set_names(self, names: tuple[str, ...]) -> None:
        if names == self._names:
            return
        self._names = names
        while len(self.lines) < len(names):
            line = RateLine()
            line.rate_requested.connect(partial(self._want, len(self.lines)))
            line.field.set_hint(WHY)
            self.lines.append(line)
            self._column.addWidget(line)
        several = len(names) > 1
        for line, name in zip(self.lines, names, strict=False):
            line.begin((name or MAIN) if several else "")
        for number, line in enumerate(self.lines):
            line.setVisible(number < len(names))
        self.why.setText(WHY + SCHEDULED + GROUPS * several)

    def _want(self, number: int, rate: float) -> None:
        self.rate_requested.emit(rate, self._names[number] if number else "")

    def show_rates(self, rates: Mapping[str, float]) -> None:
        """Show the rate of each group at the newest step by its path, the main one first, with path ""."""
        if rates:
            self._set_names(tuple(rates))
            for line, rate in zip(self.lines, rates.values(), strict=False):
                line.show_rate(rate)

    def apply(self) -> None:
        """Request the rate in the field of the main group."""
        self.lines[0].apply()

    def focus(self) -> None:
        """Put the caret into the first field."""
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.field.selectAll()
