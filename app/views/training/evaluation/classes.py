"""The table of per-class metrics: precision, recall, F1 and support, sortable."""

from __future__ import annotations

import math
from typing import Any

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView, QWidget

from app.training.evaluation.result import ClassRow
from app.util import formatting
from app.views.ui import theme
from app.views.ui.tables import ColumnsModel, Index, plain, side

ROOM, LEAST = (
    22,
    44,
)  # beside the words of a header, which its arrow needs; the class column
COLUMNS = ("Class", "Precision", "Recall", "F1", "Support")
MEANINGS = (
    "Class name in the data",
    "Fraction of predictions of this class that are correct",
    "Fraction of samples of this class that are predicted correctly",
    "Harmonic mean of precision and recall",
    "Number of samples of this class",
)


class ClassModel(ColumnsModel):
    """Rows in the order of the classes, or by a column."""

    heads, figures, meanings = COLUMNS, range(1, len(COLUMNS)), MEANINGS

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._natural: tuple[ClassRow, ...] = ()
        self.rows: list[tuple[int, ClassRow]] = []
        self._column, self._descending = -1, False

    def set_rows(self, rows: tuple[ClassRow, ...]) -> None:
        self.beginResetModel()
        self._natural = rows
        self.rows = self._ordered()
        self.endResetModel()

    def sort(
        self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder
    ) -> None:
        self._column, self._descending = column, order == Qt.SortOrder.DescendingOrder
        self.beginResetModel()
        self.rows = self._ordered()
        self.endResetModel()

    def _ordered(self) -> list[tuple[int, ClassRow]]:
        rows = list(enumerate(self._natural))
        if self._column < 0:
            return rows
        if self._column == 0:
            return rows[::-1] if self._descending else rows

        def key(row: tuple[int, ClassRow]) -> float:
            value = _values(row[1])[self._column - 1]
            # NaN sorts last in both directions.
            return (
                math.inf if math.isnan(value) else -value if self._descending else value
            )

        return sorted(rows, key=key)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row, column = self.rows[index.row()][1], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            if column == 0:
                return row.name
            if column == 4:
                return formatting.grouped_digits(row.support)
            value = _values(row)[column - 1]
            return "–" if math.isnan(value) else f"{value:.3f}"
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return side(column > 0)
        if role == Qt.ItemDataRole.ForegroundRole and column == 4:
            return theme.current().text2
        return None


def _values(row: ClassRow) -> tuple[float, float, float, float]:
    return row.precision, row.recall, row.f1, float(row.support)


class ClassTable(QTableView):
    """`chosen(class)` comes when a row is gone to."""

    chosen = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.classes = ClassModel(self)
        self.setModel(self.classes)
        plain(self, "Classes", 23, room=6)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setStretchLastSection(False)
        self._numbers: list[int] = []
        self._measure()
        theme.manager().changed.connect(self._measure)
        header.setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self.setSortingEnabled(True)
        self.selectionModel().currentRowChanged.connect(self._emit_chosen)

    def _measure(self) -> None:
        """Make the columns as wide as their heads and figures at the text size in force."""
        heads = QFontMetrics(theme.font("label"))
        widest = self.fontMetrics().horizontalAdvance("0.000")
        self._numbers = [
            max(heads.horizontalAdvance(name), widest) + ROOM for name in COLUMNS[1:]
        ]
        self._least = max(LEAST, heads.horizontalAdvance(COLUMNS[0]) + ROOM)
        self.setMinimumWidth(sum(self._numbers) + self._least + 16)
        self._fit_columns()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_columns()

    def _fit_columns(self) -> None:
        for column, width in enumerate(self._numbers, 1):
            self.setColumnWidth(column, width)
        self.setColumnWidth(
            0, max(self.viewport().width() - sum(self._numbers), self._least)
        )

    def _emit_chosen(self, current: QModelIndex, _before: QModelIndex) -> None:
        if current.isValid():
            self.chosen.emit(self.classes.rows[current.row()][0])
