"""Canvas commands by keys and menus beyond plain edits: navigation, and opening in-place editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF

from app.builder.graph import Edge, Graph
from app.views.canvas.gestures.gesture import NOTHING, Hit
from app.views.ui.graphview.spatial import LEFT, RIGHT, nearest

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas


class KeyboardActions:
    """Acts on the selection of a canvas."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas

    def pointed(self) -> tuple[QPointF, bool]:
        """Return the point of the scene under the pointer if it is over the canvas, else the centre of the viewport."""
        canvas, view = self._canvas, self._canvas.view
        spot = view.mapFromGlobal(canvas.cursor().pos())
        inside = view.viewport().rect().contains(spot) and canvas.underMouse()
        return (
            view.mapToScene(spot) if inside else view.visible_area().center()
        ), inside

    def paste(self) -> None:
        """Paste at the pointer if it is over the canvas; what is pasted on an empty one is shown whole."""
        point, inside = self.pointed()
        was_empty = not self._canvas.commands.project.graph.nodes
        self._canvas.commands.paste(middle=point if inside else None)
        if was_empty:
            self._canvas.frame_all()

    def duplicate(self) -> None:
        """Duplicate the selection to the pointer if it is over the canvas."""
        point, inside = self.pointed()
        self._canvas.commands.duplicate(point if inside else None)

    def open_search(self) -> None:
        """Search a layer to add, at the pointer if it is over the canvas."""
        self._canvas.finder.search_at(*self.pointed())

    def edit(self) -> None:
        """Edit the text of the selected note in place, else show the form of the selected node."""
        canvas = self._canvas
        notes = canvas.scene.notes.selected
        if len(notes) == 1 and not canvas.selection.ids:
            canvas.writing.edit(next(iter(notes)))
        elif canvas.selection.single is not None:
            canvas.editRequested.emit(canvas.selection.single)

    def rename(self) -> None:
        """Edit the name of the selected node, or the text of the selected note, in place."""
        canvas, node = self._canvas, self._canvas.selection.single
        if len(canvas.scene.notes.selected) == 1 and not canvas.selection.ids:
            self.edit()
        elif node in canvas.scene.nodes:
            canvas.reveal([node])
            body = canvas.scene.nodes[node].body
            area = canvas.on_canvas(
                QRectF(body.left(), body.top() + 2, body.width(), 26)
            )
            canvas.rename_field.open_over(
                node, canvas.scene.graph.nodes[node].name, area
            )
        else:
            canvas.say("Select one node to rename it")

    def replace(self) -> None:
        """Search another op for the selected node."""
        single = self._canvas.selection.single
        if single in self._canvas.scene.nodes:
            self._canvas.finder.for_node(single)

    def comment(self) -> None:
        """Add a frame around the selection and edit its title; with no selection a comment at the pointer."""
        canvas = self._canvas
        nodes, notes = (
            canvas.selection.ids & canvas.scene.nodes.keys(),
            canvas.scene.notes.selected,
        )
        if nodes or notes:
            canvas.writing.edit(canvas.commands.notes.frame(nodes, notes), new=True)
        else:
            canvas.writing.begin(self.pointed()[0])

    def bend(self) -> None:
        """Add a bend in the middle of the selected wire, or of the wire into the selected node."""
        wire = self._wire()
        if wire is not None:
            self._canvas.commands.notes.bend(wire)

    def straighten(self) -> None:
        """Take away the bends of the selected wire, or of the wire into the selected node."""
        wire = self._wire()
        if wire is not None:
            self._canvas.commands.notes.straighten(wire)

    def _wire(self) -> Edge | None:
        canvas = self._canvas
        wires = list(canvas.scene.selected_wires)
        if not wires and canvas.selection.single in canvas.scene.nodes:
            wires = list(canvas.scene.graph.into(canvas.selection.single)[:1])
        if len(wires) == 1:
            return wires[0]
        canvas.say("Select a wire, or the node that it leads to")
        return None

    def step_note(self, direction: int) -> None:
        """Select the next comment or frame, or the one before."""
        note = self._canvas.commands.notes.step_to(direction)
        if note is not None:
            self._canvas.reveal_area(self._canvas.scene.notes.items[note].body)

    def lay_out(self) -> None:
        """Lay out the selected nodes, or all, in rows as wide as the window."""
        canvas = self._canvas
        if canvas.scene.nodes:
            with canvas.glide.from_here():
                canvas.commands.lay_out(max(canvas.width() - 96.0, 640.0))
                if len(canvas.selection.ids) < 2:
                    canvas.frame_all()  # after everything has reached its new position

    def open_menu(self) -> None:
        """Open the context menu at the selection; without one, that of the canvas in its centre."""
        canvas, scene = self._canvas, self._canvas.scene
        nodes, notes = canvas.selection.ids & scene.nodes.keys(), scene.notes.selected
        if nodes:
            node = min(
                nodes, key=lambda key: (scene.nodes[key].y(), scene.nodes[key].x())
            )
            hit, point = Hit(node=node), scene.nodes[node].body.bottomLeft()
        elif notes:
            note = min(notes)
            hit, point = (
                Hit(note=note),
                scene.notes.items[note].body.topLeft() + QPointF(24, 24),
            )
        elif len(scene.selected_wires) == 1:
            wire = next(iter(scene.selected_wires))
            chosen = scene.bends.selected
            bend = chosen[1] if chosen is not None and chosen[0] == wire else None
            middle = scene.wires[wire].route.path.pointAtPercent(0.5)
            hit, point = (
                Hit(wire=wire, bend=bend),
                middle if bend is None else scene.bends.points(wire)[bend],
            )
        else:
            hit, point = NOTHING, canvas.view.visible_area().center()
        if not canvas.view.visible_area().contains(point):
            canvas.view.show_point(point)
        view = canvas.view
        canvas.open_menu(hit, view.viewport().mapToGlobal(view.mapFromScene(point)))

    def cancel(self) -> None:
        """Cancel the gesture; without one clear the selection; without a selection leave the block."""
        canvas, scene = self._canvas, self._canvas.scene
        if canvas.view.cancel_gesture():
            return
        if (
            canvas.selection.ids
            or scene.selected_wires
            or scene.notes.selected
            or scene.bends.selected
        ):
            canvas.commands.select(())
        else:
            canvas.leaveRequested.emit()

    def walk(self, direction: tuple[int, int]) -> None:
        """Move the selection to the next node; with several nodes or notes selected nudge them by a pixel; with none
        select the first."""
        canvas = self._canvas
        if (
            len(canvas.selection.ids) > 1
            or canvas.scene.notes.selected
            or canvas.scene.bends.selected
        ):
            canvas.commands.nudge(*direction)
            return
        bodies = {node: item.body for node, item in canvas.scene.nodes.items()}
        single = canvas.selection.single
        if single in bodies:
            target = step(canvas.scene.graph, bodies, single, direction)
        else:
            target = min(
                bodies,
                key=lambda node: (bodies[node].top() // 40, bodies[node].left()),
                default=None,
            )
        if target is not None:
            canvas.commands.select([target])
            canvas.reveal([target])


def step(
    graph: Graph, bodies: Mapping[str, QRectF], node: str, direction: tuple[int, int]
) -> str | None:
    """Return the next node: left and right follow the wires; otherwise the nearest node in that direction."""
    if direction == LEFT and graph.into(node):
        return graph.into(node)[0].source
    centers = {
        key: (body.center().x(), body.center().y()) for key, body in bodies.items()
    }
    if direction == RIGHT and graph.out_of(node):
        targets = [edge.target for edge in graph.out_of(node) if edge.target in bodies]
        level = centers[node][1]
        return min(targets, key=lambda key: abs(centers[key][1] - level), default=None)
    return nearest(centers, node, direction)
