"""The inspector with several nodes selected."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.builder.graph import Graph, Node
from app.views.inspector.front import Front
from app.views.inspector.sections import Bar, emptied
from app.views.inspector.values import same, show
from app.views.numbers import counted, grouped_digits, share
from app.views.widgets import Button, Section
from app.views.widgets.painting import Glyph, label

if TYPE_CHECKING:
    from app.builder.analysis import Analysis

_ROWS_MOST = 12


class SeveralPage(QWidget):
    """Several nodes: how many of which class, what they have in common, what they cost together."""

    delete_requested = Signal()

    def __init__(self, front: Front, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._front, self._catalog = front, front.catalog
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
        graph = self._front.graph
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
