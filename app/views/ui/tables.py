"""All tables: one model over columns, and one view that sorts, copies and fits them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QEvent,
    QMimeData,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QPoint,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import QFontMetrics, QGuiApplication, QIcon, QKeyEvent, QKeySequence
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHeaderView,
    QMenu,
    QTableView,
    QWidget,
)

from app.util.columns import Column, as_csv, as_text, in_order, text_columns
from app.views.ui import icons, theme

Index = QModelIndex | QPersistentModelIndex
Role = Qt.ItemDataRole
ROOM = 22  # px beside the text of a column
WIDEST = 300  # px of the text of a figure
SAMPLED = 200  # rows that the width of a column is measured on


def side(right: bool) -> Qt.AlignmentFlag:
    """Return a cell's alignment: numbers right, text left."""
    across = Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
    return across | Qt.AlignmentFlag.AlignVCenter


def selected_rows(table: QTableView) -> list[int]:
    """Return the selected rows of a table whose cells are selected by rows, from top to bottom.

    Qt's `selectedRows` asks a model for the flags of every cell of them, and one in Python is slow to answer.
    """
    selection = table.selectionModel().selection()
    ranges = [selection.at(index) for index in range(selection.count())]
    return sorted({row for of in ranges for row in range(of.top(), of.bottom() + 1)})


