"""Size rules for factories and indexing."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from app.builder.dimensions import conv as windows
from app.builder.dimensions.calls import (
    InputTensor,
    Rule,
    SizeCall,
    SizeNote,
    set_by,
    unchanged,
)
from app.builder.dimensions.formula import Formula, Symbol
from app.builder.literals import Slice
from app.builder.value_types import Size


def literal_shape(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a literal shape."""
    name = "shape" if "shape" in call.params else "size"
    return tuple(
        set_by(f"{name}[{i}]", size) for i, size in enumerate(call.params[name])
    )


def constant(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the nesting of a typed value."""
    value, notes = call.params["value"], list[SizeNote]()
    while isinstance(value, tuple):
        inner = value[0] if value else None
        subject = (
            "rows of value" if isinstance(inner, tuple) else "numbers in a row of value"
        )
        notes.append(
            set_by(subject, len(value), f"{subject[0].upper()}{subject[1:]}, as typed.")
        )
        value = inner
    return tuple(notes)


def index_select(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.index_select`: one for each index along `dim`."""
    arrived, index = call.first, call.inputs["index"][0]
    at = call.params["dim"] % len(arrived.shape)
    notes = [unchanged(arrived, i) for i in range(len(arrived.shape))]
    explanation = f"One for each value of {index.name}."
    notes[at] = SizeNote(
        Formula("i", (index.symbol("i", 0),)), explanation, index.origin(0)
    )
    return tuple(notes)


def convolution(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a convolution with a wired weight: its first size is the channels, its last ones the kernel."""
    sizes = call.inputs["weight"][0].shape
    return _with_weight(call, windows.convolution, sizes[0], "first")


def transposed(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a transposed convolution with a wired weight: its second size is the channels of a group."""
    channels = call.inputs["weight"][0].shape[1]
    if isinstance(channels, int):
        channels *= call.params.get("groups", 1)
    return _with_weight(call, windows.transposed, channels, "second")


def _with_weight(
    call: SizeCall, rule: Rule, channels: Size, which: str
) -> tuple[SizeNote, ...]:
    weight = call.inputs["weight"][0]
    kernel = {"out_channels": channels, "kernel_size": weight.shape[2:]}
    notes = list(rule(replace(call, params={**call.params, **kernel})))
    channel_dim = len(call.shape) - windows.axes(call.op) - 1
    explanation = f"The {which} size of {weight.name} sets it."
    notes[channel_dim] = replace(notes[channel_dim], words=explanation)
    return tuple(notes)


def linear(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a linear map with a wired weight: its first size is the features."""
    arrived, weight = call.first, call.inputs["weight"][0]
    explanation = f"The first size of {weight.name} sets it: each mixes all {arrived.shape[-1]} inputs."
    features: tuple[SizeNote, ...] = ()
    if len(weight.shape) > 1:
        features = (
            SizeNote(
                Formula("w", (weight.symbol("w", 0),)), explanation, weight.origin(0)
            ),
        )
    return (*(unchanged(arrived, i) for i in range(len(arrived.shape) - 1)), *features)


def item(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note an index `x[...]` of numbers, slices, None and an ellipsis."""
    arrived, index = call.first, call.params["index"]
    items = index if isinstance(index, tuple) else (index,)
    if Ellipsis not in items:
        items = (*items, Ellipsis)
    notes: list[SizeNote] = []
    at = 0
    for entry in items:
        if entry is Ellipsis:
            stop = len(arrived.shape) - _after_ellipsis(items)
            notes += [unchanged(arrived, i) for i in range(at, stop)]
            at = stop
        elif entry is None:
            notes.append(
                SizeNote(Formula("1"), "None inserts a dimension of size 1 here.")
            )
        elif isinstance(entry, slice | Slice):
            notes.append(_sliced(arrived, at, entry))
            at += 1
        else:
            at += 1  # an int removes its dimension
    return tuple(notes)


def _after_ellipsis(items: tuple[Any, ...]) -> int:
    """Count the dimensions after the ellipsis."""
    behind = items[items.index(Ellipsis) + 1 :]
    return sum(entry is not None for entry in behind)


def _sliced(arrived: InputTensor, at: int, slicing: slice | Slice) -> SizeNote:
    size, source = arrived.shape[at], arrived.origin(at)
    start, stop, step = slicing.start or 0, slicing.stop, slicing.step or 1
    if start == 0 and step == 1 and (stop is None or stop == size):
        return unchanged(arrived, at)
    n = arrived.symbol("n", at)
    end, symbols = _end(n, stop, size)
    begin: Size | None = start
    if isinstance(start, int) and start < 0:
        begin = None
        end, symbols = (
            ("k", (Symbol("k", "from the end", _at_most(-start, size)),))
            if stop is None
            else (end, symbols)
        )
        if stop is not None:
            raise TypeError
    text = end
    if begin is not None and begin != 0:
        text, symbols = f"{end} - s", (*symbols, Symbol("s", "start", begin))
    if step != 1:
        text, symbols = f"ceil({text}, k)", (*symbols, Symbol("k", "step", step))
    return SizeNote(
        Formula(text, symbols), f"The slice keeps these of the {size}.", source
    )


def _end(n: Symbol, stop: Any, size: Size) -> tuple[str, tuple[Symbol, ...]]:
    """Return the end of a slice: as typed, relative to the end if negative, at most the size."""
    if stop is None or (
        isinstance(stop, int) and isinstance(size, int) and stop >= size
    ):
        return "n", (n,)
    if isinstance(stop, int) and stop < 0:
        return "n - e", (n, Symbol("e", "before the end", -stop))
    return "e", (Symbol("e", "stop", stop),)


def _at_most(number: int, size: Size) -> int:
    return min(number, size) if isinstance(size, int) else number
