"""Explain the output sizes of ops that rearrange, reduce, join, split, select or broadcast.

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
from app.util.language import tr


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
    explanation = (
        tr("{sizes} values are flattened into one dimension.", sizes=sizes)
        if start < end
        else tr("Only one dimension to flatten.")
    )
    telling = max(
        (i for i in range(start, end + 1) if arrived.shape[i] != 1), default=end
    )
    merged = SizeNote(Formula(text, symbols), explanation, arrived.origin(telling))
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
    for index, size in enumerate(sizes):
        meaning = f"{name}[{index}]"
        source = _same_place(result, index, arrived, dimensions)
        if size != -1:
            notes.append(set_by(meaning, size, source=source))
            continue
        text, symbols = product(arrived, dimensions)
        others = tuple(
            Symbol(f"s{i}", f"{name}[{i}]", other)
            for i, other in enumerate(sizes)
            if i != index
        )
        if others:
            text += f"/({'*'.join(symbol.letter for symbol in others)})"
        used = " × ".join(str(symbol.value) for symbol in others)
        explanation = (
            tr("−1 is inferred: all values divided by {sizes}.", sizes=used)
            if used
            else tr("−1 is inferred: all values.")
        )
        notes.append(
            SizeNote(
                Formula(text, (*symbols, *others)),
                explanation,
                source or arrived.origin(dimensions[-1]),
            )
        )
    return tuple(notes)


def _same_place(
    result: tuple[Size, ...], index: int, arrived: InputTensor, dimensions: range
) -> DimensionSource | None:
    """Return the input dimension with the same offset and size, which is carried over unchanged."""
    here = tuple(arrived.shape[i] for i in dimensions)
    for i, size in enumerate(here):
        if size == result[index] and _bulk(here[:i]) == _bulk(result[:index]):
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
            tr("dims puts dimension {dim} here.", dim=old)
            if old != new
            else tr("Keeps its position."),
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
            tr(
                "Dimension {dim} moves here: {a} and {b} are swapped.",
                dim=old,
                a=a,
                b=b,
            )
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
            explanation = tr(
                "keepdim=True leaves a 1 where the {size} of dimension {dim} were reduced.",
                size=size,
                dim=i,
            )
            notes.append(SizeNote(Formula("1"), explanation, arrived.origin(i)))
    return tuple(notes)


def cat(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the sum of the sizes along `dim`."""
    tensors = call.inputs["tensors"]
    first = tensors[0]
    dim = call.params.get("dim", 0) % len(first.shape)
    letters = ascii_lowercase[: len(tensors)]
    symbols = tuple(
        tensor.symbol(letter, dim)
        for letter, tensor in zip(letters, tensors, strict=False)
    )
    listed = ", ".join(
        tr("{size} of {layer}", size=tensor.shape[dim], layer=tensor.name)
        for tensor in tensors
    )
    joined = SizeNote(
        Formula(" + ".join(letters), symbols),
        tr("Concatenated: {sizes}.", sizes=listed),
        first.origin(dim),
    )
    return tuple(
        joined
        if i == dim
        else unchanged(first, i, tr("Must be equal in all joined tensors."))
        for i in range(len(first.shape))
    )


