"""Explain the output sizes of linear, embedding, recurrent and attention layers, padding and resampling.

Each rule follows the section "Shape" of the layer in PyTorch's documentation.
"""

from __future__ import annotations

from app.builder.dimensions.calls import (
    InputTensor,
    SizeCall,
    SizeNote,
    set_by,
    unchanged,
)
from app.builder.dimensions.formula import Formula, Symbol
from app.builder.dimensions.shapes import stretched
from app.builder.value_types import Dim

STAYS = "The layer keeps the shape of the sequence."


def linear(call: SizeCall) -> tuple[SizeNote, ...]:
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


def looked_up(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a lookup in a wired table: the sizes of the indices, then the row size."""
    indices, table = call.first, call.inputs["weight"][0]
    notes = [unchanged(indices, i) for i in range(len(indices.shape))]
    explanation = f"Each index is a row of {table.name}."
    return (
        *notes,
        SizeNote(Formula("w", (table.symbol("w", 1),)), explanation, table.origin(1)),
    )


def embedding(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `nn.Embedding`: the sizes of the indices, then `embedding_dim`."""
    size = call.params["embedding_dim"]
    explanation = f"Each index becomes a row of embedding_dim = {size} values."
    return (*leading(call.first, 0), set_by("embedding_dim", size, explanation))


def cell(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a recurrent cell: `hidden_size` in place of the last dimension."""
    return (*leading(call.first, 1), set_by("hidden_size", call.params["hidden_size"]))


def transformer(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the shape of the processed sequence: `tgt` if there is one, else `src`."""
    arrived = call.inputs.get("tgt", (call.first,))[0]
    return tuple(
        unchanged(arrived, i, "" if size == Dim(1) else STAYS)
        for i, size in enumerate(arrived.shape)
    )


def padded(call: SizeCall) -> tuple[SizeNote, ...]:
    """`padding` is (left, right, top, bottom, ...) from the last dimension on, or one number for all."""
    arrived = call.first
    name = "pad" if "pad" in call.params else "padding"
    padding, rank = call.params[name], len(arrived.shape)
    sides = (
        padding if isinstance(padding, tuple) else (padding,) * (2 * int(call.op[-2]))
    )
    axes = len(sides) // 2
    notes = [unchanged(arrived, i) for i in range(rank - axes)]
    for i in range(rank - axes, rank):
        offset = 2 * (rank - 1 - i)
        before, after = sides[offset : offset + 2]
        added = (
            Symbol("a", f"{name}[{offset}]", before),
            Symbol("b", f"{name}[{offset + 1}]", after),
        )
        explanation = (
            f"{before} are added before the {arrived.shape[i]}, {after} after them."
        )
        notes.append(
            SizeNote(
                Formula("a + x + b", (arrived.symbol("x", i), *added)),
                explanation,
                arrived.origin(i),
            )
        )
    return tuple(notes)


def shuffled(call: SizeCall) -> tuple[SizeNote, ...]:
    """`nn.PixelShuffle`: (C·r², H, W) becomes (C, H·r, W·r)."""
    return _shuffled(
        call,
        "upscale_factor",
        "c/(r*r)",
        "x*r",
        "r² channels become the r×r pixels of one.",
    )


def unshuffled(call: SizeCall) -> tuple[SizeNote, ...]:
    """`nn.PixelUnshuffle`: (C, H·r, W·r) becomes (C·r², H, W)."""
    return _shuffled(
        call,
        "downscale_factor",
        "c*r*r",
        "x/r",
        "Each r×r pixels become the channels of one.",
    )


def _shuffled(
    call: SizeCall, name: str, channels: str, side: str, explanation: str
) -> tuple[SizeNote, ...]:
    arrived = call.first
    rank = len(arrived.shape)
    r = Symbol("r", name, call.params[name])
    notes = [unchanged(arrived, i) for i in range(rank - 3)]
    notes.append(
        SizeNote(
            Formula(channels, (arrived.symbol("c", rank - 3), r)),
            explanation,
            arrived.origin(rank - 3),
        )
    )
    for i in (rank - 2, rank - 1):
        notes.append(
            SizeNote(
                Formula(side, (arrived.symbol("x", i), r)),
                explanation,
                arrived.origin(i),
            )
        )
    return tuple(notes)


def upsampled(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `size` as given, or the input size times `scale_factor`, rounded down."""
    arrived = call.first
    notes = list(unchanged(arrived, i) for i in range(2))
    for axis, i in enumerate(range(2, len(arrived.shape))):
        if call.params.get("size") is not None:
            notes.append(set_by("size", call.each("size", axis)))
            continue
        factor = call.each("scale_factor", axis)
        integral = factor == int(factor)
        scale = Symbol("f", "scale_factor", int(factor) if integral else float(factor))
        explanation = (
            f"Each becomes {int(factor)} in a row."
            if integral
            else f"{factor} times as many, rounded down."
        )
        text = "x*f" if integral else "floor(x*f)"
        notes.append(
            SizeNote(
                Formula(text, (arrived.symbol("x", i), scale)),
                explanation,
                arrived.origin(i),
            )
        )
    return tuple(notes)


def recurrent(call: SizeCall) -> tuple[SizeNote, ...]:
    """Return the sizes documented for `torch.nn.LSTM`: output is (N, L, D·H_out), h_n is (D·num_layers, N, H_out)."""
    arrived = call.first
    directions = 2 if call.params.get("bidirectional") else 1
    d = Symbol("D", "directions", directions)
    projected = call.params.get("proj_size") or 0
    name, size = (
        ("proj_size", projected)
        if projected
        else ("hidden_size", call.params["hidden_size"])
    )
    h = Symbol("H_out", name, size)
    if call.output == 0:
        explanation = f"{name} sets the {size}" + (
            ", once for each of both directions." if directions == 2 else "."
        )
        return (*leading(arrived, 1), SizeNote(Formula("D*H_out", (d, h)), explanation))
    layers = Symbol("l", "num_layers", call.params["num_layers"])
    first = SizeNote(
        Formula("D*l", (d, layers)), "One last state for each layer and direction."
    )
    batch = (
        ()
        if len(arrived.shape) < 3
        else (unchanged(arrived, 0 if call.params.get("batch_first") else 1),)
    )
    return (first, *batch, set_by(name, size))


def attention(call: SizeCall) -> tuple[SizeNote, ...]:
    """Return the sizes documented for `torch.nn.MultiheadAttention`: attn_output (N, L, E), weights (N, L, S)."""
    query, key = call.inputs["query"][0], call.inputs["key"][0]
    width = set_by("embed_dim", call.params["embed_dim"], source=query.origin(-1))
    if call.output == 0:
        return (*leading(query, 1), width)
    batched = len(query.shape) == 3
    sequence_dim = 1 if batched and call.params.get("batch_first") else 0
    extra = [name for name in ("add_bias_kv", "add_zero_attn") if call.params.get(name)]
    keys = Formula("s" + " + 1" * len(extra), (key.symbol("s", sequence_dim),))
    notes = [unchanged(query, 1 - sequence_dim)] if batched else []
    if not call.params.get("average_attn_weights", True):
        notes.append(set_by("num_heads", call.params["num_heads"]))
    notes.append(
        unchanged(query, sequence_dim, f"A row for each position of {query.name}.")
    )
    more = f", and one for {' and '.join(extra)}" if extra else ""
    notes.append(
        SizeNote(
            keys,
            f"A weight for each position of {key.name}{more}.",
            key.origin(sequence_dim),
        )
    )
    return tuple(notes)


def scaled_attention(call: SizeCall) -> tuple[SizeNote, ...]:
    """`F.scaled_dot_product_attention`: query (..., L, E), key (..., S, E) and value (..., S, Ev) give (..., L, Ev)."""
    query, value = call.inputs["query"][0], call.inputs["value"][0]
    rows = unchanged(
        query, len(query.shape) - 2, f"A row for each position of {query.name}."
    )
    columns = unchanged(value, len(value.shape) - 1, f"As wide as {value.name}.")
    return (*stretched((query, value), cut=2), rows, columns)
