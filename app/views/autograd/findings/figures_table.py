"""Table of figures: few rows, selected whole, columns as wide as their content."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)

from app.views.ui import theme
from app.views.ui.present import present
from app.views.ui.tables import plain, side

ROOM = 22  # px beside the text of a column
WIDEST = 300
LINE = 24


class FiguresTable(QTableWidget):
    """Texts in columns, those in `figures` in the code font at right."""

    def __init__(
        self,
        heads: Sequence[str],
        name: str,
        figures: Collection[int],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(0, len(heads), parent)
        self._heads, self._figures = tuple(heads), frozenset(figures)
        plain(self, name, LINE)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        self.setHorizontalHeaderLabels(list(heads))
        for column in range(len(heads)):
            present(self.horizontalHeaderItem(column)).setTextAlignment(
                side(column in self._figures)
            )

    def set_rows(
        self, rows: Sequence[Sequence[str]], tones: Sequence[str] = ()
    ) -> None:
        """Show these texts; `tones` colours rows by a token of the theme, "" for plain ones."""
        chosen = self.currentRow()
        self.setRowCount(len(rows))
        code, plain = theme.font("formula"), self.font()
        for row, texts in enumerate(rows):
            for column, text in enumerate(texts):
                item = QTableWidgetItem(text)
                item.setTextAlignment(side(column in self._figures))
                item.setFont(code if column in self._figures else plain)
                item.setToolTip(text)
                if tones and tones[row]:
                    item.setForeground(theme.current().color(tones[row]))
                self.setItem(row, column, item)
        for column, head in enumerate(self._heads):
            metrics = QFontMetrics(code if column in self._figures else plain)
            widths = [metrics.horizontalAdvance(row[column]) for row in rows]
            least = QFontMetrics(self.horizontalHeader().font()).horizontalAdvance(head)
            self.setColumnWidth(column, min(max([least, *widths]), WIDEST) + ROOM)
        if 0 <= chosen < len(rows):
            self.selectRow(chosen)

    def whole_width(self) -> int:
        """Return the total width of the columns, px."""
        return self.horizontalHeader().length() + 4

    def fit_height(self) -> None:
        """Fix the height to that of all rows: the page scrolls, not the table."""
        lines = self.rowCount() * self.verticalHeader().defaultSectionSize()
        self.setFixedHeight(lines + self.horizontalHeader().sizeHint().height() + 4)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
