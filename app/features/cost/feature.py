"""Costs in the window: the page "Cost", and the overlay on the canvas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from PySide6.QtCore import (
    QEvent,
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    QObject,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QSizePolicy, QStackedLayout, QWidget

from app.builder.catalog.catalog import Catalog
from app.builder.graph import Graph
from app.engine.protocol import EngineDiedError
from app.features.cost import cost_rows
from app.features.cost.cost_rows import COLUMNS, CostRow, note
from app.features.cost.values import Cost
from app.util.columns import text_columns
from app.util.formatting import flop_text, share
from app.views.feature import Feature, Page
from app.views.selection import Selection
from app.views.ui import theme
from app.views.ui.background import WorkerFailure
from app.views.ui.layouts import vbox
from app.views.ui.tables import RowsModel, Table, selected_rows
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import Divider, label
from app.views.ui.widgets.segmented import Segmented

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.builder.shapes.network_cost import NetworkCost
    from app.views.workspace import Workspace

# --- The page "Cost": a sortable table of the cost of each node, with a total row

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


# --- Requests the network's cost once its shapes are known, and shows it: table, inspector, status line, canvas

# Debounce: shapes are needed at every edit, costs only when editing pauses, so that they delay neither the next shapes
# nor the painting.
REST = 300
OVERLAY = "Cost"
RETRIES = 2  # times the question is repeated in a new engine


class CostControl(QObject):
    """Keeps the costs that are shown those of the open graph."""

    def __init__(self, workspace: Workspace, table: CostTable) -> None:
        super().__init__(workspace.window)
        self._workspace, self._table = workspace, table
        self.cost: NetworkCost | None = None
        self._of: tuple[Graph, Catalog] | None = None
        self._retries = 0
        self._rest = QTimer(self, singleShot=True, interval=REST)
        self._rest.timeout.connect(self._ask)
        workspace.live.analysed.connect(self._analysed)
        workspace.document.changed.connect(self._wait_on)
        workspace.document.replaced.connect(self._forget)
        workspace.place.changed.connect(self._moved)
        workspace.overlays.changed.connect(self._paint)
        table.heat_changed.connect(self._heat_chosen)
        table.jump_requested.connect(workspace.jump_to)
        if workspace.live.analysis is not None:
            self._analysed(workspace.live.analysis)

    def _analysed(self, analysis: Analysis) -> None:
        if not self._is_current(self._of):
            self._rest.start()

    def _wait_on(self, *_projects: object) -> None:
        if self._rest.isActive():
            self._rest.start()

    def _forget(self, _project: object) -> None:
        """Clear the cost of the previous project."""
        self.cost = self._of = None
        self._table.set_cost(None)
        self._workspace.overlays.know_cost(None)
        self._workspace.status.set_compute("")
        self._paint()

    def _is_current(self, question: tuple[Graph, Catalog] | None) -> bool:
        """Return whether a question is about the open graph."""
        workspace = self._workspace
        return (
            question is not None
            and question[0] is workspace.document.project.graph
            and question[1] is workspace.catalog.now
        )

    def _ask(self) -> None:
        question = (self._workspace.document.project.graph, self._workspace.catalog.now)
        self._workspace.engine.ask(
            "cost",
            Cost(*question),
            on_answer=partial(self._on_answer, question),
            on_error=self._failed,
        )

    def _failed(self, failure: WorkerFailure) -> None:
        """Ask again where the engine ended amid the question, but not an engine that ends of it time and again."""
        if not isinstance(failure.error, EngineDiedError):
            raise failure.error
        if self._retries < RETRIES:
            self._retries += 1
            self._rest.start()

    def _moved(self, _before: object, _after: object) -> None:
        """Inside a block show no cost of single nodes: it is shown at the instance."""
        if self.cost is not None:
            self._workspace.overlays.know_cost(
                None if self._workspace.place.path else self.cost
            )
        self._paint()

    def _on_answer(self, question: tuple[Graph, Catalog], cost: NetworkCost) -> None:
        workspace = self._workspace
        if not self._is_current(question):
            return
        self.cost, self._of, self._retries = cost, question, 0
        self._table.set_cost(cost)
        workspace.overlays.know_cost(None if workspace.place.path else cost)
        if cost.flops is None:
            workspace.status.set_compute("")
        else:
            tip = f"Estimated with PyTorch's own formulas; {note(cost)[0].lower()}{note(cost)[1:]}"
            workspace.status.set_compute(f"{flop_text(cost.flops)} per sample", tip)
        self._paint()

    # --- The canvas

    def _heat_chosen(self, _what: str) -> None:
        """Turn the overlay on when its measure is chosen."""
        self._workspace.overlays.choose(OVERLAY)
        self._paint()

    def _paint(self, _overlay: str = "") -> None:
        """Paint a strip on each node with a share of the chosen measure, with the share as text."""
        overlays, cost = self._workspace.overlays, self.cost
        if cost is None or self._workspace.place.path:
            overlays.draw_costs(OVERLAY, {}, {})
            return
        by_parameters = self._table.controls.value() == "parameters"
        total = cost.parameters if by_parameters else cost.multiply_adds
        parts = {
            node: (node_cost.parameters if by_parameters else node_cost.multiply_adds)
            or 0
            for node, node_cost in cost.nodes.items()
            if node_cost.live
        }
        shares = {
            node: amount / total for node, amount in parts.items() if amount and total
        }
        unit = "params" if by_parameters else "FLOP"
        labels = {node: f"{share(parts[node], total or 0)} {unit}" for node in shares}
        caption = "Share of parameters" if by_parameters else "Multiply-adds, estimated"
        overlays.draw_costs(OVERLAY, shares, labels, caption)


class CostFeature(Feature):
    rank = 152  # its overlay comes after the gradients
    follows = True
    costs: CostTable
    cost_control: CostControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "cost",
            "Cost",
            "memory",
            "bottom",
            self._make,
            after="problems",
            words="Co&st",
            controls=lambda: self.costs.controls,
        )

    def overlays(self) -> Iterable[str]:
        return (OVERLAY,)

    def _make(self) -> CostTable:
        self.costs = CostTable(self.workspace.catalog, self.workspace.network_selection)
        return self.costs

    def finish(self) -> None:
        self.cost_control = CostControl(self.workspace, self.costs)
