"""The matched layers of two models as rows of text, with the keys by which they are sorted. Qt-free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from app.features.compare.values import Added, Apart, Distance, Layer
from app.util.formatting import significant

COLUMNS = (
    "Layer in A",
    "Layer in B",
    "Class",
    "Weights",
    "Forward",
    "Added",
    "Cosine",
    "Backward",
    "Added",
    "Cosine",
)
(
    LAYER_A,
    LAYER_B,
    CLASS,
    WEIGHTS,
    FORWARD,
    ADDED,
    COSINE,
    BACKWARD,
    BACKWARD_ADDED,
    BACKWARD_COSINE,
) = range(10)
NUMBERS = frozenset(range(WEIGHTS, len(COLUMNS)))
MEANINGS = (
    "Modules of A in the order of their calls",
    "The module of B that matches it",
    "Its class",
    "‖b−a‖₂ / ‖a‖₂ of its own parameters: how far they have moved",
    "‖b−a‖₂ / ‖a‖₂ of its outputs, both models run on their own: what it adds and what it inherits",
    "Relative error of its outputs where B's layer gets exactly what A's layer got: its own part",
    "Cosine of the angle between the outputs of both",
    "‖b−a‖₂ / ‖a‖₂ of the gradients of its outputs and parameters",
    "Relative error of its gradients where B's layer gets exactly what A's layer got: its own part",
    "Cosine of the angle between the gradients of both",
)
NOTHING = "–"


class LayerRows(Struct, frozen=True, eq=False):
    """The layers in the order of their calls; `orders` are their places sorted by each column, ascending, those without
    a value left out, and `adding` the places of those that add more than rounding explains. `moved` is the relative
    distance of each layer's weights, empty where both models have the same."""

    layers: tuple[Layer, ...] = ()
    orders: tuple[tuple[int, ...], ...] = ((),) * len(COLUMNS)
    adding: tuple[int, ...] = ()
    moved: tuple[float | None, ...] = ()

    @classmethod
    def of(
        cls, layers: Sequence[Layer], distances: Sequence[Distance] = ()
    ) -> LayerRows:
        """Sort the layers by every column; meant for a worker thread."""
        by_path = {distance.a: distance.relative for distance in distances}
        moved = tuple(by_path.get(layer.a) for layer in layers) if distances else ()
        orders = []
        for column in range(len(COLUMNS)):
            keys: list[Any] = [key_of(layer, column) for layer in layers]
            if column == WEIGHTS and moved:
                keys = list(moved)
            valued = [index for index, key in enumerate(keys) if key is not None]
            orders.append(tuple(sorted(valued, key=keys.__getitem__)))
        adding = tuple(at for at, layer in enumerate(layers) if adds(layer))
        return cls(tuple(layers), tuple(orders), adding, moved)

    def text(self, index: int, column: int) -> str:
        """Return the text of a cell."""
        if column == WEIGHTS:
            moved = self.moved[index] if self.moved else None
            return NOTHING if moved is None else figure(moved)
        return text_of(self.layers[index], column)

    def places(
        self, column: int = -1, descending: bool = False, only_adding: bool = False
    ) -> list[int]:
        """Return the places in the order of a column, -1 for that of the calls; those without a value come last."""
        indices: Sequence[int] = range(len(self.layers))
        if column >= 0:
            order = self.orders[column]
            valued = set(order)
            indices = [
                *(reversed(order) if descending else order),
                *(at for at in indices if at not in valued),
            ]
        if only_adding:
            adding = set(self.adding)
            indices = [at for at in indices if at in adding]
        return list(indices)


def exceeds(added: Added | None) -> bool:
    """Return whether a layer adds more than rounding explains in a pass."""
    return added is not None and added.exceeds


def adds(layer: Layer) -> bool:
    """Return whether a layer adds more than rounding explains in any pass."""
    return exceeds(layer.added) or exceeds(layer.backward_added)


def name_of(path: str, call: int = 1) -> str:
    """Return a module as text.

    >>> name_of("blocks.0"), name_of("norm", 2), name_of("")
    ('blocks.0', 'norm, call 2', 'the model')
    """
    return f"{path or 'the model'}{f', call {call}' if call > 1 else ''}"


def key_of(layer: Layer, column: int) -> float | str | None:
    """Return what a column is sorted by; None where there is no value."""
    if column == LAYER_A:
        return name_of(layer.a, layer.call)
    if column == LAYER_B:
        return name_of(layer.b, layer.call)
    if column == CLASS:
        return layer.kind
    value = _value(layer, column)
    return math.inf if value is not None and math.isnan(value) else value


def text_of(layer: Layer, column: int) -> str:
    """Return the text of a cell."""
    if column in NUMBERS:
        value = _value(layer, column)
        return (
            NOTHING
            if value is None
            else _cosine(value)
            if column in (COSINE, BACKWARD_COSINE)
            else figure(value)
        )
    return str(key_of(layer, column))


def figure(value: float) -> str:
    """Format an error.

    >>> figure(0.0), figure(0.00123456), figure(float("inf"))
    ('0', '0.00123', '∞')
    """
    return "∞" if math.isinf(value) else significant(value, 3)


def _cosine(value: float) -> str:
    return significant(value, 7)


def _value(layer: Layer, column: int) -> float | None:
    if column == WEIGHTS:
        return None
    back = column >= BACKWARD
    if column in (ADDED, BACKWARD_ADDED):
        added = layer.backward_added if back else layer.added
        return None if added is None else added.error
    apart = layer.backward if back else layer.forward
    if apart is None:
        return None
    return apart.cosine if column in (COSINE, BACKWARD_COSINE) else apart.relative


def tone_of(layer: Layer, column: int) -> str:
    """Return how a cell is shown: "adds", "inherited" for an error that it only passes on, "" otherwise."""
    if column < FORWARD:
        if column == WEIGHTS:
            return ""
        if adds(layer):
            return "adds"
        return "inherited" if _error(layer.forward) or _error(layer.backward) else ""
    back = column >= BACKWARD
    if exceeds(layer.backward_added if back else layer.added):
        return "adds"
    return "inherited" if _error(layer.backward if back else layer.forward) else ""


def _error(apart: Apart | None) -> bool:
    return apart is not None and bool(apart.relative)


def words_of(layer: Layer) -> str:
    """Describe a layer in a sentence a pass: for a tooltip and for screen readers."""
    lines = []
    for name, apart, added in (
        ("Forward", layer.forward, layer.added),
        ("Backward", layer.backward, layer.backward_added),
    ):
        if added is not None and added.exceeds:
            detail = f": {added.what}" if added.what else ""
            lines.append(
                f"{name}: it adds {figure(added.error)}; rounding explains {figure(added.bound)}{detail}."
            )
        elif _error(apart):
            lines.append(
                f"{name}: its error is inherited; what it adds is within rounding."
            )
    return "\n".join(lines)


def as_text(rows: LayerRows, indices: Sequence[int]) -> str:
    """Return rows as tab-separated text."""
    passes = [
        f"{name} {measure}"
        for name in ("Forward", "Backward")
        for measure in ("error", "added", "cosine")
    ]
    names = (*COLUMNS[:FORWARD], *passes)
    lines = [
        names,
        *(
            tuple(rows.text(at, column) for column in range(len(COLUMNS)))
            for at in indices
        ),
    ]
    return "\n".join("\t".join(line) for line in lines)
