"""The Outline panel: a searchable list of the nodes in execution order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from PySide6.QtCore import (
    QAbstractListModel,
    QEvent,
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    QObject,
    Qt,
    Signal,
)
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QListView, QStackedWidget, QWidget

from app.builder.catalog.catalog import Catalog
from app.builder.graph import Node
from app.builder.plan import plan
from app.builder.sheet import Sheet
from app.builder.value_types import TensorType, TupleType, ValueType
from app.util.formatting import grouped_digits
from app.util.frozen import FrozenMap
from app.views.navigation import SheetDocument
from app.views.selection import Selection
from app.views.ui import fuzzy, theme
from app.views.ui.layouts import vbox
from app.views.ui.op_rows import Index, OpRow, RowDelegate
from app.views.ui.widgets import EmptyState, SearchField
from app.views.ui.widgets.painting import announce

if TYPE_CHECKING:
    from app.builder.results import Analysis


class OutlineNode(Struct, frozen=True):
    """A node of the list, as shown."""

    node: Node
    label: str
    category: str


def entries(project: Sheet, ops: Catalog) -> tuple[OutlineNode, ...]:
    """Return all nodes in execution order; those in a cycle come last."""
    walk = plan(project.graph, ops)
    ordered = [step.node for step in walk.steps] + [
        project.graph.nodes[node] for node in walk.loops
    ]
    specs = ((node, ops.spec_of(project.graph, node)) for node in ordered)
    return tuple(OutlineNode(node, spec.label, spec.category) for node, spec in specs)


class NodeModel(QAbstractListModel):
    """The entries that fit the query."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._all: tuple[OutlineNode, ...] = ()
        self._shown: list[OutlineNode] = []
        self._query = ""
        self._parameters: Mapping[str, int] = FrozenMap()
        self._values: Mapping[str, list[ValueType]] = FrozenMap()

    def set_entries(self, new: tuple[OutlineNode, ...]) -> bool:
        """Show other nodes; return whether anything changed."""
        if new == self._all:
            return False
        self._all = new
        self._refill()
        return True

    def set_query(self, query: str) -> None:
        self._query = query
        self._refill()

    def set_parameters(self, counts: Mapping[str, int]) -> None:
        self._parameters = counts
        if self._shown:
            self.dataChanged.emit(self.index(0), self.index(len(self._shown) - 1))

    def set_values(self, values: Mapping[tuple[str, int], ValueType]) -> None:
        """Set the output shapes of the nodes, for queries like `shape:64`."""
        by_node: dict[str, list[ValueType]] = {}
        for (node, _), value in values.items():
            by_node.setdefault(node, []).append(value)
        self._values = by_node
        if parse_query(self._query).shapes:
            self._refill()

    def _refill(self) -> None:
        query = parse_query(self._query)
        self.beginResetModel()
        self._shown = [entry for entry in self._all if self._fits(entry, query)]
        self.endResetModel()

    def _fits(self, entry: OutlineNode, query: Query) -> bool:
        text = f"{entry.node.name} {entry.label}"
        by_name = not query.words or fuzzy.score(query.words, (text, 1.0)) is not None
        return by_name and has_shapes(query, self._values.get(entry.node.id, ()))

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._shown)

    def entry(self, index: Index) -> OutlineNode | None:
        return (
            self._shown[index.row()]
            if index.isValid() and index.row() < len(self._shown)
            else None
        )

    def row(self, index: Index) -> OpRow | None:
        entry = self.entry(index)
        if entry is None:
            return None
        count = self._parameters.get(entry.node.id, 0)
        return OpRow(
            entry.node.name,
            entry.category,
            faint=entry.label,
            hint=grouped_digits(count) if count else "",
        )

    def rows_of(self, ids: frozenset[str]) -> list[int]:
        return [i for i, entry in enumerate(self._shown) if entry.node.id in ids]

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        entry = self.entry(index)
        if entry is None:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return entry.node.name
        if role == Qt.ItemDataRole.AccessibleTextRole:
            count = self._parameters.get(entry.node.id, 0)
            return f"{entry.node.name}, {entry.label}" + (
                f", {count} parameters" if count else ""
            )
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{entry.node.name}: {entry.node.op}"
        return None


