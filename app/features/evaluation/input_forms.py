"""Forms in which an input is entered: numbers in the units of the data, or a drawing, numbers or text for each."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFormLayout, QFrame, QLabel, QScrollArea, QWidget

from app.data.spec import Category
from app.features.evaluation.drawing_pad import Pad
from app.features.evaluation.input_pictures import as_drawn, as_input
from app.features.evaluation.values import Entered, Image, InputSurvey, PictureFile
from app.training.evaluation.result import is_picture
from app.util.formatting import in_units, shape_text
from app.views.ui.docks import beside_text
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.fields import ChoiceField, TextField
from app.views.ui.widgets.numbers import NumberField
from app.views.ui.widgets.painting import label, set_property

DIGITS = 6  # of a number that is shown
NUMBER = 140  # px, the width of its field
MOST_FIELDS = 24  # numbers that have a field each; more are typed as a line
MOST_TYPED = 256  # numbers of a line


class NumbersForm(QWidget):
    """A field for each number of an input, at first `values`, as the network gets them. `changed` follows each edit."""

    changed = Signal()

    def __init__(
        self,
        survey: InputSurvey,
        values: Image,
        hint: str = "",
    ) -> None:
        super().__init__()
        self._survey = survey
        self.fields: list[NumberField] = []
        self.ranges: list[QLabel] = []
        self._columns: list[int] = []  # the value that each field is
        self.choices: dict[str, ChoiceField] = {}  # by the name of a category
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 10, 0)
        form.setSpacing(6)
        if hint:
            form.addRow(label(hint, "caption", "text3", wrap=True))
        categories = {category.first: category for category in survey.categories}
        chosen = {
            category.first + offset
            for category in survey.categories
            for offset in range(len(category.texts))
        }
        for number in range(values.size):
            if (category := categories.get(number)) is not None:
                self._add_choice(form, category)
            if number in chosen:
                continue
            name = (
                survey.columns[number]
                if number < len(survey.columns)
                else f"{survey.name or 'input'} {number}"
            )
            field = NumberField(0.0, "float")
            span = label("", "caption", "text3", wrap=True)
            field.setFixedWidth(beside_text(NUMBER))
            field.setAccessibleName(name)
            field.edited.connect(partial(self._edited, len(self.fields)))
            form.addRow(label(name, "label", "text2"), hbox(field, (span, 1)))
            self.fields.append(field)
            self.ranges.append(span)
            self._columns.append(number)
        self._count = values.size
        self.set_values(values)

    def _add_choice(self, form: QFormLayout, category: Category) -> None:
        choice = ChoiceField(category.texts)
        choice.setAccessibleName(category.name)
        choice.edited.connect(lambda _text: self.changed.emit())
        form.addRow(label(category.name, "label", "text2"), choice)
        self.choices[category.name] = choice

    def values(self) -> Image:
        """Return the numbers as the network gets them."""
        values = np.zeros(self._count, np.float32)
        values[self._columns] = [field.value() for field in self.fields]
        for category in self._survey.categories:
            text = self.choices[category.name].value()
            values[category.first + category.texts.index(text)] = 1
        return self._survey.scaled(values)

    def set_values(self, values: Image) -> None:
        """Show the numbers of a sample, as the network gets them, in the units of the data."""
        unscaled = self._survey.unscaled(values)
        for number, value in enumerate(unscaled[self._columns].tolist()):
            self.fields[number].set_value(float(f"{value:.{DIGITS}g}"))
            self._show_range(number)
        for category in self._survey.categories:
            own = unscaled[category.first : category.first + len(category.texts)]
            self.choices[category.name].set_value(category.texts[int(own.argmax())])

    def _edited(self, number: int, _value: float) -> None:
        self._show_range(number)
        self.changed.emit()

    def _show_range(self, number: int) -> None:
        """Show the range of the training samples, and whether the number is outside of it."""
        column = self._columns[number]
        low, high = float(self._survey.low[column]), float(self._survey.high[column])
        room = 1e-4 * (high - low)
        inside = low - room <= self.fields[number].value() <= high + room
        span = f"{in_units(low)} to {in_units(high)}"
        self.ranges[number].setText(
            span if inside else f"outside {span} of the training samples"
        )
        set_property(self.ranges[number], "tone", "text3" if inside else "warn")


class InputEntry(QWidget):
    """One of several inputs, at first that of the first training sample. `changed` follows each edit."""

    changed = Signal()

    def __init__(self, survey: InputSurvey) -> None:
        super().__init__()
        assert survey.first is not None
        self.survey, self._value = survey, survey.first
        self._file: PictureFile | None = None  # that was dropped
        self.pad: Pad | None = None
        self.line: TextField | None = None
        self.numbers: NumbersForm | None = None
        self._column = vbox(
            label(survey.name or "Text", "label", "text"),
            on=self,
            margins=0,
            spacing=4,
        )
        self.words = label("", "caption", "text3", wrap=True)
        count, row = survey.first.size, survey.first.ndim == 1
        if is_picture(survey.shape):
            self._add_pad()
        elif survey.symbols or (
            row and count <= MOST_TYPED and survey.dtype != "float32"
        ):
            self._add_line()
        elif row and count <= MOST_FIELDS:
            self._add_fields()
        else:
            shape = shape_text(survey.shape, "one number")
            self.words.setText(
                f"{shape} {survey.dtype}, as in the first training sample."
            )
        self._column.addWidget(self.words)

    def value(self) -> Entered:
        """Return the input without the batch axis."""
        return self._value if self._file is None else self._file

    def set_value(self, values: Image, name: str) -> None:
        """Show the input of a sample of the data."""
        self._value, self._file = values, None
        if self.line is not None:
            self.line.set_value(_numbers(values))
        if self.numbers is not None:
            self.numbers.set_values(values)
        if self.pad is not None:
            self.words.setText(f"{name}, as the network receives it.")

    # -- a picture

    def _add_pad(self) -> None:
        self.pad, clear = Pad(), Button("Clear", "flat", "trash")
        self._column.addLayout(
            hbox(self.pad, (clear, 0, Qt.AlignmentFlag.AlignTop), 1, spacing=8)
        )
        self.words.setText(
            "Initially the first training sample. Draw, or drop an image."
        )
        self.pad.changed.connect(self._drawn)
        self.pad.dropped.connect(self._dropped)
        clear.clicked.connect(self.pad.clear)

    def _drawn(self) -> None:
        assert self.pad is not None and self.survey.first is not None
        self._file = None
        if self.pad.empty:
            self._value = self.survey.first
            self.words.setText(
                "Initially the first training sample. Draw, or drop an image."
            )
        else:
            height, width = self.survey.shape[-2:]
            self._value = as_input(as_drawn(self.pad.ink(), self.survey), self.survey)
            self.words.setText(f"Your drawing at {height}×{width}.")
        self.changed.emit()

    def _dropped(self, path: Path) -> None:
        self._file = PictureFile(path)
        self.words.setText(
            f"{path.name}, resized to {shape_text(self.survey.shape[-2:])}."
        )
        self.changed.emit()

    # -- text

    def _add_line(self) -> None:
        before = _numbers(self._value)
        shown = () if self._is_continued else before
        self.line = TextField(shown, self._read, self._written)
        self.line.setPlaceholderText(self._written(before) if not shown else "")
        self.line.setAccessibleName(self.survey.name or "Text")
        self.line.edited.connect(self._typed)
        self.line.rejected.connect(self.words.setText)
        self._column.addWidget(self.line)
        expected = (
            "True and False as 1 and 0" if self.survey.dtype == "bool" else "Integers"
        )
        if self.survey.symbols:
            count = self._value.size
            self._hint = (
                f"The last {count} characters are read; a shorter text follows the first training sample."
                if self._is_continued
                else ""
            )
        else:
            self._hint = f"{expected}, separated by spaces."
        self.words.setText(self._hint)

    @property
    def _is_continued(self) -> bool:
        """Whether a text that is too short follows another, since nothing can fill it up."""
        return bool(self.survey.symbols) and "" not in self.survey.symbols

    def _typed(self, numbers: tuple[int, ...]) -> None:
        if self._is_continued and self.survey.first is not None:
            numbers = (*_numbers(self.survey.first), *numbers)[-self._value.size :]
        self._value = np.array(numbers, np.float32).reshape(self._value.shape)
        self.words.setText(self._hint)
        self.changed.emit()

    def _read(self, text: str) -> tuple[int, ...]:
        """Return the numbers of a text, filled up with zeros if something can. Raises ValueError."""
        count = self._value.size
        if self.survey.symbols:
            numbers_by_symbol = {
                symbol: number
                for number, symbol in enumerate(self.survey.symbols)
                if symbol
            }
            if unknown := next(
                (letter for letter in text if letter not in numbers_by_symbol), None
            ):
                raise ValueError(
                    f"{unknown!r} is not one of the symbols {''.join(numbers_by_symbol)}."
                )
            numbers = [numbers_by_symbol[letter] for letter in text]
            if self._is_continued:
                return tuple(numbers)
        else:
            try:
                numbers = [int(word) for word in text.replace(",", " ").split()]
            except ValueError:
                raise ValueError("Type integers separated by spaces.") from None
        if len(numbers) > count or (not self.survey.symbols and len(numbers) < count):
            raise ValueError(f"It takes {count}, not {len(numbers)}.")
        return (*numbers, *(0,) * (count - len(numbers)))

    def _written(self, numbers: tuple[int, ...]) -> str:
        if self.survey.symbols:
            return "".join(
                self.survey.symbols[number]
                for number in numbers
                if number < len(self.survey.symbols)
            )
        return " ".join(map(str, numbers))

    # -- numbers

    def _add_fields(self) -> None:
        self.numbers = NumbersForm(self.survey, self._value)
        self.numbers.changed.connect(self._numbers_changed)
        self._column.addWidget(self.numbers)

    def _numbers_changed(self) -> None:
        assert self.numbers is not None
        self._value = self.numbers.values()
        self.changed.emit()


def _numbers(values: Image) -> tuple[int, ...]:
    return tuple(values.astype(int).flatten().tolist())


class SeveralInputs(QScrollArea):
    """An entry for each input of a sample. `changed` follows each edit."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.entries: dict[str, InputEntry] = {}

    def show_inputs(self, parts: tuple[InputSurvey, ...]) -> None:
        """Make the entries, all as in the first training sample."""
        body = QWidget()
        column = vbox(on=body, margins=(0, 0, 10, 0), spacing=14)
        self.entries = {survey.name: InputEntry(survey) for survey in parts}
        for entry in self.entries.values():
            entry.changed.connect(self.changed)
            column.addWidget(entry)
        column.addStretch(1)
        self.setWidget(body)

    def sample(self) -> dict[str, Entered]:
        """Return the inputs by name."""
        return {name: entry.value() for name, entry in self.entries.items()}

    def set_sample(self, values: dict[str, Image], name: str) -> None:
        """Show a sample of the data."""
        for input_name, entry in self.entries.items():
            if input_name in values:
                entry.set_value(values[input_name], name)
