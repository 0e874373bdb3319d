"""Search for a layer on the canvas: at a point, at the loose end of a wire, or on a wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF

from app.builder.edits import edits
from app.builder.graph import Edge
from app.builder.value_types import ValueType
from app.views.canvas.items.faces import Pin
from app.views.canvas.search import ranking

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas


class Finder:
    """Opens the canvas's search box and inserts the choice."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._put: Callable[[str], object] = canvas.add_op
        canvas.search.chosen.connect(self._chosen)

    def search_at(self, point: QPointF, pointed: bool = True) -> None:
        """Search a layer for a point: behind the selected node if there is one; on free ground unless the point was
        clicked."""
        canvas = self._canvas

        def put(op: str) -> None:
            if canvas.selection.single in canvas.scene.nodes:
                canvas.add_op(op)
            else:
                canvas.commands.add_at(
                    op, point if pointed else canvas.scene.free_spot(op, point)
                )

        behind = (
            canvas.selection.single
            if canvas.selection.single in canvas.scene.nodes
            else None
        )
        only = (
            ranking.by_shape(
                canvas.catalog, canvas.catalog, canvas_value(canvas, behind, 0)
            )
            if behind
            else None
        )
        self._open(point, put, only)

    def for_loose_end(
        self, node: str, from_output: bool, pin: Pin, point: QPointF
    ) -> None:
        """Search a layer that fits at the end of a wire that was dropped on the canvas."""
        graph, catalog, commands = (
            self._canvas.scene.graph,
            self._canvas.catalog,
            self._canvas.commands,
        )
        only: Iterable[str]
        if from_output:
            only = edits.fitting_after(graph, catalog, node, pin.index)
        else:
            only = edits.fitting_before(graph, catalog, node, pin.port)

        def put(op: str) -> None:
            if from_output:
                commands.add_after(op, node, pin.index, point)
            else:
                commands.add_before(op, node, pin.port, point)

        value = canvas_value(self._canvas, node, pin.index) if from_output else None
        only = ranking.by_shape(catalog, only, value)
        side = "behind" if from_output else "before"
        self._open(
            point, put, only, f"Enter adds and connects {side} {graph.nodes[node].name}"
        )

    def for_wire(self, wire: Edge, point: QPointF) -> None:
        """Search a layer to insert on a wire."""
        graph, catalog = self._canvas.scene.graph, self._canvas.catalog
        after = edits.fitting_after(graph, catalog, wire.source, wire.output)
        before = edits.fitting_before(graph, catalog, wire.target, wire.port)
        hint = f"Enter inserts before {graph.nodes[wire.target].name}"
        fitting = [op for op in after if op in before]
        both = ranking.by_shape(
            catalog, fitting, canvas_value(self._canvas, wire.source, wire.output)
        )
        self._open(
            point, lambda op: self._canvas.commands.insert(op, wire, point), both, hint
        )

    def for_node(self, node: str) -> None:
        """Another op in the place of a node."""
        canvas = self._canvas
        value = canvas.scene.graph.nodes[node]
        spot = canvas.scene.nodes[node].body.bottomLeft()
        alike = ranking.by_kind(canvas.catalog, value.op)
        self._open(
            spot,
            lambda op: canvas.commands.replace(node, op),
            alike,
            f"Enter replaces {value.name}",
        )

    def _open(
        self,
        point: QPointF,
        put: Callable[[str], object],
        only: Iterable[str] | None = None,
        hint: str = "",
    ) -> None:
        self._put = put
        view = self._canvas.view
        self._canvas.search.open_at(
            view.mapTo(self._canvas, view.mapFromScene(point)), only, hint
        )

    def _chosen(self, op: str) -> None:
        self._put(op)


def canvas_value(canvas: Canvas, node: str, output: int) -> ValueType | None:
    """Return what an output carries, as far as it is known."""
    analysis = canvas.scene.analysis
    return analysis.values.get((node, output)) if analysis is not None else None
