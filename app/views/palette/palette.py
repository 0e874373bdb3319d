"""The palette: all ops of the catalog by category, to search, drag, or add with Enter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from PySide6.QtCore import (
    QEvent,
    QMimeData,
    QModelIndex,
    QObject,
    QPoint,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import (
    QContextMenuEvent,
    QDrag,
    QKeyEvent,
    QMouseEvent,
    QStandardItem,
    QStandardItemModel,
)
from PySide6.QtWidgets import QAbstractItemView, QStackedWidget, QTreeView, QWidget

from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.catalog.custom import class_of, is_custom, why_not
from app.project.library import KEY as LIBRARY
from app.util.frozen import FrozenMap
from app.views.ui import fuzzy, theme
from app.views.ui.layouts import vbox
from app.views.ui.op_rows import (
    CATEGORY_NAMES,
    Index,
    OpRow,
    RowPainter,
    node_picture,
    row_size,
)
from app.views.ui.present import present
from app.views.ui.widgets import EmptyState, SearchField

MIME = "application/x-tapedeck-op"
BLOCKS = "block"
OWN = "own"  # classes of the project's own files
NO_BLOCKS = "Select nodes, press Ctrl+G"
_SEEN = Qt.ItemFlag.ItemIsEnabled
_CHOSEN = _SEEN | Qt.ItemFlag.ItemIsSelectable
_DRAGGED = _CHOSEN | Qt.ItemFlag.ItemIsDragEnabled


def hint(spec: OpSpec) -> str:
    """Return the word that distinguishes ops of one name: "2d" of Conv2d, "F" of F.relu, the origin of a block."""
    if spec.key.startswith(LIBRARY):
        return "library"
    if is_custom(spec.key):
        layer = class_of(spec) if spec.kind == "unknown" else None
        return (
            ""
            if layer is None
            else "cannot be used"
            if layer.reason
            else "not trusted yet"
        )
    if spec.kind in ("function", "method"):
        return spec.key.partition(".")[0]
    dimensions = re.search(r"\dd$", spec.label)
    return dimensions[0] if dimensions else ""


class PaletteGroup(Struct, frozen=True):
    """A category with its visible ops."""

    category: str
    specs: tuple[OpSpec, ...]


def grouped(specs: Iterable[OpSpec], empty: str = "") -> tuple[PaletteGroup, ...]:
    """Group the specs by category, in the palette's order; the category `empty` is included even without specs.

    The user's own blocks and layers come first, as they would be overlooked after all of torch's.
    """
    groups: dict[str, list[OpSpec]] = {name: [] for name in CATEGORY_NAMES}
    for spec in specs:
        groups.setdefault(OWN if is_custom(spec.key) else spec.category, []).append(
            spec
        )
    user_groups = {name: groups[name] for name in (BLOCKS, OWN) if groups.get(name)}
    shown = {**user_groups, **groups}
    return tuple(
        PaletteGroup(name, tuple(members))
        for name, members in shown.items()
        if members or name == empty
    )


def fit(query: str, spec: OpSpec) -> float | None:
    """Return how well an op matches the query: by its name first, then its key, then its category."""
    category = OWN if is_custom(spec.key) else spec.category
    # A layer before the function of its name.
    name = 1.0 if spec.kind == "module" else 0.85
    texts = (
        (spec.label, name),
        (spec.key, 0.9),
        (CATEGORY_NAMES.get(category, category), 0.5),
    )
    return fuzzy.score(query, *texts)


class OpModel(QStandardItemModel):
    """Categories with their ops. The drag data is the key of the op as `MIME`.

    The items are Qt's own: a Python model of 300 rows, queried at each layout, would block the window, all the more
    while a worker computes.
    """

    def __init__(self, catalog: Catalog, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._catalog = catalog
        self.specs = tuple(catalog.values())
        self._summaries: Mapping[str, str] = FrozenMap()
        self._groups: tuple[PaletteGroup, ...] = ()
        self._show(grouped(self.specs, BLOCKS))

    def renew(self) -> bool:
        """Update the specs from the catalog if its ops are the same as before; return whether they are."""
        specs = {spec.key: spec for spec in self._catalog.values()}
        if tuple(specs) != tuple(spec.key for spec in self.specs):
            return False
        before, self.specs = {id(spec) for spec in self.specs}, tuple(specs.values())
        shown = (
            (group.category, [specs[spec.key] for spec in group.specs])
            for group in self._groups
        )
        self._groups = tuple(
            PaletteGroup(category, tuple(members)) for category, members in shown
        )
        self._describe(
            lambda spec: id(spec) not in before or is_custom(spec.key)
        )  # a file may be trusted by now
        return True

    def set_query(self, query: str) -> str | None:
        """Filter the catalog; return the key of the best match, None for an empty query."""
        self.specs = tuple(self._catalog.values())
        if not query.strip():
            self._show(grouped(self.specs, BLOCKS))
            return None
        fits = {
            spec.key: score
            for spec in self.specs
            if (score := fit(query, spec)) is not None
        }
        self._show(grouped(spec for spec in self.specs if spec.key in fits))
        return max(fits, key=lambda key: fits[key], default=None)

    def _show(self, groups: tuple[PaletteGroup, ...]) -> None:
        self.clear()
        self._groups = groups
        heights = row_size(heading=True), row_size()
        for group in groups:
            heading, name = (
                QStandardItem(),
                CATEGORY_NAMES.get(group.category, group.category),
            )
            heading.setFlags(_CHOSEN)
            heading.setText(name)
            heading.setData(
                f"{name}, {len(group.specs)}", Qt.ItemDataRole.AccessibleTextRole
            )
            heading.setSizeHint(heights[0])
            heading.appendRows(
                [self._row_item(spec, heights[1]) for spec in group.specs or (None,)]
            )
            self.appendRow(heading)

    def resize_rows(self, _share: float = 1.0) -> None:
        """Give the rows the height of the text size in force."""
        heights = row_size(heading=True), row_size()
        for number in range(self.rowCount()):
            heading = present(self.item(number))
            heading.setSizeHint(heights[0])
            for index in range(heading.rowCount()):
                present(heading.child(index)).setSizeHint(heights[1])

    def _row_item(self, spec: OpSpec | None, size: QSize) -> QStandardItem:
        """Return the item of an op, or of the placeholder in an empty category."""
        item = QStandardItem()
        item.setFlags(_flags(spec))
        item.setText(spec.label if spec else NO_BLOCKS)
        item.setSizeHint(size)
        if spec is not None:
            item.setData(
                f"{spec.label}, {spec.key}", Qt.ItemDataRole.AccessibleTextRole
            )
            item.setToolTip(self._tip(spec))
        return item

    def _tip(self, spec: OpSpec) -> str:
        if spec.definition:
            lines: Iterable[str] = (f"Block {spec.label}", spec.definition.note)
        elif is_custom(spec.key):
            lines = why_not(spec) or (spec.key, self._summaries.get(spec.key, ""))
        else:
            lines = (spec.target or spec.key, self._summaries.get(spec.key, ""))
        return "\n".join(filter(None, lines))

    def set_summaries(self, texts: Mapping[str, str]) -> None:
        self._summaries = texts
        self._describe()

    def _describe(self, changed: Callable[[OpSpec], bool] = lambda _spec: True) -> None:
        """Update the items from their specs where these changed, without a repaint per item."""
        self.blockSignals(True)
        for row, group in enumerate(self._groups):
            for i, spec in enumerate(group.specs):
                if not changed(spec):
                    continue
                item = self.item(row).child(i)
                item.setFlags(_flags(spec))
                item.setText(spec.label)
                item.setToolTip(self._tip(spec))
        self.blockSignals(False)

    def spec(self, index: Index) -> OpSpec | None:
        """Return the op of an index; None for a category, and for the placeholder of an empty one."""
        above = index.parent()
        if not above.isValid():
            return None
        specs = self._groups[above.row()].specs
        return specs[index.row()] if index.row() < len(specs) else None

    def group(self, index: Index) -> PaletteGroup | None:
        """Return the category of an index; None for an op."""
        return (
            self._groups[index.row()]
            if index.isValid() and not index.parent().isValid()
            else None
        )

    def index_of(self, key: str) -> QModelIndex:
        """Return the index of an op; an invalid one if it is not shown."""
        for i, group in enumerate(self._groups):
            for j, spec in enumerate(group.specs):
                if spec.key == key:
                    return self.index(j, 0, self.index(i, 0))
        return QModelIndex()

    def mimeTypes(self) -> list[str]:
        return [MIME]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        data = QMimeData()
        for index in indexes:
            if spec := self.spec(index):
                data.setData(MIME, spec.key.encode())
        return data

    def supportedDragActions(self) -> Qt.DropAction:
        return Qt.DropAction.CopyAction


def _flags(spec: OpSpec | None) -> Qt.ItemFlag:
    """Return the item flags of an op, or of the placeholder in an empty category."""
    kind = _SEEN if spec is None else _CHOSEN if spec.kind == "unknown" else _DRAGGED
    return kind | Qt.ItemFlag.ItemNeverHasChildren


class OpTree(QTreeView):
    """The rows. `chosen(key)` comes on double-click and Enter, `menu_wanted(key, spot)` on a right click."""

    chosen = Signal(str)
    menu_wanted = Signal(str, QPoint)
    left_upwards = Signal()

    def __init__(self, model: OpModel) -> None:
        super().__init__()
        self.ops = model
        self.setModel(model)
        self._delegate = RowPainter(self._row)
        self.setItemDelegate(self._delegate)
        self.setHeaderHidden(True)
        self.setRootIsDecorated(False)
        self.setIndentation(0)
        self.setMouseTracking(True)
        self.setExpandsOnDoubleClick(False)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setDragEnabled(True)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragOnly)
        self.setAccessibleName("Layers by category")
        self.clicked.connect(self._fold)
        self.doubleClicked.connect(self._choose)
        theme.manager().changed.connect(self.viewport().update)

    def _row(self, index: Index) -> OpRow | None:
        if spec := self.ops.spec(index):
            locked = spec.kind == "unknown"
            return OpRow(
                spec.label,
                spec.category,
                hint=hint(spec),
                grip=not locked,
                locked=locked,
            )
        if group := self.ops.group(index):
            name = CATEGORY_NAMES.get(group.category, group.category)
            look = BLOCKS if group.category == OWN else group.category
            return OpRow(
                name,
                look,
                hint=str(len(group.specs)),
                heading=True,
                open=self.isExpanded(index),
            )
        return (
            OpRow("", BLOCKS, faint=NO_BLOCKS, grip=True) if index.isValid() else None
        )

    def _fold(self, index: QModelIndex) -> None:
        if self.ops.group(index):
            self.setExpanded(index, not self.isExpanded(index))

    def _choose(self, index: QModelIndex) -> None:
        if spec := self.ops.spec(index):
            self.chosen.emit(spec.key)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        index = self.currentIndex()
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._fold(index)
            self._choose(index)
        elif event.key() == Qt.Key.Key_Up and not self.indexAbove(index).isValid():
            self.left_upwards.emit()
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Request the menu of the op under the mouse, or, by key, of the current row."""
        by_mouse = event.reason() == QContextMenuEvent.Reason.Mouse
        index = self.indexAt(event.pos()) if by_mouse else self.currentIndex()
        if spec := self.ops.spec(index):
            corner = self.viewport().mapToGlobal(self.visualRect(index).bottomLeft())
            self.menu_wanted.emit(spec.key, event.globalPos() if by_mouse else corner)

    def startDrag(self, actions: Qt.DropAction) -> None:
        spec = self.ops.spec(self.currentIndex())
        if spec is not None and spec.kind != "unknown":
            drag = QDrag(self)
            drag.setMimeData(self.ops.mimeData([self.currentIndex()]))
            drag.setPixmap(node_picture(spec, self.devicePixelRatioF()))
            drag.setHotSpot(QPoint(24, 16))
            drag.exec(Qt.DropAction.CopyAction)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        # A press beside the rows would leave the last one current, and a drag from there would carry it off.
        if not self.indexAt(event.position().toPoint()).isValid():
            self.setCurrentIndex(QModelIndex())


