"""The Settings dialog: the declared settings by section, each in effect as soon as it is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QStyle,
    QStyleOptionFrame,
    QWidget,
)

from app.views.settings import Settings
from app.views.shell.preferences import PREFERENCES, Preference
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox
from app.views.ui.scrolled import Column
from app.views.ui.widgets import Button, ChoiceField, NumberField, Toggle
from app.views.ui.widgets.painting import label, set_property

WIDTH, HEIGHT = 580, 700
FIELD = 230  # width of a list or a number, px
_CURSOR = 2  # px that a line edit keeps beside its text


class SettingsDialog(Dialog):
    """Shows every setting of `PREFERENCES` with an editor of its kind; it follows changes made elsewhere."""

    def __init__(self, settings: Settings, parent: QWidget | None = None) -> None:
        super().__init__("Settings", parent)
        self._settings = settings
        self.editors: dict[str, QWidget] = {}
        self._show: dict[str, Callable[[Any], object]] = {}
        inside = QWidget()
        table = QGridLayout(inside)
        table.setContentsMargins(0, 0, 16, 0)
        table.setHorizontalSpacing(20)
        table.setVerticalSpacing(4)
        table.setColumnStretch(1, 1)
        for title, members in PREFERENCES.items():
            heading = label(title, "section", "text3")
            heading.setContentsMargins(0, 12 if table.rowCount() > 1 else 0, 0, 2)
            table.addWidget(heading, table.rowCount(), 0, 1, 2)
            for preference in members:
                self._add(table, preference)
        table.setRowStretch(table.rowCount(), 1)
        self._area = Column(inside)
        self.body.addWidget(self._area, 1)
        if not settings.writable:
            warning = f"What you change here lasts until you quit: {settings.file} cannot be written."
            self.body.addWidget(label(warning, "caption", "warn", wrap=True))
        self.resize(WIDTH, HEIGHT)
        self.add_button("Restore defaults", left=True).clicked.connect(self._restore)
        self.add_button("Close", "primary", default=True).clicked.connect(self.accept)
        settings.changed.connect(self._changed)

    def go_to(self, name: str) -> None:
        """Bring a setting into sight and give it the keyboard focus."""
        editor = self.editors[name]
        self._area.ensureWidgetVisible(editor)
        editor.setFocus(Qt.FocusReason.TabFocusReason)

    def _add(self, table: QGridLayout, preference: Preference) -> None:
        row = table.rowCount()
        name = label(preference.label, "label")
        table.addWidget(name, row, 0, Qt.AlignmentFlag.AlignVCenter)
        editor, shown = self._make(preference)
        editor.setAccessibleName(preference.label)
        editor.setAccessibleDescription(preference.note)
        name.setBuddy(editor)
        self.editors[preference.name] = editor
        if isinstance(shown, QHBoxLayout):
            table.addLayout(shown, row, 1)
        else:
            table.addWidget(shown, row, 1, Qt.AlignmentFlag.AlignLeft)
        if preference.note:
            note = label(preference.note, "caption", "text3", wrap=True)
            note.setContentsMargins(0, 0, 0, 8)
            table.addWidget(note, row + 1, 1)
            if isinstance(editor, NumberField):
                editor.textChanged.connect(
                    lambda _text: self._say(note, editor.invalid(), preference.note)
                )
                editor.rejected.connect(
                    lambda problem: self._say(note, f"{problem} It was left as it is.")
                )

    @staticmethod
    def _say(note: QLabel, problem: str | None, otherwise: str = "") -> None:
        """Show below a number why it is refused, else its note."""
        note.setText(problem or otherwise)
        set_property(note, "tone", "error" if problem else "text3")

    def _make(self, preference: Preference) -> tuple[QWidget, QWidget | QHBoxLayout]:
        """Return the editor of a setting, and what is laid out: the editor, or a row with it."""
        value = getattr(self._settings, preference.name)

        def put(new: Any) -> None:
            setattr(self._settings, preference.name, new)

        if preference.choices:
            choice = ChoiceField(preference.choices, value, pairs=True)
            choice.setFixedWidth(FIELD)
            choice.edited.connect(put)
            self._show[preference.name] = choice.set_value
            return choice, choice
        if isinstance(value, bool):
            toggle = Toggle(value=value)
            toggle.edited.connect(put)
            self._show[preference.name] = toggle.set_value
            return toggle, toggle
        if isinstance(value, Path):
            return self._make_folder(preference, value, put)
        kind = "float" if isinstance(value, float) else "int"
        number = NumberField(value, kind, preference.least, preference.most)
        number.setFixedWidth(FIELD)
        number.edited.connect(put)
        self._show[preference.name] = number.set_value
        return number, number

    def _make_folder(
        self, preference: Preference, value: Path, put: Callable[[Path], None]
    ) -> tuple[QWidget, QHBoxLayout]:
        line = _PathLine()
        button = Button("Choose…")
        button.setAccessibleName(f"{preference.label}: choose…")

        def show(path: Path) -> None:
            line.set_path(str(path))

        def choose() -> None:
            name = QFileDialog.getExistingDirectory(self, preference.label, line.text())
            if name:
                put(Path(name))

        show(value)
        button.clicked.connect(choose)
        self._show[preference.name] = show
        return line, hbox((line, 1), button, spacing=8)

    def _changed(self, name: str) -> None:
        if name in self._show:
            self._show[name](getattr(self._settings, name))

    def _restore(self) -> None:
        for members in PREFERENCES.values():
            for preference in members:
                self._settings.reset(preference.name)


class _PathLine(QLineEdit):
    """Shows a path that can be copied but not typed, elided in the middle, with the whole of it as tool tip.

    While it has the focus, the text can be scrolled and selected.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setReadOnly(True)

    def set_path(self, path: str) -> None:
        """Show another path."""
        self.setText(path)
        self.setCursorPosition(0)
        self.setToolTip(path)

    def shown(self) -> str:
        """Return the path as it is drawn without the focus."""
        option = QStyleOptionFrame()
        self.initStyleOption(option)
        room = (
            self.style()
            .subElementRect(QStyle.SubElement.SE_LineEditContents, option, self)
            .width()
            - 2 * _CURSOR
        )
        return self.fontMetrics().elidedText(
            self.text(), Qt.TextElideMode.ElideMiddle, room
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.hasFocus() or (shown := self.shown()) == self.text():
            super().paintEvent(event)
            return
        option = QStyleOptionFrame()
        self.initStyleOption(option)
        style, painter = self.style(), QPainter(self)
        style.drawPrimitive(
            QStyle.PrimitiveElement.PE_PanelLineEdit, option, painter, self
        )
        area = style.subElementRect(QStyle.SubElement.SE_LineEditContents, option, self)
        painter.setPen(self.palette().text().color())
        painter.drawText(
            area.adjusted(_CURSOR, 0, -_CURSOR, 0), Qt.AlignmentFlag.AlignVCenter, shown
        )
        painter.end()
