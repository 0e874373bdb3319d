"""What is done with blocks: make one of the selection, go in and out, take it apart, give it parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QPoint, QPointF
from PySide6.QtWidgets import QMenu

from app.builder.blocks import Block, BlockError, block_of
from app.builder.edits import block_params, blocks, expand_block, make_block
from app.builder.graph import Node
from app.project.project import Project
from app.source.generated import Path as Way
from app.util.formatting import counted
from app.views.canvas.breadcrumb import NETWORK as OUTERMOST
from app.views.canvas.breadcrumb import Crumb
from app.views.canvas.overlays import arrange_overlays
from app.views.navigation import NETWORK, way_to
from app.views.ui.widgets.ask import PromptBox
from app.views.ui.widgets.painting import announce

if TYPE_CHECKING:
    from app.views.actions import Actions
    from app.views.main_window import MainWindow

Look = tuple[float, QPointF]  # how near, and at what


class BlockControl(QObject):
    """Every command of the Block menu. What cannot be done is said on the canvas."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._looks: dict[Way, Look] = {}
        self.ask = PromptBox(window)
        window.place.changed.connect(self._moved)
        window.document.changed.connect(lambda _before, _after: self._show_way())
        window.document.replaced.connect(lambda _project: self._looks.clear())
        window.canvas.breadcrumb.chosen.connect(self._crumb_chosen)
        self._show_way()

    # --- Ground

    @property
    def project(self) -> Project:
        """The whole project, with a place for every node of the sheet in front."""
        window = self._window
        return blocks.with_sheet(window.document.project, self.sheet, window.canvas.commands.project)

    @property
    def sheet(self) -> str:
        return self._window.place.block

    def instance(self) -> Node | None:
        """The selected instance, if one is selected alone."""
        single = self._window.selection.single
        node = self._window.sheet.project.graph.nodes.get(single or "")
        return node if node is not None and block_of(node.op) in self._window.document.project.blocks else None

    def selected(self) -> Node | None:
        """The node that is selected alone."""
        return self._window.sheet.project.graph.nodes.get(self._window.selection.single or "")

    def apply(self, text: str, make: Callable[[], Project]) -> str:
        """One undo step; returns "" or why it was not made."""
        try:
            project = make()
        except BlockError as error:
            return str(error)
        self._window.document.apply(text, project)
        return ""

    def _try(self, text: str, make: Callable[[], Project]) -> bool:
        """One undo step; what is refused is said on the canvas."""
        refusal = self.apply(text, make)
        if refusal:
            self._window.canvas.say(refusal)
        return not refusal

    def ask_for(self, title: str, text: str, hint: str, answer: Callable[[str], str], at: QPoint | None = None) -> None:
        """Ask under what is selected, or at a spot of the window; `answer` returns "" or why it cannot be."""
        self.ask.open_at(at or self._spot(), title, text, hint, answer)

    def _spot(self) -> QPoint:
        """Under what is selected, in the window's pixels."""
        canvas, window = self._window.canvas, self._window
        area = canvas.scene.rect_of(window.selection.ids)
        if area.isEmpty():
            return canvas.mapTo(window, QPoint(24, 48))
        return canvas.mapTo(window, canvas.on_canvas(area).bottomLeft().toPoint()) + QPoint(0, 8)

    def enable(self, actions: Actions) -> None:
        """Commands that want an instance are grey without one; what they may be refused for is said when they are."""
        window, one, node = self._window, self.instance() is not None, self.selected()
        inside, nodes = bool(window.place.path), window.sheet.project.graph.nodes
        wants = {
            "make": any(nodes[n].op not in ("input", "output") for n in window.selection.ids if n in nodes),
            **dict.fromkeys(("expand", "in", "unique", "params"), one),
            "out": inside,
            "repeat": node is not None and node.op not in ("input", "output"),
            "expose": inside and node is not None and bool(self.exposable(node)),
            **dict.fromkeys(("rename", "save"), one or inside),
        }
        for key, on in wants.items():
            actions[f"block.{key}"].setEnabled(on)
        keys = ("make", "in", "params", "expand", "unique", "repeat", "save") if one else ("make", "repeat", "expose")
        offered = [actions[f"block.{key}"] for key in keys if wants[key]]
        window.canvas.more_actions = lambda: [*offered, *window.head_control.offered(actions, node)]

    # --- Making and taking apart

    def make(self) -> None:
        """Ask for a name and make a block of the selection."""
        window, nodes = self._window, self._window.selection.ids
        catalog, project, sheet = window.catalog.now, self.project, self.sheet
        wanted = make_block.suggested_name(project, sheet, catalog, nodes)
        try:
            make_block.make_block(project, sheet, catalog, nodes, wanted)
        except BlockError as error:
            window.canvas.say(str(error))
            return

        def answer(name: str) -> str:
            new: list[str] = []

            def make() -> Project:
                made, instance = make_block.make_block(self.project, sheet, catalog, nodes, name)
                new.append(instance)
                return made

            refusal = self.apply(f"Make block {name}", make)
            if not refusal:
                window.selection.set(new)
            return refusal

        hint = f"{counted(len(nodes), 'node')}. The name is that of its class in the code. Enter makes the block."
        self.ask_for("Make a block", wanted, hint, answer)

    def expand(self) -> None:
        """Put what is in the selected instance in its place."""
        node = self._wanted()
        if node is None:
            return
        new: list[frozenset[str]] = []

        def make() -> Project:
            project, nodes = expand_block.expand(self.project, self.sheet, self._window.catalog.now, node.id)
            new.append(nodes)
            return project

        if self._try(f"Expand {node.name}", make):
            self._window.selection.set(new[0])

    def make_unique(self) -> None:
        """Give the selected instance a block of its own."""
        node = self._wanted()
        if node is not None:
            self._try(f"Make {node.name} unique", lambda: blocks.make_unique(self.project, self.sheet, node.id)[0])

    def repeat(self) -> None:
        """Ask how many of the selected node stand one behind the other."""
        node = self.selected()
        if node is None:
            self._window.canvas.say("Select one layer or block to repeat it")
            return
        count = self._window.sheet.project.graph.owner(node.id).repeat

        def answer(text: str) -> str:
            if not text.lstrip("×x").strip().isdecimal():
                return "The count must be an integer"
            times = int(text.lstrip("×x").strip())
            return self.apply(f"Repeat {node.name} ×{times}", lambda: self._repeated(node.id, times))

        hint = "The copies run in sequence, each with its own weights. 1 means no repetition."
        self.ask_for(f"Repeat {node.name}: number of copies", str(count), hint, answer)

    def _repeated(self, node: str, times: int) -> Project:
        project, window = self.project, self._window
        drawn = blocks.sheet_named(project, self.sheet)
        after = blocks.set_repeat(drawn, window.catalog.now, node, times)
        return blocks.with_sheet(project, self.sheet, after)

    def _wanted(self) -> Node | None:
        node = self.instance()
        if node is None:
            self._window.canvas.say("Select one instance of a block")
        return node

    # --- Going in and out

    def open(self, node: str) -> bool:
        """Go into an instance; False if the node is none."""
        return self._window.place.enter(node)

    def go_to(self, node: str, way: Sequence[str]) -> None:
        """Go to a node inside an instance: to the sheet that it stands on, and select it there."""
        steps = [(step, 0) for step in (node, *way)]
        if self._window.place.go_to((*self._window.place.path, *steps[:-1])):
            self._window.selection.set([steps[-1][0]])

    def edit_params(self) -> None:
        """Put the caret into the form of the selected node; Enter goes into an instance instead."""
        if self.selected() is not None:
            self._window.edit_node()

    def go_in(self) -> None:
        node = self._wanted()
        if node is not None:
            self.open(node.id)

    def go_out(self) -> None:
        if not self._window.place.leave():
            self._window.canvas.say("This is the network; there is nothing around it")

    def edit(self, name: str) -> None:
        """Go into some instance of a block."""
        way = way_to(self._window.document.project, name)
        if way is None:
            self._window.canvas.say(f"Put a {name} on the canvas first: inside it you see what arrives there")
            return
        self._window.centre.show_page("network")
        self._window.place.go_to(way)

    def _crumb_chosen(self, number: int) -> None:
        """Go to a part of the way; at its end, to the next of the repetitions."""
        place = self._window.place
        if number < len(place.path):
            place.go_to(place.path[:number])
        elif place.path:
            *before, (node, turn) = place.path
            repeat = self._sheets()[-2].graph.owner(node).repeat
            place.go_to((*before, (node, (turn + 1) % repeat)))

    def _moved(self, before: Way, after: Way) -> None:
        """Another sheet is in front: seen whole at first, as it was left on the way back."""
        window, canvas = self._window, self._window.canvas
        self._looks[before] = (canvas.view.zoom, canvas.view.visible_area().center())
        outwards = before[: len(after)] == after
        turned = [node for node, _ in before] == [node for node, _ in after]
        if not turned:
            window.selection.set([before[len(after)][0]] if outwards and len(before) > len(after) else ())
        canvas.scene.select_wires(())
        if outwards and after in self._looks:
            zoom, middle = self._looks[after]
            canvas.view.zoom_to(zoom)
            canvas.view.show_point(middle)
        elif not turned:
            canvas.frame_all()
        self._show_way()
        announce(canvas, canvas.breadcrumb.accessibleName())

    def _sheets(self) -> list[Project | Block]:
        """The sheets along the way, the network first."""
        project = self._window.document.project
        sheets: list[Project | Block] = [project]
        for node, _ in self._window.place.path:
            sheets.append(project.blocks[block_of(sheets[-1].graph.nodes[node].op)])
        return sheets

    def _show_way(self) -> None:
        """Write the way over the canvas."""
        place, project = self._window.place, self._window.document.project
        place.step_out()
        sheets, crumbs = self._sheets(), [OUTERMOST]
        for i, (node, turn) in enumerate(place.path):
            value = sheets[i].graph.nodes[node]
            repeat = sheets[i].graph.owner(node).repeat
            last = i == len(place.path) - 1
            tip = f"Go to {value.name}" if not last else f"{sheets[i + 1].name}, in {value.name}"
            if last and repeat > 1:
                tip = f"Number {turn + 1} of {repeat}. Click to see the next one."
            crumbs.append(Crumb(f"{value.name} {turn + 1}/{repeat}" if repeat > 1 else value.name, tip))
        note = ""
        if place.path:
            name = sheets[-1].name
            others = len(blocks.instances(project, name))
            note = f"class {name}" + (f" · {others} instances follow" if others > 1 else "")
        self._window.canvas.breadcrumb.set_crumbs(crumbs, note)
        arrange_overlays(self._window.canvas)

    # --- Parameters

    def expose(self) -> None:
        """Ask which parameter of the selected node instances of the block may set."""
        node = self.selected()
        if not self.sheet:
            self._window.canvas.say("Open a block first: its exposed parameters are set on its instances")
        elif node is None:
            self._window.canvas.say("Select the node whose parameter is to be exposed")
        else:
            menu = self.expose_menu(node)
            if menu is None:
                self._window.canvas.say(f"{node.name} has no parameter that could be exposed")
                return
            menu.popup(self._window.mapToGlobal(self._spot()))

    def exposable(self, node: Node) -> dict[str, Any]:
        """The parameters of a node that can be exposed, with their values."""
        graph = self._window.sheet.project.graph
        owner = graph.owner(node.id)
        spec = self._window.catalog.of(graph, owner)
        values = {}
        for param in spec.params if node.op not in ("input", "output") else ():
            try:
                block_params.check_exposable(owner, param, spec.value(owner, param.name))
            except BlockError:
                continue
            values[param.name] = spec.value(owner, param.name)
        return values

    def expose_menu(self, node: Node) -> QMenu | None:
        """The parameters of a node that can be exposed, None if there are none."""
        values = self.exposable(node)
        if not values:
            return None
        menu = QMenu(self._window)
        menu.setObjectName("expose")
        for name, value in values.items():
            menu.addAction(f"{name} = {value}", partial(self.ask_expose, node.id, name))
        return menu

    def ask_expose(self, node: str, param: str) -> None:
        """Ask what a parameter is called on the instances."""
        block, what = self.sheet, self._window.sheet.project.graph.nodes[node].name

        def answer(name: str) -> str:
            def make() -> Project:
                return block_params.expose_param(self.project, block, self._window.catalog.now, node, param, name)

            return self.apply(f"Expose {param} of {what}", make)

        hint = f"Instances of {block} set {param} of {what} under this name."
        self.ask_for("Name of the parameter", param, hint, answer)

    # --- The blocks of the project

    def rename(self, name: str = "", at: QPoint | None = None) -> None:
        """Ask for another name of a block: the one given, the one selected or the one in front."""
        name = name or self.meant()
        if not name:
            return

        def answer(new: str) -> str:
            if new == name:
                return ""
            return self.apply(
                f"Rename {name} to {new}", lambda: blocks.rename_block(self._window.document.project, name, new)
            )

        self.ask_for(f"Rename {name}", name, "Its class name in the code; all instances follow.", answer, at)

    def meant(self) -> str:
        """The block of the selected instance, else the one in front;  with a word if there is neither."""
        node = self.instance()
        name = block_of(node.op) if node is not None else self.sheet
        if not name:
            self._window.canvas.say("Select an instance of a block, or open one")
        return name

    def duplicate(self, name: str) -> None:
        project = self._window.document.project
        self._try(f"Duplicate {name}", lambda: blocks.duplicate_block(project, name)[0])

    def delete(self, name: str) -> None:
        project = self._window.document.project
        self._try(f"Delete block {name}", lambda: blocks.delete_block(project, name))

    def leave_all(self) -> None:
        """Back to the network."""
        self._window.place.go_to(NETWORK)
