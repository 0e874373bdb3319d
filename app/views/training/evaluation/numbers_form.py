"""Enter the numbers of a sample in the units of the data, each with its name and the range of the training samples."""

from __future__ import annotations

from functools import partial

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFormLayout, QLabel, QWidget

from app.training.evaluation.trying import Image, InputSurvey
from app.util.formatting import in_units
from app.views.ui.layouts import hbox
from app.views.ui.widgets.numbers import NumberField
from app.views.ui.widgets.painting import label, set_property

DIGITS = 6  # of a number that is shown


class NumbersForm(QWidget):
    """A field for each number of an input, at first `values`, as the network gets them. `changed` follows each edit."""

    changed = Signal()

    def __init__(
        self,
        survey: InputSurvey,
        values: Image,
        hint: str = "",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._survey = survey
        self.fields: list[NumberField] = []
        self.ranges: list[QLabel] = []
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 10, 0)
        form.setSpacing(6)
        if hint:
            form.addRow(label(hint, "caption", "text3", wrap=True))
        for number in range(values.size):
            name = (
                survey.columns[number]
                if number < len(survey.columns)
                else f"{survey.name or 'input'} {number}"
            )
            field, span = NumberField(0.0, "float"), label("", "caption", "text3")
            field.setAccessibleName(name)
            field.edited.connect(partial(self._edited, number))
            form.addRow(label(name, "label", "text2"), hbox(field, span))
            self.fields.append(field)
            self.ranges.append(span)
        self.set_values(values)

    def values(self) -> Image:
        """Return the numbers as the network gets them."""
        return self._survey.scaled(
            np.array([field.value() for field in self.fields], np.float32)
        )

    def set_values(self, values: Image) -> None:
        """Show the numbers of a sample, as the network gets them, in the units of the data."""
        for number, value in enumerate(self._survey.unscaled(values).tolist()):
            self.fields[number].set_value(float(f"{value:.{DIGITS}g}"))
            self._show_range(number)

    def _edited(self, number: int, _value: float) -> None:
        self._show_range(number)
        self.changed.emit()

    def _show_range(self, number: int) -> None:
        """Show the range of the training samples, and whether the number is outside of it."""
        low, high = float(self._survey.low[number]), float(self._survey.high[number])
        room = 1e-4 * (high - low)
        inside = low - room <= self.fields[number].value() <= high + room
        span = f"{in_units(low)} to {in_units(high)}"
        self.ranges[number].setText(
            span if inside else f"outside {span} of the training samples"
        )
        set_property(self.ranges[number], "tone", "text3" if inside else "warn")
