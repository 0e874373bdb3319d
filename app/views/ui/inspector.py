"""Inspector of the Autograd tab: one backward node, or one layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import PurePath

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QGridLayout,
    QLabel,
    QLayout,
    QScrollArea,
    QSizePolicy,
    QWidget,
)

from app.autograd.grouping import LayerGroup, held_by_module
from app.autograd.pictures.op_category import node_category
from app.autograd.playback.memory_timeline import held_in_modules
from app.autograd.tape import SavedTensor, Tape, TapeEdge, TapeNode
from app.util.formatting import bytes_text, plural, shape_text
from app.views.ui.layouts import hbox, vbox
from app.views.ui.op_rows import Tile
from app.views.ui.present import present
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.fitting_label import FittingLabel
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.section import Section

_SHORT = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "complex64": "c64",
    "complex128": "c128",
}
# Operations that broadcast their operands, and those of matrices that broadcast what they add.
_ELEMENTWISE = re.compile(
    r"(Add|Sub|Rsub|Mul|Div|Pow|Where|Maximum|Minimum|Fmax|Fmin|Atan2|Fmod|Remainder|Lerp|Addcmul|Addcdiv|Hypot|Xlogy|"
    r"Expand)Backward\d*$"
)
_WITH_BIAS = re.compile(r"(Addmm|Addmv|Addbmm|Baddbmm)Backward\d*$")
MOST_MODULES = 24  # that are listed with their bytes
MOST_ROWS = 8  # tensors of a layer that are listed at first
_KINDS = {
    "parameter": "a parameter",
    "buffer": "a buffer",
    "input": "an input that exists anyway",
}


# A callable that creates further sections for an item.
Sections = Callable[[Tape, TapeNode | LayerGroup], Iterable[QWidget]]


class TapeInspector(QScrollArea):
    """Shows a `TapeNode` or a `LayerGroup` of a tape, or all of it; without a tape, a hint.

    `above` creates the sections right below the title, `below` those at the end: append a callable to either list, and
    call `refresh` when its sections change.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setAccessibleName("Operation")
        self.setFrameShape(QScrollArea.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._shown: TapeNode | LayerGroup | None = None
        self.tape: Tape | None = None
        self._top: QWidget | None = None
        self._bottom: QWidget | None = None
        self.above: list[Sections] = []
        self.below: list[Sections] = []
        self.show_item(None, None)

    def shown_item(self) -> TapeNode | LayerGroup | None:
        """Return the item in view."""
        return self._shown

    def show_item(self, tape: Tape | None, item: TapeNode | LayerGroup | None) -> None:
        """Show one node or one layer of `tape`, or for None the whole of it."""
        if (
            item is None
            and self._shown is None
            and tape is self.tape
            and self.widget() is not None
        ):
            return
        self._shown, self.tape = item, tape
        if tape is None:
            self.setWidget(
                EmptyState(
                    "autograd",
                    "Nothing selected",
                    "Click a backward operation to see which tensors it saves and why.",
                )
            )
            return
        page = QWidget()
        layout = vbox(on=page, margins=0, spacing=0)
        parts = (
            _tape_page(tape)
            if item is None
            else _node_page(tape, item)
            if isinstance(item, TapeNode)
            else _group_page(tape, item)
        )
        self._top = self._sections_of(self.above)
        self._bottom = self._sections_of(self.below)
        title, *rest = parts
        for widget in (title, self._top, *rest, self._bottom):
            layout.addWidget(widget)
        layout.addStretch(1)
        self.setWidget(page)

    def refresh(self, below: bool = False) -> None:
        """Recreate the sections of `above`, and with `below` those too; the rest stays."""
        if self._shown is None or self._top is None:
            return
        layout = present(present(self.widget()).layout())
        before, self._top = self._top, self._sections_of(self.above)
        _replace(layout, before, self._top)
        if below and self._bottom is not None:
            before, self._bottom = self._bottom, self._sections_of(self.below)
            _replace(layout, before, self._bottom)

    def _sections_of(self, givers: list[Sections]) -> QWidget:
        """Return a column with the sections of these callables."""
        column = QWidget()
        layout = vbox(on=column, margins=0, spacing=0)
        if self.tape is not None and self._shown is not None:
            for give in givers:
                for section in give(self.tape, self._shown):
                    layout.addWidget(section)
        return column


def _replace(layout: QLayout, before: QWidget, after: QWidget) -> None:
    layout.replaceWidget(before, after)
    before.hide()
    before.deleteLater()


def _node_page(tape: Tape, node: TapeNode) -> Iterable[QWidget]:
    step = tape.steps.get(node.id)
    where = (
        f"{tape.title_of(node)} · step {step + 1} of {len(tape.order)}"
        if step is not None
        else tape.title_of(node)
    )
    label_ = tape.labels.get(node.node) if node.node is not None else None
    category = (
        "loss"
        if node.in_loss
        else label_.category
        if label_ and label_.category
        else node_category(node.name)
    )
    yield _title(node.name, where, category)
    if node.parameters:
        yield _parameter_section(node)
    if node.saved:
        yield _saved_section(tape, [node])
    elif not node.is_leaf:
        reason = "This operation needs no tensor of the forward pass for its gradient."
        yield _text_section("Saved tensors", "none", reason)
    if node.values:
        yield _values_section(node)
    yield _edges_section(tape, node)
    if node.line is not None:
        yield _code_section(
            "First used by" if node.is_leaf else "Created by",
            tape.code_of(node),
            node.line,
            node.file,
        )


def _tape_page(tape: Tape) -> Iterable[QWidget]:
    """Show the whole graph: what its modules hold for backward."""
    count = len(tape.order)
    yield _title(
        "The whole graph", f"{count:,} backward {plural(count, 'node')}", "block"
    )
    section = Section("Memory for backward", f"{bytes_text(tape.held_bytes)} held")
    section.body_layout.addWidget(
        note("Click a backward operation to see which tensors it saves and why.")
    )
    yield section
    yield from _by_module_section(tape, held_in_modules(tape))


def _by_module_section(tape: Tape, by_module: dict[str, int]) -> Iterable[QWidget]:
    """Show the bytes by module, or by line of a snippet without modules, the most first."""
    sizes = [(path, count) for path, count in by_module.items() if count]
    if len(sizes) < 2:
        return
    unit = "module" if tape.layers else "line"
    section = Section(f"Held by {unit}", f"{len(sizes)} {unit}s")
    section.body_layout.addWidget(
        table([(path, bytes_text(count)) for path, count in sizes[:MOST_MODULES]])
    )
    rest = sizes[MOST_MODULES:]
    if rest:
        more = f"{len(rest):,} more hold {bytes_text(sum(count for _, count in rest))}."
        section.body_layout.addWidget(note(more))
    section.body_layout.addWidget(
        note("A tensor saved by several nodes is counted where it is freed.")
    )
    yield section


def _group_page(tape: Tape, group: LayerGroup) -> Iterable[QWidget]:
    count = len(group.nodes)
    parts = [
        group.path if group.path != group.title else "",
        group.kind,
        f"{count} {plural(count, 'backward node')}",
    ]
    yield _title(group.title, " · ".join(filter(None, parts)), group.category)
    section = Section("Memory for backward", f"{bytes_text(group.held)} held")
    section.body_layout.addWidget(
        table(
            [
                ("held by this layer", bytes_text(group.held)),
                ("freed when it has run", bytes_text(group.freed)),
            ]
        )
    )
    section.body_layout.addWidget(
        note(
            "Several nodes can save the same tensor; the last of them to run in backward frees it."
        )
    )
    yield section
    yield from _by_module_section(tape, held_by_module(tape, group.nodes))
    nodes_with = [tape.nodes[node] for node in group.nodes if tape.nodes[node].saved]
    if nodes_with:
        yield _saved_section(tape, nodes_with)
    if group.parameters:
        parameters = Section("Parameters", str(len(group.parameters)))
        for name in group.parameters:
            parameters.body_layout.addWidget(FittingLabel(name, "formula", "text2"))
        yield parameters
    names: dict[str, int] = {}
    for node in group.nodes:
        names[tape.nodes[node].name] = names.get(tape.nodes[node].name, 0) + 1
    nodes = Section("Operations", str(count))
    nodes.body_layout.addWidget(
        table([(name, f"×{n}" if n > 1 else "") for name, n in names.items()])
    )
    yield nodes


def _title(name: str, where: str, category: str) -> QWidget:
    widget = QWidget()
    tile = Tile()
    tile.set_category(category)
    title = label(name, "title", wrap=False)
    title.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    title.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    title.setToolTip(name)
    location = label(
        where.replace(".", ".\u200b"), "caption", "text3", wrap=True
    )  # a long path breaks at its dots
    location.setAccessibleName(where)
    column = vbox(title, location, spacing=1)
    hbox(
        (tile, 0, Qt.AlignmentFlag.AlignTop),
        (column, 1),
        on=widget,
        margins=12,
        spacing=10,
    )
    return widget


def _saved_section(tape: Tape, nodes: list[TapeNode]) -> Section:
    """Return a row per tensor: name over shape, dtype, bytes, version, below a line that says whose they are if there
    are several nodes; memory held only for backward is totalled on top. Of very many those that hold the most come
    first, and the rest when they are asked for."""
    blocks = {
        s.storage: tape.storages[s.storage].bytes
        for node in nodes
        for s in node.saved
        if s.kind == "activation"
    }
    section = Section("Saved tensors", f"{bytes_text(sum(blocks.values()))} held")
    if len(nodes) > 1:
        nodes = sorted(
            nodes,
            key=lambda node: (
                -sum(s.bytes for s in node.saved if s.kind == "activation")
            ),
        )
    named = len(nodes) > 1
    tensors = accumulate(len(node.saved) for node in nodes)
    shown = next(
        (at for at, count in enumerate(tensors, 1) if count >= MOST_ROWS), len(nodes)
    )
    section.body_layout.addWidget(_saved_table(tape, nodes[:shown], named))
    if rest := nodes[shown:]:
        more = Button(f"Show {sum(len(node.saved) for node in rest):,} more", "link")

        def show_rest() -> None:
            more.hide()
            section.body_layout.insertWidget(
                section.body_layout.indexOf(more), _saved_table(tape, rest, named)
            )

        more.clicked.connect(show_rest)
        section.body_layout.addWidget(more)
    section.body_layout.addWidget(
        note(_saved_note([saved for node in nodes for saved in node.saved]))
    )
    return section


def _saved_table(tape: Tape, nodes: Iterable[TapeNode], named: bool) -> QWidget:
    """Return the rows of the tensors of some nodes, with the nodes' names if `named`."""
    widget = QWidget()
    grid = QGridLayout(widget)
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setHorizontalSpacing(8)
    grid.setVerticalSpacing(6)
    right = Qt.AlignmentFlag.AlignRight
    for column, head in enumerate(("Tensor", "Type", "Size", "Version")):
        grid.addWidget(
            label(head, "caption", "text3"),
            0,
            column,
            right if column > 1 else Qt.AlignmentFlag.AlignLeft,
        )
    row = 1
    for node in nodes:
        if named:
            whose = f"{tape.title_of(node)} · {node.name}"
            grid.addWidget(
                FittingLabel(
                    whose,
                    "caption",
                    "text3",
                    f"Saved by {node.name} of {tape.title_of(node)}",
                ),
                row,
                0,
                1,
                4,
            )
            row += 1
        for tensor in node.saved:
            for column, saved_cell in enumerate(_saved_cells(tape, tensor)):
                side = (
                    right | Qt.AlignmentFlag.AlignTop
                    if column > 1
                    else Qt.AlignmentFlag.AlignTop
                )
                grid.addWidget(saved_cell, row, column, side)
            row += 1
    grid.setColumnStretch(0, 1)
    return widget


def _saved_cells(tape: Tape, tensor: SavedTensor) -> tuple[QWidget, ...]:
    name, shape = QWidget(), shape_text(tensor.shape, "scalar")
    vbox(
        FittingLabel(tensor.name, "formula"),
        FittingLabel(shape, "caption", "text2"),
        on=name,
        margins=0,
        spacing=1,
    )
    size, tip = bytes_text(tensor.bytes), ""
    storage_bytes = tape.storages[tensor.storage].bytes
    if tensor.kind == "activation" and storage_bytes > tensor.bytes:
        size, tip = (
            f"{size}\nof {bytes_text(storage_bytes)}",
            "A view: its whole storage is held",
        )
    return (
        name,
        cell(_SHORT.get(tensor.dtype, tensor.dtype), "caption", "text2", tensor.dtype),
        cell(size, "caption", "" if tensor.kind == "activation" else "text3", tip),
        _version(tensor),
    )


def _saved_note(rows: list[SavedTensor]) -> str:
    sentences = []
    if any(s.version is not None for s in rows):
        sentences.append(
            "Version is saved / now. Equal numbers: no in-place change since the forward pass."
        )
    if any(s.version is not None and s.version != s.version_now for s in rows):
        sentences = [
            "Version is saved / now. Where they differ, the tensor was changed in place and backward will raise "
            "an error."
        ]
    if any(s.version is None for s in rows):
        sentences.append(
            "PyTorch does not expose the saved version of tensors marked with a dash."
        )
    for kind, description in _KINDS.items():
        names = list(dict.fromkeys(s.name for s in rows if s.kind == kind))
        if names:
            verb = "is" if len(names) == 1 else "are each"
            sentences.append(
                f"{', '.join(names)} {verb} {description} and not counted as held."
            )
    return " ".join(sentences)


def _version(saved: SavedTensor) -> QLabel:
    if saved.version is None:
        return cell(
            "—",
            "caption",
            "text3",
            "PyTorch does not expose the version at which this tensor was saved",
        )
    same = saved.version == saved.version_now
    return cell(
        f"{saved.version} / {saved.version_now}", "caption", "run" if same else "error"
    )


def _values_section(node: TapeNode) -> Section:
    section = Section("Saved values", str(len(node.values)))
    section.body_layout.addWidget(
        table([(name, str(value)) for name, value in node.values.items()])
    )
    return section


def _parameter_section(node: TapeNode) -> Section:
    section = Section("Parameter", "shared" if len(node.parameters) > 1 else "")
    for name in node.parameters:
        section.body_layout.addWidget(FittingLabel(name, "formula"))
    explanation = "AccumulateGrad adds the incoming gradient to this tensor's .grad."
    if len(node.parameters) > 1:
        explanation += " These names share one tensor, so their gradients are summed."
    section.body_layout.addWidget(note(explanation))
    return section


def _edges_section(tape: Tape, node: TapeNode) -> Section:
    """Show sources and targets of gradients, with their shapes."""
    incoming, outgoing = tape.incoming.get(node.id, ()), tape.outgoing.get(node.id, ())
    section = Section("Gradients", f"{len(incoming)} in, {len(outgoing)} out")
    ways = [(f"from {_name(tape, edge.source)}", edge.shape) for edge in incoming]
    ways += [(f"to {_name(tape, edge.target)}", edge.shape) for edge in outgoing]
    rows = [
        (way, shape_text(shape, "scalar") if shape is not None else "")
        for way, shape in ways
    ]
    if not incoming:
        section.body_layout.addWidget(
            note("Backward starts here, with a gradient of ones.")
        )
    section.body_layout.addWidget(table(rows))
    if node.is_leaf:
        for message in dict.fromkeys(
            filter(None, (_broadcast(tape, edge) for edge in incoming))
        ):
            section.body_layout.addWidget(note(message))
    return section


def _broadcast(tape: Tape, edge: TapeEdge) -> str:
    """Say that an operation sums its gradient to the shape of a leaf, which it broadcast; "" if it did not."""
    name = tape.nodes[edge.source].name
    if not (_ELEMENTWISE.match(name) or (edge.slot == 0 and _WITH_BIAS.match(name))):
        return ""
    arriving = next(
        (
            source_edge.shape
            for source_edge in tape.incoming.get(edge.source, ())
            if source_edge.output_nr == 0
        ),
        None,
    )
    if (
        arriving is None
        or edge.shape is None
        or arriving == edge.shape
        or len(edge.shape) > len(arriving)
    ):
        return ""
    if any(
        leaf_size not in (1, size)
        for leaf_size, size in zip(
            reversed(edge.shape), reversed(arriving), strict=False
        )
    ):
        return ""
    return (
        f"{_name(tape, edge.source)} broadcasts this tensor, so an incoming gradient of "
        f"{shape_text(arriving, 'scalar')} is summed to {shape_text(edge.shape, 'scalar')}."
    )


def _name(tape: Tape, number: int) -> str:
    node = tape.nodes[number]
    return node.parameters[0] if node.parameters else node.name


def _code_section(title: str, code: str, line: int, file: str) -> Section:
    section = Section(
        title, f"line {line} of {PurePath(file).name}" if file else f"line {line}"
    )
    section.setToolTip(file)
    text = label(code, "formula", wrap=True)
    text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    section.body_layout.addWidget(text)
    return section


def _text_section(title: str, caption: str, text: str) -> Section:
    section = Section(title, caption)
    section.body_layout.addWidget(note(text))
    return section


def note(text: str) -> QLabel:
    result = label(text, "caption", "text3", wrap=True)
    result.setMinimumWidth(1)
    return result


def cell(text: str, role: str, tone: str = "", tip: str = "") -> QLabel:
    result = label(text, role, tone)
    result.setToolTip(tip)
    result.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return result


def table(rows: Iterable[tuple[str, str]]) -> QWidget:
    """Return two columns of text, the second in the code font at right."""
    widget = QWidget()
    grid = QGridLayout(widget)
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setHorizontalSpacing(10)
    grid.setVerticalSpacing(5)
    for row, (name, value) in enumerate(rows):
        grid.addWidget(FittingLabel(name, "caption", "text2"), row, 0)
        grid.addWidget(
            cell(value, "formula", "", value), row, 1, Qt.AlignmentFlag.AlignRight
        )
    grid.setColumnStretch(0, 1)
    return widget
