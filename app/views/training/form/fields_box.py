"""Which field of the data each input of a network gets, where the data have several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QWidget

from app.data.spec import FieldInfo
from app.source.interface import Argument
from app.training.config import INPUT, TARGET
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap
from app.views.ui.layouts import vbox
from app.views.ui.widgets import ChoiceField
from app.views.ui.widgets.painting import label

MOST = 24  # arguments that are listed


def _label(field: FieldInfo) -> str:
    return {INPUT: "the input", TARGET: "the target"}.get(field.name, field.name)


class FieldsBox(QWidget):
    """A row per input of the network. `edited(chosen)` carries the fields of inputs that are called otherwise."""

    edited = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.choices: dict[str, ChoiceField] = {}
        self._taken: dict[str, str] = {}
        self._shown: tuple[tuple[str, ...], tuple[FieldInfo, ...], frozenset[str]] = (
            (),
            (),
            frozenset(),
        )
        self._column = vbox(on=self, margins=(0, 4, 0, 0), spacing=4)
        self._grid: QWidget | None = None
        self.hide()

    def show_fields(
        self,
        inputs: Sequence[str],
        fields: Sequence[FieldInfo],
        assigned: Sequence[str],
        chosen: Mapping[str, str],
        optional: Iterable[str] = (),
    ) -> None:
        """Show the inputs with the field that each has `assigned`, or was `chosen` for it; nothing without fields.
        Those that are `optional` need none."""
        self.setVisible(bool(fields and inputs))
        content = tuple(inputs), tuple(fields), frozenset(optional)
        if content != self._shown:
            self._shown = content
            self._make()
        field_names = {field.name for field in fields}
        for index, (name, choice) in enumerate(self.choices.items()):
            preferred = chosen.get(name) or (name if name in field_names else "")
            self._taken[name] = assigned[index] if index < len(assigned) else preferred
            choice.set_value(self._taken[name])

    def _make(self) -> None:
        inputs, fields, optional = self._shown
        if self._grid is not None:
            self._column.removeWidget(self._grid)
            self._grid.hide()
            self._grid.deleteLater()
        self._grid, self.choices, self._taken = QWidget(), {}, {}
        grid = QGridLayout(self._grid)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setColumnStretch(1, 1)
        offered = [
            (
                field.name,
                f"{_label(field)}, {shape_text(field.shape, 'one number')} {field.dtype}",
            )
            for field in fields
        ]
        for row, name in enumerate(inputs if fields else ()):
            choice = ChoiceField(
                [("", "Not given" if name in optional else "Choose a field"), *offered],
                pairs=True,
            )
            choice.setAccessibleName(f"Field of the data for the input {name}")
            choice.edited.connect(partial(self._choose, name))
            grid.addWidget(label(name, "code", "text2"), row, 0)
            grid.addWidget(choice, row, 1)
            self.choices[name] = choice
        self._column.addWidget(self._grid)

    def show_arguments(
        self,
        arguments: Sequence[Argument],
        fields: Sequence[FieldInfo],
        assigned: Mapping[str, str],
    ) -> None:
        """Show the arguments of an opened model's forward with their fields; nothing if there is no choice."""
        names = (
            [argument.name for argument in arguments[:MOST]]
            if len(arguments) > 1
            else []
        )
        optional = [argument.name for argument in arguments if not argument.needed]
        self.show_fields(
            names, fields, [assigned.get(name, "") for name in names], {}, optional
        )

    def _choose(self, name: str, field: str) -> None:
        self._taken[name] = field
        self.edited.emit(
            FrozenMap(
                {
                    input_name: field_name
                    for input_name, field_name in self._taken.items()
                    if field_name and field_name != input_name
                }
            )
        )
