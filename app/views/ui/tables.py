"""What all tables have in common: a model of named columns, and the look."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtWidgets import QAbstractItemView, QFrame, QTableView

from app.views.ui import theme

Index = QModelIndex | QPersistentModelIndex


def side(right: bool) -> Qt.AlignmentFlag:
    """Return a cell's alignment: numbers right, text left."""
    return (Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft) | Qt.AlignmentFlag.AlignVCenter


class ColumnsModel(QAbstractTableModel):
    """Rows with column headings; a subclass defines the text of a cell in `data`. Tooltips explain headings."""

    heads: Sequence[str] = ()
    figures: Collection[int] = ()  # columns at the right
    meanings: Sequence[str] = ()
    rows: Sequence[Any] = ()

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.heads)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(self.heads):
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return side(section in self.figures)
        if role == Qt.ItemDataRole.ToolTipRole and self.meanings:
            return self.meanings[section]
        return self.heads[section] if role == Qt.ItemDataRole.DisplayRole else None


def plain(table: QTableView, name: str, height: int, room: int = 8) -> None:
    """Give a table its look: no grid, whole rows, at least `height` px each and `room` more than the text."""
    table.setAccessibleName(name)
    table.setFrameShape(QFrame.Shape.NoFrame)
    table.setShowGrid(False)
    table.setWordWrap(False)
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
    table.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
    table.setTabKeyNavigation(False)
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(max(height, table.fontMetrics().height() + room))
    table.horizontalHeader().setFont(theme.font("caption"))
    table.horizontalHeader().setHighlightSections(False)
