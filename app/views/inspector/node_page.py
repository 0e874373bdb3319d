"""The inspector of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Signal

from app.builder.blocks import BlockError
from app.builder.catalog import ops
from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.diagnostics.problems import Problem
from app.builder.graph import Edge, GraphError, Node
from app.builder.value_types import TensorType, ValueType
from app.project.project import Project
from app.util.formatting import counted
from app.util.frozen import FrozenMap
from app.util.language import tr
from app.views.engine_service import EngineService
from app.views.fields.form import ParamForm
from app.views.fields.tab_order import TabDown
from app.views.fields.values import BlockScope
from app.views.inspector.edit_target import EditTarget
from app.views.inspector.explain.documentation import DocumentationSection
from app.views.inspector.explain.input_sizes import CandidatesSection, SizeQuestion
from app.views.inspector.explain.section import ExplainedNode, ExplainSection
from app.views.inspector.field_tools import FieldTools
from app.views.inspector.header import NodeHeader
from app.views.inspector.inits_section import InitsSection
from app.views.inspector.module_section import ModuleSection, names
from app.views.inspector.node_edits import NodeEdits
from app.views.inspector.sections import CostSection, PortShape, ProblemsSection
from app.views.navigation import SheetDocument
from app.views.project_catalog import ProjectCatalog
from app.views.ui.layouts import hbox, vbox
from app.views.ui.pick_box import Picker, PickRow
from app.views.ui.widgets import Button, Section
from app.views.ui.widgets.painting import label, show_or_hide

if TYPE_CHECKING:
    from app.builder.catalog.catalog import Documentation
    from app.builder.results import Analysis
    from app.builder.shapes.network_cost import NetworkCost

_OWNING = ("module", "block", "custom")
_KEPT = 12  # forms of ops


class NodePage(TabDown):
    """Everything of one node. Edits go into the document as they are made."""

    cure_requested = Signal(object)
    frame_requested = Signal(str)
    select_requested = Signal(str)

    def __init__(
        self,
        document: SheetDocument,
        catalog: Catalog,
        engine: EngineService,
    ) -> None:
        super().__init__()
        self._document, self._catalog = document, catalog
        self.front = EditTarget(document, catalog)
        self.edits = NodeEdits(self.front)
        self.tools = FieldTools(self.edits, engine, self)
        self._node_id = ""
        self._spec: OpSpec | None = None
        self._scope: BlockScope | None = None
        self._scopes: dict[str, BlockScope] = {}
        self._forms: dict[object, ParamForm] = {}
        self._made: object = None
        self._analysis: Analysis | None = None
        self._network: NetworkCost | None = None
        self._problems: tuple[Problem, ...] = ()
        self.form: ParamForm | None = None
        self.header = NodeHeader()
        self.instance = _InstanceSection()
        self.parameters = Section("Parameters")
        self.owned = label("", "caption", "accent", wrap=True)
        self.nothing = label("", "label", "text3", wrap=True)
        for text_label in (self.owned, self.nothing):
            self.parameters.body_layout.addWidget(text_label)
        self.module = ModuleSection()
        self.inits = InitsSection(engine)
        self.shape = ExplainSection()
        self.sizes = CandidatesSection(engine)
        self.cost = CostSection()
        self.problems = ProblemsSection()
        self.documentation = DocumentationSection(engine)
        above = (self.header, self.problems, self.instance, self.parameters)
        below = (self.shape, self.sizes, self.module, self.inits, self.cost)
        vbox(*above, *below, self.documentation, 1, on=self, margins=0, spacing=0)
        self._connect(document)

    def _connect(self, document: SheetDocument) -> None:
        edits = self.edits
        self.header.renamed.connect(edits.rename)
        self.header.frame_requested.connect(
            lambda: self.frame_requested.emit(self._node_id)
        )
        self.header.reset_requested.connect(edits.reset_all)
        self.header.delete_requested.connect(edits.delete)
        self.header.flag_requested.connect(edits.flag)
        self.parameters.acted.connect(edits.reset_all)
        self.instance.enter_requested.connect(lambda: self.front.enter(self._node_id))
        self.instance.unique_requested.connect(self._make_unique)
        self.module.repeat_requested.connect(self._repeat)
        self.module.share_requested.connect(self._pick_module)
        self.module.unshare_requested.connect(edits.unshare)
        self.inits.initialise_requested.connect(edits.initialise)
        self.problems.cure_requested.connect(self.cure_requested)
        self.shape.select_requested.connect(self.select_requested)
        self.sizes.select_requested.connect(self.select_requested)
        self.sizes.taken.connect(lambda shape: edits.set("shape", shape, None))
        document.replaced.connect(lambda project: self.sizes.forget())
        self.documentation.documented.connect(self._document_form)

    @property
    def node(self) -> Node:
        return self.edits.node

    def set_torch_loaded(self) -> None:
        """Enable requests to torch."""
        self.documentation.set_torch_loaded()
        self.inits.set_torch_loaded()
        self.tools.set_torch_loaded()

    def show_node(self, node_id: str) -> None:
        """Show a node, or refresh it if it is shown already."""
        graph = self.front.graph
        node = graph.nodes[node_id]
        other = node_id != self._node_id
        self._node_id = self.edits.id = node_id
        spec = self.edits.spec
        block = self.front.block
        if block is None:
            self._scope = None
        elif self._scope is None or self._scope.block != block.name:
            self._scope = self._scopes.setdefault(
                block.name, BlockScope(block.name, ())
            )
        if self._scope is not None and block is not None:
            self._scope.names = tuple(param.name for param in block.params)
        if (
            form_key := (
                spec.key,
                spec.kind,
                spec.params,
                self._scope.block if self._scope else "",
            )
        ) != self._made:
            self._made = form_key
            self._take_form(form_key, spec)
        elif other and self.form is not None:
            self.form.forget()
        self._spec = spec
        owner = self.edits.owner
        self.header.show_node(graph, node, spec, owner.frozen)
        if self.form is not None:
            self.form.set_values(owner.params, self.edits.wires())
        self._show_module(spec, owner)
        self._show_analysis()
        self.documentation.setVisible(
            spec.kind != "block"
        )  # a block is documented by its note
        if spec.kind != "block":
            self.documentation.show_op(spec)

    def set_analysis(self, analysis: Analysis, problems: tuple[Problem, ...]) -> None:
        """Set the analysis, possibly of an older graph until the new answer comes; `show_node` shows it."""
        self._analysis, self._problems = analysis, problems

    def set_cost(self, network: NetworkCost | None) -> None:
        """Set the cost of the nodes; `show_node` shows it."""
        self._network = network

    def _take_form(self, form_key: tuple[object, ...], spec: OpSpec) -> None:
        """Swap in the form of an op; recently used forms are cached."""
        if self.form is not None:
            self.form.hide()
        self.form = self._forms.pop(form_key, None)
        if self.form is None and spec.params:
            self.form = self._make_form(spec)
        if self.form is not None:
            self._forms[form_key] = self.form
            self.form.forget()
            self.form.show()
        while len(self._forms) > _KEPT:
            old = self._forms.pop(next(iter(self._forms)))
            old.deleteLater()
        message = (
            f"{spec.label} has no parameters."
            if spec.kind != "unknown"
            else "Kept unchanged in the file."
        )
        self.nothing.setText(message)
        self.nothing.setVisible(self.form is None)
        self.tools.form = self.form
        self.parameters.set_action(
            "Reset to defaults" if spec.params else "", quiet=True
        )

    def _make_form(self, spec: OpSpec) -> ParamForm:
        tools = self.tools.fill if self.tools.any_for(spec, self._scope) else None
        form = ParamForm(
            spec.params, scope=self._scope, tools=tools, defaults=spec.kind == "block"
        )
        form.edited.connect(self.edits.set)
        form.reset.connect(self.edits.reset)
        form.cut.connect(self.edits.cut)
        form.refused.connect(self.tools.ask_torch)
        self.parameters.body_layout.addWidget(form)
        return form

    def _document_form(self, answer: Documentation) -> None:
        if self.form is not None:
            self.form.set_docs(answer.arguments)

    # --- The module, and the block

    def _show_module(self, spec: OpSpec, owner: Node) -> None:
        """Show the sections about the node's module and about the block of an instance."""
        self.instance.setVisible(spec.kind == "block")
        if spec.kind == "block" and spec.definition is not None:
            self.instance.show_instance(
                spec.label, self.edits.instances(), spec.definition.note
            )
        owning = spec.kind in _OWNING
        self.module.setVisible(owning)
        self.inits.setVisible(spec.kind == "module")
        others = self.edits.others_sharing() if owning else ()
        mine = owner.id == self._node_id
        note = f"Shares the module of {owner.name}: changes here apply to {names(others)} too."
        self.owned.setText("" if mine else note)
        self.owned.setVisible(not mine)
        if owning:
            weighs = not (
                self._analysis and self._analysis.parameters.get(self._node_id) == 0
            )
            owners = "" if mine else owner.name
            can_share = bool(self.edits.modules())
            self.module.show_module(owner.repeat, others, owners, can_share, weighs)

    def _repeat(self, count: int, merge: str | None) -> None:
        try:
            self.edits.repeat(count, merge)
        except BlockError as error:
            self.module.show_problem(str(error))

    def _make_unique(self) -> None:
        try:
            self.edits.make_unique()
        except BlockError as error:
            self.instance.show_problem(str(error))

    def _pick_module(self) -> None:
        """Open a list of the nodes whose module can be shared."""
        category = self._spec.category if self._spec else ""
        picks = [
            PickRow(
                node.name,
                category,
                node.id,
                f"and {names(others)}" if (others := self._also(node)) else "",
            )
            for node in self.edits.modules()
        ]
        picker = Picker(
            "Share the weights of",
            picks,
            "No other node of this class to share with.",
            self,
        )
        picker.picked.connect(self._share)
        picker.open_below(self.module.share)

    def _also(self, node: Node) -> tuple[str, ...]:
        graph = self.front.graph
        return tuple(
            graph.nodes[other].name
            for other in graph.sharing(node.id)
            if other != node.id
        )

    def _share(self, node: str) -> None:
        try:
            self.edits.share(node)
        except GraphError as error:
            self.module.show_problem(str(error))

    # --- Analysis

    def _show_analysis(self) -> None:
        analysis, spec = self._analysis, self._spec
        if spec is None:
            return
        resolved = (
            analysis.resolved.get(self._node_id, FrozenMap())
            if analysis
            else FrozenMap()
        )
        self.tools.resolved, self.tools.values = (
            resolved,
            analysis.values if analysis else FrozenMap(),
        )
        if self.form is not None:
            self.form.set_resolved(resolved, self._auto_source())
        if spec.kind == "module":
            self.inits.show_layer(
                self._node_id,
                self._catalog.get(spec.key, spec),
                resolved,
                self.edits.owner.inits,
            )
        self._show_sizes()
        if analysis is None or self._node_id not in analysis.graph.nodes:
            self.shape.show_shapes((), (), "Computing shapes…", "text3")
            self.cost.show_cost(None, 0, None, spec.category)
            self.problems.show_problems(())
            return
        problems = tuple(
            problem for problem in self._problems if problem.node == self._node_id
        )
        self.problems.show_problems(problems)
        if self.form is not None:
            self.form.blame(
                [
                    problem.torch_message
                    for problem in problems
                    if problem.severity == "error"
                ]
            )
        failed = any(
            problem.severity == "error" and problem.port != "" for problem in problems
        )
        self._show_shapes(analysis, spec, failed)
        self._show_cost(analysis, spec)

    def _show_sizes(self) -> None:
        """Other sizes for an Input of the network; what arrives in a block is its instance's affair."""
        sheet, analysis = self._document.project, self._analysis
        analysed = (
            analysis is not None
            and analysis.graph is sheet.graph
            and self._node_id in sheet.graph.nodes
        )
        if (
            not analysed
            or not isinstance(sheet, Project)
            or self.node.op != "input"
            or self.node.params.get("batch", 0)
        ):
            self.sizes.show_input(None)
            return
        shape = tuple(self.node.params.get("shape") or ())
        ops = (
            self._catalog.now
            if isinstance(self._catalog, ProjectCatalog)
            else self._catalog
        )
        self.sizes.show_input(SizeQuestion(sheet.graph, ops, self._node_id, shape))

    def _auto_source(self) -> str:
        """Return the name of the node that provides AUTO parameters."""
        graph, op = self._document.project.graph, self.node.op
        ports = {port for (key, _), (port, _) in ops.AUTO_RULES.items() if key == op}
        edge = next(
            (edge for edge in graph.into(self._node_id) if edge.port in ports), None
        )
        return graph.nodes[edge.source].name if edge else ""

    def _show_shapes(self, analysis: Analysis, spec: OpSpec, failed: bool) -> None:
        graph = self._document.project.graph
        inputs = [
            self._arriving(analysis, edge, failed) for edge in graph.into(self._node_id)
        ]
        order = {port.name: index for index, port in enumerate(spec.inputs)}
        inputs.sort(key=lambda shape: order.get(shape.port.partition(" ")[0], 0))
        outputs = [
            _port_shape(
                port.name, analysis.values.get((self._node_id, number)), "accent"
            )
            for number, port in enumerate(spec.outputs)
        ]
        subject = ExplainedNode(analysis.graph, self._catalog, analysis, self._node_id)
        if not failed and self.shape.explain(subject, inputs, outputs):
            return
        if failed and self.shape.show_clash(subject):
            return
        message, tone = "", "text3"
        if failed:
            ends = spec.kind in (
                "input",
                "output",
            )  # they compute nothing that could fail
            message, tone = (
                tr("See Problems above.")
                if ends
                else tr("It fails on its input: see Problems."),
                "error",
            )
        elif any(shape.state == "assumed" for shape in inputs):
            message = tr(
                "Its input is unknown: a node before it is missing or has an error."
            )
        elif spec.inputs and not inputs:
            message = tr("Its input is not connected. Drag a wire to it.")
        self.shape.show_shapes(inputs, outputs, message, tone)

    @staticmethod
    def _arriving(analysis: Analysis, edge: Edge, failed: bool) -> PortShape:
        port = edge.port if not edge.index else f"{edge.port} {edge.index}"
        return _port_shape(
            port,
            analysis.values.get((edge.source, edge.output)),
            "error" if failed else "normal",
        )

    def _show_cost(self, analysis: Analysis, spec: OpSpec) -> None:
        values = [
            analysis.values.get((self._node_id, number))
            for number in range(len(spec.outputs))
        ]
        counts = [
            value.per_sample() for value in values if isinstance(value, TensorType)
        ]
        per_sample = counts[0] if len(counts) == 1 else None
        parameters = analysis.parameters.get(
            self._node_id, 0 if spec.kind == "output" else None
        )
        self.cost.show_cost(
            parameters,
            analysis.total_parameters,
            per_sample,
            spec.category,
            self._node_id,
            self._network,
        )