def matmul(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note (..., n, m) times (..., m, p) as (..., n, p); the dimensions before broadcast."""
    a, b = (many[0] for many in call.inputs.values())
    notes: list[SizeNote] = []
    if len(a.shape) > 2 or len(b.shape) > 2:
        notes += stretched((a, b), cut=2)
    inner = tr(
        "The {count} columns of {a} are multiplied with the rows of {b} and summed.",
        count=a.shape[-1],
        a=a.name,
        b=b.name,
    )
    if len(a.shape) > 1:
        rows = tr("The rows of {layer}.", layer=a.name)
        notes.append(unchanged(a, len(a.shape) - 2, f"{rows} {inner}"))
    if len(b.shape) > 1:
        columns = tr("The columns of {layer}.", layer=b.name)
        notes.append(unchanged(b, len(b.shape) - 1, f"{columns} {inner}"))
    return tuple(notes)


def elementwise(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the shape of one tensor as unchanged, of several as broadcast."""
    tensors = tuple(tensor for many in call.inputs.values() for tensor in many)
    if len(tensors) == 1:
        return tuple(unchanged(tensors[0], i) for i in range(len(tensors[0].shape)))
    return tuple(stretched(tensors))


def stretched(tensors: tuple[InputTensor, ...], cut: int = 0) -> list[SizeNote]:
    """Broadcasting: shapes are aligned at their right, a 1 or a missing dimension stretches. The last `cut` of each
    are left out."""
    rank = max(len(tensor.shape) - cut for tensor in tensors)
    notes = []
    for index in range(rank):
        there = [(tensor, len(tensor.shape) - cut - rank + index) for tensor in tensors]
        letters = {
            i: letter for i, letter in enumerate(ascii_lowercase[: len(tensors)])
        }
        present = [
            (letters[i], tensor, dim)
            for i, (tensor, dim) in enumerate(there)
            if dim >= 0
        ]
        symbols = tuple(tensor.symbol(letter, dim) for letter, tensor, dim in present)
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
    for tensor, dim in there:
        if dim < 0:
            parts.append(
                tr(
                    "{layer} has no such dimension: it is repeated {size} times.",
                    layer=tensor.name,
                    size=size,
                )
            )
        elif tensor.shape[dim] != size:
            parts.append(
                tr("{layer} stretches from 1 to {size}.", layer=tensor.name, size=size)
            )
    names = dict.fromkeys(tensor.name for tensor, _ in there)
    return " ".join(parts) or tr("{layers} agree.", layers=f" {tr('and')} ".join(names))


def _with(
    arrived: InputTensor, at: int, here: SizeNote | None, explanation: str = ""
) -> tuple[SizeNote, ...]:
    """Note all dimensions as unchanged but one, which is dropped if `here` is None."""
    others = range(len(arrived.shape))
    notes = [
        here
        if i == at
        else unchanged(arrived, i, "" if arrived.shape[i] == Dim(1) else explanation)
        for i in others
    ]
    return tuple(note for note in notes if note is not None)


def same_shape(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note every dimension as unchanged."""
    explanation = tr("{layer} keeps the shape.", layer=call.label)
    return _with(call.first, -1, None, explanation)


def squeeze(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.squeeze`: dimensions of size 1 are dropped, all or those of `dim`."""
    arrived, dim = call.first, call.params.get("dim")
    rank = len(arrived.shape)
    named = range(rank) if dim is None else dim if isinstance(dim, tuple) else (dim,)
    gone = {number % rank for number in named if arrived.shape[number] == 1}
    return tuple(unchanged(arrived, i) for i in range(rank) if i not in gone)


def unsqueeze(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.unsqueeze`: a dimension of size 1 at `dim`."""
    arrived = call.first
    at = call.params["dim"] % (len(arrived.shape) + 1)
    notes = [unchanged(arrived, i) for i in range(len(arrived.shape))]
    explanation = tr("A dimension of size 1 is inserted here.")
    notes.insert(at, SizeNote(Formula("1"), explanation))
    return tuple(notes)


def expand(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `Tensor.expand`: sizes as given, aligned at the right; −1 keeps one."""
    arrived, sizes = call.first, call.params["size"]
    missing = len(sizes) - len(arrived.shape)
    notes = []
    for i, size in enumerate(sizes):
        if i >= missing and size in (-1, arrived.shape[i - missing]):
            notes.append(unchanged(arrived, i - missing))
        else:
            source = arrived.origin(i - missing) if i >= missing else None
            explanation = (
                tr("Stretches from 1 to {size}.", size=size)
                if source
                else tr("A new dimension: repeated {size} times.", size=size)
            )
            notes.append(set_by(f"size[{i}]", size, explanation, source))
    return tuple(notes)


def stack(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.stack`: one for each tensor, as a new dimension at `dim`."""
    tensors = call.inputs["tensors"]
    first = tensors[0]
    at = call.params.get("dim", 0) % (len(first.shape) + 1)
    notes = [
        unchanged(first, i, tr("Must be equal in all stacked tensors."))
        for i in range(len(first.shape))
    ]
    notes.insert(
        at,
        set_by(
            tr("number of tensors"),
            len(tensors),
            tr("One for each of the {number} inputs.", number=len(tensors)),
        ),
    )
    return tuple(notes)