class RowsModel(QAbstractTableModel):
    """Rows in their order, or by a column. Rows of one `identity` are the same row with other values."""

    identity: Callable[[Any], Any] | None = None

    def __init__(
        self,
        columns: Sequence[Column],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.columns: Sequence[Column] = columns
        self.rows: list[Any] = []
        self.sorted_by: tuple[int, bool] | None = None  # and whether it descends
        self._natural: Sequence[Any] = self.rows

    def set_rows(
        self, rows: Sequence[Any], columns: Sequence[Column] | None = None
    ) -> None:
        """Show other rows in the current order."""
        rows = list(rows)
        shown = [rows[at] for at in self._order(rows)]
        if columns is None and self._are_the_same(shown):
            self._natural, self.rows = rows, shown
            self.rows_changed(0, len(shown) - 1)
            return
        self.beginResetModel()
        self.columns = self.columns if columns is None else columns
        self._natural, self.rows = rows, shown
        self.endResetModel()

    def _are_the_same(self, rows: Sequence[Any]) -> bool:
        """Return whether rows differ in their values alone: the selection stays as it is then."""
        if self.identity is None or not rows:
            return False
        return [self.identity(row) for row in rows] == [
            self.identity(row) for row in self.rows
        ]

    def rows_changed(self, first: int, last: int) -> None:
        """Report that the values of rows have changed."""
        if last >= first:
            across = len(self.columns) - 1
            self.dataChanged.emit(self.index(first, 0), self.index(last, across))

    def _order(self, rows: Sequence[Any]) -> Sequence[int]:
        if self.sorted_by is None:
            return range(len(rows))
        column, descending = self.sorted_by
        values = [self.columns[column].value_of(row) for row in rows]
        return in_order(values, descending)

    def sort(
        self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder
    ) -> None:
        """Sort by a column; -1 restores the order of the rows."""
        descending = order == Qt.SortOrder.DescendingOrder
        self.sorted_by = (column, descending) if column >= 0 else None
        self.layoutAboutToBeChanged.emit()
        before = self.persistentIndexList()
        wanted = [id(self.rows[index.row()]) for index in before]
        self.rows = [self._natural[at] for at in self._order(self._natural)]
        places = {id(row): at for at, row in enumerate(self.rows)}
        after = [
            self.index(places[key], index.column())
            for key, index in zip(wanted, before, strict=True)
        ]
        self.changePersistentIndexList(before, after)
        self.layoutChanged.emit()

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.columns)

    def headerData(
        self,
        section: int,
        orientation: Qt.Orientation,
        role: int = Role.DisplayRole,
    ) -> Any:
        within = 0 <= section < len(self.columns)
        if orientation != Qt.Orientation.Horizontal or not within:
            return None
        column = self.columns[section]
        if role == Role.TextAlignmentRole:
            return side(column.number)
        if role == Role.ToolTipRole:
            return column.meaning or None
        if role == Role.FontRole:  # the header paints on a child that has the body's
            return theme.font("caption")
        return column.title if role == Role.DisplayRole else None

    def data(self, index: Index, role: int = Role.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row, column = self.rows[index.row()], self.columns[index.column()]
        match role:
            case Role.DisplayRole | Role.EditRole:
                return column.text(row)
            case Role.TextAlignmentRole:
                return side(column.number)
            case Role.ToolTipRole:
                return (column.tip and column.tip(row)) or column.text(row)
            case Role.ForegroundRole if column.color:
                token = column.color(row)
                return theme.current().color(token) if token else None
            case Role.FontRole if column.font:
                font = column.font(row)
                return theme.font(font) if font else None
            case Role.DecorationRole if column.icon:
                return _icon(*column.icon(row))
            case Role.AccessibleTextRole if column.spoken:
                return column.spoken(row)
        return None


def _icon(name: str = "", token: str | None = None) -> QIcon | None:
    return icons.icon(name, token, 14) if name else None


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


class Table(QTableView):
    """Rows that are chosen whole. `chosen(row)` comes when one is gone to, `opened(row)` by Enter and a double click,
    and by the menu if `opens` names what it does with a row. Ctrl+C, which is the table's own while it has the focus,
    and the menu copy rows as text and as CSV.

    Rows are at least `height` px high, and `room` more than the text.
    """

    chosen = Signal(object)
    opened = Signal(object)
    opens: Callable[[Any], str] | None = None

    def __init__(
        self,
        model: RowsModel | Sequence[Column],
        name: str,
        height: int = 24,
        room: int = 8,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.cells = model if isinstance(model, RowsModel) else RowsModel(model)
        self.cells.setParent(self)
        self.setModel(self.cells)
        self.setAccessibleName(name)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        RowHeight(self, height, room)
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.doubleClicked.connect(self._open)
        self.selectionModel().currentRowChanged.connect(self._choose)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._show_menu)

    # -- rows ----------------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> list[Any]:
        """The rows, as they are sorted."""
        return self.cells.rows

    @property
    def selected(self) -> list[Any]:
        """The selected rows, from top to bottom."""
        return [self.rows[at] for at in selected_rows(self) if at < len(self.rows)]

    @property
    def current(self) -> Any:
        """The row that was gone to; None for none."""
        return self._row_at(self.currentIndex())

    def _row_at(self, index: QModelIndex) -> Any:
        """Return the row of a cell; None for a line that stands in place of rows."""
        return self.rows[index.row()] if 0 <= index.row() < len(self.rows) else None

    def _open(self, index: QModelIndex) -> None:
        if (row := self._row_at(index)) is not None:
            self.opened.emit(row)

    def _choose(self, index: QModelIndex, _before: QModelIndex) -> None:
        if (row := self._row_at(index)) is not None:
            self.chosen.emit(row)

    def choose_quietly(self, row: Any) -> None:
        """Go to a row without a word of it; None for no row."""
        self.selectionModel().blockSignals(True)
        if row is None:
            self.clearSelection()
        else:
            self.selectRow(self.rows.index(row))
        self.selectionModel().blockSignals(False)
        self.viewport().update()

    # -- columns -------------------------------------------------------------------------------------------------------

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

    def fit_columns(self, widest: int = 10_000, room: int = ROOM) -> None:
        """Make columns as wide as their texts, up to a bound, now and at every text size."""
        self._fitted = (widest, room)
        heads = self.horizontalHeader().fontMetrics()
        for at, column in enumerate(self.cells.columns):
            widths = [heads.horizontalAdvance(column.title)]
            for row in self.rows[:SAMPLED]:
                font = column.font(row) if column.font else ""
                metrics = QFontMetrics(theme.font(font)) if font else self.fontMetrics()
                widths.append(metrics.horizontalAdvance(column.text(row)))
            self.setColumnWidth(at, min(max(widths), widest) + room)

    _fitted: tuple[int, int] | None = None

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange and self._fitted is not None:
            fitted = self._fitted  # once the heading has its font too
            QTimer.singleShot(0, self, lambda: self.fit_columns(*fitted))

    @property
    def whole_height(self) -> int:
        """The height that shows all rows, px."""
        rows = len(self.rows) * self.verticalHeader().defaultSectionSize()
        heading = self.horizontalHeader().sizeHint().height()
        return heading + rows + 2 * self.frameWidth()

    # -- copies --------------------------------------------------------------------------------------------------------

    def _copied_columns(self) -> list[Column]:
        columns = enumerate(self.cells.columns)
        return [column for at, column in columns if not self.isColumnHidden(at)]

    def copied_text(self, rows: Sequence[Any]) -> str:
        """Return rows as text."""
        return as_text(self._copied_columns(), rows)

    def copy(self) -> None:
        """Put the selected rows on the clipboard, as text and as CSV; all where none is selected."""
        self._copy(self.selected or self.rows)

    def copy_all(self) -> None:
        self._copy(self.rows)

    def _copy(self, rows: Sequence[Any]) -> None:
        data = QMimeData()
        data.setText(self.copied_text(rows))
        data.setData("text/csv", as_csv(self._copied_columns(), rows).encode())
        QGuiApplication.clipboard().setMimeData(data)

    def copy_csv(self) -> None:
        """Copy all rows as CSV."""
        text = as_csv(self._copied_columns(), self.rows)
        QGuiApplication.clipboard().setText(text)

    def fill_menu(self, menu: QMenu, row: Any) -> None:
        """Add what can be done with a row, None for none, and with all."""
        if row is not None and self.opens is not None:
            text = self.opens(row)
            menu.addAction(icons.icon("frame"), text, lambda: self.opened.emit(row))
            menu.addSeparator()
        copy = menu.addAction(icons.icon("copy"), "Copy", self.copy)
        copy.setShortcut(QKeySequence(QKeySequence.StandardKey.Copy))
        menu.addAction("Copy all", self.copy_all)
        menu.addAction("Copy all as CSV", self.copy_csv)

    def _show_menu(self, spot: QPoint) -> None:
        menu = QMenu(self)
        self.fill_menu(menu, self._row_at(self.indexAt(spot)))
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self.viewport().mapToGlobal(spot))

    def event(self, event: QEvent) -> bool:
        override = event.type() == QEvent.Type.ShortcutOverride
        if override and isinstance(event, QKeyEvent):
            keys = QKeySequence.StandardKey
            if event.matches(keys.Copy) or event.matches(keys.SelectAll):
                event.accept()
                return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
        elif enter and self.currentIndex().isValid():
            self._open(self.currentIndex())
        else:
            super().keyPressEvent(event)


class FiguresTable(Table):
    """Few rows of texts, one of which can be chosen; the page scrolls, not the table."""

    def __init__(
        self, heads: Sequence[str], name: str, numbers: Collection[int]
    ) -> None:
        super().__init__(text_columns(heads, numbers), name)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)

    def set_rows(self, rows: Sequence[Sequence[str]]) -> None:
        """Show these texts, each row with the token of its colour behind them if it has one."""
        at = self.currentIndex().row()
        self.cells.set_rows(rows)
        self.fit_columns(WIDEST)
        if 0 <= at < len(rows):
            self.selectRow(at)

    @property
    def whole_width(self) -> int:
        """The width that shows all columns, px."""
        return self.horizontalHeader().length() + 4

    def fit_height(self) -> None:
        """Show all rows."""
        self.setFixedHeight(self.whole_height + 4)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
