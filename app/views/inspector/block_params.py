"""The parameters that a block exposes: name, default, and where they are used inside."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QWidget

from app.builder.blocks import Block, BlockError
from app.builder.catalog.catalog import Param
from app.builder.edits import block_params
from app.builder.expressions import expressions
from app.views.fields.editor_factory import make_editor, suits
from app.views.fields.editors import Editor
from app.views.fields.line_edits import NameLine
from app.views.inspector.edit_target import EditTarget
from app.views.inspector.sections import emptied
from app.views.ui.widgets import Section, icon_button
from app.views.ui.widgets.painting import label, show_or_hide

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