def _port_shape(port: str, value: ValueType | None, state: str) -> PortShape:
    if value is None:
        return PortShape(port, "unknown", "assumed")
    dtype = (
        value.dtype
        if isinstance(value, TensorType) and value.dtype != "float32"
        else ""
    )
    return PortShape(port, str(value), state, dtype)


class _InstanceSection(Section):
    """Opens the block of an instance by `enter_requested()`, or makes it unique by `unique_requested()`."""

    enter_requested = Signal()
    unique_requested = Signal()

    def __init__(self) -> None:
        super().__init__("Block")
        self.words = label("", "label", "text2", wrap=True)
        self.enter = Button("Edit block", icon="block")
        self.unique = Button("Make unique")
        self.unique.setToolTip(
            "Copy the block for this instance, so that edits do not affect the others."
        )
        row = hbox(self.enter, self.unique, 1, spacing=8)
        self.problem = label("", "caption", "error", wrap=True)
        self.problem.hide()
        self.body_layout.addWidget(self.words)
        self.body_layout.addLayout(row)
        self.body_layout.addWidget(self.problem)
        self.enter.clicked.connect(self.enter_requested)
        self.unique.clicked.connect(self.unique_requested)
        self.hide()

    def show_instance(self, block: str, count: int, note: str) -> None:
        """Show an instance of a block with `count` instances, and the note of the block."""
        alike = counted(count, "instance")
        self.words.setText(
            note
            or (
                f"{alike} of {block}. Editing the block changes all of them."
                if count > 1
                else f"The only instance of {block}."
            )
        )
        self.set_caption(alike)
        self.unique.setEnabled(count > 1)
        self.show_problem("")

    def show_problem(self, problem: str) -> None:
        """Show why an action was refused; "" clears it."""
        show_or_hide(self.problem, problem)
