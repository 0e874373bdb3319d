"""The columns of a text table: which are inputs, which is the target, and the type of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QWidget

from app.data.spec import VALUES, SourceSpec
from app.util.formatting import counted
from app.views.ui.docks import beside_text
from app.views.ui.widgets import ChoiceField
from app.views.ui.widgets.fitting_label import FittingLabel
from app.views.ui.widgets.painting import label

INPUT, TARGET, ALSO, LEFT_OUT = "input", "target", "another target", "left out"
AUTO, NUMBER, KIND = "auto", "number", "kinds"
ROLE, KIND_OF = (
    80,
    118,
)  # px of the fields, so that three columns have room beside one another
LETTERS = 10  # of "auto: number", in those of X
MOST = 60  # rows; for more columns edit the project's file


class ColumnsTable(QWidget):
    """A row per column. `edited(options)` carries the options `inputs`, `target`, `more_targets`, `categories` and
    `numbers`.
    """

    edited = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 4, 0, 4)
        self._grid.setHorizontalSpacing(6)
        self._grid.setVerticalSpacing(2)
        self._grid.setColumnStretch(0, 1)
        self.roles: dict[str, ChoiceField] = {}
        self.kinds: dict[str, ChoiceField] = {}
        self._names: tuple[str, ...] = ()

    def show_columns(self, spec: SourceSpec, options: Mapping[str, Any]) -> None:
        """Show the columns found in a file; hidden if it is no table."""
        names = spec.all_columns
        self.setVisible(0 < len(names) <= MOST)
        if self.isHidden():
            return
        if names != self._names:
            self._fill(names)
        target = options["target"] or names[-1]
        inputs = options["inputs"] or {
            column.partition("=")[0] for column in spec.columns
        }
        column_types = _read_as(spec, target)
        for name in names:
            other = (
                ALSO
                if name in options["more_targets"]
                else INPUT
                if name in inputs
                else LEFT_OUT
            )
            self.roles[name].set_value(TARGET if name == target else other)
            chosen = (
                NUMBER
                if name in options["numbers"]
                else KIND
                if name in options["categories"]
                else AUTO
            )
            self.kinds[name].set_value(chosen)
            self.kinds[name].setEnabled(name != target)
            self.kinds[name].setItemText(
                0, f"auto: {column_types[name]}" if name in column_types else AUTO
            )
            self.kinds[name].setToolTip(
                _meaning(column_types[name]) if name in column_types else ""
            )

    def _fill(self, names: tuple[str, ...]) -> None:
        while (item := self._grid.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        self._names = names
        self.roles, self.kinds = {}, {}
        for column, text in enumerate(("column", "is", "read as")):
            self._grid.addWidget(label(text, "caption", "text3"), 0, column)
        for line, name in enumerate(names, 1):
            self.roles[name] = ChoiceField((INPUT, TARGET, ALSO, LEFT_OUT))
            self.kinds[name] = ChoiceField((AUTO, NUMBER, KIND))
            self.roles[name].setFixedWidth(beside_text(ROLE))
            self.kinds[name].setMinimumWidth(KIND_OF)
            self.kinds[name].setMinimumContentsLength(LETTERS)  # at any text size
            self.roles[name].setAccessibleName(f"Role of column {name}")
            self.kinds[name].setAccessibleName(f"Type of column {name}")
            self.roles[name].edited.connect(
                lambda role, name=name: self._role_chosen(name, role)
            )
            self.kinds[name].edited.connect(lambda _kind: self._emit_edited())
            name_label = FittingLabel(name, "code", "text2")
            for column, widget in enumerate(
                (name_label, self.roles[name], self.kinds[name])
            ):
                self._grid.addWidget(widget, line, column)

    def _role_chosen(self, name: str, role: str) -> None:
        """Make one column the target; the previous target becomes an input."""
        others = [other for other in self._names if other != name]
        targets = [other for other in others if self.roles[other].value() == TARGET]
        if role == TARGET:
            for other in targets:
                self.roles[other].set_value(INPUT)
        elif not targets:
            self.roles[others[-1]].set_value(TARGET)
        self._emit_edited()

    def _emit_edited(self) -> None:
        roles = {name: self.roles[name].value() for name in self._names}
        kinds = {name: self.kinds[name].value() for name in self._names}
        self.edited.emit(
            {
                "inputs": tuple(name for name, role in roles.items() if role == INPUT),
                "target": next(name for name, role in roles.items() if role == TARGET),
                "more_targets": tuple(
                    name for name, role in roles.items() if role == ALSO
                ),
                "categories": tuple(
                    name for name, kind in kinds.items() if kind == KIND
                ),
                "numbers": tuple(
                    name for name, kind in kinds.items() if kind == NUMBER
                ),
            }
        )


def _meaning(read_as: str) -> str:
    return f"Read as {read_as}, one-hot" if "kind" in read_as else f"Read as {read_as}"


def _read_as(spec: SourceSpec, target: str) -> dict[str, str]:
    """Return what each column was read as: a number, classes, or kinds of text."""
    column_types: dict[str, str] = {}
    for column in spec.columns:
        name, is_text, _ = column.partition("=")
        texts = sum(other.startswith(f"{name}=") for other in spec.columns)
        column_types[name] = (
            counted(texts, "kind") if is_text and name in spec.all_columns else "number"
        )
    for spec_target in spec.known_targets:
        column_types[spec_target.name or target] = (
            "number"
            if spec_target.task == VALUES
            else counted(len(spec_target.classes), "class", "classes")
        )
    return column_types
