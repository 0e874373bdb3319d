"""The inspector of one node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.background import Background
from app.builder import edits, ops
from app.builder.catalog import Catalog, OpSpec
from app.builder.graph import Edge, Node
from app.builder.problems import Problem
from app.builder.value_types import TensorType, ValueType
from app.document import Document
from app.project import Project
from app.views.inspector.documentation import DocumentationSection
from app.views.inspector.explain_candidates import CandidatesSection, Question
from app.views.inspector.explain_section import ExplainSection, Subject
from app.views.inspector.form import ParamForm
from app.views.inspector.header import NodeHeader
from app.views.inspector.sections import CostSection, ProblemsSection, Shown, emptied
from app.views.inspector.values import same
from app.views.live_catalog import LiveCatalog
from app.views.widgets import Section
from app.views.widgets.painting import label

if TYPE_CHECKING:
    from app.builder.analysis import Analysis
    from app.builder.cost import NetworkCost
    from app.builder.introspect import Documentation


class NodePage(QWidget):
    """Everything of one node. Edits go into the document as they are made."""

    cure_requested = Signal(object)
    frame_requested = Signal(str)
    select_requested = Signal(str)

    def __init__(
        self, document: Document, catalog: Catalog, background: Background, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._document, self._catalog = document, catalog
        self._node_id = ""
        self._spec: OpSpec | None = None
        self._analysis: Analysis | None = None
        self._network: NetworkCost | None = None
        self._problems: tuple[Problem, ...] = ()
        self.form: ParamForm | None = None
        self.header = NodeHeader()
        self.parameters = Section("Parameters")
        self.shape = ExplainSection()
        self.sizes = CandidatesSection(background)
        self.cost = CostSection()
        self.problems = ProblemsSection()
        self.documentation = DocumentationSection(background)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        above, below = (self.header, self.problems, self.parameters), (self.shape, self.sizes, self.cost)
        for part in (*above, *below, self.documentation):
            column.addWidget(part)
        column.addStretch(1)
        self.header.renamed.connect(self._rename)
        self.header.frame_requested.connect(lambda: self.frame_requested.emit(self._node_id))
        self.header.reset_requested.connect(self.reset_all)
        self.header.delete_requested.connect(self._delete)
        self.header.flag_requested.connect(self._flag)
        self.parameters.acted.connect(self.reset_all)
        self.problems.cure_requested.connect(self.cure_requested)
        self.shape.select_requested.connect(self.select_requested)
        self.sizes.select_requested.connect(self.select_requested)
        self.sizes.taken.connect(lambda shape: self._set("shape", shape, None))
        document.replaced.connect(lambda project: self.sizes.forget())
        self.documentation.documented.connect(self._document_form)

    @property
    def node(self) -> Node:
        return self._document.project.graph.nodes[self._node_id]

    def show_node(self, node_id: str) -> None:
        """Show a node of the open project, or the same one as it is now."""
        graph = self._document.project.graph
        node = graph.nodes[node_id]
        spec = self._catalog.of(graph, node)
        other = node_id != self._node_id
        self._node_id = node_id
        if spec != self._spec:
            self._make_form(spec)
        elif other and self.form is not None:
            self.form.forget()
        self._spec = spec
        self.header.show_node(graph, node, spec)
        if self.form is not None:
            self.form.set_values(node.params)
        self._show_analysis()
        self.documentation.show_op(spec)

    def set_analysis(self, analysis: Analysis, problems: tuple[Problem, ...]) -> None:
        """What is known of the shapes, of an older graph until the answer for this one comes; `show_node` shows it."""
        self._analysis, self._problems = analysis, problems

    def set_cost(self, network: NetworkCost) -> None:
        """What the nodes cost; `show_node` shows it."""
        self._network = network

    def _make_form(self, spec: OpSpec) -> None:
        column = emptied(self.parameters)
        self.form = ParamForm(spec.params) if spec.params else None
        if self.form is not None:
            self.form.edited.connect(self._set)
            self.form.reset.connect(self._reset)
            column.addWidget(self.form)
        else:
            words = f"{spec.label} has no parameters." if spec.kind != "unknown" else "Kept as they are in the file."
            column.addWidget(label(words, "label", "text3", wrap=True))
        self.parameters.set_action("Reset to defaults" if spec.params else "", quiet=True)

    def _document_form(self, answer: Documentation) -> None:
        if self.form is not None:
            self.form.set_docs(answer.arguments)

    # --- What the analysis knows

    def _show_analysis(self) -> None:
        analysis, spec = self._analysis, self._spec
        if spec is None:
            return
        resolved = analysis.resolved.get(self._node_id, {}) if analysis else {}
        if self.form is not None:
            self.form.set_resolved(resolved, self._auto_source())
        self._show_sizes()
        if analysis is None or self._node_id not in analysis.graph.nodes:
            self.shape.show_shapes((), (), "The shapes are being worked out.", "text3")
            self.cost.show_cost(None, 0, None, spec.category)
            self.problems.show_problems(())
            return
        problems = tuple(problem for problem in self._problems if problem.node == self._node_id)
        self.problems.show_problems(problems)
        self._show_shapes(analysis, spec, any(problem.severity == "error" for problem in problems))
        self._show_cost(analysis, spec)

    def _show_sizes(self) -> None:
        """Other sizes for an Input of the network; what arrives in a block is its instance's affair."""
        sheet, analysis = self._document.project, self._analysis
        known = analysis is not None and analysis.graph is sheet.graph and self._node_id in sheet.graph.nodes
        if not known or not isinstance(sheet, Project) or self.node.op != "input":
            self.sizes.show_input(None)
            return
        shape = tuple(self.node.params.get("shape") or ())
        ops = self._catalog.now if isinstance(self._catalog, LiveCatalog) else self._catalog
        self.sizes.show_input(Question(sheet.graph, ops, self._node_id, shape))

    def _auto_source(self) -> str:
        """The name of the node that AUTO parameters take their value from."""
        graph, op = self._document.project.graph, self.node.op
        ports = {port for (key, _), (port, _) in ops.AUTO_RULES.items() if key == op}
        edge = next((edge for edge in graph.into(self._node_id) if edge.port in ports), None)
        return graph.nodes[edge.source].name if edge else ""

    def _show_shapes(self, analysis: Analysis, spec: OpSpec, failed: bool) -> None:
        graph = self._document.project.graph
        inputs = [self._arriving(analysis, edge, failed) for edge in graph.into(self._node_id)]
        order = {port.name: place for place, port in enumerate(spec.inputs)}
        inputs.sort(key=lambda one: order.get(one.port.partition(" ")[0], 0))
        outputs = [
            _shown(port.name, analysis.values.get((self._node_id, number)), "accent")
            for number, port in enumerate(spec.outputs)
        ]
        subject = Subject(analysis.graph, self._catalog, analysis, self._node_id)
        if not failed and self.shape.explain(subject, inputs, outputs):
            return
        if failed and self.shape.show_clash(subject):
            return
        words, tone = "", "text3"
        if failed:
            words, tone = "It does not run with what arrives: see Problems.", "error"
        elif any(one.state == "assumed" for one in inputs):
            words = "What arrives is not known yet: something before it is missing or broken."
        elif spec.inputs and not inputs:
            words = "Nothing arrives. Drag a wire to its input."
        self.shape.show_shapes(inputs, outputs, words, tone)

    @staticmethod
    def _arriving(analysis: Analysis, edge: Edge, failed: bool) -> Shown:
        port = edge.port if not edge.index else f"{edge.port} {edge.index}"
        return _shown(port, analysis.values.get((edge.source, edge.output)), "error" if failed else "normal")

    def _show_cost(self, analysis: Analysis, spec: OpSpec) -> None:
        values = [analysis.values.get((self._node_id, number)) for number in range(len(spec.outputs))]
        counts = [value.per_sample() for value in values if isinstance(value, TensorType)]
        one = counts[0] if len(counts) == 1 else None
        parameters = analysis.parameters.get(self._node_id, 0 if spec.kind == "output" else None)
        self.cost.show_cost(parameters, analysis.total_parameters, one, spec.category, self._node_id, self._network)

    # --- Edits

    def _set(self, name: str, value: Any, merge: str | None) -> None:
        spec, node = self._spec, self.node
        param = spec.param(name) if spec else None
        if param is None:
            return
        graph = self._document.project.graph
        if not param.required and same(value, param.default):
            graph = graph.without_param(node.id, name)
        else:
            graph = graph.with_param(node.id, name, value)
        key = f"{node.id}/{merge}" if merge else None
        self._document.apply(f"Set {name} of {node.name}", replace(self._document.project, graph=graph), merge=key)

    def _reset(self, name: str) -> None:
        """Back to the default, or to what a new node of the op has."""
        assert self._spec is not None
        start, graph = self._spec.starting_params(), self._document.project.graph
        if name in start:
            graph = graph.with_param(self._node_id, name, start[name])
        else:
            graph = graph.without_param(self._node_id, name)
        self._document.apply(f"Reset {name} of {self.node.name}", replace(self._document.project, graph=graph))

    def reset_all(self) -> None:
        """Give every parameter the value that a new node of the op has."""
        assert self._spec is not None
        project, node = self._document.project, self.node
        if self._spec.kind != "unknown":
            graph = project.graph.with_node(replace(node, params=self._spec.starting_params()))
            self._document.apply(f"Reset {node.name}", replace(project, graph=graph))

    def _rename(self, name: str, merge: str) -> None:
        project = self._document.project
        graph = project.graph.with_name(self._node_id, name)
        self._document.apply("Rename node", replace(project, graph=graph), merge=f"{self._node_id}/{merge}")

    def _flag(self, flag: str, on: bool) -> None:
        project = self._document.project
        verbs = {"muted": ("Unmute", "Mute"), "frozen": ("Unfreeze", "Freeze")}
        verb = verbs[flag][on]
        name = project.graph.nodes[self._node_id].name
        self._document.apply(f"{verb} {name}", edits.flagged(project, [self._node_id], flag, on))

    def _delete(self) -> None:
        name = self.node.name
        self._document.apply(f"Delete {name}", edits.delete(self._document.project, [self._node_id]))


def _shown(port: str, value: ValueType | None, state: str) -> Shown:
    if value is None:
        return Shown(port, "unknown", "assumed")
    dtype = value.dtype if isinstance(value, TensorType) and value.dtype != "float32" else ""
    return Shown(port, str(value), state, dtype)
