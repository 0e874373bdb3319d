"""What all tables have in common: a model of named columns, and the look."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
    Signal,
)
from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import QAbstractItemView, QFrame, QHeaderView, QTableView

from app.views.ui import theme

Index = QModelIndex | QPersistentModelIndex
SAMPLED = 200


def side(right: bool) -> Qt.AlignmentFlag:
    """Return a cell's alignment: numbers right, text left."""
    return (
        Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
    ) | Qt.AlignmentFlag.AlignVCenter


def selected_rows(table: QTableView) -> list[int]:
    """Return the selected rows of a table whose cells are selected by rows, from top to bottom.

    Qt's `selectedRows` asks a model for the flags of every cell of them, and one in Python is slow to answer.
    """
    selection = table.selectionModel().selection()
    ranges = (selection.at(index) for index in range(selection.count()))
    return sorted(
        {
            row
            for selection_range in ranges
            for row in range(selection_range.top(), selection_range.bottom() + 1)
        }
    )


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

    def headerData(
        self,
        section: int,
        orientation: Qt.Orientation,
        role: int = Qt.ItemDataRole.DisplayRole,
    ) -> Any:
        if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(
            self.heads
        ):
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return side(section in self.figures)
        if role == Qt.ItemDataRole.ToolTipRole and self.meanings:
            return self.meanings[section]
        return self.heads[section] if role == Qt.ItemDataRole.DisplayRole else None


class RowHeight(QObject):
    """Keeps rows of a table at least `height` px high, and `room` more than the text in every text size."""

    def __init__(self, table: QTableView, height: int, room: int) -> None:
        super().__init__(table)
        self._table, self._height, self._room = table, height, room
        table.installEventFilter(self)
        self._fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.FontChange:
            self._fit()
        return super().eventFilter(watched, event)

    def _fit(self) -> None:
        high = max(self._height, self._table.fontMetrics().height() + self._room)
        self._table.verticalHeader().setDefaultSectionSize(high)


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
    RowHeight(table, height, room)
    table.horizontalHeader().setFont(theme.font("caption"))
    table.horizontalHeader().setHighlightSections(False)
    table.horizontalHeader().setTextElideMode(Qt.TextElideMode.ElideRight)


class RowsTable(QTableView):
    """Rows that are chosen whole. `copied` is emitted by Ctrl+C, which is the table's own while it has the focus, and
    `rowOpened(index)` by Enter and a double click."""

    copied = Signal()
    rowOpened = Signal(QModelIndex)

    def __init__(self, model: ColumnsModel, name: str, height: int) -> None:
        super().__init__()
        self.setModel(model)
        plain(self, name, height)
        self.doubleClicked.connect(self.rowOpened)

    def sort_by_header(self, sampled: int = SAMPLED) -> None:
        """Have a click on a heading sort by its column; a third one restores the order of the model. The widths of
        columns are measured on this many rows."""
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setResizeContentsPrecision(sampled)
        header.setStretchLastSection(True)
        header.setSortIndicatorClearable(True)
        header.setSortIndicator(-1, Qt.SortOrder.DescendingOrder)
        self.setSortingEnabled(True)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ShortcutOverride and isinstance(
            event, QKeyEvent
        ):
            if event.matches(QKeySequence.StandardKey.Copy) or event.matches(
                QKeySequence.StandardKey.SelectAll
            ):
                event.accept()
                return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copied.emit()
        elif (
            event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
            and self.currentIndex().isValid()
        ):
            self.rowOpened.emit(self.currentIndex())
        else:
            super().keyPressEvent(event)
