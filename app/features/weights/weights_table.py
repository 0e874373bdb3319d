"""The table that compares a state_dict with the net: a row per key, how it fits, and whether it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHeaderView, QWidget

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
from app.util.columns import Column
from app.util.formatting import shape_text
from app.views.ui.tables import Index, RowsModel, Table

KEY, STATE = 0, 3
# Each state by icon, colour and text: never by colour alone.
STATES = {
    SAME: ("check", "run", "Fits"),
    DTYPE: ("check", "warn", "Fits, converted"),
    SHAPE: ("error", "error", "Another shape"),
    MISSING: ("remove", "warn", "Not in the file"),
    UNEXPECTED: ("add", "text3", "Not in the network"),
}


def sizes(info: TensorInfo) -> str:
    """Format a shape.

    >>> sizes(TensorInfo((3, 2), "float32", 24))
    '3×2'
    """
    return shape_text(info.shape, "one number")


def _code(title: str, text: Callable[[KeyRow], str], **more: Any) -> Column:
    def color(row: KeyRow) -> str:
        return "text2" if row.fits else "text3"

    return Column(title, text, font=lambda _row: "code", **{"color": color, **more})


def _renamed(row: KeyRow) -> bool:
    return row.source not in ("", row.key)


def _info(info: TensorInfo | None) -> str:
    return "–" if info is None else str(info)


def _theirs(row: KeyRow) -> TensorInfo:
    return row.theirs or TensorInfo((), "", 0)


COMPARED = (
    _code(
        "Key",
        lambda row: f"{row.key}  ←  {row.source}" if _renamed(row) else row.key,
        color=lambda row: "text" if row.fits else "text3",
        tip=lambda row: f"{row.source} in the file" if _renamed(row) else "",
    ),
    _code("In the file", lambda row: _info(row.theirs)),
    _code("In the network", lambda row: _info(row.ours)),
    Column(
        "",
        lambda row: STATES[row.kind][2],
        color=lambda row: STATES[row.kind][1],
        icon=lambda row: STATES[row.kind][:2],
    ),
)
ALONE = (
    _code("Key", lambda row: row.key, color=lambda _row: "text"),
    _code("Shape", lambda row: sizes(_theirs(row))),
    _code("dtype", lambda row: _theirs(row).dtype),
    _code("Bytes", lambda row: f"{_theirs(row).bytes:,}"),
)


class WeightsModel(RowsModel):
    """Rows of a difference, or of a file alone, filtered. `taken` are the keys that are ticked."""

    ticked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(COMPARED, parent=parent)
        self.found = Diff(())
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
        self.found, self.taken, self.alone = difference, ticked, alone
        self.set_rows(difference.rows, ALONE if alone else COMPARED)
        self.ticked.emit()

    def show_only(self, terms: list[str], kind: str) -> None:
        """Filter the rows: keys that contain all words, of one kind or of all ("")."""
        kinds = (SAME, DTYPE) if kind == SAME else (kind,)
        self.set_rows(
            [
                row
                for row in self.found.rows
                if (not kind or row.kind in kinds)
                and all(word in f"{row.key} {row.source}".casefold() for word in terms)
            ]
        )

    def tick(self, rows: list[KeyRow], on: bool) -> None:
        """Take rows, or leave them, as far as they fit."""
        keys = {row.key for row in rows if row.fits}
        self.taken = self.taken | keys if on else self.taken - keys
        self.rows_changed(0, len(self.rows) - 1)
        self.ticked.emit()

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = super().flags(index)
        if self._can_be_ticked(index):
            flags |= Qt.ItemFlag.ItemIsUserCheckable
        return flags

    def _can_be_ticked(self, index: Index) -> bool:
        compared = not self.alone and index.isValid() and index.column() == KEY
        return compared and self.rows[index.row()].fits

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.CheckStateRole and self._can_be_ticked(index):
            ticked = self.rows[index.row()].key in self.taken
            return Qt.CheckState.Checked if ticked else Qt.CheckState.Unchecked
        return super().data(index, role)

    def setData(
        self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole
    ) -> bool:
        if role != Qt.ItemDataRole.CheckStateRole or not index.isValid():
            return False
        self.tick(
            [self.rows[index.row()]], Qt.CheckState(value) == Qt.CheckState.Checked
        )
        return True


class WeightsTable(Table):
    """The table. Space ticks the rows that are selected, or takes the ticks away."""

    def __init__(self, model: WeightsModel) -> None:
        super().__init__(model, "Tensors of the file and of the network")
        self.weights = model
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
            for column in range(len(COMPARED))
        ]
        bar = self.verticalScrollBar().sizeHint().width()
        room = self.width() - 2 * self.frameWidth() - bar - sum(widths[1:])
        for column, width in enumerate((max(widths[0], room), *widths[1:])):
            self.setColumnWidth(column, width)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        chosen = self.selected
        if event.key() == Qt.Key.Key_Space and chosen and not self.weights.alone:
            fitting = [row for row in chosen if row.fits]
            ticked = all(row.key in self.weights.taken for row in fitting)
            self.weights.tick(fitting, not ticked)
        else:
            super().keyPressEvent(event)