class Outline(QWidget):
    """The list. Its selection is synchronised with the window's; `jump_requested(node)` asks to scroll to it."""

    jump_requested = Signal(str)

    def __init__(
        self,
        document: SheetDocument,
        selection: Selection,
        catalog: Catalog,
    ) -> None:
        super().__init__()
        self._document, self._selection, self._catalog = document, selection, catalog
        self._quiet = self._stale = False
        self.field = SearchField("Name, class or shape:64")
        self.model = NodeModel(self)
        self.view = QListView()
        self._delegate = RowDelegate(self.model.row)
        self._set_up_view()
        self.empty = EmptyState(
            "tree",
            "No nodes yet",
            "Drag a layer from the Layers panel onto the canvas.",
        )
        self._pages = QStackedWidget()
        self._pages.addWidget(self.view)
        self._pages.addWidget(self.empty)
        top = vbox(self.field, margins=(10, 10, 10, 6))
        vbox(top, (self._pages, 1), on=self, margins=0, spacing=0)
        self.field.textChanged.connect(self._filter)
        self.field.installEventFilter(self)
        document.changed.connect(self._changed)
        selection.changed.connect(self._selection_changed)
        self._refresh(document.project)

    def _set_up_view(self) -> None:
        self.view.setModel(self.model)
        self.view.setItemDelegate(self._delegate)
        self.view.setUniformItemSizes(True)
        self.view.setMouseTracking(True)
        self.view.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.view.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.view.setAccessibleName("Nodes in execution order")
        self.view.selectionModel().selectionChanged.connect(self._picked)
        self.view.activated.connect(self._jump)
        self.view.entered.connect(self._hover)
        self.view.viewport().installEventFilter(self)
        theme.manager().changed.connect(self.view.viewport().update)

    def set_analysis(self, analysis: Analysis) -> None:
        """Parameter counts, and the shapes that can be searched for."""
        self.model.set_parameters(analysis.parameters)
        self._quiet = True
        self.model.set_values(analysis.values)
        self._quiet = False
        self._show_selection(self._selection.ids)
        self._show_page()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.field:
            return (
                isinstance(event, QKeyEvent)
                and event.type() == QEvent.Type.KeyPress
                and self._steps(event)
            )
        if event.type() == QEvent.Type.Leave:
            self._selection.hover(None)
        return super().eventFilter(watched, event)

    def _steps(self, event: QKeyEvent) -> bool:
        """Go to the next match at Enter or Down, to the one before at Shift+Enter or Up; the caret stays."""
        back = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1}.get(
            Qt.Key(event.key()), (-1 if back else 1) if enter else 0
        )
        if step:
            self.step(step)
        return bool(step)

    def step(self, step: int) -> None:
        """Select the next match, or the one before, and frame it on the canvas; after the last comes the first."""
        count = self.model.rowCount()
        if not count:
            return
        chosen = self.model.rows_of(self._selection.ids)
        row = (
            (chosen[0] + step) % count
            if len(chosen) == 1
            else 0
            if step > 0
            else count - 1
        )
        entry = self.model.entry(self.model.index(row))
        assert entry is not None
        self.jump_requested.emit(entry.node.id)
        announce(self.field, f"{entry.node.name}, {row + 1} of {count}")

    def _hover(self, index: QModelIndex) -> None:
        if entry := self.model.entry(index):
            self._selection.hover(entry.node.id)

    def _jump(self, index: QModelIndex) -> None:
        if entry := self.model.entry(index):
            self.jump_requested.emit(entry.node.id)

    def _changed(self, before: Sheet, after: Sheet) -> None:
        if before.graph is not after.graph:
            self._stale = not self.isVisible()
            if not self._stale:
                self._refresh(after)

    def showEvent(self, event: QShowEvent) -> None:
        """Update the list, which is deferred while the tab is hidden."""
        super().showEvent(event)
        if self._stale:
            self._stale = False
            self._refresh(self._document.project)

    def _refresh(self, project: Sheet) -> None:
        self._quiet = True
        changed = self.model.set_entries(entries(project, self._catalog))
        self._quiet = False
        if changed:
            self._show_selection(self._selection.ids)
        self._show_page()

    def _filter(self, query: str) -> None:
        self._quiet = True
        self.model.set_query(query)
        self._quiet = False
        self._show_selection(self._selection.ids)
        self._show_page()

    def _show_page(self) -> None:
        nothing = not self._document.project.graph.nodes
        if self._document.whole.project.opened is not None:
            self.empty.set_text(
                "A model from code", "Its modules and operations are on the Model page."
            )
        elif nothing:
            self.empty.set_text(
                "No nodes yet", "Drag a layer from the Layers panel onto the canvas."
            )
        else:
            self.empty.set_text("No match", "No node matches by name, class or shape.")
        self._pages.setCurrentWidget(self.view if self.model.rowCount() else self.empty)

    def _picked(self) -> None:
        if not self._quiet:
            chosen = (
                self.model.entry(index)
                for index in self.view.selectionModel().selectedIndexes()
            )
            self._selection.set((entry.node.id for entry in chosen if entry), self)

    def _selection_changed(self, ids: frozenset[str], origin: object) -> None:
        if origin is not self:
            self._show_selection(ids)

    def _show_selection(self, ids: frozenset[str]) -> None:
        rows = self.model.rows_of(ids)
        selection = QItemSelection()
        for row in rows:
            selection.select(self.model.index(row), self.model.index(row))
        self._quiet = True
        chooser = self.view.selectionModel()
        chooser.select(selection, QItemSelectionModel.SelectionFlag.ClearAndSelect)
        if rows:
            chooser.setCurrentIndex(
                self.model.index(rows[0]), QItemSelectionModel.SelectionFlag.NoUpdate
            )
            self.view.scrollTo(self.model.index(rows[0]))
        self._quiet = False


