"""Size rules for layers, functions with weights, factories and indexing; of what keeps the shape, over which values it
computes: softmax and the norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.builder.dimensions import conv as windows
from app.builder.dimensions.calls import (
    BATCH,
    InputTensor,
    Rule,
    SizeCall,
    SizeNote,
    set_by,
    unchanged,
)
from app.builder.dimensions.formula import Formula
from app.builder.literals import Slice
from app.builder.value_types import Dim, Size
from app.util.formatting import grouped_digits
from app.util.language import marked, tr, trn

_FIRST = marked("The first size of {weight} sets it.")
_SECOND = marked("The second size of {weight} sets it.")


def literal_shape(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a literal shape."""
    name = "shape" if "shape" in call.params else "size"
    return tuple(
        set_by(f"{name}[{i}]", size) for i, size in enumerate(call.params[name])
    )


def convolution(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a convolution with a wired weight: its first size is the channels, its last ones the kernel."""
    sizes = call.inputs["weight"][0].shape
    return _with_weight(call, windows.convolution, sizes[0], _FIRST)


def transposed(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a transposed convolution with a wired weight: its second size is the channels of a group."""
    channels = call.inputs["weight"][0].shape[1]
    if isinstance(channels, int):
        channels *= call.params.get("groups", 1)
    return _with_weight(call, windows.transposed, channels, _SECOND)


def _with_weight(
    call: SizeCall, rule: Rule, channels: Size, sentence: str
) -> tuple[SizeNote, ...]:
    weight = call.inputs["weight"][0]
    kernel = {"out_channels": channels, "kernel_size": weight.shape[2:]}
    notes = list(rule(replace(call, params={**call.params, **kernel})))
    channel_dim = len(call.shape) - windows.axes(call.op) - 1
    explanation = tr(sentence, weight=weight.name)
    notes[channel_dim] = replace(notes[channel_dim], words=explanation)
    return tuple(notes)


def linear(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a linear map with a wired weight: its first size is the features."""
    arrived, weight = call.first, call.inputs["weight"][0]
    explanation = tr(
        "The first size of {weight} sets it: each mixes all {inputs} inputs.",
        weight=weight.name,
        inputs=arrived.shape[-1],
    )
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
            explanation = tr("None inserts a dimension of size 1 here.")
            notes.append(SizeNote(Formula("1"), explanation))
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
    size = call.params["out_features"]
    explanation = tr(
        "out_features sets the {size}: each mixes all {inputs} inputs.",
        size=size,
        inputs=arrived.shape[-1],
    )
    return (*leading(arrived, 1), set_by("out_features", size, explanation))


def leading(arrived: InputTensor, less: int) -> tuple[SizeNote, ...]:
    """Note the dimensions before the last `less` as unchanged."""
    return tuple(unchanged(arrived, i) for i in range(len(arrived.shape) - less))


def embedding(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `nn.Embedding`: the sizes of the indices, then `embedding_dim`."""
    size = call.params["embedding_dim"]
    explanation = tr(
        "Each index becomes a row of embedding_dim = {size} values.", size=size
    )
    return (*leading(call.first, 0), set_by("embedding_dim", size, explanation))


class Mixed(Struct, frozen=True):
    """The dimensions that an output value is reduced over, and by which operation, as a sentence."""

    dims: tuple[int, ...]
    sentence: str


def saying(mixed: Callable[[SizeCall], Mixed]) -> Rule:
    """Return the size rule of an op that keeps the shape: each dimension is unchanged, with the sentence of `mixed`."""

    def rule(call: SizeCall) -> tuple[SizeNote, ...]:
        mixing = mixed(call)
        notes = []
        for index, size in enumerate(call.first.shape):
            batch = size == Dim(1)
            if not batch:
                notes.append(unchanged(call.first, index, mixing.sentence))
            else:
                notes.append(
                    unchanged(
                        call.first,
                        index,
                        f"{tr(BATCH)} {mixing.sentence}"
                        if index in mixing.dims
                        else "",
                    )
                )
        return tuple(notes)

    return rule


def softmax(call: SizeCall) -> Mixed:
    """`dim`, as torch chooses it where it is None: 0 of 1 or 3 dimensions, else 1. Of `Softmax2d` the channels."""
    rank = len(call.first.shape)
    chosen = call.params.get("dim")
    if call.op == "nn.Softmax2d":
        chosen = -3
    dim = (0 if rank in (0, 1, 3) else 1) if chosen is None else chosen % rank
    dim %= rank
    sentence = (
        marked("{layer} works {over}, whose exponentials add up to 1.")
        if "log" in call.op.lower()
        else marked("{layer} works {over}, which then add up to 1.")
    )
    over = _over(call, (dim,))
    return _mixed((dim,), tr(sentence, layer=call.label, over=over))


def _mixed(dims: tuple[int, ...], sentence: str) -> Mixed:
    return Mixed(dims, f"{sentence} {tr('The shape stays the same.')}")


def batch_norm(call: SizeCall) -> Mixed:
    """Statistics of a channel: of the batch in training, running ones in evaluation if they are tracked."""
    rank = len(call.first.shape)
    dims = tuple(dim for dim in range(rank) if dim != 1)
    channels = call.first.shape[1]
    if not call.op.startswith("nn.") and not call.params.get("training"):
        return _mixed(
            (),
            tr(
                "{layer} scales each of the {channels} channels by its running mean and variance.",
                layer=call.label,
                channels=channels,
            ),
        )
    sentence = (
        marked(
            "{layer} uses one mean and variance for each of the {channels} channels: in training {over}, in evaluation "
            "the running ones, so that each value is scaled by itself."
        )
        if call.params.get("track_running_stats", call.op.startswith("nn."))
        else marked(
            "{layer} uses one mean and variance for each of the {channels} channels: in training {over}."
        )
    )
    over = _over(call, dims, of_channel=True)
    return _mixed(dims, tr(sentence, layer=call.label, channels=channels, over=over))


def layer_norm(call: SizeCall) -> Mixed:
    """The trailing dimensions that `normalized_shape` names."""
    shape = call.params.get("normalized_shape") or (1,)
    count = len(shape) if isinstance(shape, tuple) else 1
    rank = len(call.first.shape)
    dims = tuple(range(rank - count, rank))
    sentence = (
        marked("{layer} takes the root mean square {over}.")
        if "rms" in call.op.lower()
        else marked("{layer} takes the mean and variance {over}.")
    )
    return _mixed(dims, tr(sentence, layer=call.label, over=_over(call, dims)))


def group_norm(call: SizeCall) -> Mixed:
    """Each group of channels of a sample, with all positions."""
    shape, groups = call.first.shape, call.params["num_groups"]
    dims = tuple(range(1, len(shape)))
    channels = shape[1] // groups if isinstance(shape[1], int) else shape[1]
    counts = _product((channels, *shape[2:]))
    sentence = tr(
        "{layer} takes the mean and variance of each of {groups} groups of {channels} channels: over the {count} "
        "values of a group of a sample.",
        layer=call.label,
        groups=groups,
        channels=channels,
        count=counts,
    )
    return _mixed(dims, sentence)


def instance_norm(call: SizeCall) -> Mixed:
    """Each channel of a sample by itself."""
    shape = call.first.shape
    axes = int(call.op[-2]) if call.op.startswith("nn.") else len(shape) - 2
    dims = tuple(range(len(shape) - axes, len(shape)))
    is_tracked = (
        call.params.get("track_running_stats")
        or call.params.get("use_input_stats") is False
    )
    sentence = (
        marked(
            "{layer} takes the mean and variance {over}, in evaluation the running ones."
        )
        if is_tracked
        else marked("{layer} takes the mean and variance {over}.")
    )
    return _mixed(dims, tr(sentence, layer=call.label, over=_over(call, dims)))


def by_itself(call: SizeCall) -> Mixed:
    """Each value by itself."""
    return Mixed(
        (), tr("{layer} is elementwise, so the shape stays the same.", layer=call.label)
    )


def _over(call: SizeCall, dims: tuple[int, ...], of_channel: bool = False) -> str:
    """Name dimensions and the number of values: "over dim 1: the 10 values of a sample"."""
    shape = call.first.shape
    inner = [dim for dim in dims if shape[dim] != Dim(1)]
    has_batch = len(inner) < len(dims)
    if not inner:
        where = tr("the batch")
    elif has_batch:
        where = tr("the batch and {dims}", dims=_named(inner))
    else:
        where = _named(inner)
    others = [
        dim
        for dim in range(len(shape))
        if dim not in dims and shape[dim] not in (Dim(1), 1)
    ]
    if of_channel:
        values = marked("over {where}: the {count} values of a channel")
    elif others and has_batch:
        values = marked("over {where}: the {count} values at each place of {others}")
    elif others:
        values = marked(
            "over {where}: the {count} values at each place of {others} of a sample"
        )
    elif has_batch:
        values = marked("over {where}: the {count} values")
    else:
        values = marked("over {where}: the {count} values of a sample")
    count = _product(tuple(shape[dim] for dim in dims))
    named = _named(others) if others else ""
    return tr(values, where=where, count=count, others=named)


def _named(dims: list[int]) -> str:
    """
    >>> _named([1]), _named([1, 2, 3])
    ('dim 1', 'dims 1, 2 and 3')
    """
    *first, last = map(str, dims)
    listed = f"{', '.join(first)} {tr('and')} {last}" if first else last
    return trn("dim {dims}", "dims {dims}", len(dims), dims=listed)


def _product(sizes: tuple[Size, ...]) -> str:
    """
    >>> _product((3, 8, 8)), _product((Dim(1), 8, 8))
    ('192', 'N × 64')
    """
    plain = math.prod(size for size in sizes if isinstance(size, int))
    open_sizes = [str(size) for size in sizes if not isinstance(size, int)]
    return " × ".join(
        [
            *open_sizes,
            *([grouped_digits(plain)] if plain != 1 or not open_sizes else []),
        ]
    )
