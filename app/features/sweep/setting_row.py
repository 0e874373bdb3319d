"""A row of the sweep dialog: a setting and its values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QMenu, QWidget

from app.features.sweep.values import SweepSetting, parse_values
from app.training.choices import ChoiceParam
from app.views.ui.layouts import hbox, vbox
from app.views.ui.theme import grown
from app.views.ui.widgets import Button, ChoiceField, icon_button
from app.views.ui.widgets.fields import HEIGHT
from app.views.ui.widgets.painting import announce, label, set_property

NAME = 170  # px


class ValuesMenu(QMenu):
    """Values to check, several in one go: it stays open. `toggled` is emitted after each change."""

    toggled = Signal()

    def fill(self, values: Iterable[Any], chosen: Sequence[str]) -> None:
        """List the values, those that are chosen checked."""
        self.clear()
        for value in values:
            action = self.addAction(str(value))
            action.setCheckable(True)
            action.setChecked(str(value) in chosen)

    @property
    def chosen(self) -> list[str]:
        return [action.text() for action in self.actions() if action.isChecked()]

    def event(self, event: QEvent) -> bool:
        """Toggle an entry without closing, by a click, the space bar or Enter."""
        pressed = isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress
        keys = (Qt.Key.Key_Space, Qt.Key.Key_Return, Qt.Key.Key_Enter)
        chosen = pressed and isinstance(event, QKeyEvent) and event.key() in keys
        if (
            chosen or event.type() == QEvent.Type.MouseButtonRelease
        ) and self.activeAction() is not None:
            self.activeAction().toggle()
            self.toggled.emit()
            return True
        return super().event(event)


class SettingRow(QWidget):
    """`changed` is emitted by each edit, `renamed` when another setting is chosen, `removed` by its button."""

    changed = Signal()
    renamed = Signal()
    removed = Signal()

    def __init__(
        self, params: Sequence[ChoiceParam], name: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._params: dict[str, ChoiceParam] = {}
        self.name = ChoiceField()
        self.name.setAccessibleName("Setting")
        self.name.setFixedWidth(NAME)
        self.values = QLineEdit()
        self.values.setFixedHeight(grown(HEIGHT, "label"))
        self.values.textChanged.connect(lambda _text: self.changed.emit())
        self.menu = ValuesMenu(self)
        self.menu.aboutToShow.connect(self._fill_menu)
        self.menu.toggled.connect(
            lambda: self.values.setText(", ".join(self.menu.chosen))
        )
        self.choose = Button("Choose")
        self.choose.setMenu(self.menu)
        self.remove = icon_button("close", "Remove")
        self.remove.clicked.connect(self.removed)
        self.problem = label("", "caption", "error", wrap=True)
        row = hbox(self.name, (self.values, 1), self.choose, self.remove, spacing=8)
        vbox(row, self.problem, on=self, margins=0, spacing=2)
        self.show_problem("")
        self.name.edited.connect(lambda _name: self._show_name(renamed=True))
        self.set_names(params, name)

    def set_names(self, params: Sequence[ChoiceParam], name: str) -> None:
        """Set which settings can be chosen, and the one that is."""
        self._params = {param.name: param for param in params}
        names = [*self._params, *([name] if name not in self._params else [])]
        if self.name.choices() != tuple(names):
            self.name.clear_choices()
            for choice in names:
                self.name.add_choice(choice)
        self.name.set_value(name)
        self._show_name()

    def _show_name(self, renamed: bool = False) -> None:
        name = self.name.value()
        param = self._params.get(name)
        self.values.setAccessibleName(f"Values of {name}")
        self.values.setPlaceholderText(
            f"now {param.default}" if param is not None else ""
        )
        self.name.set_hint(param.doc if param is not None else "")
        self.choose.setVisible(bool(self._offered))
        self.choose.setAccessibleName(f"Choose values of {name}")
        self.remove.setAccessibleName(f"Remove {name}")
        self.remove.setToolTip(f"Remove {name}")
        if renamed:
            self.values.clear()
            self.renamed.emit()

    @property
    def _offered(self) -> tuple[Any, ...]:
        """Return all values of a setting that has few."""
        param = self._params.get(self.name.value())
        if param is None:
            return ()
        values = (True, False) if param.kind == "bool" else tuple(param.choices)
        return (None, *values) if values and param.optional else values

    def _fill_menu(self) -> None:
        self.menu.fill(
            self._offered,
            [value_text.strip() for value_text in self.values.text().split(",")],
        )

    @property
    def empty(self) -> bool:
        return not self.values.text().strip()

    def setting(self) -> SweepSetting:
        """Return the setting with its values. Raises SweepError."""
        return parse_values(self.name.value(), self.values.text().strip())

    def show_problem(self, text: str) -> None:
        """Show the error in the values, "" for none."""
        if text and text != self.problem.text():
            announce(self.values, text)
        self.problem.setText(text)
        self.problem.setVisible(bool(text))
        set_property(self.values, "invalid", bool(text))
        self.values.setAccessibleDescription(text)
