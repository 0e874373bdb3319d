"""Feature "weights": loading and saving them, start weights, and the last layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import QMimeData, QObject
from PySide6.QtGui import QAction

from app.builder.blocks import Block, BlockError, block_of, with_blocks
from app.builder.catalog.catalog import Catalog, OpSpec, catalog
from app.builder.edits import blocks as block_edits
from app.builder.edits import edits
from app.builder.edits.blocks import NETWORK, Whole
from app.builder.graph import Edge, Graph, Node
from app.builder.sheet import changed
from app.features.weights.weights_control import WeightsControl
from app.project.file import with_start
from app.project.project import Project
from app.training.setup.weights_header import StartError, header
from app.util.errors import CodedError
from app.views.feature import Action, Feature
from app.views.run.session import Run
from app.views.workspace import Workspace

# --- Transfer learning on the last layer: replace it, drop it, or freeze all others

W = TypeVar("W", bound=Whole)

SIZES = ("out_features", "out_channels")
MOST = 10_000_000
_HOLDING = {"conv", "linear", "norm", "seq"}
_EMPTY = {
    "nn.Identity",
    "nn.Unfold",
    "nn.Fold",
    "nn.LocalResponseNorm",
    "nn.CrossMapLRN2d",
}
_ALSO = {"nn.PReLU"}


class HeadError(CodedError, ValueError):
    """An invalid edit of the last layer; the text says why and what to do."""


class Head(Struct, frozen=True):
    """Position of the last layer: `way` are the instances that contain it, outermost first, `sheet` is the name of its
    block or ""."""

    way: tuple[str, ...]
    sheet: str
    node: str


def holds_parameters(spec: OpSpec) -> bool:
    """Return whether a layer of this op usually has parameters; a block, whether any layer inside has."""
    if spec.definition is not None:
        return any(holds_parameters(inner_spec) for inner_spec in _inside(spec))
    if spec.kind != "module":
        return spec.kind in ("custom", "parameter")
    return spec.key in _ALSO or (spec.category in _HOLDING and spec.key not in _EMPTY)


def _inside(spec: OpSpec) -> list[OpSpec]:
    specs, blocks = (
        catalog(),
        [block for block in (spec.definition, *spec.contains) if block is not None],
    )
    ops = {
        node.op
        for block in blocks
        for node in block.graph.nodes.values()
        if not block_of(node.op)
    }
    return [
        specs[op]
        if op in specs
        else replace(spec, key=op, kind="custom", definition=None)
        for op in ops
    ]


def last_layer(project: Whole, ops: Catalog) -> Head:
    """Return the layer with parameters nearest to the first output. Raises HeadError."""
    outputs = [node for node in project.graph.nodes.values() if node.op == "output"]
    if not outputs:
        raise HeadError("The net has no output; add one after its last layer.")
    nearest = _nearest(
        project, with_blocks(ops, project.blocks), NETWORK, outputs[0].id
    )
    if nearest is None:
        raise HeadError(
            "No layer with parameters before the output. Add one, such as Linear."
        )
    return nearest


def _nearest(project: Whole, ops: Catalog, sheet: str, output: str) -> Head | None:
    """Search backwards from an output, level by level. Raises HeadError if two layers are equally near."""
    graph = block_edits.sheet_named(project, sheet).graph
    edges, visited = list(graph.into(output)), {output}
    while edges:
        heads = [
            head
            for edge in edges
            if (head := _layer_at(project, ops, graph, sheet, edge)) is not None
        ]
        if (
            len(
                {
                    (
                        head.sheet,
                        graph.owner(head.node).id if head.sheet == sheet else head.node,
                    )
                    for head in heads
                }
            )
            > 1
        ):
            names = " and ".join(_node(project, head).name for head in heads[:2])
            raise HeadError(
                f"{names} are both last layers. Select one of them and edit it."
            )
        if heads:
            return heads[0]
        visited |= {edge.source for edge in edges}
        before = [arriving for edge in edges for arriving in graph.into(edge.source)]
        edges = list(
            {
                edge.source: edge for edge in before if edge.source not in visited
            }.values()
        )
    return None


def _layer_at(
    project: Whole, ops: Catalog, graph: Graph, sheet: str, edge: Edge
) -> Head | None:
    """Return the last layer at the source of a wire: the node itself, or the last inside it."""
    node = graph.nodes[edge.source]
    if node.muted:
        return None
    name = block_of(node.op)
    if name in project.blocks:
        block = project.blocks[name]
        inner = _nearest(
            project,
            ops,
            name,
            block.outputs[min(edge.output, len(block.outputs) - 1)].id,
        )
        return replace(inner, way=(node.id, *inner.way)) if inner is not None else None
    spec = ops.spec_of(graph, node)
    return (
        Head((), sheet, node.id)
        if spec.kind != "parameter" and holds_parameters(spec)
        else None
    )


def _node(project: Whole, head: Head) -> Node:
    graph = block_edits.sheet_named(project, head.sheet).graph
    return graph.owner(head.node)


def size_of(project: Whole, ops: Catalog) -> tuple[Node, str]:
    """Return the last layer and its parameter for the number of outputs. Raises HeadError if it has none."""
    node = _node(project, last_layer(project, ops))
    spec = with_blocks(ops, project.blocks)[node.op]
    for name in SIZES:
        if spec.param(name) is not None:
            return node, name
    raise HeadError(
        f"The last layer is {node.name}, a {spec.label}: it has neither out_features nor out_channels."
    )


def _alone(project: W, ops: Catalog) -> tuple[W, Head]:
    """Unshare the blocks around the last layer. Raises HeadError."""
    head, sheet = last_layer(project, ops), NETWORK
    for node in (*head.way, head.node):
        graph = block_edits.sheet_named(project, sheet).graph
        owner = graph.owner(node)
        if owner.repeat > 1:
            raise HeadError(
                f"{owner.name} is repeated {owner.repeat} times; set its repeats to 1 or expand it first."
            )
        if len(graph.sharing(node)) > 1:
            raise HeadError(
                f"{owner.name} is called more than once; unshare the last call first."
            )
        name = block_of(owner.op)
        if name:
            if len(block_edits.instances(project, name)) > 1:
                project, name = block_edits.make_unique(project, sheet, node)
            sheet = name
    return project, replace(head, sheet=sheet)


def replace_last(project: W, ops: Catalog, size: int) -> W:
    """Replace the last layer by one of its kind with `size` outputs, unfrozen. Raises HeadError."""
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST:
        raise HeadError(
            f"{size!r} is not a number of outputs; expected an integer of at least 1."
        )
    _, parameter = size_of(project, ops)
    project, head = _alone(project, ops)
    sheet = block_edits.sheet_named(project, head.sheet)
    node = sheet.graph.nodes[head.node]
    node = replace(node, params=node.params.set(parameter, size), frozen=False)
    project = block_edits.with_sheet(
        project, head.sheet, changed(sheet, graph=sheet.graph.with_node(node))
    )
    return _flagged(
        project, head, lambda _graph, node, leads: node.frozen and not leads
    )


def drop_last(project: W, ops: Catalog) -> W:
    """Remove the last layer and connect its input to its consumers. Raises HeadError."""
    project, head = _alone(project, ops)
    sheet = block_edits.sheet_named(project, head.sheet)
    fed = [edge.target for edge in sheet.graph.out_of(head.node)]
    name = sheet.graph.nodes[head.node].name
    after = edits.delete_and_reconnect(
        sheet, with_blocks(ops, project.blocks), [head.node]
    )
    if any(
        len(after.graph.into(target)) < len(sheet.graph.into(target)) for target in fed
    ):
        raise HeadError(
            f"The input of {name} does not fit the nodes after it; change the wires by hand."
        )
    if head.sheet == NETWORK:
        return block_edits.with_sheet(project, NETWORK, after)
    return block_edits.put_block(project, head.sheet, cast(Block, after))


def freeze_all_but_last(project: W, ops: Catalog) -> W:
    """Freeze everything with parameters but the last layer. Raises HeadError."""
    project, head = _alone(project, ops)
    extended = with_blocks(ops, project.blocks)

    def flag(graph: Graph, node: Node, leads: bool) -> bool:
        return not leads and (
            node.frozen
            or (not node.shares and holds_parameters(extended.spec_of(graph, node)))
        )

    return _flagged(project, head, flag)


def _flagged(project: W, head: Head, flag: Callable[[Graph, Node, bool], bool]) -> W:
    """Set `frozen` by `flag(graph, node, contains the last layer)` on every sheet from the network to the last
    layer's."""
    name = NETWORK
    for step in (*head.way, head.node):
        sheet = block_edits.sheet_named(project, name)
        graph = sheet.graph
        for node in sheet.graph.nodes.values():
            if (frozen := flag(sheet.graph, node, node.id == step)) != node.frozen:
                graph = graph.with_node(replace(node, frozen=frozen))
        if graph is not sheet.graph:
            project = block_edits.with_sheet(project, name, changed(sheet, graph=graph))
        name = block_of(graph.nodes[step].op)
    return project


