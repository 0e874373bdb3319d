"""The inspector with several nodes selected: summary, common parameters, and common actions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout

from app.builder.blocks import BlockError
from app.builder.catalog.catalog import OpSpec
from app.builder.edits import blocks, edits
from app.builder.graph import Graph, Node
from app.builder.literals import AUTO
from app.util.formatting import counted, grouped_digits, share
from app.views.fields.form import ParamForm
from app.views.fields.tab_order import TabDown
from app.views.fields.values import DIFFERS, BlockScope, equal_values
from app.views.inspector.edit_target import EditTarget
from app.views.inspector.module_section import RepeatField
from app.views.inspector.sections import CostBar, emptied
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Button, Section, icon_button
from app.views.ui.widgets.painting import Glyph, label, show_or_hide

if TYPE_CHECKING:
    from app.builder.results import Analysis

# --- Edits of several nodes: each one undo step


class MultiSelectionEdits:
    """Edits of the nodes `ids`, in the order of the graph, of the sheet in front."""

    def __init__(self, front: EditTarget) -> None:
        self._front = front
        self.ids: tuple[str, ...] = ()

    @property
    def _many(self) -> str:
        return counted(len(self.ids), "node")

    def _owners(self) -> tuple[str, ...]:
        """Return the nodes whose modules are called, without duplicates."""
        return tuple(
            dict.fromkeys(self._front.graph.owner(node).id for node in self.ids)
        )

    def set(self, name: str, value: Any, merge: str | None) -> None:
        """Give a parameter of all of them one value."""
        graph = self._front.graph
        for node in self._owners():
            graph = self._with_param(graph, node, name, value)
        key = f"{'/'.join(self.ids)}/{merge}" if merge else None
        self._front.apply(f"Set {name} of {self._many}", graph, key)

    def _with_param(self, graph: Graph, node: str, name: str, value: Any) -> Graph:
        param = self._front.catalog.spec_of(graph, graph.nodes[node]).param(name)
        if (
            param is not None
            and not param.required
            and equal_values(value, param.default)
        ):
            return graph.without_param(node, name)
        return graph.with_param(node, name, value)

    def reset(self, name: str) -> None:
        """Back to what new nodes have."""
        graph = self._front.graph
        for node in self._owners():
            start = self._front.catalog.spec_of(
                graph, graph.nodes[node]
            ).starting_params()
            graph = (
                graph.with_param(node, name, start[name])
                if name in start
                else graph.without_param(node, name)
            )
        self._front.apply(f"Reset {name} of {self._many}", graph)

    def freezable(self) -> tuple[str, ...]:
        """Return the nodes with parameters that can be frozen."""
        return edits.flaggable(
            self._front.sheet, self._front.catalog, self.ids, "frozen"
        )

    def freeze(self, on: bool) -> None:
        """Freeze the modules of all of them, or let them learn again."""
        graph = self._front.graph
        nodes = dict.fromkeys(graph.owner(node).id for node in self.freezable())
        text = f"{'Freeze' if on else 'Unfreeze'} {counted(len(nodes), 'node')}"
        self._front.apply_sheet(
            text, edits.flagged(self._front.sheet, nodes, "frozen", on)
        )

    def repeat(self, count: int, merge: str | None) -> None:
        """Repeat the module of each. Raises BlockError, and then nothing is changed."""
        sheet = self._front.sheet
        for node in self._owners():
            sheet = blocks.set_repeat(sheet, self._front.catalog, node, count)
        self._front.apply_sheet(
            f"Repeat {self._many} ×{count}", sheet, f"{'/'.join(self.ids)}/{merge}"
        )

    def share(self) -> None:
        """Let all of them call the module of the first."""
        graph = self._front.graph
        owner = graph.owner(self.ids[0])
        for node in self.ids:
            if graph.owner(node).id != owner.id:
                graph = graph.with_shared(node, owner.id)
        self._front.apply(
            f"Share the weights of {owner.name} among {self._many}", graph
        )

    def unshare(self) -> None:
        """Give each of them its own module, with the parameters of the shared one."""
        graph = self._front.graph
        for node in self.ids:
            if len(graph.sharing(node)) > 1:
                graph = graph.unshared(node)
        self._front.apply(f"Give {self._many} their own weights", graph)


_ROWS_MOST = 12


class TogetherSection(Section):
    """The modules of several nodes: repeated, and one for all. `repeat_requested(count, merge)`."""

    repeat_requested = Signal(int, object)
    share_requested = Signal()
    unshare_requested = Signal()

    def __init__(self) -> None:
        super().__init__("Modules")
        self.repeat = RepeatField()
        self.repeat.setPlaceholderText("differs")
        self.words = label("", "label", "text2", wrap=True)
        self.share = Button("Share weights")
        self.share.setToolTip(
            "Use one module for all of them: the parameters and weights of the first."
        )
        self.unshare = Button("Unshare all")
        self.problem = label("", "caption", "error", wrap=True)
        self.repeat_name = label("Repeat ×", "label", "text2")
        self.repeat_name.setBuddy(self.repeat)
        again, acts = QHBoxLayout(), QHBoxLayout()
        again.setSpacing(8)
        again.addWidget(self.repeat_name)
        again.addWidget(self.repeat)
        again.addStretch(1)
        acts.setSpacing(8)
        acts.addWidget(self.share)
        acts.addWidget(self.unshare)
        acts.addStretch(1)
        self.body_layout.addLayout(again)
        self.body_layout.addWidget(self.words)
        self.body_layout.addLayout(acts)
        self.body_layout.addWidget(self.problem)
        self.repeat.edited.connect(
            lambda count: self.repeat_requested.emit(
                count, f"repeat/{self.repeat.visit}"
            )
        )
        self.share.clicked.connect(self.share_requested)
        self.unshare.clicked.connect(self.unshare_requested)

    def show_modules(self, repeats: set[int], owner: str, one_op: bool) -> None:
        """Show their repetitions, and `owner`, whose module all of them call, "" if there are several."""
        repeat = repeats.pop() if len(repeats) == 1 else None
        if self.repeat.value() != repeat:
            self.repeat.set_value(repeat)
        self.words.setText(
            f"All share the module of {owner}."
            if owner
            else "Each node has its own module."
        )
        self.words.setVisible(one_op)
        self.share.setVisible(one_op and not owner)
        self.unshare.setVisible(bool(owner))
        self.show_problem("")

    def show_problem(self, problem: str) -> None:
        """Show why an action was refused; "" clears it."""
        show_or_hide(self.problem, problem)


class MultiSelectionPage(TabDown):
    """Several nodes: count per class, common parameters, total cost."""

    delete_requested = Signal()

    def __init__(self, front: EditTarget) -> None:
        super().__init__()
        self._front, self._catalog = front, front.catalog
        self.edits = MultiSelectionEdits(front)
        self._analysis: Analysis | None = None
        self._made: object = None
        self._ids: frozenset[str] = frozenset()
        self._scope: BlockScope | None = None
        self.form: ParamForm | None = None
        self.title = label("", "title")
        self.classes = Section("Classes")
        self.common = Section("In common")
        self.together = TogetherSection()
        self.cost = Section("Cost", "share of the network")
        self.frozen = icon_button(
            "snowflake", "Freeze: their parameters get requires_grad=False"
        )
        self.frozen.setCheckable(True)
        self.frozen.clicked.connect(lambda on: self.edits.freeze(on))
        self.delete = Button("Delete", icon="trash")
        self.delete.clicked.connect(self.delete_requested)
        head = hbox((self.title, 1), self.frozen, self.delete, margins=(14, 14, 12, 14))
        vbox(
            head,
            self.classes,
            self.common,
            self.together,
            self.cost,
            1,
            on=self,
            margins=0,
            spacing=0,
        )
        self.together.repeat_requested.connect(self._repeat)
        self.together.share_requested.connect(self.edits.share)
        self.together.unshare_requested.connect(self.edits.unshare)

    def set_analysis(self, analysis: Analysis) -> None:
        """Set the analysis of the graph; `show_nodes` shows it."""
        self._analysis = analysis

    def show_nodes(self, ids: frozenset[str]) -> None:
        """Show these nodes, of the open project."""
        graph = self._front.graph
        other, self._ids = ids != self._ids, ids
        self.edits.ids = tuple(key for key in graph.nodes if key in ids)
        nodes = [graph.nodes[key] for key in self.edits.ids]
        self.title.setText(f"{grouped_digits(len(nodes))} nodes")
        self.delete.setAccessibleName(f"Delete {len(nodes)} nodes")
        self._show_classes(graph, nodes)
        self._show_common(graph, nodes, other)
        self._show_together(graph, nodes)
        self._show_cost(nodes)

    def _show_classes(self, graph: Graph, nodes: list[Node]) -> None:
        column = emptied(self.classes)
        counts = Counter(node.op for node in nodes).most_common()
        for op, count in counts[:_ROWS_MOST]:
            spec = self._catalog.spec_of(
                graph, next(node for node in nodes if node.op == op)
            )
            row = hbox(
                Glyph(spec.category, spec.category, 14),
                (label(spec.label, "label", "text2"), 1),
                label(grouped_digits(count), "tab"),
                spacing=8,
            )
            column.addLayout(row)
        if len(counts) > _ROWS_MOST:
            column.addWidget(
                label(f"and {len(counts) - _ROWS_MOST} more", "label", "text3")
            )

    # --- Parameters

    def _show_common(self, graph: Graph, nodes: list[Node], other: bool) -> None:
        """Show the parameters of nodes of one class; an edit applies to all of them."""
        spec = (
            self._catalog.spec_of(graph, nodes[0])
            if len({node.op for node in nodes}) == 1
            else None
        )
        self.common.setVisible(spec is not None and bool(spec.params))
        if spec is None or not spec.params:
            return
        block = self._front.block
        if (block.name if block else "") != (self._scope.block if self._scope else ""):
            self._scope = BlockScope(block.name, ()) if block else None
        if self._scope is not None and block is not None:
            self._scope.names = tuple(param.name for param in block.params)
        if (
            form_key := (spec.key, spec.params, id(self._scope))
        ) != self._made or self.form is None:
            self._made = form_key
            self.form = ParamForm(spec.params, scope=self._scope)
            self.form.edited.connect(self.edits.set)
            self.form.reset.connect(self.edits.reset)
            emptied(self.common).addWidget(self.form)
        elif other:
            self.form.forget()
        owners = [graph.owner(node.id) for node in nodes]
        self.form.set_values(
            {
                p.name: _alike([spec.value(o, p.name) for o in owners])
                for p in spec.params
            }
        )
        self.form.set_resolved(self._resolved(spec, nodes), "")

    def _resolved(self, spec: OpSpec, nodes: list[Node]) -> dict[str, Any]:
        """Return the values of AUTO parameters that are equal in all nodes."""
        if self._analysis is None:
            return {}
        resolved = [self._analysis.resolved.get(node.id, {}) for node in nodes]
        common = {
            p.name: _alike([params.get(p.name, AUTO) for params in resolved])
            for p in spec.params
        }
        return {name: value for name, value in common.items() if value is not DIFFERS}

    # --- Modules

    def _show_together(self, graph: Graph, nodes: list[Node]) -> None:
        kinds = {self._catalog.spec_of(graph, node).kind for node in nodes}
        owning = kinds <= {"module", "block", "custom"}
        freezable = self.edits.freezable()
        self.frozen.setVisible(bool(freezable))
        self.frozen.setChecked(
            bool(freezable) and all(graph.owner(node).frozen for node in freezable)
        )
        self.together.setVisible(owning)
        if owning:
            owners = {graph.owner(node.id).name for node in nodes}
            owner_name = owners.pop() if len(owners) == 1 else ""
            repeats = {graph.owner(node.id).repeat for node in nodes}
            self.together.show_modules(
                repeats, owner_name, len({node.op for node in nodes}) == 1
            )

    def _repeat(self, count: int, merge: str) -> None:
        try:
            self.edits.repeat(count, merge)
        except BlockError as error:
            self.together.show_problem(str(error))

    def _show_cost(self, nodes: list[Node]) -> None:
        column = emptied(self.cost)
        analysis = self._analysis
        if analysis is None:
            column.addWidget(label("Computing…", "label", "text3"))
            return
        counts = [
            analysis.parameters[node.id]
            for node in nodes
            if node.id in analysis.parameters
        ]
        total = analysis.total_parameters
        fraction = sum(counts) / total if total else None
        column.addWidget(
            CostBar(
                "Parameters",
                grouped_digits(sum(counts)),
                fraction,
                share(sum(counts), total),
                "io",
            )
        )
        waiting = sum(
            1
            for node in nodes
            if node.id not in analysis.parameters and node.op != "output"
        )
        if waiting:
            note = f"Not counted: {counted(waiting, 'node')} whose shapes are unknown."
            column.addWidget(label(note, "label", "text3", wrap=True))


def _alike(values: list[Any]) -> Any:
    """Return the value that all have in common, DIFFERS if there is none."""
    return (
        values[0]
        if all(equal_values(value, values[0]) for value in values[1:])
        else DIFFERS
    )
