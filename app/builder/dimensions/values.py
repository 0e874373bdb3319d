"""Size rules for layers, functions with weights, factories and indexing."""

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
from app.builder.dimensions.formula import Formula
from app.builder.literals import Slice
from app.builder.value_types import Size


def literal_shape(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a literal shape."""
    name = "shape" if "shape" in call.params else "size"
    return tuple(
        set_by(f"{name}[{i}]", size) for i, size in enumerate(call.params[name])
    )


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
            if entry != type(entry)(None, None, None):
                raise TypeError  # torch's size is shown
            notes.append(unchanged(arrived, at))
            at += 1
        else:
            at += 1  # an int removes its dimension
    return tuple(notes)


def _after_ellipsis(items: tuple[Any, ...]) -> int:
    """Count the dimensions after the ellipsis."""
    behind = items[items.index(Ellipsis) + 1 :]
    return sum(entry is not None for entry in behind)


def features(call: SizeCall) -> tuple[SizeNote, ...]:
    """Also for `nn.Bilinear`, of which only the first input is explained."""
    arrived = call.first
    explanation = f"out_features sets the {call.params['out_features']}: each mixes all {arrived.shape[-1]} inputs."
    return (
        *leading(arrived, 1),
        set_by("out_features", call.params["out_features"], explanation),
    )


def leading(arrived: InputTensor, less: int) -> tuple[SizeNote, ...]:
    """Note the dimensions before the last `less` as unchanged."""
    return tuple(unchanged(arrived, i) for i in range(len(arrived.shape) - less))


def embedding(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `nn.Embedding`: the sizes of the indices, then `embedding_dim`."""
    size = call.params["embedding_dim"]
    explanation = f"Each index becomes a row of embedding_dim = {size} values."
    return (*leading(call.first, 0), set_by("embedding_dim", size, explanation))