class Palette(QWidget):
    """The Layers panel. `activated(key)` requests a new node of an op; the drag data is the key as `MIME`.

    `look_wanted(key)` requests to review a class of a file that is not trusted yet.
    """

    activated = Signal(str)
    look_wanted = Signal(str)
    menu_wanted = Signal(str, QPoint)

    def __init__(self, catalog: Catalog) -> None:
        super().__init__()
        self.field = SearchField("Search layers", hint="Tab")
        self.model = OpModel(catalog, self)
        theme.manager().scaled.connect(self.model.resize_rows)
        self.tree = OpTree(self.model)
        self.empty = EmptyState(
            "search", "No match", "Try fewer letters or another PyTorch name."
        )
        self._folded: set[str] = set()
        self._pages = QStackedWidget()
        self._pages.addWidget(self.tree)
        self._pages.addWidget(self.empty)
        self._pages.setMinimumHeight(1)  # it gives way before what is below it
        top = vbox(self.field, margins=(10, 10, 10, 6))
        vbox(top, (self._pages, 1), on=self, margins=0, spacing=0)
        self.setTabOrder(self.field, self.tree)
        self.field.installEventFilter(self)
        self.field.textChanged.connect(self._filter)
        self.tree.chosen.connect(self._choose)
        self.tree.menu_wanted.connect(self.menu_wanted)
        self.tree.left_upwards.connect(
            lambda: self.field.setFocus(Qt.FocusReason.BacktabFocusReason)
        )
        self.tree.collapsed.connect(lambda index: self._remember(index, folded=True))
        self.tree.expanded.connect(lambda index: self._remember(index, folded=False))
        self._unfold()

    def _choose(self, key: str) -> None:
        """Create a node of an op, or review the file that it needs."""
        spec = self.model.spec(self.model.index_of(key))
        waits = spec is not None and spec.kind == "unknown" and is_custom(key)
        (self.look_wanted if waits else self.activated).emit(key)

    def refill(self) -> None:
        """Update the list after the catalog changed."""
        if self.model.renew():
            self.tree.viewport().update()
            return
        current = self.model.spec(self.tree.currentIndex())
        top = self.tree.verticalScrollBar().value()
        self._filter(self.field.text())
        if current is not None:
            self.tree.setCurrentIndex(self.model.index_of(current.key))
        self.tree.verticalScrollBar().setValue(top)

    def set_summaries(self, texts: Mapping[str, str]) -> None:
        """Set the summaries for the tool tips, by key."""
        self.model.set_summaries(texts)

    def _remember(self, index: QModelIndex, folded: bool) -> None:
        if (group := self.model.group(index)) and not self.field.text():
            (self._folded.add if folded else self._folded.discard)(group.category)

    def _filter(self, query: str) -> None:
        best = self.model.set_query(query)
        self._unfold(all_of_them=bool(query.strip()))
        if query.strip() and best is not None:
            self.tree.setCurrentIndex(self.model.index_of(best))
        self._pages.setCurrentWidget(self.tree if self.model.rowCount() else self.empty)

    def _unfold(self, all_of_them: bool = False) -> None:
        for row in range(self.model.rowCount()):
            index = self.model.index(row, 0)
            group = self.model.group(index)
            folded = group is not None and group.category in self._folded
            self.tree.setExpanded(index, all_of_them or not folded)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Forward Up, Down and Enter in the search field to the rows."""
        if (
            watched is self.field
            and isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
        ):
            key = event.key()
            if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                if spec := self.model.spec(self.tree.currentIndex()):
                    self._choose(spec.key)
                return True
            if key in (Qt.Key.Key_Down, Qt.Key.Key_Up):
                self._move(1 if key == Qt.Key.Key_Down else -1)
                return True
        return super().eventFilter(watched, event)

    def _move(self, step: int) -> None:
        """Go to the next op that is in sight, past the headings."""
        index = self.tree.currentIndex()
        following = self.tree.indexBelow if step > 0 else self.tree.indexAbove
        index = following(index) if index.isValid() else self.model.index(0, 0)
        while index.isValid() and self.model.spec(index) is None:
            index = following(index)
        if index.isValid():
            self.tree.setCurrentIndex(index)
