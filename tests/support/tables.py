"""What a table shows."""

from __future__ import annotations

from PySide6.QtWidgets import QTableView


def texts_of(table: QTableView) -> list[list[str]]:
    """The texts of a table, row by row."""
    model = table.model()
    return [
        [model.index(row, column).data() for column in range(model.columnCount())]
        for row in range(model.rowCount())
    ]
