"""The table of matched layers: sorted by any column; those that add to the error are marked, those that inherit it are
quieter."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QEvent, QModelIndex, QPoint, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication, QKeySequence, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QMenu, QTableView, QWidget

from app.features.compare import layer_rows
from app.features.compare.layer_rows import (
    CLASS,
    COLUMNS,
    LAYER_A,
    LAYER_B,
    MEANINGS,
    NUMBERS,
    WEIGHTS,
    LayerRows,
)
from app.features.compare.values import Layer
from app.views.ui import icons, theme
from app.views.ui.tables import ColumnsModel, Index, RowsTable, selected_rows, side

ROW_HEIGHT = 24
LEAST_ROWS = 3  # of which the first is in sight in a small window
SAMPLED = 40  # rows that are measured for the widths of the columns
LONGEST, WIDEST = (
    260,
    92,
)  # pixels of a path and of a class, where there is no room for more
LIMITS = {LAYER_A: LONGEST, LAYER_B: LONGEST, CLASS: WIDEST}


class LayersModel(ColumnsModel):
    """The places of the layers that are shown, in the order of a column."""

    heads, figures, meanings = COLUMNS, NUMBERS, MEANINGS

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.layers = LayerRows()
        self.rows: list[int] = []
        self.only_adding = False
        self._column, self._descending = -1, False

    def set_layers(self, layers: LayerRows, only_adding: bool) -> None:
        """Show other layers in the current order."""
        self.beginResetModel()
        self.layers, self.only_adding = layers, only_adding
        self.rows = layers.places(self._column, self._descending, only_adding)
        self.endResetModel()

    def layer_at(self, row: int) -> Layer:
        return self.layers.layers[self.rows[row]]

    def sort(
        self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder
    ) -> None:
        """Sort by a column; -1 is the order of the calls."""
        self._column, self._descending = column, order == Qt.SortOrder.DescendingOrder
        self.layoutAboutToBeChanged.emit()
        old = self.persistentIndexList()
        before = [self.rows[index.row()] for index in old]
        self.rows = self.layers.places(column, self._descending, self.only_adding)
        needed = set(before)
        at = {
            layer_index: row
            for row, layer_index in enumerate(self.rows)
            if layer_index in needed
        }
        new = [
            self.index(at[layer_index], index.column())
            for layer_index, index in zip(before, old, strict=True)
        ]
        self.changePersistentIndexList(old, new)
        self.layoutChanged.emit()

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        layer, column = self.layer_at(index.row()), index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self.layers.text(self.rows[index.row()], column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return side(column in NUMBERS)
        tone = layer_rows.tone_of(layer, column)
        if role == Qt.ItemDataRole.ForegroundRole:
            now = theme.current()
            return {"adds": now.text, "inherited": now.text3}.get(tone, now.text2)
        if role == Qt.ItemDataRole.FontRole and tone == "adds":
            return theme.font("section")
        if role == Qt.ItemDataRole.DecorationRole and column == LAYER_A:
            return (
                icons.icon("warning", "warn", size=14)
                if tone == "adds"
                else icons.icon("block", "text4", size=14)
            )
        if role == Qt.ItemDataRole.ToolTipRole:
            return layer_rows.words_of(layer) or None
        if role == Qt.ItemDataRole.AccessibleTextRole and column == LAYER_A and tone:
            return f"{layer_rows.text_of(layer, column)}, {tone}"
        return None


class LayerTable(RowsTable):
    """`chosen(layer)` is emitted when another row is selected, `opened(layer)` to go to it. Ctrl+C copies the rows."""

    chosen = Signal(object)
    opened = Signal(object)

    def __init__(self) -> None:
        self.layers = LayersModel()
        super().__init__(self.layers, "Matched layers", ROW_HEIGHT)
        self.layers.setParent(self)
        self.sort_by_header(SAMPLED)
        self._needed: dict[
            int, int
        ] = {}  # width of each column; empty until they are measured
        self.copied.connect(self.copy)
        self.rowOpened.connect(
            lambda index: self.opened.emit(self.layers.layer_at(index.row()))
        )
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._show_menu)
        self.selectionModel().currentRowChanged.connect(self._row_changed)
        theme.manager().changed.connect(self.viewport().update)

    def minimumSizeHint(self) -> QSize:
        """Ask for whole rows below the heading: a table of none shows nothing."""
        rows = LEAST_ROWS * self.verticalHeader().defaultSectionSize()
        bar = self.horizontalScrollBar().sizeHint().height()
        return QSize(80, self.horizontalHeader().sizeHint().height() + rows + bar)

    def set_layers(self, layers: LayerRows, only_adding: bool = False) -> None:
        """Show these layers; B's paths have a column where any differs from A's, weights where they are compared."""
        self.layers.set_layers(layers, only_adding)
        same = all(layer.a == layer.b for layer in layers.layers)
        self.setColumnHidden(LAYER_B, same)
        self.setColumnHidden(WEIGHTS, not layers.moved)
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
        for row, layer_index in enumerate(self.layers.rows):
            if self.layers.layers.layers[layer_index].a == path:
                self.selectRow(row)
                self._center()
                QTimer.singleShot(
                    0, self, self._center
                )  # once the table has its height
                return True
        return False

    def _center(self) -> None:
        if self.currentIndex().isValid():
            self.scrollTo(
                self.currentIndex().siblingAtColumn(LAYER_A),
                QTableView.ScrollHint.PositionAtCenter,
            )

    def current(self) -> Layer | None:
        """Return the selected layer."""
        index = self.currentIndex()
        return self.layers.layer_at(index.row()) if index.isValid() else None

    def copy(self) -> None:
        """Copy the selected rows as text; all without a selection."""
        rows = selected_rows(self) or range(len(self.layers.rows))
        text = layer_rows.as_text(
            self.layers.layers, [self.layers.rows[row] for row in rows]
        )
        QGuiApplication.clipboard().setText(text)

    def _row_changed(self, index: QModelIndex, _before: QModelIndex) -> None:
        if index.isValid():
            self.chosen.emit(self.layers.layer_at(index.row()))

    def _show_menu(self, spot: QPoint) -> None:
        index = self.indexAt(spot)
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if index.isValid():
            layer = self.layers.layer_at(index.row())
            name = layer_rows.name_of(layer.a)
            menu.addAction(
                icons.icon("frame"), f"Show {name}", lambda: self.opened.emit(layer)
            )
        copy = menu.addAction(icons.icon("copy"), "Copy", self.copy)
        copy.setShortcut(QKeySequence(QKeySequence.StandardKey.Copy))
        menu.popup(self.viewport().mapToGlobal(spot))

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
