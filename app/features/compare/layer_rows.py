"""The matched layers of two models as rows of text, with the keys by which they are sorted. Qt-free."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from app.features.compare.values import Added, Apart, Distance, Layer
from app.util.columns import Column
from app.util.formatting import UNKNOWN, significant


class LayerRow(Struct, frozen=True, eq=False):
    """A matched layer; `moved` is the relative distance of its weights, None where they are not compared."""

    layer: Layer
    moved: float | None = None


def rows_of(
    layers: Iterable[Layer], distances: Iterable[Distance] = ()
) -> tuple[LayerRow, ...]:
    """Return a row for each layer, in the order of their calls."""
    by_path = {distance.a: distance.relative for distance in distances}
    return tuple(LayerRow(layer, by_path.get(layer.a)) for layer in layers)


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


def figure(value: float) -> str:
    """Format an error.

    >>> figure(0.0), figure(0.00123456), figure(float("inf"))
    ('0', '0.00123', '∞')
    """
    return "∞" if math.isinf(value) else significant(value, 3)


def _cosine(value: float) -> str:
    return significant(value, 7)


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


def tone_of(layer: Layer, passes: str = "") -> str:
    """Return how a cell of a pass, or of the layer, is shown: "adds", "inherited" for an error that it only passes on,
    "" otherwise."""
    errors = {"forward": layer.forward, "backward": layer.backward}
    added = {"forward": layer.added, "backward": layer.backward_added}
    names = [passes] if passes else list(errors)
    if any(exceeds(added[name]) for name in names):
        return "adds"
    return "inherited" if any(_error(errors[name]) for name in names) else ""


def _column(
    title: str,
    meaning: str,
    value: Callable[[LayerRow], Any],
    passes: str | None = "",
    text: Callable[[float], str] | None = None,
    **more: Any,
) -> Column:
    """Return a column; those of numbers have a `text`, and those of no pass no tone if `passes` is None."""

    def tone(row: LayerRow) -> str:
        return "" if passes is None else tone_of(row.layer, passes)

    def shown(row: LayerRow) -> str:
        amount = value(row)
        if text is None:
            return str(amount)
        return UNKNOWN if amount is None else text(amount)

    return Column(
        title,
        shown,
        meaning,
        text is not None,
        value,
        tip=lambda row: words_of(row.layer),
        color=lambda row: {"adds": "text", "inherited": "text3"}.get(
            tone(row), "text2"
        ),
        font=lambda row: "section" if tone(row) == "adds" else "",
        **more,
    )


def _of_pass(name: str, outputs: str, beside: str) -> list[Column]:
    """Return the columns of a pass: the error of its `outputs`, what the layer adds to it, and the cosine."""

    def apart(row: LayerRow) -> Apart | None:
        return row.layer.forward if name == "forward" else row.layer.backward

    def added(row: LayerRow) -> float | None:
        part = row.layer.added if name == "forward" else row.layer.backward_added
        return None if part is None else _sortable(part.error)

    def error(row: LayerRow) -> float | None:
        between = apart(row)
        return None if between is None else _sortable(between.relative)

    def cosine(row: LayerRow) -> float | None:
        between = apart(row)
        return None if between is None else between.cosine

    title = name.capitalize()
    return [
        _column(
            title,
            f"‖b−a‖₂ / ‖a‖₂ of {beside}",
            error,
            name,
            figure,
            copied=f"{title} error",
        ),
        _column(
            "Added",
            f"Relative error of its {outputs} where B's layer gets exactly what A's layer got: its own part",
            added,
            name,
            figure,
            copied=f"{title} added",
        ),
        _column(
            "Cosine",
            f"Cosine of the angle between the {outputs} of both",
            cosine,
            name,
            _cosine,
            copied=f"{title} cosine",
        ),
    ]


def _sortable(value: float | None) -> float | None:
    return math.inf if value is not None and math.isnan(value) else value


COLUMNS = (
    _column(
        "Layer in A",
        "Modules of A in the order of their calls",
        lambda row: name_of(row.layer.a, row.layer.call),
        icon=lambda row: ("warning", "warn") if adds(row.layer) else ("block", "text4"),
        spoken=lambda row: ", ".join(
            filter(None, (name_of(row.layer.a, row.layer.call), tone_of(row.layer)))
        ),
    ),
    _column(
        "Layer in B",
        "The module of B that matches it",
        lambda row: name_of(row.layer.b, row.layer.call),
    ),
    _column("Class", "Its class", lambda row: row.layer.kind),
    _column(
        "Weights",
        "‖b−a‖₂ / ‖a‖₂ of its own parameters: how far they have moved",
        lambda row: _sortable(row.moved),
        None,
        figure,
    ),
    *_of_pass(
        "forward",
        "outputs",
        "its outputs, both models run on their own: what it adds and what it inherits",
    ),
    *_of_pass("backward", "gradients", "the gradients of its outputs and parameters"),
)
LAYER_A, LAYER_B, CLASS, WEIGHTS = range(4)
