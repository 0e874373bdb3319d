"""Commands of the canvas, each an undo step of the document with a text that describes it."""

# A whole, which its parts import for type checkers alone: commands of notes are some of the canvas's.
from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace
from PySide6.QtCore import QObject, QPointF, QRectF, Signal
from PySide6.QtGui import QGuiApplication

from app.builder import layout
from app.builder.arrange import (
    DEFAULT,
    GRID,
    LANE_GAP,
    NEXT_GAP,
    arrange,
    closed_up,
    complete,
)
from app.builder.catalog.catalog import Catalog
from app.builder.edits import alignment, comments, edits
from app.builder.graph import Edge
from app.builder.params import NONE, Params
from app.builder.rules import ConnectError
from app.builder.sheet import Sheet
from app.preflight import starting_net
from app.project.library import Library
from app.project.project import Project
from app.util.formatting import plural
from app.views.canvas import clipboard
from app.views.canvas.items.geometry import snapped
from app.views.canvas.note_commands import NoteCommands
from app.views.canvas.scene import CanvasScene
from app.views.navigation import SheetDocument
from app.views.selection import Selection
from app.views.ui.graphview.spatial import bounds

PASTE_STEP = 32.0
WORDS = {"muted": ("Mute", "Unmute"), "frozen": ("Freeze", "Unfreeze")}
NOT_FLAGGED = {
    "muted": "Select a layer to mute. Inputs, outputs and nodes without an input cannot be bypassed.",
    "frozen": "Select a layer with parameters to freeze; functions have none.",
}