# --- The last layer of the net: replace it, remove it, or train it alone. Refusals are shown on the canvas


class HeadControl(QObject):
    """Commands on the whole project, each one undo step."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace

    def offered(self) -> list[QAction]:
        """Return the commands for the context menu of the last layer; none for other nodes."""
        project, workspace = self._workspace.document.project, self._workspace
        node = workspace.sheet.project.graph.nodes.get(workspace.selection.single or "")
        if node is None or workspace.place.path or node.op in ("input", "output"):
            return []
        try:
            head = last_layer(project, self._ops)
        except (HeadError, BlockError):
            return []
        if (head.way or (head.node,))[0] != node.id:
            return []
        return [
            workspace.commands[key]
            for key in ("replace-last", "drop-last", "freeze-but-last")
        ]

    def ask_replace(self) -> None:
        """Ask for the number of outputs of a new last layer."""
        project = self._workspace.document.project
        try:
            head = last_layer(project, self._ops)
            node, parameter = size_of(project, self._ops)
        except (HeadError, BlockError) as error:
            self._workspace.drawing.say(str(error))
            return
        self._workspace.jump_to((*head.way, head.node)[0])
        now = node.params.get(parameter, "")
        hint = f"{parameter} of the new {catalog()[node.op].label}. It is trainable; everything else stays unchanged."
        self._workspace.drawing.ask(
            f"Replace {node.name}: outputs", str(now), hint, self._on_size_entered
        )

    def _on_size_entered(self, text: str) -> str:
        """Replace the last layer; return "" or why it was refused."""
        try:
            return self.replace(int(text))
        except ValueError:
            return f"{text!r} is not an integer."

    def replace(self, size: int) -> str:
        """Insert a new last layer without the old one's start weights. Return "" or why it was refused."""
        return self._do(
            "Replace the last layer",
            lambda project: replace_last(project, self._ops, size),
        )

    def drop(self) -> None:
        edit = self._do(
            "Remove the last layer",
            lambda project: drop_last(project, self._ops),
        )
        self._report_refusal(edit)

    def freeze(self) -> None:
        """Freeze all but the last layer."""

        def edit(project: Project) -> Project:
            return freeze_all_but_last(project, self._ops)

        self._report_refusal(
            self._do("Freeze all but the last layer", edit, lets_go=False)
        )

    @property
    def _ops(self) -> Catalog:
        return self._workspace.catalog.now

    def _report_refusal(self, refusal: str) -> None:
        if refusal:
            self._workspace.drawing.say(refusal)

    def _do(
        self, text: str, edit: Callable[[Project], Project], lets_go: bool = True
    ) -> str:
        workspace, before = self._workspace, self._workspace.document.project
        try:
            head = last_layer(before, self._ops)
            after = edit(before)
        except (HeadError, BlockError) as error:
            return str(error)
        gone = 0
        if lets_go:
            after, gone = self._without_weights_of(head, after)
        if after == before:
            return "Nothing changes: the last layer is like that already, and has no start weights."
        workspace.document.apply(text, after)
        if gone:
            workspace.notifier.say(
                text,
                f"{gone} of its start weights no longer apply; they are initialised from the seed.",
            )
        self._show(head)
        return ""

    def _show(self, head: Head) -> None:
        """Scroll to the last layer inside its blocks; if it was removed, show its sheet."""
        workspace = self._workspace
        workspace.place.go_to(tuple((node, 0) for node in head.way))
        workspace.show_node(head.node)

    def _without_weights_of(self, head: Head, project: Project) -> tuple[Project, int]:
        """Drop the removed layer's start weights; return the project and their number."""

        start, analysis = project.training.start, self._workspace.live.analysis
        if start is None or analysis is None or not self._workspace.live.up_to_date:
            return project, 0
        inside = analysis.source.within(tuple((node, 0) for node in head.way))
        module = inside.modules.get(head.node)
        try:
            start_keys = tuple(header(start))
        except StartError:
            return project, 0
        remaining_keys = tuple(
            key
            for key in start_keys
            if module is None or not key.startswith(f"{module}.")
        )
        if len(remaining_keys) == len(start_keys):
            return project, 0
        return with_start(
            project, replace(start, keys=remaining_keys) if remaining_keys else None
        ), len(start_keys) - len(remaining_keys)


