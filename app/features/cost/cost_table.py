"""The page "Cost": a sortable table of the cost of each node, with a total row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from PySide6.QtCore import (
    QEvent,
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    Qt,
    Signal,
)
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QSizePolicy,
    QStackedLayout,
    QWidget,
)

from app.builder.catalog.catalog import Catalog
from app.features.cost import cost_rows
from app.features.cost.cost_rows import COLUMNS, CostRow
from app.util.columns import text_columns
from app.views.selection import Selection
from app.views.ui import theme
from app.views.ui.layouts import vbox
from app.views.ui.tables import RowsModel, Table, selected_rows
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import Divider, label
from app.views.ui.widgets.segmented import Segmented

if TYPE_CHECKING:
    from app.builder.shapes.network_cost import NetworkCost

ROW_HEIGHT = 26
LEAST = 26  # px, of the height of the table; in a lower page the total stays in sight
_ARROW = 22
TOTALS = [
    replace(column, number=cost.number, font=lambda _row: "section")
    for column, cost in zip(
        text_columns([cost.title for cost in COLUMNS]), COLUMNS, strict=True
    )
]
NOT_YET = ("Not computed yet", "The cost of each layer is shown here once computed.")


class CostModel(RowsModel):
    """Nodes in running order, or by a column."""

    def identity(self, row: CostRow) -> str:
        return row.node

    def headerData(
        self,
        section: int,
        orientation: Qt.Orientation,
        role: int = Qt.ItemDataRole.DisplayRole,
    ) -> Any:
        header = super().headerData(section, orientation, role)
        column = self.sorted_by[0] if self.sorted_by is not None else -1
        by_number = section == column and self.columns[column].number
        if header is not None and role == Qt.ItemDataRole.DisplayRole and by_number:
            return (
                f"{header}\u2003"  # room for the sort arrow, which would cover the text
            )
        return header


class _Table(Table):
    """Tells where the mouse is. All rows are copied with the totals."""

    left = Signal()
    totals: Sequence[str] = ("",) * len(COLUMNS)

    def __init__(self, model: RowsModel, name: str) -> None:
        super().__init__(model, name, ROW_HEIGHT)
        self.setMouseTracking(True)

    def opens(self, row: CostRow) -> str:
        return f"Show {row.name}"

    def copied_text(self, rows: Sequence[Any]) -> str:
        totals = [self.totals] if len(rows) == len(self.rows) else []
        return "\n".join([super().copied_text(rows), *map("\t".join, totals)])

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.left.emit()


class CostTable(QWidget):
    """The page. `jump_requested(node)` requests to scroll a node into view; `heat_changed` reports a change of
    `heat.value()`, the quantity of the strips on the canvas: "compute" or "parameters".
    """

    jump_requested = Signal(str)
    heat_changed = Signal(str)

    def __init__(self, catalog: Catalog, selection: Selection) -> None:
        super().__init__()
        self._catalog, self._selection = catalog, selection
        self._cost: NetworkCost | None = None
        self._shown: NetworkCost | None = None
        self._widened = [0] * len(COLUMNS)
        self._fitting = False
        self._outgrown = False  # by another look, since the columns were measured
        self._following = False
        self.model, self.totals = CostModel(COLUMNS), RowsModel(TOTALS)
        self.table = _Table(self.model, "Cost of each node, for one sample")
        self.total = _Table(self.totals, "Total for one sample")
        self.note = label("", "caption", "text3")
        self.note.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.controls = Segmented(
            [("compute", "Multiply-adds"), ("parameters", "Parameters")],
            "Colours on the canvas",
        )
        self.controls.setToolTip(
            "Quantity that the strips on the canvas show in the Cost overlay"
        )
        self.empty = EmptyState("memory", *NOT_YET)
        self._set_up_tables()
        self._lay_out()
        self._connect()

    def _set_up_tables(self) -> None:
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.sort_by_header()
        self.total.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.total.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.total.horizontalHeader().hide()
        self.total.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.total.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.total.setFixedHeight(self.total.verticalHeader().defaultSectionSize())

    def _lay_out(self) -> None:
        page = QWidget()
        note = vbox(self.note, margins=(8, 2, 8, 0), spacing=0)
        vbox(
            (self.table, 1),
            Divider(color="line2"),
            self.total,
            note,
            on=page,
            margins=(0, 0, 0, 6),
            spacing=0,
        )
        self._stack = QStackedLayout(self)
        self._stack.addWidget(self.empty)
        self.table.setMinimumHeight(LEAST)
        self._stack.addWidget(page)

    def _connect(self) -> None:
        header = self.table.horizontalHeader()
        header.sectionResized.connect(self._resized)
        bars = self.table.horizontalScrollBar(), self.total.horizontalScrollBar()
        bars[0].valueChanged.connect(bars[1].setValue)
        self.table.selectionModel().selectionChanged.connect(self._rows_selected)
        self.table.opened.connect(lambda row: self.jump_requested.emit(row.node))
        self.table.entered.connect(
            lambda index: self._selection.hover(self.model.rows[index.row()].node)
        )
        self.table.left.connect(lambda: self._selection.hover(None))
        self.controls.changed.connect(self.heat_changed)
        header.sortIndicatorChanged.connect(lambda _column, _order: self._fit_columns())
        self._selection.changed.connect(self._follow)
        self.model.modelReset.connect(self._select)
        theme.manager().changed.connect(self._retheme)

    # --- Content

    def set_cost(self, cost: NetworkCost | None) -> None:
        """Show the cost of a network, deferred while the page is hidden; None while it is not known."""
        self._cost = cost
        if cost is None:
            self._shown = None
            self.model.set_rows([])
            self.empty.set_text(*NOT_YET)
            self._stack.setCurrentWidget(self.empty)
        elif self.isVisible():
            self._show(cost)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._cost is not None and self._cost is not self._shown:
            self._show(self._cost)
        elif self._outgrown:
            self._fit_columns()

    def _show(self, cost: NetworkCost) -> None:
        self._shown = cost
        self.model.set_rows(cost_rows.rows_of(cost, self._catalog))
        self.table.totals = cost_rows.total_texts(cost)
        self.totals.set_rows([self.table.totals])
        self.note.setText(cost_rows.note(cost))
        self.note.setToolTip(self.note.text())
        if not cost.nodes:
            self.empty.set_text(
                "Nothing on the canvas yet",
                "The cost of each layer and the total are shown here.",
            )
        self._stack.setCurrentIndex(1 if cost.nodes else 0)
        self._fit_columns()

    def _fit_columns(self) -> None:
        """Make columns as wide as their content, and wider while there is room; what the user widened stays so."""
        self._outgrown = False
        header, total = self.table.horizontalHeader(), self.total.fontMetrics()
        least, wished = [], []
        for column in range(len(COLUMNS)):
            total_width = total.horizontalAdvance(self.table.totals[column]) * 1.1
            here, head = (
                self.table.sizeHintForColumn(column),
                header.sectionSizeHint(column),
            )
            sorts = _ARROW if column == header.sortIndicatorSection() else 0
            least.append(
                max(here, head + sorts, total_width + 8, self._widened[column])
            )
            wished.append(max(least[-1], here + 10, head + _ARROW, total_width + 16))
        room = self.table.viewport().width() - sum(least)
        share = min(max(room / (sum(wished) - sum(least) or 1), 0), 1)
        self._fitting = True
        for column, (narrow, wide) in enumerate(zip(least, wished, strict=True)):
            self.table.setColumnWidth(column, int(narrow + share * (wide - narrow)))
        self._fitting = False
        for column in range(
            len(COLUMNS)
        ):  # the last one fills what is left, and does not report it
            self.total.setColumnWidth(column, self.table.columnWidth(column))

    def _resized(self, column: int, _old: int, width: int) -> None:
        if (
            not self._fitting and column < len(COLUMNS) - 1
        ):  # the last one fills what is left
            self._widened[column] = width
        self.total.setColumnWidth(column, width)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._shown is not None:
            self._fit_columns()

    def _retheme(self) -> None:
        if self.isVisible():
            self._fit_columns()
        else:
            self._outgrown = True
        self.table.viewport().update()
        self.total.viewport().update()

    # --- Selection

    def _rows_selected(self, *_: object) -> None:
        if not self._following:
            self._selection.set(
                (self.model.rows[row].node for row in selected_rows(self.table)), self
            )

    def _follow(self, _ids: frozenset[str], origin: object) -> None:
        if origin is not self:
            self._select()

    def _select(self) -> None:
        """Choose the rows of the selected nodes, and have the first in sight."""
        last = len(COLUMNS) - 1
        chosen = QItemSelection()
        first: QModelIndex | None = None
        for number, row in enumerate(self.model.rows):
            if row.node in self._selection.ids:
                first = first or self.model.index(number, 0)
                chosen.select(
                    self.model.index(number, 0), self.model.index(number, last)
                )
        self._following = True
        flags = QItemSelectionModel.SelectionFlag
        self.table.selectionModel().select(chosen, flags.ClearAndSelect)
        self._following = False
        if first is not None:
            self.table.scrollTo(first)
