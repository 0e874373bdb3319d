"""Search for a layer on the canvas: at a point, at the loose end of a wire, on a wire, or in the place of a node."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtCore import QPointF

from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.edits import edits
from app.builder.graph import Edge
from app.builder.params import NONE, Params
from app.builder.typed_code import TypedCodeError, call_of, ops_named
from app.builder.value_types import TensorType, ValueType
from app.views.canvas.items.faces import Pin
from app.views.ui import fuzzy
from app.views.ui.op_rows import CATEGORY_NAMES
from app.views.ui.pick_box import PickRow, Question

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas

_DIMENSIONS = re.compile(r"([123])d$")
# Categories that usually follow a tensor with this many dimensions, the batch counted; of any more as of four.
_USUAL = {
    2: ("linear", "act", "norm", "drop"),
    3: ("seq", "conv", "act", "norm", "linear"),
    4: ("conv", "act", "norm", "shape"),
}


def matching_ops(
    catalog: Catalog, query: str, only: Iterable[str] | None = None
) -> list[OpSpec]:
    """Return the ops that match the letters, best first; all of them for no letters. The name weighs most."""
    keys = list(catalog) if only is None else [key for key in only if key in catalog]
    fits = []
    for order, key in enumerate(keys):
        spec = catalog[key]
        category = CATEGORY_NAMES.get(spec.category, spec.category)
        name = (
            1.0 if spec.kind == "module" else 0.85
        )  # a layer before the function of its name
        fit = fuzzy.score(
            query,
            (spec.label, name),
            (spec.key, 0.8),
            (spec.stem, 0.4),
            (category, 0.5),
        )
        if fit is not None:
            fits.append((-fit, order, spec))
    return [spec for _, _, spec in sorted(fits, key=lambda fit: fit[:2])]


def _row(spec: OpSpec) -> PickRow:
    where = spec.key.rpartition(".")[0] or CATEGORY_NAMES.get(
        spec.category, spec.category
    )
    return PickRow(spec.label, spec.category, spec.key, hint=where)


class TypedCall(NamedTuple):
    """An op with the arguments that were typed."""

    op: str
    params: Params


def _typed(query: str, catalog: Catalog, keys: Collection[str] | None) -> list[PickRow]:
    """Return the row of a call with arguments, or of its op and why they do not fit."""
    name = re.split(r"[\s(]", query.strip(), maxsplit=1)[0]
    try:
        call = call_of(query, catalog)
    except TypedCodeError as error:
        spec = catalog[ops_named(name, catalog)[0]]
        return [PickRow(spec.label, spec.category, spec.key, faint=error.reason)]
    if call is None or not call[1] or (keys is not None and call[0].key not in keys):
        return []
    spec, params = call
    text = ", ".join(f"{key}={value!r}" for key, value in params.items())
    choice = TypedCall(spec.key, params)
    return [PickRow(f"{spec.label}({text})", spec.category, choice)]


def by_shape(
    catalog: Catalog, keys: Iterable[str], value: ValueType | None
) -> list[str]:
    """Sort ops by how well they fit a value: layers of another number of dimensions (`Conv1d` on pictures) are
    last."""
    if not isinstance(value, TensorType):
        return list(keys)
    rank = len(value.shape)
    usual = _USUAL[min(max(rank, 2), 4)]

    def cost(key: str) -> tuple[int, int, int]:
        spec = catalog[key]
        misfit = not _takes(spec, rank)
        category_rank = (
            usual.index(spec.category) if spec.category in usual else len(usual)
        )
        return misfit, category_rank, spec.kind != "module"

    return sorted(keys, key=cost)


def by_kind(catalog: Catalog, op: str) -> list[str]:
    """Sort all ops by how alike they are to one: of its category and kind first, itself last of those."""
    reference = catalog.get(op)
    if reference is None:
        return list(catalog)

    def cost(key: str) -> tuple[bool, bool, bool, bool]:
        spec = catalog[key]
        ports = (len(spec.inputs), len(spec.outputs)) != (
            len(reference.inputs),
            len(reference.outputs),
        )
        return (
            spec.category != reference.category,
            ports,
            key == op,
            spec.kind != reference.kind,
        )

    return sorted(catalog, key=cost)


def _takes(spec: OpSpec, rank: int) -> bool:
    """Return whether an op is for tensors of this many dimensions, by its name."""
    named = _DIMENSIONS.search(spec.label)
    if named is None:
        return True
    flat = (
        spec.category in ("norm", "drop") and named[1] == "1"
    )  # BatchNorm1d takes N×C as well
    return rank == int(named[1]) + 2 or (flat and rank == 2)


class Finder:
    """Opens the canvas's search box and inserts the choice."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas

    def search_at(self, point: QPointF, pointed: bool = True) -> None:
        """Search a layer for a point: behind the selected node if there is one; on free ground unless the point was
        clicked."""
        canvas = self._canvas

        def put(op: str, params: Params) -> None:
            if canvas.selection.single in canvas.scene.nodes:
                canvas.add_op(op, params)
            else:
                spot = point if pointed else canvas.scene.free_spot(op, point)
                canvas.commands.add_at(op, spot, params)

        behind = (
            canvas.selection.single
            if canvas.selection.single in canvas.scene.nodes
            else None
        )
        only = (
            by_shape(canvas.catalog, canvas.catalog, canvas_value(canvas, behind, 0))
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

        def put(op: str, params: Params) -> None:
            if from_output:
                commands.add_after(op, node, pin.index, point, params)
            else:
                commands.add_before(op, node, pin.port, point, params)

        value = canvas_value(self._canvas, node, pin.index) if from_output else None
        only = by_shape(catalog, only, value)
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
        both = by_shape(
            catalog, fitting, canvas_value(self._canvas, wire.source, wire.output)
        )

        def put(op: str, params: Params) -> None:
            self._canvas.commands.insert(op, wire, point, params)

        self._open(point, put, both, hint)

    def for_node(self, node: str) -> None:
        """Another op in the place of a node."""
        canvas = self._canvas
        value = canvas.scene.graph.nodes[node]
        spot = canvas.scene.nodes[node].body.bottomLeft()
        alike = by_kind(canvas.catalog, value.op)
        self._open(
            spot,
            lambda op, params: canvas.commands.replace(node, op, params),
            alike,
            f"Enter replaces {value.name}",
        )

    def _open(
        self,
        point: QPointF,
        put: Callable[[str, Params], object],
        only: Iterable[str] | None = None,
        hint: str = "Enter adds; with arguments: conv2d 20 5",
    ) -> None:
        canvas = self._canvas
        keys = None if only is None else tuple(only)

        def matches(query: str) -> list[PickRow]:
            ops = matching_ops(canvas.catalog, query, keys)
            return [*_typed(query, canvas.catalog, keys), *map(_row, ops)]

        def take(choice: str | TypedCall) -> None:
            if isinstance(choice, TypedCall):
                put(choice.op, choice.params)
            else:
                put(choice, NONE)

        nothing = "No matching layer: try fewer letters"
        question = Question("Search layers", hint, nothing, matches, take)
        canvas.search.ask(
            question, canvas.view.mapTo(canvas, canvas.view.mapFromScene(point))
        )


def canvas_value(canvas: Canvas, node: str, output: int) -> ValueType | None:
    """Return what an output carries, as far as it is known."""
    analysis = canvas.scene.analysis
    return analysis.values.get((node, output)) if analysis is not None else None