class Commands(QObject):
    """Edits through the document. `said` reports a message, `refused` why something was not done.

    `marked` is emitted when whether something is selected may have changed; `notes` are the commands for comments,
    frames and bends.
    """

    said = Signal(str)
    refused = Signal(str)
    marked = Signal()

    def __init__(
        self,
        document: SheetDocument,
        selection: Selection,
        catalog: Catalog,
        scene: CanvasScene,
        origin: QObject,
    ) -> None:
        super().__init__(origin)
        self._document, self._selection, self._catalog, self._scene = (
            document,
            selection,
            catalog,
            scene,
        )
        self._origin = origin
        self._pastes: tuple[str, int] = ("", 0)
        self.notes = NoteCommands(self, scene)

    # --- Ground

    @property
    def project(self) -> Sheet:
        """Return the open project with a position for every node, as shown; edits start from it."""
        project = self._document.project
        if all(node in project.positions for node in project.graph.nodes):
            return project
        return edits.changed(project, positions=self._scene.positions)

    def name(self, node: str) -> str:
        return self._document.project.graph.nodes[node].name

    @property
    def selected(self) -> frozenset[str]:
        """The nodes that are selected; of notes, wires and bends the scene knows."""
        return self._selection.ids

    def select(self, nodes: Iterable[str], notes: Iterable[str] = ()) -> None:
        """Select nodes and notes, and nothing else."""
        self._scene.select_wires(())
        self._scene.bends.select(None)
        self._scene.notes.select(notes)
        self._selection.set(nodes, self._origin)
        self.marked.emit()

    def select_wire(
        self, wire: Edge, bend: int | None = None, keep: bool = False
    ) -> None:
        """Select a wire, or a bend of it; with `keep` the nodes and notes that are selected stay so."""
        if not keep:
            self.select(())
        self._scene.select_wires([wire])
        self._scene.bends.select(None if bend is None else (wire, bend))
        self.marked.emit()

    def selected_with_contents(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the selected nodes and notes, with those inside selected frames."""
        if not self._scene.notes.selected:
            return self._selection.ids, frozenset()
        nodes, notes = comments.taken_along(
            self.project, self._scene.notes.selected, self._scene.sizes()
        )
        return self._selection.ids | nodes, notes

    def apply(
        self, text: str, make: Callable[[], Sheet], merge: str | None = None
    ) -> bool:
        """Apply one undo step; report a refused connection."""
        try:
            project = make()
        except ConnectError as error:
            self.refused.emit(str(error))
            return False
        self._document.apply(text, project, merge)
        return True

    def _apply_new(
        self,
        text: str,
        make: Callable[[], tuple[Sheet, str]],
        params: Params = NONE,
    ) -> str | None:
        """Apply one undo step that adds a node with these parameters, and select it."""
        try:
            project, new = make()
        except ConnectError as error:
            self.refused.emit(str(error))
            return None
        if isinstance(project, Project):
            project = starting_net.with_new_input(project, new)
        # What was typed comes last: it is not to be fitted to the data.
        self._document.apply(text, edits.with_params(project, new, params))
        if (
            new not in self._document.project.graph.nodes
        ):  # the document refused it, and has reported that
            return None
        self.select([new])
        return new

    # --- Adding

    def add_at(self, op: str, middle: QPointF, params: Params = NONE) -> str | None:
        """Put a new node with its middle at a point, or beside what is there."""
        at = self._scene.corner_of_new(op, middle)
        return self._apply_new(
            f"Add {self._label(op)}",
            lambda: edits.add(self.project, self._catalog, op, (at.x(), at.y())),
            params,
        )

    def add_behind(self, op: str, node: str, params: Params = NONE) -> str | None:
        """Put a new node behind another: in its wire if it has one that the op fits into, else to the right of it."""
        wires = self.project.graph.out_of(node)
        if len(wires) == 1 and self._fits(op, wires[0]):
            target = self._scene.nodes[wires[0].target].body.center()
            middle = (self._scene.nodes[node].body.center() + target) / 2
            return self.insert(op, wires[0], middle, params)
        at = self._place_behind(op, node)
        return self._apply_new(
            f"Add {self._label(op)} after {self.name(node)}",
            lambda: edits.add_behind(self.project, self._catalog, op, node, at),
            params,
        )

    def _fits(self, op: str, wire: Edge) -> bool:
        try:
            edits.insert(self.project, self._catalog, op, wire, (0.0, 0.0))
        except ConnectError:
            return False
        return True

    def add_after(
        self,
        op: str,
        source: str,
        output: int,
        at: QPointF,
        params: Params = NONE,
    ) -> str | None:
        """Put a new node at the loose end of a wire from an output."""
        corner = snapped(
            QPointF(at.x(), at.y() - self._scene.size_of(op).anchor),
            self._scene.size_of(op).anchor,
        )
        return self._apply_new(
            f"Add {self._label(op)} after {self.name(source)}",
            lambda: edits.add_after(
                self.project,
                self._catalog,
                op,
                source,
                output,
                (corner.x(), corner.y()),
            ),
            params,
        )

    def add_before(
        self, op: str, target: str, port: str, at: QPointF, params: Params = NONE
    ) -> str | None:
        """Put a new node at the loose end of a wire into an input."""
        size = self._scene.size_of(op)
        corner = snapped(
            QPointF(at.x() - size.width, at.y() - size.anchor), size.anchor
        )
        return self._apply_new(
            f"Add {self._label(op)} before {self.name(target)}",
            lambda: edits.add_before(
                self.project, self._catalog, op, target, port, (corner.x(), corner.y())
            ),
            params,
        )

    def insert(
        self, op: str, wire: Edge, middle: QPointF, params: Params = NONE
    ) -> str | None:
        """Insert a new node on a wire: at the point if there is room, else in the row, which is shifted."""

        def make() -> tuple[Sheet, str]:
            corner = self._corner(op, middle)
            project, new = edits.insert(self.project, self._catalog, op, wire, corner)
            return self._with_room_for(project, new), new

        return self._apply_new(
            f"Insert {self._label(op)} before {self.name(wire.target)}", make, params
        )

    def _with_room_for(self, project: Sheet, node: str) -> Sheet:
        """Return the project with a node where it is if that place is free, else in the row, which is shifted."""
        shown = self._scene.nodes.get(node)
        size = (
            shown.geometry.size
            if shown is not None
            else self._scene.size_of(project.graph.nodes[node].op)
        )
        area = QRectF(*project.positions[node], size.width, size.height).adjusted(
            -24, -8, 24, 8
        )
        if set(self._scene.index.inside(area)) <= {node}:
            return project
        return self.with_positions(
            edits.changed(project, positions=project.positions.without(node))
        )

    def fits_on(self, node: str, wire: Edge) -> bool:
        """Return whether a node without wires can be inserted on a wire."""
        try:
            edits.insert_node(self.project, self._catalog, node, wire)
        except ConnectError:
            return False
        return True

    def insert_node(self, node: str, wire: Edge, dx: float, dy: float) -> bool:
        """Move a node without wires, and lead a wire through it."""

        def make() -> Sheet:
            moved = edits.move(self.project, [node], dx, dy)
            return self._with_room_for(
                edits.insert_node(moved, self._catalog, node, wire), node
            )

        return self.apply(
            f"Insert {self.name(node)} before {self.name(wire.target)}", make
        )

    def with_positions(self, project: Sheet) -> Sheet:
        """Return a project with a position for each node that has none, and rows closed up where one has left; notes
        and bends go along with nodes that make way."""
        before, graph = self.project, project.graph
        wires_before = set(before.graph.edges)
        new = {
            node: self._scene.size_of(value.op)
            for node, value in graph.nodes.items()
            if node not in self._scene.nodes and value.op in self._catalog
        }
        sizes = {**self._scene.sizes(), **new}
        positions = {n: at for n, at in project.positions.items() if n in graph.nodes}
        wires = [
            (edge.source, edge.target)
            for edge in graph.edges
            if edge not in wires_before
            and {edge.source, edge.target} <= positions.keys()
        ]
        gone = {n: at for n, at in before.positions.items() if n not in positions}
        positions = closed_up(wires, positions, sizes, gone)
        placed = complete(graph, positions, sizes)
        return comments.moved_along(project, before.positions, placed, sizes)

    def _label(self, op: str) -> str:
        return self._catalog[op].label

    def _corner(self, op: str, middle: QPointF) -> tuple[float, float]:
        size = self._scene.size_of(op)
        point = snapped(
            QPointF(middle.x() - size.width / 2, middle.y() - size.anchor), size.anchor
        )
        return point.x(), point.y()

    def _place_behind(self, op: str, node: str) -> tuple[float, float]:
        """Right of a node on its line, or the next line below that is free."""
        size, item = self._scene.size_of(op), self._scene.nodes[node]
        line = item.y() + item.geometry.anchor
        point = snapped(
            QPointF(item.body.right() + NEXT_GAP, line - size.anchor), size.anchor
        )
        area = item.body
        area.setRect(point.x() - 8, point.y() - 8, size.width + 16, size.height + 16)
        while blocking := self._scene.index.inside(area):
            lowest = max(self._scene.nodes[other].body.bottom() for other in blocking)
            point = snapped(QPointF(point.x(), lowest + LANE_GAP), size.anchor)
            area.moveTop(point.y() - 8)
        return point.x(), point.y()

    # --- Wires

    def connect_ports(self, source: str, output: int, target: str, port: str) -> bool:
        """Draw a wire."""
        text = f"Connect {self.name(source)} to {self.name(target)}"
        return self.apply(
            text,
            lambda: edits.connect(
                self.project, self._catalog, source, output, target, port
            ),
        )

    def move_end(self, wire: Edge, target: str, port: str) -> bool:
        """Take the input end of a wire elsewhere."""
        if (wire.target, wire.port) == (target, port):
            return False
        text = f"Connect {self.name(wire.source)} to {self.name(target)}"
        return self.apply(
            text,
            lambda: edits.move_end(self.project, self._catalog, wire, target, port),
        )

    def cut_wire(self, wire: Edge) -> None:
        """Remove one wire."""
        text = f"Cut the wire from {self.name(wire.source)} to {self.name(wire.target)}"
        self.apply(text, lambda: edits.cut(self.project, [wire]))

    # --- Removing

    def delete(self) -> None:
        """Remove the selected nodes, notes and wires; of a wire with a selected bend only the bend."""
        nodes, wires, notes = (
            self._selection.ids,
            self._scene.selected_wires,
            self._scene.notes.selected,
        )
        if self._scene.bends.selected is not None:
            self.notes.unbend(*self._scene.bends.selected)
        elif nodes or wires or notes:
            subject = (
                self.many(nodes, notes)
                if nodes or notes
                else f"{len(wires)} {plural(len(wires), 'wire')}"
            )
            text = f"Delete {subject}"
            self.apply(
                text,
                lambda: comments.remove(
                    edits.delete(self.project, nodes, wires), notes
                ),
            )

    def delete_reconnect(self) -> None:
        """Remove the selected nodes and connect their sources to their targets."""
        nodes, notes = self._selection.ids, self._scene.notes.selected
        if nodes:
            text = f"Delete {self.many(nodes, notes)} and reconnect"

            def make() -> Sheet:
                rest = edits.delete_and_reconnect(self.project, self._catalog, nodes)
                return self.with_positions(comments.remove(rest, notes))

            self.apply(text, make)
        else:
            self.delete()

    def many(self, nodes: Iterable[str], notes: Iterable[str] = ()) -> str:
        """Describe nodes and notes: the name of one, else the number of each."""
        node_ids, noted = list(nodes), list(notes)
        if len(node_ids) == 1 and not noted:
            return self.name(node_ids[0])
        counts = (
            [f"{len(node_ids)} {plural(len(node_ids), 'node')}"]
            if node_ids or not noted
            else []
        )
        return " and ".join([*counts, *self.notes.counts_text(noted)])

    # --- Clipboard

    def copy(self) -> bool:
        """Copy the selection to the clipboard as text; a frame with its contents."""
        nodes, notes = self.selected_with_contents()
        if not nodes and not notes:
            return False
        blocks = self._document.whole.project.blocks
        text = clipboard.to_text(edits.copy(self.project, nodes, notes), blocks)
        QGuiApplication.clipboard().setText(text)
        self._pastes = (text, 0)
        return True

    def cut(self) -> None:
        """Copy the selection and remove it."""
        if self.copy():
            nodes, notes = self.selected_with_contents()
            text = f"Cut {self.many(nodes, notes)}"
            self.apply(
                text, lambda: comments.remove(edits.delete(self.project, nodes), notes)
            )
            self._pastes = (self._pastes[0], -1)

    def paste(self, at: QPointF | None = None, middle: QPointF | None = None) -> None:
        """Paste with the upper left corner or the middle at a point, without one near the original position.

        Nodes are put below what is there, not over it.
        """
        text = QGuiApplication.clipboard().text()
        try:
            piece, blocks, left_out = clipboard.from_text(text, self._catalog)
        except clipboard.NotNodes as error:
            self.refused.emit(str(error))
            return
        if piece.positions.keys() != piece.graph.nodes.keys():
            piece = replace(piece, positions=arrange(piece.graph, {}))
        times = self._pastes[1] + 1 if self._pastes[0] == text else 1
        self._pastes = (text, times)
        dx, dy = self._offset(piece, at, middle, times)
        self._paste("Paste", piece, dx, dy, blocks)
        if left_out:
            self.said.emit(f"Not drawn: {'; '.join(left_out[:3])}")

    def duplicate(self, middle: QPointF | None = None) -> None:
        """Copy the selection, without the clipboard, to a point or next to itself."""
        nodes, notes = self.selected_with_contents()
        if nodes or notes:
            piece = edits.copy(self.project, nodes, notes)
            self._paste("Duplicate", piece, *self._offset(piece, None, middle))

    def _offset(
        self,
        piece: edits.Fragment,
        corner: QPointF | None,
        middle: QPointF | None,
        times: int = 1,
    ) -> tuple[float, float]:
        """Return by how much a copy is moved so that it is at a point, and its nodes are over no others."""
        ops = {node: piece.graph.nodes[node].op for node in piece.positions}
        sizes = {
            op: self._scene.size_of(op) if op in self._catalog else DEFAULT
            for op in {*ops.values()}
        }
        bodies = [
            QRectF(*at, sizes[ops[node]].width, sizes[ops[node]].height)
            for node, at in piece.positions.items()
        ]
        notes = [
            QRectF(note.x, note.y, note.width, note.height)
            for note in piece.comments.values()
        ]
        area = bounds([*bodies, *notes])
        dx = dy = 0.0 if bodies else PASTE_STEP * times
        if corner is not None:
            dx, dy = _grid(corner.x() - area.left()), _grid(corner.y() - area.top())
        elif middle is not None:
            dx, dy = (
                _grid(middle.x() - area.center().x()),
                _grid(middle.y() - area.center().y()),
            )
        if bodies and corner is None:
            bounding_rect = bounds(bodies).adjusted(-8, -8, 8, 8)
            while blocking := self._scene.index.inside(
                bounding_rect.translated(dx, dy)
            ):
                lowest = max(self._scene.nodes[node].body.bottom() for node in blocking)
                dy = _grid(lowest + LANE_GAP - bounding_rect.top())
        return dx, dy

    def _paste(
        self,
        verb: str,
        piece: edits.Fragment,
        dx: float,
        dy: float,
        blocks: Library | None = None,
    ) -> None:
        before = self.project
        project, new = edits.paste(before, piece, dx, dy)
        notes = project.comments.keys() - before.comments.keys()
        names = [node.name for node in piece.graph.nodes.values()]
        labels = (
            [names[0] if len(names) == 1 else f"{len(names)} nodes"] if names else []
        )
        kinds = self.notes.counts_text(piece.comments, piece.comments)
        text = f"{verb} {' and '.join([*labels, *kinds])}"
        if blocks and blocks.entries:
            self._document.apply(text, project, offers=blocks)
        else:
            self._document.apply(text, project)
        self.select(new & self._document.project.graph.nodes.keys(), notes)

    # --- Places and names

    def shift(
        self, nodes: Iterable[str], notes: Iterable[str], dx: float, dy: float
    ) -> None:
        """Move dragged nodes and notes."""
        moved, noted = tuple(nodes), tuple(notes)
        text = f"Move {self.many(moved, noted)}"
        self.apply(text, lambda: comments.shift(self.project, moved, noted, dx, dy))

    def nudge(self, dx: float, dy: float) -> None:
        """Move the selection; consecutive presses are one undo step."""
        nodes, notes = self.selected_with_contents()
        if self._scene.bends.selected is not None:
            self.notes.nudge_bend(*self._scene.bends.selected, dx, dy)
        elif nodes or notes:
            key = f"nudge {' '.join(sorted(nodes))} {' '.join(sorted(notes))}"
            text = f"Move {self.many(nodes, notes)}"
            self.apply(
                text, lambda: comments.shift(self.project, nodes, notes, dx, dy), key
            )

    def lay_out(self, row_width: float) -> None:
        """Lay out the selected nodes in rows, or all if fewer than two are selected."""
        chosen = [node for node in self._selection.ids if node in self._scene.nodes]
        nodes = chosen if len(chosen) > 1 else list(self._scene.nodes)
        if nodes:
            text = "Lay out" if nodes is not chosen else f"Lay out {self.many(nodes)}"
            self.apply(
                text,
                lambda: layout.laid_out(
                    self.project, nodes, self._scene.sizes(), row_width
                ),
            )

    def align(self, edge: str) -> None:
        """Put an edge of the selected nodes, or the line of their ports ("middle"), on one line."""
        nodes = self._selection.ids
        text = f"Align {self.many(nodes)} by {edge}"
        self.apply(
            text,
            lambda: alignment.align(self.project, nodes, self._scene.sizes(), edge),
        )

    def distribute(self, axis: str) -> None:
        """Make the gaps between the selected nodes equal."""
        nodes = self._selection.ids
        text = f"Distribute {self.many(nodes)} {axis}ly"
        self.apply(
            text,
            lambda: alignment.distribute(
                self.project, nodes, self._scene.sizes(), axis
            ),
        )

    def toggle(self, flag: str) -> None:
        """Mute or freeze the selected nodes that can be, or undo it if all of them are so already."""
        nodes = self._flaggable(flag)
        if not nodes:
            self.said.emit(NOT_FLAGGED[flag])
            return
        on = not self.flagged(flag)
        verb = WORDS[flag][0 if on else 1]
        self.apply(
            f"{verb} {self.many(nodes)}",
            lambda: edits.flagged(self.project, nodes, flag, on),
        )

    def flagged(self, flag: str) -> bool:
        """Return whether all selected nodes that can be muted or frozen are so."""
        nodes = self._flaggable(flag)
        return bool(nodes) and all(
            getattr(self.project.graph.nodes[node], flag) for node in nodes
        )

    def _flaggable(self, flag: str) -> Iterable[str]:
        return edits.flaggable(self.project, self._catalog, self._selection.ids, flag)

    def replace(self, node: str, op: str, params: Params = NONE) -> None:
        """Replace a node by another op; report wires that do not fit."""
        before = len(self.project.graph.edges)
        name = self.name(node)
        self.apply(
            f"Replace {name} with {self._label(op)}",
            lambda: edits.with_params(
                edits.replace_op(self.project, self._catalog, node, op), node, params
            ),
        )
        lost = before - len(self.project.graph.edges)
        if lost:
            wires = f"{lost} {plural(lost, 'wire')} {'does' if lost == 1 else 'do'} not fit {self._label(op)}"
            self.said.emit(f"{wires}, removed; Ctrl+Z restores all")

    def rename(self, node: str, name: str) -> None:
        """Give a node another name. Names in source are made identifiers there; here any text will do."""
        name = name.strip()[:200]
        if (
            name
            and node in self._document.project.graph.nodes
            and name != self.name(node)
        ):
            graph = self._document.project.graph.with_name(node, name)
            self._document.apply(
                f"Rename {self.name(node)} to {name}",
                edits.changed(self.project, graph),
            )

    def select_all(self) -> None:
        self.select(self._scene.graph.nodes, self._scene.notes.items)


def _grid(value: float) -> float:
    return round(value / GRID) * GRID
