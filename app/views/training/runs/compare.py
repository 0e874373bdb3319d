"""The settings of several runs side by side; differing ones are marked and sorted to the top."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QTableView, QWidget

from app.runs.compare import Setting
from app.util.formatting import plural
from app.views.ui import icons, theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.tables import ColumnsModel, Index, plain
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented


class SettingsModel(ColumnsModel):
    """A line a setting: its name, then a column a run."""

    heads: list[str] = ["Setting"]
    rows: list[Setting] = []

    def set_lines(self, titles: list[str], lines: list[Setting]) -> None:
        self.beginResetModel()
        self.heads, self.rows = ["Setting", *titles], lines
        self.endResetModel()

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        line, now = self.rows[index.row()], theme.current()
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return line.name if not index.column() else line.values[index.column() - 1]
        if role == Qt.ItemDataRole.ForegroundRole:
            if not index.column():
                return now.text if line.differs else now.text2
            return now.text if line.differs else now.text3
        if role == Qt.ItemDataRole.FontRole and line.differs:
            return theme.font("section")
        if (
            role == Qt.ItemDataRole.DecorationRole
            and not index.column()
            and line.differs
        ):
            return icons.icon("compare", "accent", size=14)
        if (
            role == Qt.ItemDataRole.AccessibleTextRole
            and not index.column()
            and line.differs
        ):
            return f"{line.name}, differs"
        return None


class RunsCompare(QWidget):
    """The table, with a choice between all settings and those that differ."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._titles: list[str] = []
        self._lines: tuple[Setting, ...] = ()
        self.model = SettingsModel(self)
        self.table = QTableView()
        self.table.setModel(self.model)
        plain(self.table, "Settings of the runs", 24, room=0)
        header = self.table.horizontalHeader()
        header.setMaximumSectionSize(260)
        header.setStretchLastSection(True)
        self._caption = label("", "caption", "text2")
        self._which = Segmented(
            [("differing", "Differences only"), ("all", "All settings")],
            "Settings to show",
        )
        self._which.changed.connect(lambda _key: self._show())
        row = hbox(self._caption, 1, self._which, margins=(12, 4, 8, 4), spacing=8)
        vbox(row, (self.table, 1), on=self, margins=0, spacing=0)

    def set_settings(self, titles: list[str], lines: tuple[Setting, ...]) -> None:
        """Show these runs, a column each."""
        self._titles, self._lines = titles, lines
        self._show()

    def _show(self) -> None:
        differing = [line for line in self._lines if line.differs]
        everything = self._which.value() == "all"
        same = [line for line in self._lines if not line.differs] if everything else []
        count = len(differing)
        caption = (
            f"{count} {plural(count, 'setting differs', 'settings differ')}"
            if count
            else ("All settings are equal")
        )
        self._caption.setText(caption)
        self.model.set_lines(self._titles, [*differing, *same])
        self.table.resizeColumnsToContents()