INITS = "Initialises new weights as the imported model does"


class WeightsFeature(Feature):
    rank = 90

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.weights_control, self.head_control = (
            WeightsControl(workspace),
            HeadControl(workspace),
        )
        workspace.drawing.of_node.append(self.head_control.offered)
        workspace.run_control.started.connect(self._run_started)

    def actions(self) -> Iterable[Action]:
        weights, head = self.weights_control, self.head_control
        return (
            Action(
                "load-weights",
                "&Load weights…",
                weights.ask,
                "Ctrl+Shift+W",
                "folder",
                menu="file.weights",
            ),
            Action(
                "save-weights", "Save &weights…", weights.ask_save, menu="file.weights"
            ),
            Action(
                "forget-weights",
                "Start from random weights",
                weights.forget,
                enabled=False,
                menu="run.weights",
            ),
            Action(
                "take-inits",
                "Initialise as the imported model",
                weights.take_inits,
                tip=INITS,
                enabled=False,
                menu="run.weights",
            ),
            Action(
                "replace-last",
                "Replace the &last layer…",
                head.ask_replace,
                menu="layer.last",
            ),
            Action("drop-last", "&Remove the last layer", head.drop, menu="layer.last"),
            Action(
                "freeze-but-last",
                "Free&ze all but the last layer",
                head.freeze,
                icon="snowflake",
                menu="layer.last",
            ),
        )

    def drop(self, data: QMimeData) -> Callable[[], object] | None:
        path = self.weights_control.takes(data)
        return None if path is None else lambda: self.weights_control.offer(path)

    def _run_started(self, run: Run) -> None:
        start = run.job.training.start
        if start is not None:
            note = self.workspace.session.note
            self.weights_control.tell_start(
                "weights.console",
                start,
                run.job.source,
                lambda text, _whole: note(f"{text}."),
            )