# --- Search


class Query(Struct, frozen=True):
    """`words` are for name and class, `shapes` are runs of sizes, each of which a value must have."""

    words: str
    shapes: tuple[tuple[str, ...], ...] = ()


def parse_query(text: str) -> Query:
    """Parse a search text.

    >>> parse_query("conv shape:64 shape:Nx8x8")
    Query(words='conv', shapes=(('64',), ('N', '8', '8')))
    """
    parts = text.split()
    shapes = [part[6:] for part in parts if part.lower().startswith("shape:")]
    words = " ".join(part for part in parts if not part.lower().startswith("shape:"))
    sizes = (
        tuple(size for size in re.split(r"[x×,*()]+", shape) if size)
        for shape in shapes
    )
    return Query(words, tuple(run for run in sizes if run))


def has_shapes(query: Query, values: Iterable[ValueType]) -> bool:
    """Return whether each sequence of sizes occurs consecutively in some value's shape."""
    known = [shape for value in values for shape in _shapes(value)]
    return all(any(_stands_in(run, shape) for shape in known) for run in query.shapes)


def _shapes(value: ValueType) -> list[tuple[str, ...]]:
    if isinstance(value, TensorType):
        return [tuple(map(str, value.shape))]
    return (
        [shape for item in value.items for shape in _shapes(item)]
        if isinstance(value, TupleType)
        else []
    )


def _stands_in(run: tuple[str, ...], shape: tuple[str, ...]) -> bool:
    return any(shape[i : i + len(run)] == run for i in range(len(shape) - len(run) + 1))
