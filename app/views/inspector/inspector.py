"""The Inspector tab: a page for no node, for one node, and for several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QScrollArea, QStackedWidget, QWidget

from app.builder.blocks import Block
from app.builder.catalog.catalog import Catalog
from app.builder.diagnostics.problems import Problem
from app.builder.edits import edits
from app.builder.sheet import Sheet
from app.util.formatting import counted
from app.views.engine_service import EngineService
from app.views.inspector.block_page import BlockPage
from app.views.inspector.edit_target import EditTarget
from app.views.inspector.multi_selection import MultiSelectionPage
from app.views.inspector.node_page import NodePage
from app.views.inspector.pages import OverviewPage
from app.views.navigation import SheetDocument
from app.views.selection import Selection
from app.views.ui.layouts import vbox

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.builder.shapes.network_cost import NetworkCost


class Inspector(QWidget):
    """Shows the selection. Edits apply to the document immediately; those of one visit to a field are one undo step.
    All pages but the overview are created on first use, after the window has started.

    `cure_requested(Cure)` requests to fix a problem, `frame_requested(node)` to scroll a node into view.
    """

    cure_requested = Signal(object)
    frame_requested = Signal(str)

    def __init__(
        self,
        document: SheetDocument,
        selection: Selection,
        catalog: Catalog,
        engine: EngineService,
    ) -> None:
        super().__init__()
        self._document, self._selection = document, selection
        self._catalog, self._engine = catalog, engine
        self._node_page: NodePage | None = None
        self._block_page: BlockPage | None = None
        self._several: MultiSelectionPage | None = None
        self._known: tuple[Analysis, tuple[Problem, ...]] | None = None
        self._torch = False
        self.front = EditTarget(document, catalog)
        self.overview = OverviewPage(self.front)
        # From the outside in: reparenting a widget restyles all widgets in it.
        self._pages = QStackedWidget()
        vbox(self._pages, on=self, margins=0)
        self._add_scrolled(self.overview)
        self._node_area = self._add_scrolled(QWidget())
        self._several_area = self._add_scrolled(QWidget())
        self._block_area = self._add_scrolled(QWidget())
        document.changed.connect(self._changed)
        if (ops_changed := getattr(catalog, "changed", None)) is not None:
            # The catalog changes before the graph does: show both once both have changed.
            self._later = QTimer(self, singleShot=True, interval=0)
            self._later.timeout.connect(self._show)
            ops_changed.connect(self._later.start)
        selection.changed.connect(lambda ids, origin: self._show())
        self._show()

    def _add_scrolled(self, page: QWidget) -> QScrollArea:
        area = QScrollArea()
        self._pages.addWidget(area)
        area.setWidgetResizable(True)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setWidget(page)
        return area

    @property
    def node_page(self) -> NodePage:
        """The page of one node."""
        if self._node_page is None:
            page = self._node_page = NodePage(
                self._document, self._catalog, self._engine
            )
            page.cure_requested.connect(self.cure_requested)
            page.frame_requested.connect(self.frame_requested)
            page.select_requested.connect(lambda node: self._selection.set({node}))
            if self._known is not None:
                page.set_analysis(*self._known)
            if self._torch:
                page.set_torch_loaded()
            self._node_area.setWidget(page)
        return self._node_page

    @property
    def block_page(self) -> BlockPage:
        """The page of the block that is open, with nothing selected in it."""
        if self._block_page is None:
            page = self._block_page = BlockPage(self.front)
            if self._known is not None:
                page.set_analysis(*self._known)
            self._block_area.setWidget(page)
        return self._block_page

    @property
    def several(self) -> MultiSelectionPage:
        """The page of several nodes."""
        if self._several is None:
            page = self._several = MultiSelectionPage(self.front)
            page.delete_requested.connect(self._delete)
            if self._known is not None:
                page.set_analysis(self._known[0])
            self._several_area.setWidget(page)
        return self._several

    def set_analysis(
        self, analysis: Analysis, problems: Sequence[Problem] | None = None
    ) -> None:
        """Set the analysis. `problems` replace the problems of the analysis."""
        shown = tuple(analysis.problems if problems is None else problems)
        self.overview.set_analysis(analysis, shown)
        self._known = (analysis, shown)
        if self._block_page is not None:
            self._block_page.set_analysis(analysis, shown)
        if self._node_page is not None:
            self._node_page.set_analysis(analysis, shown)
        if self._several is not None:
            self._several.set_analysis(analysis)
        self._show()

    def set_cost(self, cost: NetworkCost | None) -> None:
        """Set the cost of the nodes, possibly of an older graph until the new answer comes; None if unknown."""
        self.node_page.set_cost(cost)
        if self._pages.currentIndex() == 1:
            self._show()

    def set_torch_loaded(self) -> None:
        """Enable requests to torch: the window no longer waits for its import."""
        self._torch = True
        if self._node_page is not None:
            self._node_page.set_torch_loaded()

    def rename(self) -> None:
        """Put the caret into the name of the selected node."""
        if self._ids() and self._pages.currentIndex() == 1:
            self.node_page.header.start_renaming()

    def focus_first_field(self) -> None:
        """Put the caret into the first field of the selected node."""
        form = self.node_page.form
        if self._pages.currentIndex() == 1 and form is not None:
            editors = [
                row.editor for row in form.rows.values() if row.editor is not None
            ]
            typed = [editor for editor in editors if editor.typed] or editors
            if typed:
                typed[0].setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _ids(self) -> frozenset[str]:
        nodes = self._document.project.graph.nodes
        return frozenset(node for node in self._selection.ids if node in nodes)

    def _changed(self, before: Sheet, after: Sheet) -> None:
        if before.graph is not after.graph or _sheet_state(before) != _sheet_state(
            after
        ):
            self._show()

    def _show(self) -> None:
        ids = self._ids()
        if not ids and self.front.block is not None:
            self.block_page.refresh()
            self._pages.setCurrentWidget(self._block_area)
        elif not ids:
            self.overview.refresh()
            self._pages.setCurrentIndex(0)
        elif len(ids) == 1:
            self.node_page.show_node(next(iter(ids)))
            self._pages.setCurrentIndex(1)
        else:
            self.several.show_nodes(ids)
            self._pages.setCurrentIndex(2)

    def _delete(self) -> None:
        ids = self._ids()
        self._document.apply(
            f"Delete {counted(len(ids), 'node')}",
            edits.delete(self._document.project, ids),
        )


def _sheet_state(sheet: Sheet) -> tuple[object, ...]:
    """Return what the inspector shows of a graph besides its nodes."""
    if isinstance(sheet, Block):
        return sheet.name, sheet.note, sheet.params
    return getattr(sheet, "name", ""), getattr(sheet, "notes", "")
