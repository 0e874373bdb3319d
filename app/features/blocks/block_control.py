"""Commands on blocks: create one from the selection, open and close it, expand it, give it parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QPoint
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from app.builder.blocks import BlockError, block_of
from app.builder.edits import block_params, blocks, expand_block, make_block
from app.builder.graph import Node
from app.project.project import Project
from app.util.formatting import counted
from app.views.navigation import way_to

if TYPE_CHECKING:
    from app.views.workspace import Workspace


class BlockControl(QObject):
    """All commands of the Block menu. Refusals are shown on the canvas."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        workspace.drawing.of_node.append(self.offered)
        for signal in (workspace.selection.changed, workspace.sheet.changed):
            signal.connect(lambda *_: self.enable())

    # --- Ground

    @property
    def project(self) -> Project:
        """Return the whole project, with a position for every node of the sheet in front."""
        workspace = self._workspace
        return blocks.with_sheet(
            workspace.document.project, self.sheet, workspace.drawing.project
        )

    @property
    def sheet(self) -> str:
        return self._workspace.place.block

    def instance(self) -> Node | None:
        """Return the selected instance, if it is the only selected node."""
        single = self._workspace.selection.single
        node = self._workspace.sheet.project.graph.nodes.get(single or "")
        return (
            node
            if node is not None
            and block_of(node.op) in self._workspace.document.project.blocks
            else None
        )

    def selected(self) -> Node | None:
        """Return the selected node, if it is the only one."""
        return self._workspace.sheet.project.graph.nodes.get(
            self._workspace.selection.single or ""
        )

    def apply(self, text: str, make: Callable[[], Project]) -> str:
        """Apply an edit as one undo step; return "" or why it was refused."""
        try:
            project = make()
        except BlockError as error:
            return str(error)
        self._workspace.document.apply(text, project)
        return ""

    def _try(self, text: str, make: Callable[[], Project]) -> bool:
        """Apply an edit as one undo step; show a refusal on the canvas."""
        refusal = self.apply(text, make)
        if refusal:
            self._workspace.drawing.say(refusal)
        return not refusal

    def enable(self) -> None:
        """Disable commands that need an instance if none is selected; other refusals are shown on use."""
        workspace, instance_selected, node = (
            self._workspace,
            self.instance() is not None,
            self.selected(),
        )
        inside, nodes = bool(workspace.place.path), workspace.sheet.project.graph.nodes
        wants = {
            "make": any(
                nodes[n].op not in ("input", "output")
                for n in workspace.selection.ids
                if n in nodes
            ),
            **dict.fromkeys(("expand", "in", "unique", "params"), instance_selected),
            "out": inside,
            "repeat": node is not None and node.op not in ("input", "output"),
            "expose": inside and node is not None and bool(self.exposable(node)),
            **dict.fromkeys(("rename", "save"), instance_selected or inside),
        }
        for key, on in wants.items():
            workspace.commands.set_enabled(f"block.{key}", on)

    def offered(self) -> list[QAction]:
        """Return the commands for the context menu of the selected node."""
        instance_selected = self.instance() is not None
        keys = (
            ("make", "in", "params", "expand", "unique", "repeat", "save")
            if instance_selected
            else ("make", "repeat", "expose")
        )
        actions = [self._workspace.commands[f"block.{key}"] for key in keys]
        return [action for action in actions if action.isEnabled()]

    # --- Making and taking apart

    def make(self) -> None:
        """Ask for a name and make a block of the selection."""
        workspace, nodes = self._workspace, self._workspace.selection.ids
        catalog, project, sheet = workspace.catalog.now, self.project, self.sheet
        suggestion = make_block.suggested_name(project, sheet, catalog, nodes)
        try:
            make_block.make_block(project, sheet, catalog, nodes, suggestion)
        except BlockError as error:
            workspace.drawing.say(str(error))
            return

        def answer(name: str) -> str:
            new: list[str] = []

            def make() -> Project:
                edited, instance = make_block.make_block(
                    self.project, sheet, catalog, nodes, name
                )
                new.append(instance)
                return edited

            refusal = self.apply(f"Make block {name}", make)
            if not refusal:
                workspace.selection.set(new)
            return refusal

        hint = f"{counted(len(nodes), 'node')}. This is also the name of its class in the code. Enter makes the block."
        self._workspace.drawing.ask("Make a block", suggestion, hint, answer)

    def expand(self) -> None:
        """Replace the selected instance by its contents."""
        node = self._instance_or_message()
        if node is None:
            return
        new: list[frozenset[str]] = []

        def make() -> Project:
            project, nodes = expand_block.expand(
                self.project, self.sheet, self._workspace.catalog.now, node.id
            )
            new.append(nodes)
            return project

        if self._try(f"Expand {node.name}", make):
            self._workspace.selection.set(new[0])

    def make_unique(self) -> None:
        """Give the selected instance its own copy of the block."""
        node = self._instance_or_message()
        if node is not None:
            self._try(
                f"Make {node.name} unique",
                lambda: blocks.make_unique(self.project, self.sheet, node.id)[0],
            )

    def repeat(self) -> None:
        """Ask how often to repeat the selected node in sequence."""
        node = self.selected()
        if node is None:
            self._workspace.drawing.say("Select one layer or block to repeat it")
            return
        count = self._workspace.sheet.project.graph.owner(node.id).repeat

        def answer(text: str) -> str:
            if not text.lstrip("×x").strip().isdecimal():
                return "The count must be an integer"
            times = int(text.lstrip("×x").strip())
            return self.apply(
                f"Repeat {node.name} ×{times}", lambda: self._repeated(node.id, times)
            )

        hint = "The copies run in sequence, each with its own weights. 1 means no repetition."
        self._workspace.drawing.ask(
            f"Repeat {node.name}: number of copies", str(count), hint, answer
        )

    def _repeated(self, node: str, times: int) -> Project:
        project, workspace = self.project, self._workspace
        drawn = blocks.sheet_named(project, self.sheet)
        after = blocks.set_repeat(drawn, workspace.catalog.now, node, times)
        return blocks.with_sheet(project, self.sheet, after)

    def _instance_or_message(self) -> Node | None:
        node = self.instance()
        if node is None:
            self._workspace.drawing.say("Select one instance of a block")
        return node

    # --- Going in and out

    def edit_params(self) -> None:
        """Put the caret into the form of the selected node; Enter goes into an instance instead."""
        if self.selected() is not None:
            self._workspace.commands.trigger("edit-fields")

    def go_in(self) -> None:
        node = self._instance_or_message()
        if node is not None:
            self._workspace.place.enter(node.id)

    def go_out(self) -> None:
        if not self._workspace.place.leave():
            self._workspace.drawing.say(
                "This is the network itself; no block contains it"
            )

    def edit(self, name: str) -> None:
        """Go into some instance of a block."""
        way = way_to(self._workspace.document.project, name)
        if way is None:
            self._workspace.drawing.say(
                f"Put a {name} on the canvas first: inside it you see its input shapes"
            )
            return
        self._workspace.pages.turn_to("network")
        self._workspace.place.go_to(way)

    # --- Parameters

    def expose(self) -> None:
        """Ask which parameter of the selected node instances of the block may set."""
        node = self.selected()
        if not self.sheet:
            self._workspace.drawing.say(
                "Open a block first: its exposed parameters are set on its instances"
            )
        elif node is None:
            self._workspace.drawing.say(
                "Select the node whose parameter is to be exposed"
            )
        else:
            menu = self.expose_menu(node)
            if menu is None:
                self._workspace.drawing.say(f"{node.name} has no parameter to expose")
                return
            menu.popup(
                self._workspace.window.mapToGlobal(self._workspace.drawing.spot())
            )

    def exposable(self, node: Node) -> dict[str, Any]:
        """Return the parameters of a node that can be exposed, with their values."""
        graph = self._workspace.sheet.project.graph
        owner = graph.owner(node.id)
        spec = self._workspace.catalog.spec_of(graph, owner)
        values = {}
        for param in spec.params if node.op not in ("input", "output") else ():
            try:
                block_params.check_exposable(
                    owner, param, spec.value(owner, param.name)
                )
            except BlockError:
                continue
            values[param.name] = spec.value(owner, param.name)
        return values

    def expose_menu(self, node: Node) -> QMenu | None:
        """Return a menu of the parameters of a node that can be exposed, None if there are none."""
        values = self.exposable(node)
        if not values:
            return None
        menu = QMenu(self._workspace.window)
        menu.setObjectName("expose")
        for name, value in values.items():
            menu.addAction(f"{name} = {value}", partial(self.ask_expose, node.id, name))
        return menu

    def ask_expose(self, node: str, param: str) -> None:
        """Ask for the name of a parameter on the instances."""
        block, node_name = (
            self.sheet,
            self._workspace.sheet.project.graph.nodes[node].name,
        )

        def answer(name: str) -> str:
            def make() -> Project:
                return block_params.expose_param(
                    self.project, block, self._workspace.catalog.now, node, param, name
                )

            return self.apply(f"Expose {param} of {node_name}", make)

        hint = f"Instances of {block} set {param} of {node_name} under this name."
        self._workspace.drawing.ask("Name of the parameter", param, hint, answer)

    # --- The blocks of the project

    def rename(self, name: str = "", at: QPoint | None = None) -> None:
        """Ask for another name of a block: the one given, the one selected or the one in front."""
        name = name or self.target_block()
        if not name:
            return

        def answer(new: str) -> str:
            if new == name:
                return ""
            return self.apply(
                f"Rename {name} to {new}",
                lambda: blocks.rename_block(
                    self._workspace.document.project, name, new
                ),
            )

        self._workspace.drawing.ask(
            f"Rename {name}",
            name,
            "Its class name in the code; all instances follow.",
            answer,
            at,
        )

    def target_block(self) -> str:
        """Return the block of the selected instance, else the one in front; show a message if there is neither."""
        node = self.instance()
        name = block_of(node.op) if node is not None else self.sheet
        if not name:
            self._workspace.drawing.say("Select an instance of a block, or open one")
        return name

    def duplicate(self, name: str) -> None:
        project = self._workspace.document.project
        self._try(f"Duplicate {name}", lambda: blocks.duplicate_block(project, name)[0])

    def delete(self, name: str) -> None:
        project = self._workspace.document.project
        self._try(f"Delete block {name}", lambda: blocks.delete_block(project, name))
