"""Which field of the data each input of a network gets, where the data have several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QWidget

from app.data.spec import FieldInfo
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap
from app.views.ui.layouts import vbox
from app.views.ui.widgets import ChoiceField
from app.views.ui.widgets.painting import label


class FieldsBox(QWidget):
    """A row per input of the network. `edited(chosen)` carries the fields of inputs that are called otherwise."""

    edited = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.choices: dict[str, ChoiceField] = {}
        self._taken: dict[str, str] = {}
        self._shown: tuple[tuple[str, ...], tuple[FieldInfo, ...]] = ((), ())
        self._column = vbox(on=self, margins=(0, 4, 0, 0), spacing=4)
        self._grid: QWidget | None = None
        self.hide()

    def show_fields(
        self, inputs: Sequence[str], fields: Sequence[FieldInfo], taken: Sequence[str], chosen: Mapping[str, str]
    ) -> None:
        """Show the inputs with the field that each has `taken`, or was `chosen` for it; nothing without fields."""
        self.setVisible(bool(fields and inputs))
        wanted = tuple(inputs), tuple(fields)
        if wanted != self._shown:
            self._shown = wanted
            self._make()
        known = {one.name for one in fields}
        for place, (name, choice) in enumerate(self.choices.items()):
            own = chosen.get(name) or (name if name in known else "")
            self._taken[name] = taken[place] if place < len(taken) else own
            choice.set_value(self._taken[name])

    def _make(self) -> None:
        inputs, fields = self._shown
        if self._grid is not None:
            self._column.removeWidget(self._grid)
            self._grid.hide()
            self._grid.deleteLater()
        self._grid, self.choices, self._taken = QWidget(), {}, {}
        grid = QGridLayout(self._grid)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setColumnStretch(1, 1)
        pairs = [
            ("", "Choose a field"),
            *((one.name, f"{one.name}, {shape_text(one.shape, 'one number')} {one.dtype}") for one in fields),
        ]
        for row, name in enumerate(inputs if fields else ()):
            choice = ChoiceField(pairs, pairs=True)
            choice.setAccessibleName(f"Field of the data for the input {name}")
            choice.edited.connect(partial(self._choose, name))
            grid.addWidget(label(name, "code", "text2"), row, 0)
            grid.addWidget(choice, row, 1)
            self.choices[name] = choice
        self._column.addWidget(self._grid)

    def _choose(self, name: str, field: str) -> None:
        self._taken[name] = field
        self.edited.emit(FrozenMap({own: taken for own, taken in self._taken.items() if taken and taken != own}))
