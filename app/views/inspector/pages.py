"""The inspector with no node selected, and with several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from app.builder.catalog import Catalog
from app.builder.graph import Graph, Node
from app.builder.problems import Problem
from app.document import Document
from app.views.inspector.sections import Bar, Shown, emptied
from app.views.inspector.undo_keys import leaves_to_window
from app.views.inspector.values import same, show
from app.views.numbers import counted, grouped_digits, share
from app.views.widgets import Button, Chip, Section, TextField
from app.views.widgets.painting import Glyph, label

if TYPE_CHECKING:
    from app.builder.analysis import Analysis

_ROWS_MOST = 12


class NotesField(QPlainTextEdit):
    """Free words about the project. Undo is the project's."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.visit = 0
        self.setUndoRedoEnabled(False)
        self.setTabChangesFocus(True)
        self.setPlaceholderText("What this net is for, what you tried, what to try next.")
        self.setAccessibleName("Notes")
        self.setMinimumHeight(110)
        self.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.FocusIn:
            self.visit += 1
        return leaves_to_window(event) or super().eventFilter(watched, event)


def _project_name(text: str) -> str:
    if not text.strip():
        raise ValueError("A project needs a name.")
    return text.strip()


class OverviewPage(QWidget):
    """The project as a whole: name, size, what goes in and out, notes."""

    def __init__(self, document: Document, catalog: Catalog, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._document, self._catalog = document, catalog
        self._analysis: Analysis | None = None
        self._problems: tuple[Problem, ...] = ()
        self.name = TextField(document.project.name, _project_name)
        self.name.setAccessibleName("Name of the project")
        self.name.installEventFilter(self)
        self.name_problem = label("", "caption", "error", wrap=True)
        self.name_problem.hide()
        self.notes = NotesField()
        self.net = Section("Network")
        self.ends = Section("Inputs and outputs")
        notes = Section("Notes")
        notes.body_layout.addWidget(self.notes)
        head = QVBoxLayout()
        head.setContentsMargins(12, 12, 12, 12)
        head.setSpacing(5)
        head.addWidget(label("Project", "caption", "text3"))
        head.addWidget(self.name)
        head.addWidget(self.name_problem)
        head.addWidget(label("Select a node to see and set its parameters.", "label", "text3", wrap=True))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(head)
        for part in (self.net, self.ends, notes):
            column.addWidget(part)
        column.addStretch(1)
        self.name.edited.connect(self._rename)
        self.name.textEdited.connect(lambda text: self._say(self.name.invalid()))
        self.name.editingFinished.connect(lambda: self._say(None))
        self.notes.textChanged.connect(self._note)
        self.refresh()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        return leaves_to_window(event) or super().eventFilter(watched, event)

    def refresh(self) -> None:
        """Show the project as it is now."""
        project = self._document.project
        if self.name.value() != project.name:
            self.name.set_value(project.name)
        if self.notes.toPlainText() != project.notes:
            self.notes.blockSignals(True)
            self.notes.setPlainText(project.notes)
            self.notes.blockSignals(False)
        self._show_net(project.graph)
        self._show_ends(project.graph)

    def set_analysis(self, analysis: Analysis, problems: Sequence[Problem]) -> None:
        """What is known of the graph; `refresh` shows it."""
        self._analysis, self._problems = analysis, tuple(problems)

    def _show_net(self, graph: Graph) -> None:
        column = emptied(self.net)
        column.addWidget(Bar("Nodes", grouped_digits(len(graph.nodes)), None, "", "io"))
        if self._analysis is not None:
            total = self._analysis.total_parameters
            column.addWidget(Bar("Parameters", grouped_digits(total), None, "", "io"))
            errors = sum(problem.severity == "error" for problem in self._problems)
            warnings = len(self._problems) - errors
            row = QHBoxLayout()
            row.setSpacing(6)
            row.addWidget(Glyph("error" if errors else "warning" if warnings else "check", size=14))
            words = ", ".join(
                filter(None, (errors and counted(errors, "error"), warnings and counted(warnings, "warning")))
            )
            row.addWidget(label(words or "Every shape fits", "label", "text2"), 1)
            column.addLayout(row)

    def _show_ends(self, graph: Graph) -> None:
        column = emptied(self.ends)
        ends = [node for node in graph.nodes.values() if node.op in ("input", "output")]
        if not ends:
            words = "The net has neither yet: drag an Input and an Output onto the canvas."
            column.addWidget(label(words, "label", "text3", wrap=True))
        for node in ends:
            one = self._end(graph, node)
            row = QHBoxLayout()
            row.setSpacing(8)
            row.addWidget(Glyph("io", "io", 14))
            row.addWidget(label(one.port, "label", "text2"))
            row.addWidget(Chip(one.text, one.state))
            row.addWidget(label(one.dtype, "caption", "text3"))
            row.addStretch(1)
            column.addLayout(row)

    def _end(self, graph: Graph, node: Node) -> Shown:
        """What goes in or out at an end of the net."""
        places = [(node.id, 0)] if node.op == "input" else [(e.source, e.output) for e in graph.into(node.id)]
        value = self._analysis.values.get(places[0]) if self._analysis and places else None
        if value is None:
            return Shown(node.name, "unknown" if places else "not connected", "assumed")
        return Shown(node.name, str(value), "normal", getattr(value, "dtype", ""))

    def _rename(self, name: str) -> None:
        self._document.apply("Rename project", replace(self._document.project, name=name), merge="project.name")

    def _say(self, problem: str | None) -> None:
        self.name_problem.setText(problem or "")
        self.name_problem.setVisible(bool(problem))

    def _note(self) -> None:
        project = replace(self._document.project, notes=self.notes.toPlainText())
        self._document.apply("Edit notes", project, merge=f"project.notes/{self.notes.visit}")


class SeveralPage(QWidget):
    """Several nodes: how many of which class, what they have in common, what they cost together."""

    delete_requested = Signal()

    def __init__(self, document: Document, catalog: Catalog, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._document, self._catalog = document, catalog
        self._analysis: Analysis | None = None
        self.title = label("", "title")
        self.classes = Section("Classes")
        self.common = Section("In common")
        self.cost = Section("Cost", "share of the network")
        self.delete = Button("Delete", icon="trash")
        self.delete.clicked.connect(self.delete_requested)
        head = QHBoxLayout()
        head.setContentsMargins(14, 14, 12, 14)
        head.addWidget(self.title, 1)
        head.addWidget(self.delete)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(head)
        for part in (self.classes, self.common, self.cost):
            column.addWidget(part)
        column.addStretch(1)

    def set_analysis(self, analysis: Analysis) -> None:
        """What is known of the graph; `show_nodes` shows it."""
        self._analysis = analysis

    def show_nodes(self, ids: frozenset[str]) -> None:
        """Show these nodes, of the open project."""
        graph = self._document.project.graph
        nodes = [node for key, node in graph.nodes.items() if key in ids]
        self.title.setText(f"{grouped_digits(len(nodes))} nodes")
        self.delete.setAccessibleName(f"Delete {len(nodes)} nodes")
        self._show_classes(graph, nodes)
        self._show_common(graph, nodes)
        self._show_cost(nodes)

    def _show_classes(self, graph: Graph, nodes: list[Node]) -> None:
        column = emptied(self.classes)
        counts = Counter(node.op for node in nodes).most_common()
        for op, count in counts[:_ROWS_MOST]:
            spec = self._catalog.of(graph, next(node for node in nodes if node.op == op))
            row = QHBoxLayout()
            row.setSpacing(8)
            row.addWidget(Glyph(spec.category, spec.category, 14))
            row.addWidget(label(spec.label, "label", "text2"), 1)
            row.addWidget(label(grouped_digits(count), "tab"))
            column.addLayout(row)
        if len(counts) > _ROWS_MOST:
            column.addWidget(label(f"and {len(counts) - _ROWS_MOST} more", "label", "text3"))

    def _show_common(self, graph: Graph, nodes: list[Node]) -> None:
        """Parameters of nodes of one class that have the same value in all."""
        one_class = len({node.op for node in nodes}) == 1
        self.common.setVisible(one_class and bool(nodes) and bool(self._catalog.of(graph, nodes[0]).params))
        if self.common.isHidden():
            return
        spec = self._catalog.of(graph, nodes[0])
        column = emptied(self.common)
        for param in spec.params:
            values = [spec.value(node, param.name) for node in nodes]
            alike = all(same(value, values[0]) for value in values)
            row = QHBoxLayout()
            row.addWidget(label(param.name, "code", "text2"), 1)
            row.addWidget(label(show(values[0]) if alike else "differs", "code", "" if alike else "text3"))
            row.setAlignment(Qt.AlignmentFlag.AlignVCenter)
            column.addLayout(row)

    def _show_cost(self, nodes: list[Node]) -> None:
        column = emptied(self.cost)
        analysis = self._analysis
        if analysis is None:
            column.addWidget(label("Being worked out.", "label", "text3"))
            return
        known = [analysis.parameters[node.id] for node in nodes if node.id in analysis.parameters]
        total = analysis.total_parameters
        part = sum(known) / total if total else None
        column.addWidget(Bar("Parameters", grouped_digits(sum(known)), part, share(sum(known), total), "io"))
        waiting = sum(1 for node in nodes if node.id not in analysis.parameters and node.op != "output")
        if waiting:
            words = f"Not counted: {counted(waiting, 'node')} whose shapes are unknown."
            column.addWidget(label(words, "label", "text3", wrap=True))
