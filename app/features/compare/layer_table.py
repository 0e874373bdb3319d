"""The table of matched layers: sorted by any column; those that add to the error are marked, those that inherit it are
quieter."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QSize, QTimer
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QTableView

from app.features.compare.layer_rows import (
    CLASS,
    COLUMNS,
    LAYER_A,
    LAYER_B,
    WEIGHTS,
    LayerRow,
    adds,
    name_of,
)
from app.views.ui import theme
from app.views.ui.tables import Table

LEAST_ROWS = 3  # of which the first is in sight in a small window
SAMPLED = 40  # rows that are measured for the widths of the columns
LONGEST, WIDEST = (
    260,
    92,
)  # pixels of a path and of a class, where there is no room for more
LIMITS = {LAYER_A: LONGEST, LAYER_B: LONGEST, CLASS: WIDEST}


class LayerTable(Table):
    """The rows of layers; all of them, or those that add to the error."""

    def __init__(self) -> None:
        super().__init__(COLUMNS, "Matched layers")
        self.sort_by_header(SAMPLED)
        self._needed: dict[int, int] = {}  # px of each column; empty until measured
        theme.manager().changed.connect(self.viewport().update)

    def opens(self, row: LayerRow) -> str:
        return f"Show {name_of(row.layer.a)}"

    def minimumSizeHint(self) -> QSize:
        """Ask for whole rows below the heading: a table of none shows nothing."""
        rows = LEAST_ROWS * self.verticalHeader().defaultSectionSize()
        bar = self.horizontalScrollBar().sizeHint().height()
        return QSize(80, self.horizontalHeader().sizeHint().height() + rows + bar)

    def set_layers(self, rows: Sequence[LayerRow], only_adding: bool = False) -> None:
        """Show these layers; B's paths have a column where any differs from A's, weights where they are compared."""
        shown = [row for row in rows if adds(row.layer) or not only_adding]
        self.cells.set_rows(shown)
        same = all(row.layer.a == row.layer.b for row in rows)
        self.setColumnHidden(LAYER_B, same)
        self.setColumnHidden(WEIGHTS, all(row.moved is None for row in rows))
        self._measure()

    def _measure(self) -> None:
        """Measure the columns again, at the text size in force."""
        self._needed = {}
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            QTimer.singleShot(
                0, self, self._measure
            )  # once the heading has its font too

    def choose(self, path: str) -> bool:
        """Select the first call of a module of A; return whether it is listed."""
        for at, row in enumerate(self.rows):
            if row.layer.a == path:
                self.selectRow(at)
                self._center()
                QTimer.singleShot(0, self, self._center)  # once it has its height
                return True
        return False

    def _center(self) -> None:
        if self.currentIndex().isValid():
            self.scrollTo(
                self.currentIndex().siblingAtColumn(LAYER_A),
                QTableView.ScrollHint.PositionAtCenter,
            )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Make the columns as wide as their content; what room is left goes to the paths."""
        if not self.isVisible():
            return
        shown = [
            column for column in range(len(COLUMNS)) if not self.isColumnHidden(column)
        ]
        header = self.horizontalHeader()
        if self._needed.keys() != set(shown):
            self._needed = {
                column: max(
                    self.sizeHintForColumn(column) + 4, header.sectionSizeHint(column)
                )
                for column in shown
            }
        widths = self._needed
        if sum(widths.values()) > self.viewport().width():
            widths = {
                column: min(width, LIMITS.get(column, width))
                for column, width in widths.items()
            }
        spare = max(self.viewport().width() - sum(widths.values()), 0)
        for column in shown:
            self.setColumnWidth(column, widths[column] + spare // len(shown))
