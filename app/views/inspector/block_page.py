"""The inspector inside a block with no node selected: the block itself and its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QWidget

from app.builder.blocks import Block, BlockError
from app.builder.catalog.catalog import Param
from app.builder.diagnostics.problems import Problem
from app.builder.edits import block_params, blocks
from app.builder.expressions import expressions
from app.util.formatting import counted, grouped_digits
from app.views.fields.editor_factory import make_editor, suits
from app.views.fields.editors import Editor
from app.views.fields.line_edits import NameLine, NotesField
from app.views.fields.tab_order import TabDown
from app.views.inspector.edit_target import EditTarget
from app.views.inspector.io_section import InputsOutputsSection
from app.views.inspector.sections import CostBar, emptied
from app.views.ui.layouts import vbox
from app.views.ui.widgets import Section, icon_button
from app.views.ui.widgets.painting import label, show_or_hide

if TYPE_CHECKING:
    from app.builder.results import Analysis

# --- The parameters that a block exposes: name, default, and where they are used inside

_NONE = "None yet. Expose a number of an inner node from its field's menu; each instance can then set it."


class BlockParams(Section):
    """A line a parameter: its name, its default, a button that takes it away; below, the fields that follow it."""

    def __init__(self, front: EditTarget) -> None:
        super().__init__("Parameters of the block")
        self._front = front
        self._shown: object = None
        self.names: dict[str, NameLine] = {}
        self.editors: dict[str, Editor] = {}
        self.problem = label("", "caption", "error", wrap=True)

    def show_block(self, block: Block) -> None:
        """Show the parameters of a block, keeping text that is being typed."""
        self.set_caption("name, default" if block.params else "")
        shown = (block.name, tuple(param.name for param in block.params), _uses(block))
        fitting = shown == self._shown and all(
            suits(self.editors[param.name], param.default) for param in block.params
        )
        if not fitting:
            self._shown = shown
            self._make(block)
        for param in block.params:
            self.editors[param.name].set_value(param.default)

    def _make(self, block: Block) -> None:
        column = emptied(self)
        self.names, self.editors = {}, {}
        if not block.params:
            column.addWidget(label(_NONE, "label", "text3", wrap=True))
            return
        holder = QWidget()
        grid = QGridLayout(holder)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(3)
        grid.setColumnStretch(0, 1)
        grid.setColumnStretch(1, 1)
        uses = _uses(block)
        for row, param in enumerate(block.params):
            self._make_line(grid, 2 * row, block, param, uses[row])
        column.addWidget(holder)
        self.problem = label("", "caption", "error", wrap=True)
        self.problem.hide()
        column.addWidget(self.problem)

    def _make_line(
        self,
        grid: QGridLayout,
        row: int,
        block: Block,
        param: Param,
        uses: tuple[str, ...],
    ) -> None:
        name = NameLine(
            param.name,
            f"Name of the parameter {param.name}",
            lambda text: block_params.check_param_name(block, text, param.name),
        )
        name.set_hint(param.name)
        editor = make_editor(param, param.default)
        editor.name_it(
            f"Default of {param.name}", "Default for instances that do not set it."
        )
        remove = icon_button(
            "close", f"Remove {param.name}; its default is used inside instead"
        )
        remove.setFixedSize(22, 22)
        used = label(
            ", ".join(uses) if uses else "not used by any field inside",
            "caption",
            "text3",
            wrap=True,
        )
        used.setTextInteractionFlags(Qt.TextInteractionFlag.NoTextInteraction)
        grid.addWidget(name, row, 0)
        grid.addWidget(editor, row, 1)
        grid.addWidget(remove, row, 2)
        grid.addWidget(used, row + 1, 0, 1, 3)
        name.named.connect(
            lambda new: self._edit(
                f"Rename {param.name}",
                lambda p: block_params.rename_param(p, block.name, param.name, new),
            )
        )
        name.refused.connect(self._show_problem)
        editor.problem_changed.connect(self._show_problem)
        editor.edited.connect(
            lambda value: self._set(block.name, param.name, value, editor)
        )
        remove.clicked.connect(
            lambda: self._edit(
                f"Remove parameter {param.name}",
                lambda p: block_params.unexpose(
                    p, block.name, self._front.catalog, param.name
                ),
            )
        )
        self.names[param.name], self.editors[param.name] = name, editor

    def _set(self, block: str, name: str, value: Any, editor: Editor) -> None:
        merge = f"{block}.{name}/{id(editor)}/{editor.visit}" if editor.typed else None
        self._edit(
            f"Set {name} of {block}",
            lambda p: block_params.set_default(p, block, name, value),
            merge,
        )

    def _edit(self, text: str, edit: Any, merge: str | None = None) -> None:
        try:
            self._front.apply_whole(text, edit, merge)
        except BlockError as error:
            self._show_problem(str(error))

    def _show_problem(self, message: str) -> None:
        show_or_hide(self.problem, message)


def _uses(block: Block) -> tuple[tuple[str, ...], ...]:
    """Return for each parameter the fields inside that are computed from it."""
    fields_by_param: dict[str, list[str]] = {param.name: [] for param in block.params}
    for node in block.graph.nodes.values():
        for key, value in node.params.items():
            for name in {
                name for expression in expressions(value) for name in expression.names
            }:
                if name in fields_by_param:
                    fields_by_param[name].append(f"{node.name}.{key}")
    return tuple(tuple(uses) for uses in fields_by_param.values())


class BlockPage(TabDown):
    """One block: name, inputs and outputs, parameters, a note. Edits apply to all its instances."""

    refused = Signal(str)

    def __init__(self, front: EditTarget) -> None:
        super().__init__()
        self._front = front
        self._analysis: Analysis | None = None
        self._size: object = None
        self.name = NameLine("", "Name of the block", self._check_name)
        self.problem = label("", "caption", "error", wrap=True)
        self.problem.hide()
        self.follow = label("", "label", "text3", wrap=True)
        self.params = BlockParams(front)
        self.ends = InputsOutputsSection(
            "The block has no inputs or outputs yet. Add an Input and an Output."
        )
        self.inside = Section("Inside")
        self.note = NotesField("What this block does.", "Note of the block")
        notes = Section("Note")
        notes.body_layout.addWidget(self.note)
        head = vbox(
            label("Block: a class in the code", "caption", "text3"),
            self.name,
            self.problem,
            self.follow,
            margins=12,
            spacing=5,
        )
        vbox(
            head,
            self.params,
            self.ends,
            self.inside,
            notes,
            1,
            on=self,
            margins=0,
            spacing=0,
        )
        self.name.named.connect(self._rename)
        self.name.refused.connect(self._show_problem)
        self.note.textChanged.connect(self._write_note)

    def set_analysis(self, analysis: Analysis, problems: Sequence[Problem]) -> None:
        """Set the analysis of the graph; `refresh` shows it."""
        self._analysis = analysis

    def refresh(self) -> None:
        """Show the block in front as it is now."""
        block = self._front.block
        if block is None:
            return
        self.name.set_value(block.name)
        self.note.show_text(block.note)
        count = len(blocks.instances(self._front.whole, block.name))
        many = f"{counted(count, 'instance')} {'follows' if count == 1 else 'follow'} every edit made here."
        self.follow.setText(many if count else "It has no instances.")
        self.params.show_block(block)
        self.ends.show_ends(block.graph, self._analysis)
        self._show_size(block)

    def _show_size(self, block: Block) -> None:
        analysis = self._analysis
        analysed = analysis is not None and analysis.graph is block.graph
        total = analysis.total_parameters if analysis and analysed else None
        if (size := (len(block.graph.nodes), total)) == self._size:
            return
        self._size = size
        column = emptied(self.inside)
        column.addWidget(
            CostBar("Nodes", grouped_digits(len(block.graph.nodes)), None, "", "block")
        )
        if total is not None:
            column.addWidget(
                CostBar("Parameters", grouped_digits(total), None, "", "block")
            )

    def _check_name(self, name: str) -> None:
        block = self._front.block
        blocks.check_name(self._front.whole, name, block.name if block else "")

    def _rename(self, name: str) -> None:
        old = self._front.name
        try:
            self._front.apply_whole(
                f"Rename {old}", lambda project: blocks.rename_block(project, old, name)
            )
        except BlockError as error:
            self._show_problem(str(error))

    def _show_problem(self, problem: str) -> None:
        show_or_hide(self.problem, problem)

    def _write_note(self) -> None:
        block: Any = self._front.block
        if block is not None:
            after = replace(block, note=self.note.toPlainText())
            self._front.apply_sheet(
                f"Edit the note of {block.name}", after, f"note/{self.note.visit}"
            )
