"""Explain the output sizes of ops that rearrange, reduce or join.

Each rule follows the section "Shape" or the description of the op in PyTorch's documentation: `torch.nn.Flatten`,
`torch.nn.Unflatten`, `torch.Tensor.view`, `torch.permute`, `torch.mean`, `torch.cat`, `torch.matmul`, and the note on
broadcasting semantics.
"""

from __future__ import annotations

import math
from string import ascii_lowercase

from app.builder.dimensions.calls import (
    DimensionSource,
    InputTensor,
    SizeCall,
    SizeNote,
    product,
    set_by,
    unchanged,
)
from app.builder.dimensions.formula import Formula, Symbol
from app.builder.value_types import Dim, Size


def flatten(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `start_dim` to `end_dim` as one dimension of their product."""
    arrived = call.first
    rank = len(arrived.shape)
    start, end = (
        call.params.get(name, default) % rank
        for name, default in (("start_dim", 1), ("end_dim", -1))
    )
    text, symbols = product(arrived, range(start, end + 1))
    sizes = " × ".join(str(symbol.value) for symbol in symbols)
    words = (
        f"{sizes} values are flattened into one dimension."
        if start < end
        else "Only one dimension to flatten."
    )
    telling = max(
        (i for i in range(start, end + 1) if arrived.shape[i] != 1), default=end
    )
    merged = SizeNote(Formula(text, symbols), words, arrived.origin(telling))
    return (
        *(unchanged(arrived, i) for i in range(start)),
        merged,
        *(unchanged(arrived, i) for i in range(end + 1, rank)),
    )


def unflatten(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `dim` as the dimensions of `unflattened_size`; −1 is inferred."""
    arrived = call.first
    rank = len(arrived.shape)
    at = call.params["dim"] % rank
    sizes = tuple(call.params["unflattened_size"])
    result = call.shape[at : at + len(sizes)]
    inner = _literal_sizes(
        sizes, result, "unflattened_size", arrived, range(at, at + 1)
    )
    return (
        *(unchanged(arrived, i) for i in range(at)),
        *inner,
        *(unchanged(arrived, i) for i in range(at + 1, rank)),
    )


def view(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note sizes as given; −1 is the number of values over the product of the others."""
    name = "size" if "size" in call.params else "shape"
    arrived = call.first
    return _literal_sizes(
        tuple(call.params[name]), call.shape, name, arrived, range(len(arrived.shape))
    )


def _literal_sizes(
    sizes: tuple[int, ...],
    result: tuple[Size, ...],
    name: str,
    arrived: InputTensor,
    dimensions: range,
) -> tuple[SizeNote, ...]:
    """Note literal sizes; −1 is inferred from the dimensions that it divides."""
    notes = []
    for place, size in enumerate(sizes):
        meaning = f"{name}[{place}]"
        source = _same_place(result, place, arrived, dimensions)
        if size != -1:
            notes.append(set_by(meaning, size, source=source))
            continue
        text, symbols = product(arrived, dimensions)
        others = tuple(
            Symbol(f"s{i}", f"{name}[{i}]", other)
            for i, other in enumerate(sizes)
            if i != place
        )
        if others:
            text += f"/({'*'.join(symbol.letter for symbol in others)})"
        used = " × ".join(str(symbol.value) for symbol in others)
        words = "−1 is inferred: all values" + (f" divided by {used}." if used else ".")
        notes.append(
            SizeNote(
                Formula(text, (*symbols, *others)),
                words,
                source or arrived.origin(dimensions[-1]),
            )
        )
    return tuple(notes)


def _same_place(
    result: tuple[Size, ...], place: int, arrived: InputTensor, dimensions: range
) -> DimensionSource | None:
    """Return the input dimension with the same offset and size, which is carried over unchanged."""
    here = tuple(arrived.shape[i] for i in dimensions)
    for i, size in enumerate(here):
        if size == result[place] and _bulk(here[:i]) == _bulk(result[:place]):
            return arrived.origin(dimensions[i])
    return None


def _bulk(sizes: tuple[Size, ...]) -> tuple[int, tuple[Size, ...]]:
    """Return the product of the constant sizes, and the sizes that depend on the batch."""
    plain = math.prod(size for size in sizes if isinstance(size, int))
    return plain, tuple(size for size in sizes if isinstance(size, Dim))


def permute(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note dimension `dims[i]` of the input at place i."""
    arrived = call.first
    order = [dim % len(arrived.shape) for dim in call.params["dims"]]
    return tuple(
        unchanged(
            arrived,
            old,
            f"dims puts dimension {old} here." if old != new else "Keeps its position.",
        )
        for new, old in enumerate(order)
    )


def transpose(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `dim0` and `dim1` swapped."""
    arrived = call.first
    rank = len(arrived.shape)
    order = list(range(rank))
    a, b = (call.params[name] % rank for name in ("dim0", "dim1"))
    order[a], order[b] = order[b], order[a]
    return tuple(
        unchanged(
            arrived,
            old,
            f"Dimension {old} moves here: {a} and {b} are swapped."
            if old != new
            else "",
        )
        for new, old in enumerate(order)
    )


def reduction(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a reduction with `dim` and `keepdim`, as in `torch.mean`."""
    arrived = call.first
    rank, dim = len(arrived.shape), call.params.get("dim")
    named = (
        range(rank)
        if dim is None or dim == ()
        else dim
        if isinstance(dim, tuple)
        else (dim,)
    )
    gone = {number % rank for number in named} if rank else set()
    notes = []
    for i, size in enumerate(arrived.shape):
        if i not in gone:
            notes.append(unchanged(arrived, i))
        elif call.params.get("keepdim"):
            words = f"keepdim=True leaves a 1 where the {size} of dimension {i} were reduced."
            notes.append(SizeNote(Formula("1"), words, arrived.origin(i)))
    return tuple(notes)


def cat(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the sum of the sizes along `dim`."""
    tensors = call.inputs["tensors"]
    first = tensors[0]
    dim = call.params.get("dim", 0) % len(first.shape)
    letters = ascii_lowercase[: len(tensors)]
    symbols = tuple(
        one.symbol(letter, dim) for letter, one in zip(letters, tensors, strict=False)
    )
    listed = ", ".join(f"{one.shape[dim]} of {one.name}" for one in tensors)
    joined = SizeNote(
        Formula(" + ".join(letters), symbols),
        f"Concatenated: {listed}.",
        first.origin(dim),
    )
    return tuple(
        joined
        if i == dim
        else unchanged(first, i, "Must be equal in all joined tensors.")
        for i in range(len(first.shape))
    )


def matmul(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note (..., n, m) times (..., m, p) as (..., n, p); the dimensions before broadcast."""
    a, b = (many[0] for many in call.inputs.values())
    notes: list[SizeNote] = []
    if len(a.shape) > 2 or len(b.shape) > 2:
        notes += stretched((a, b), cut=2)
    inner = f"The {a.shape[-1]} columns of {a.name} are multiplied with the rows of {b.name} and summed."
    if len(a.shape) > 1:
        notes.append(unchanged(a, len(a.shape) - 2, f"The rows of {a.name}. {inner}"))
    if len(b.shape) > 1:
        notes.append(
            unchanged(b, len(b.shape) - 1, f"The columns of {b.name}. {inner}")
        )
    return tuple(notes)


def elementwise(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the shape of one tensor as unchanged, of several as broadcast."""
    tensors = tuple(one for many in call.inputs.values() for one in many)
    if len(tensors) == 1:
        return tuple(unchanged(tensors[0], i) for i in range(len(tensors[0].shape)))
    return tuple(stretched(tensors))


def stretched(tensors: tuple[InputTensor, ...], cut: int = 0) -> list[SizeNote]:
    """Broadcasting: shapes are aligned at their right, a 1 or a missing dimension stretches. The last `cut` of each
    are left out."""
    rank = max(len(one.shape) - cut for one in tensors)
    notes = []
    for place in range(rank):
        there = [(one, len(one.shape) - cut - rank + place) for one in tensors]
        letters = {
            i: letter for i, letter in enumerate(ascii_lowercase[: len(tensors)])
        }
        present = [
            (letters[i], one, dim) for i, (one, dim) in enumerate(there) if dim >= 0
        ]
        symbols = tuple(one.symbol(letter, dim) for letter, one, dim in present)
        text = symbols[0].letter
        for symbol in symbols[1:]:
            text = f"broadcast({text}, {symbol.letter})"
        full = next(
            (spot for spot in present if spot[1].shape[spot[2]] != 1), present[0]
        )
        notes.append(
            SizeNote(
                Formula(text, symbols),
                _stretching(there, full),
                full[1].origin(full[2]),
            )
        )
    return notes


def _stretching(
    there: list[tuple[InputTensor, int]], full: tuple[str, InputTensor, int]
) -> str:
    size = full[1].shape[full[2]]
    parts = []
    for one, dim in there:
        if dim < 0:
            parts.append(
                f"{one.name} has no such dimension: it is repeated {size} times."
            )
        elif one.shape[dim] != size:
            parts.append(f"{one.name} stretches from 1 to {size}.")
    return (
        " ".join(parts)
        or f"{' and '.join(dict.fromkeys(one.name for one, _ in there))} agree."
    )
