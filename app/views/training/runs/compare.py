"""The settings of several runs side by side; differing ones are marked and sorted to the top."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtWidgets import QAbstractItemView, QFrame, QTableView, QWidget

from app.runs.compare import Setting
from app.util.formatting import plural
from app.views.ui import icons, theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented

Index = QModelIndex | QPersistentModelIndex


class SettingsModel(QAbstractTableModel):
    """A line a setting: its name, then a column a run."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.titles: list[str] = []
        self.lines: list[Setting] = []

    def set_lines(self, titles: list[str], lines: list[Setting]) -> None:
        self.beginResetModel()
        self.titles, self.lines = titles, lines
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.lines)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 1 + len(self.titles)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        return ["Setting", *self.titles][section] if role == Qt.ItemDataRole.DisplayRole else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        line, now = self.lines[index.row()], theme.current()
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return line.name if not index.column() else line.values[index.column() - 1]
        if role == Qt.ItemDataRole.ForegroundRole:
            if not index.column():
                return now.text if line.differs else now.text2
            return now.text if line.differs else now.text3
        if role == Qt.ItemDataRole.FontRole and line.differs:
            return theme.font("section")
        if role == Qt.ItemDataRole.DecorationRole and not index.column() and line.differs:
            return icons.icon("compare", "accent", size=14)
        if role == Qt.ItemDataRole.AccessibleTextRole and not index.column() and line.differs:
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
        self.table.setFrameShape(QFrame.Shape.NoFrame)
        self.table.setShowGrid(False)
        self.table.setWordWrap(False)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.table.setAccessibleName("Settings of the runs")
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(24)
        header = self.table.horizontalHeader()
        header.setFont(theme.font("caption"))
        header.setMaximumSectionSize(260)
        header.setStretchLastSection(True)
        header.setHighlightSections(False)
        self._caption = label("", "caption", "text2")
        self._which = Segmented([("differing", "Differences only"), ("all", "All settings")], "Settings to show")
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
        words = (
            f"{count} {plural(count, 'setting differs', 'settings differ')}" if count else ("All settings are equal")
        )
        self._caption.setText(words)
        self.model.set_lines(self._titles, [*differing, *same])
        self.table.resizeColumnsToContents()
