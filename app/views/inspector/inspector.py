"""The Inspector tab: a page for no node, for one node, and for several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtWidgets import QScrollArea, QStackedWidget, QWidget

from app.builder.blocks import Block
from app.builder.catalog.catalog import Catalog
from app.builder.diagnostics.problems import Problem
from app.builder.edits import edits
from app.builder.graph import Graph
from app.builder.sheet import Sheet
from app.util.formatting import counted, grouped_digits
from app.views.engine_service import EngineService
from app.views.fields.line_edits import NotesField, leaves_to_window
from app.views.fields.tab_order import TabDown
from app.views.inspector.block_page import BlockPage
from app.views.inspector.edit_target import EditTarget
from app.views.inspector.io_section import InputsOutputsSection
from app.views.inspector.multi_selection import MultiSelectionPage
from app.views.inspector.node_page import NodePage
from app.views.inspector.sections import CostBar
from app.views.navigation import SheetDocument
from app.views.selection import Selection
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Section, TextField
from app.views.ui.widgets.painting import Glyph, label

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.builder.shapes.network_cost import NetworkCost

# --- The inspector with no node selected: the project as a whole


def _project_name(text: str) -> str:
    if not text.strip():
        raise ValueError("Enter a name.")
    return text.strip()


HINTS = (
    "Its modules are on the Model page.",
    "Select a node to see and set its parameters.",
)  # of code, drawn


class OverviewPage(TabDown):
    """The project as a whole: name, size, inputs and outputs, notes."""

    def __init__(self, front: EditTarget) -> None:
        super().__init__()
        self._front = front
        self._analysis: Analysis | None = None
        self._problems: tuple[Problem, ...] = ()
        self._shown: object = None
        self.name = TextField(front.whole.name, _project_name)
        self.name.setAccessibleName("Name of the project")
        self.name.installEventFilter(self)
        self.name_problem = label("", "caption", "error", wrap=True)
        self.name_problem.hide()
        self.notes = NotesField("Notes: purpose, results, next steps.")
        self.net = Section("Network")
        self._nodes, self._parameters, self._trainable, self._frozen = (
            CostBar(name, "", None, "", "io")
            for name in ("Nodes", "Parameters", "Trainable", "Frozen")
        )
        self._sign, self._verdict = Glyph("check", size=14), label("", "label", "text2")
        verdict = hbox(self._sign, (self._verdict, 1), spacing=6)
        self.net.body_layout.setSpacing(6)
        self.net.body_layout.addWidget(self._nodes)
        for bar in (self._parameters, self._trainable, self._frozen):
            self.net.body_layout.addWidget(bar)
        self.net.body_layout.addLayout(verdict)
        self.ends = InputsOutputsSection(
            "The network has no inputs or outputs yet. Drag an Input and an Output onto the canvas."
        )
        notes = Section("Notes")
        notes.body_layout.addWidget(self.notes)
        self.hint = label("", "label", "text3", wrap=True)
        head = vbox(
            label("Project", "caption", "text3"),
            self.name,
            self.name_problem,
            self.hint,
            margins=12,
            spacing=5,
        )
        vbox(head, self.net, self.ends, notes, 1, on=self, margins=0, spacing=0)
        self.name.edited.connect(self._rename)
        self.name.textEdited.connect(
            lambda text: self._show_problem(self.name.invalid())
        )
        self.name.editingFinished.connect(lambda: self._show_problem(None))
        self.notes.textChanged.connect(self._note)
        self.refresh()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        return leaves_to_window(event, watched) or super().eventFilter(watched, event)

    def refresh(self) -> None:
        """Show the project as it is now."""
        project = self._front.whole
        if self.name.value() != project.name:
            self.name.set_value(project.name)
        self.notes.show_text(project.notes)
        drawn = project.opened is None
        self.hint.setText(HINTS[drawn])
        self._nodes.setVisible(drawn)
        self.ends.setVisible(drawn)  # of a model of code the page Model shows them
        self._show_net(project.graph, drawn)
        self.ends.show_ends(project.graph, self._analysis)

    def set_analysis(self, analysis: Analysis, problems: Sequence[Problem]) -> None:
        """Set the analysis of the graph; `refresh` shows it."""
        self._analysis, self._problems = analysis, tuple(problems)

    def forget_analysis(self) -> None:
        """Show nothing of the last net: another project is open, and is still to be checked."""
        self._analysis, self._problems = None, ()
        self.refresh()

    def _show_net(self, graph: Graph, drawn: bool) -> None:
        total = self._analysis.total_parameters if self._analysis is not None else None
        frozen = self._analysis.frozen_parameters if self._analysis is not None else 0
        shown = (
            drawn,
            len(graph.nodes),
            total,
            frozen,
            tuple(problem.severity for problem in self._problems),
        )
        if shown == self._shown:
            return
        self._shown = shown
        self._nodes.set_value(grouped_digits(len(graph.nodes)))
        for widget in (self._parameters, self._sign, self._verdict):
            widget.setVisible(total is not None)
        for widget in (self._trainable, self._frozen):
            widget.setVisible(bool(frozen))
        if total is not None:
            self._parameters.set_value(grouped_digits(total))
            self._trainable.set_value(grouped_digits(total - frozen))
            self._frozen.set_value(grouped_digits(frozen))
            errors = sum(problem.severity == "error" for problem in self._problems)
            warnings = sum(problem.severity == "warning" for problem in self._problems)
            self._sign.set("error" if errors else "warning" if warnings else "check")
            counts = ((errors, "error"), (warnings, "warning"))
            summary = ", ".join(
                counted(number, kind) for number, kind in counts if number
            )
            self._verdict.setText(
                summary or ("All shapes match" if drawn else "No problems")
            )

    def _rename(self, name: str) -> None:
        self._front.apply_whole(
            "Rename project",
            lambda project: replace(project, name=name),
            "project.name",
        )

    def _show_problem(self, problem: str | None) -> None:
        self.name_problem.setText(problem or "")
        self.name_problem.setVisible(bool(problem))

    def _note(self) -> None:
        notes, visit = self.notes.toPlainText(), self.notes.visit
        self._front.apply_whole(
            "Edit notes",
            lambda project: replace(project, notes=notes),
            f"project.notes/{visit}",
        )


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
