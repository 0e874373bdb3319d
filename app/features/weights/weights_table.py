"""The table that compares a state_dict with the net: a row per key, how it fits, and whether it is loaded."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHeaderView, QTableView, QWidget

from app.project.weights.state_dict_diff import (
    DTYPE,
    MISSING,
    SAME,
    SHAPE,
    UNEXPECTED,
    Diff,
    Infos,
    KeyRow,
)
from app.training.setup.weights_header import TensorInfo
from app.util.formatting import shape_text
from app.views.ui import icons, theme
from app.views.ui.tables import ColumnsModel, Index, plain, selected_rows

KEY, FILE, NET, STATE = range(4)
COLUMNS = ("Key", "In the file", "In the network", "")
ALONE = ("Key", "Shape", "dtype", "Bytes")
# Each state by icon, colour and text: never by colour alone.
STATES = {
    SAME: ("check", "run", "Fits"),
    DTYPE: ("check", "warn", "Fits, converted"),
    SHAPE: ("error", "error", "Another shape"),
    MISSING: ("remove", "warn", "Not in the file"),
    UNEXPECTED: ("add", "text3", "Not in the network"),
}
ROW_HEIGHT = 24


class WeightsModel(ColumnsModel):
    """Rows of a difference, or of a file alone, filtered. `taken` are the keys that are ticked."""

    ticked = Signal()
    heads = COLUMNS

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.found = Diff(())
        self.rows: list[KeyRow] = []
        self.taken: set[str] = set()
        self.alone = False

    def set_diff(self, difference: Diff) -> None:
        """Show a difference; all that fits is ticked."""
        self._reset(difference, set(difference.fitting), False)

    def set_infos(self, infos: Infos) -> None:
        """Show a file without comparing it."""
        rows = tuple(
            KeyRow(key, UNEXPECTED, None, info, key) for key, info in infos.items()
        )
        self._reset(Diff(rows), set(), True)

    def _reset(self, difference: Diff, ticked: set[str], alone: bool) -> None:
        self.beginResetModel()
        self.found, self.taken, self.alone, self.heads = (
            difference,
            ticked,
            alone,
            ALONE if alone else COLUMNS,
        )
        self.rows = list(difference.rows)
        self.endResetModel()
        self.ticked.emit()

    def show_only(self, terms: list[str], kind: str) -> None:
        """Filter the rows: keys that contain all words, of one kind or of all ("")."""
        self.beginResetModel()
        kinds = (SAME, DTYPE) if kind == SAME else (kind,)
        self.rows = [
            row
            for row in self.found.rows
            if (not kind or row.kind in kinds)
            and all(word in f"{row.key} {row.source}".casefold() for word in terms)
        ]
        self.endResetModel()

    def tick(self, rows: list[KeyRow], on: bool) -> None:
        """Take rows, or leave them, as far as they fit."""
        keys = {row.key for row in rows if row.fits}
        self.taken = self.taken | keys if on else self.taken - keys
        if self.rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.rows) - 1, 0))
        self.ticked.emit()

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = super().flags(index)
        if not self.alone and index.column() == KEY and self.rows[index.row()].fits:
            flags |= Qt.ItemFlag.ItemIsUserCheckable
        return flags

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row, column = self.rows[index.row()], index.column()
        icon, color, state_text = STATES[row.kind]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return self._text(row, column, state_text)
        if (
            role == Qt.ItemDataRole.CheckStateRole
            and column == KEY
            and not self.alone
            and row.fits
        ):
            return (
                Qt.CheckState.Checked
                if row.key in self.taken
                else Qt.CheckState.Unchecked
            )
        if (
            role == Qt.ItemDataRole.DecorationRole
            and column == STATE
            and not self.alone
        ):
            return icons.icon(icon, color, size=14)
        if role == Qt.ItemDataRole.ForegroundRole:
            now = theme.current()
            if column == STATE and not self.alone:
                return now.color(color)
            return (
                now.text
                if column == KEY and (row.fits or self.alone)
                else now.text2
                if row.fits
                else now.text3
            )
        if role == Qt.ItemDataRole.FontRole and not (
            column == STATE and not self.alone
        ):
            return theme.font("code")
        if role == Qt.ItemDataRole.ToolTipRole:
            return (
                f"{row.source} in the file"
                if column == KEY and row.source not in ("", row.key)
                else None
            )
        return None

    def _text(self, row: KeyRow, column: int, state_text: str) -> str:
        if self.alone:
            theirs = row.theirs or TensorInfo((), "", 0)
            return (row.key, sizes(theirs), theirs.dtype, f"{theirs.bytes:,}")[column]
        if column == KEY:
            return (
                row.key
                if row.source in ("", row.key)
                else f"{row.key}  ←  {row.source}"
            )
        if column == STATE:
            return state_text
        info = row.theirs if column == FILE else row.ours
        return str(info) if info is not None else "–"

    def setData(
        self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole
    ) -> bool:
        if role != Qt.ItemDataRole.CheckStateRole or not index.isValid():
            return False
        self.tick(
            [self.rows[index.row()]], Qt.CheckState(value) == Qt.CheckState.Checked
        )
        return True


def sizes(info: TensorInfo) -> str:
    """Format a shape.

    >>> sizes(TensorInfo((3, 2), "float32", 24))
    '3×2'
    """
    return shape_text(info.shape, "one number")


class WeightsTable(QTableView):
    """The table. Space ticks the rows that are selected, or takes the ticks away."""

    def __init__(self, model: WeightsModel) -> None:
        super().__init__()
        self.rows = model
        self.setModel(model)
        plain(self, "Tensors of the file and of the network", ROW_HEIGHT)
        self.setFrameShape(QFrame.Shape.StyledPanel)
        header = self.horizontalHeader()
        header.setResizeContentsPrecision(200)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)

    def fit(self) -> None:
        """Fit the columns to their content; the key column takes the remaining width."""
        widths = [
            max(
                self.sizeHintForColumn(column) + 18,
                self.horizontalHeader().sectionSizeHint(column) + 12,
            )
            for column in range(len(COLUMNS))
        ]
        bar = self.verticalScrollBar().sizeHint().width()
        room = self.width() - 2 * self.frameWidth() - bar - sum(widths[1:])
        for column, width in enumerate((max(widths[0], room), *widths[1:])):
            self.setColumnWidth(column, width)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        chosen = [self.rows.rows[row] for row in selected_rows(self)]
        if event.key() == Qt.Key.Key_Space and chosen and not self.rows.alone:
            fitting = [row for row in chosen if row.fits]
            self.rows.tick(
                fitting, not all(row.key in self.rows.taken for row in fitting)
            )
        else:
            super().keyPressEvent(event)
