"""The table of per-class metrics: precision, recall, F1 and support, sortable."""

from __future__ import annotations

import math

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView

from app.training.evaluation.result import ClassRow
from app.util import formatting
from app.util.columns import Column
from app.views.ui import theme
from app.views.ui.tables import SAMPLED, Table

ROOM = 22  # px beside the words of a header, which its arrow needs
NAME_ROOM = 10  # px beside a class name
LETTERS = 18  # of a class name that has room, in those of 0


def _fraction(title: str, name: str, meaning: str) -> Column:
    def value(row: tuple[int, ClassRow]) -> float:
        return float(getattr(row[1], name))

    def text(row: tuple[int, ClassRow]) -> str:
        return "–" if math.isnan(value(row)) else f"{value(row):.3f}"

    return Column(title, text, meaning, True, value)


# Of rows of a class's number and its figures.
COLUMNS = (
    Column(
        "Class",
        lambda row: row[1].name,
        "Class name in the data",
        value=lambda row: row[0],
    ),
    _fraction(
        "Precision",
        "precision",
        "Fraction of predictions of this class that are correct",
    ),
    _fraction(
        "Recall",
        "recall",
        "Fraction of samples of this class that are predicted correctly",
    ),
    _fraction("F1", "f1", "Harmonic mean of precision and recall"),
    Column(
        "Support",
        lambda row: formatting.grouped_digits(row[1].support),
        "Number of samples of this class",
        True,
        lambda row: row[1].support,
        color=lambda _row: "text2",
    ),
)


class ClassTable(Table):
    """The classes in their order, or by a column."""

    def __init__(self) -> None:
        super().__init__(COLUMNS, "Classes", 23, 6)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setStretchLastSection(False)
        self._numbers: list[int] = []
        self.cells.modelReset.connect(self._measure)
        self._measure()
        theme.manager().changed.connect(self._measure)
        header.setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self.setSortingEnabled(True)

    def _measure(self) -> None:
        """Make the columns as wide as their heads, figures and names at the text size in force."""
        heads, texts = QFontMetrics(theme.font("label")), self.fontMetrics()
        widest = texts.horizontalAdvance("0.000")
        self._numbers = [
            max(heads.horizontalAdvance(column.title), widest) + ROOM
            for column in COLUMNS[1:]
        ]
        names = (row[1].name for row in self.rows[:SAMPLED])
        widest = max(map(texts.horizontalAdvance, names), default=0)
        widest = min(widest, texts.horizontalAdvance(LETTERS * "0"))
        head = heads.horizontalAdvance(COLUMNS[0].title)
        self._least = max(widest + NAME_ROOM, head + ROOM)
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
