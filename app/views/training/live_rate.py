"""What can be changed while a run goes on: its learning rate. The rest says why not."""

from __future__ import annotations

import math

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.views.training.figures import figure
from app.views.widgets import Button, NumberField
from app.views.widgets.painting import label

WHY = (
    "The optimizer reads its rate at every step, so that alone can change. Batches, order, weights and the optimizer's "
    "state were made when the run began. The curves mark the step, and train.py gives other numbers from there on."
)


class LiveRate(QWidget):
    """`wanted(rate)` asks the run under way to go on with another rate."""

    wanted = Signal(float)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rate = math.nan
        self._typed = False  # and not asked for yet
        self.now = label("", "label", "text2")
        self.field = NumberField(0.001, "float", 0)
        self.field.setAccessibleName("Learning rate of the run")
        self.field.set_hint(WHY)
        self.field.edited.connect(self._edited)
        self.field.returnPressed.connect(self.apply)
        self.button = Button("Set")
        self.button.setToolTip("Go on with this rate (Enter)")
        self.button.clicked.connect(self.apply)
        self.why = label(WHY, "caption", "text3", wrap=True)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.field, 1)
        row.addWidget(self.button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 6, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.now)
        column.addLayout(row)
        column.addWidget(self.why)
        self.begin()

    def begin(self) -> None:
        """Another run: its rate is not known yet."""
        self._rate, self._typed = math.nan, False
        self._show()

    def _edited(self, _value: object) -> None:
        self._typed = True

    def show_rate(self, rate: float) -> None:
        """The rate of the newest step, nan where the optimizer has none."""
        if rate != self._rate and rate == rate:
            first, self._rate = self._rate != self._rate, rate
            if first or not (self._typed or self.field.hasFocus()):
                self.field.set_value(float(f"{rate:.3g}"))
            self._show()

    def _show(self) -> None:
        known = self._rate == self._rate
        self.now.setText(f"Learning rate of the run: {figure(self._rate)} now" if known else "Learning rate of the run")
        self.field.setEnabled(known)
        self.button.setEnabled(known)

    def apply(self) -> None:
        """Ask for the rate that is in the field."""
        rate = self.field.value()
        if isinstance(rate, int | float) and rate > 0:
            self.field.set_invalid(None)
            self._typed = False
            self.wanted.emit(float(rate))
        else:
            self.field.set_invalid("A learning rate is above 0.")

    def focus(self) -> None:
        """Put the caret into the field."""
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.field.selectAll()
