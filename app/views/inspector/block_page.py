"""The inspector inside a block with no node selected: the block itself and its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from PySide6.QtCore import Signal

from app.builder.blocks import Block, BlockError
from app.builder.diagnostics.problems import Problem
from app.builder.edits import blocks
from app.util.formatting import counted, grouped_digits
from app.views.fields.line_edits import NameLine, NotesField
from app.views.fields.tab_order import TabDown
from app.views.inspector.block_params import BlockParams
from app.views.inspector.edit_target import EditTarget
from app.views.inspector.io_section import InputsOutputsSection
from app.views.inspector.sections import CostBar, emptied
from app.views.ui.layouts import vbox
from app.views.ui.widgets import Section
from app.views.ui.widgets.painting import label, show_or_hide

if TYPE_CHECKING:
    from app.builder.results import Analysis


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
