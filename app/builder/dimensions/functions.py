"""Explain the output sizes of functions that split, stack, repeat or select.

Each rule follows the description of the function in PyTorch's documentation; a size that depends on more than the
shapes is left to torch.
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


def _with(
    arrived: InputTensor, at: int, here: SizeNote | None, words: str = ""
) -> tuple[SizeNote, ...]:
    """Note all dimensions as unchanged but one, which is dropped if `here` is None."""
    others = range(len(arrived.shape))
    notes = [
        here
        if i == at
        else unchanged(arrived, i, "" if arrived.shape[i] == Dim(1) else words)
        for i in others
    ]
    return tuple(one for one in notes if one is not None)


def _dim(call: SizeCall, name: str = "dim", default: int = 0) -> int:
    return call.params.get(name, default) % len(call.first.shape)


def same_shape(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note every dimension as unchanged."""
    words = f"{call.label} keeps the shape."
    return _with(call.first, -1, None, words)


def movedim(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.movedim`: `source` moves to `destination`, the others keep their order."""
    arrived = call.first
    source, target = (call.params[name] for name in ("source", "destination"))
    rank = len(arrived.shape)
    froms = [dim % rank for dim in (source if isinstance(source, tuple) else (source,))]
    tos = [dim % rank for dim in (target if isinstance(target, tuple) else (target,))]
    order = [dim for dim in range(rank) if dim not in froms]
    for to, old in sorted(zip(tos, froms, strict=True)):
        order.insert(to, old)
    return tuple(
        unchanged(
            arrived,
            old,
            f"Dimension {old} moves here." if old != new else "Keeps its position.",
        )
        for new, old in enumerate(order)
    )


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
    notes.insert(at, SizeNote(Formula("1"), "A dimension of size 1 is inserted here."))
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
            words = (
                f"Stretches from 1 to {size}."
                if source
                else f"A new dimension: repeated {size} times."
            )
            notes.append(set_by(f"size[{i}]", size, words, source))
    return tuple(notes)


def tile(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.tile`: each size times its entry of `dims`, aligned at the right."""
    arrived, times = call.first, call.params["dims"]
    rank = len(arrived.shape)
    times = (1,) * (rank - len(times)) + tuple(times)
    notes = []
    for i, many in enumerate(times):
        at = i - (len(times) - rank)
        if at < 0:
            notes.append(set_by(f"dims[{i}]", many))
        elif many == 1:
            notes.append(unchanged(arrived, at))
        else:
            symbols = (arrived.symbol("x", at), Symbol("t", "times", many))
            notes.append(
                SizeNote(
                    Formula("x*t", symbols),
                    f"Repeated {many} times.",
                    arrived.origin(at),
                )
            )
    return tuple(notes)


def repeat_interleave(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.repeat_interleave`: the size of `dim` times `repeats`."""
    arrived, at, many = call.first, _dim(call), call.params["repeats"]
    symbols = (arrived.symbol("x", at), Symbol("r", "repeats", many))
    words = f"Each of the {arrived.shape[at]} comes {many} times in a row."
    return _with(
        arrived, at, SizeNote(Formula("x*r", symbols), words, arrived.origin(at))
    )


def chunk(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a piece of `torch.chunk`: ⌈n / chunks⌉ along `dim`, the last one the rest."""
    arrived, at = call.first, _dim(call)
    n, c = arrived.symbol("n", at), Symbol("c", "chunks", call.params["chunks"])
    whole = Formula("ceil(n, c)", (n, c))
    words = f"Piece {call.output} of {c.value} along dimension {at}."
    if whole.result != call.shape[at]:
        i = Symbol("i", "number of the piece", call.output)
        whole = Formula("n - i*ceil(n, c)", (n, c, i))
        words += " The last one is smaller."
    return _with(arrived, at, SizeNote(whole, words, arrived.origin(at)))


def split(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note a piece of `torch.split`: its own size, or `split_size`, the last one the rest."""
    arrived, at, sizes = call.first, _dim(call), call.params["split_size_or_sections"]
    if isinstance(sizes, tuple):
        name = f"split_size_or_sections[{call.output}]"
        return _with(
            arrived, at, set_by(name, sizes[call.output], source=arrived.origin(at))
        )
    if sizes == call.shape[at]:
        return _with(
            arrived, at, set_by("split_size", sizes, source=arrived.origin(at))
        )
    symbols = (
        arrived.symbol("n", at),
        Symbol("s", "split_size", sizes),
        Symbol("i", "number", call.output),
    )
    note = SizeNote(
        Formula("n - i*s", symbols),
        "The last piece is the remainder.",
        arrived.origin(at),
    )
    return _with(arrived, at, note)


def select(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.select`: without `dim`."""
    return _with(call.first, _dim(call), None)


def narrow(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.narrow`: `length` along `dim`."""
    at = _dim(call)
    return _with(
        call.first,
        at,
        set_by("length", call.params["length"], source=call.first.origin(at)),
    )


def topk(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.topk`: `k` along `dim`, the last by default."""
    at, k = _dim(call, default=-1), call.params["k"]
    words = f"k sets the {k}: this many of the {call.first.shape[at]} are taken."
    return _with(call.first, at, set_by("k", k, words, call.first.origin(at)))


def stack(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `torch.stack`: one for each tensor, as a new dimension at `dim`."""
    tensors = call.inputs["tensors"]
    first = tensors[0]
    at = call.params.get("dim", 0) % (len(first.shape) + 1)
    notes = [
        unchanged(first, i, "Must be equal in all stacked tensors.")
        for i in range(len(first.shape))
    ]
    notes.insert(
        at,
        set_by(
            "number of tensors",
            len(tensors),
            f"One for each of the {len(tensors)} inputs.",
        ),
    )
    return tuple(notes)


def einsum(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note each letter of the result as the dimension of the first tensor with that letter."""
    left, _, right = call.params["equation"].replace(" ", "").partition("->")
    bearers: dict[str, tuple[InputTensor, int]] = {}
    for letters, tensor in zip(left.split(","), call.inputs["tensors"], strict=True):
        for i, letter in enumerate(letters):
            bearers.setdefault(letter, (tensor, i))
    summed = "".join(sorted(set(bearers) - set(right)))
    tail = f" Summed over {', '.join(summed)}." if summed else ""
    return tuple(
        unchanged(*bearers[letter], f"{letter} of {bearers[letter][0].name}.{tail}")
        for letter in right
    )


def attention(call: SizeCall) -> tuple[SizeNote, ...]:
    """`F.scaled_dot_product_attention`: query (..., L, E), key (..., S, E) and value (..., S, Ev) give (..., L, Ev)."""
    query, value = call.inputs["query"][0], call.inputs["value"][0]
    rows = unchanged(
        query, len(query.shape) - 2, f"A row for each position of {query.name}."
    )
    columns = unchanged(value, len(value.shape) - 1, f"As wide as {value.name}.")
    return (*stretched((query, value), cut=2), rows, columns)


def one_hot(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note `F.one_hot`: `num_classes` as an additional last dimension."""
    return (
        *(unchanged(call.first, i) for i in range(len(call.first.shape))),
        set_by("num_classes", call.shape[-1]),
    )


def compared(call: SizeCall) -> tuple[SizeNote, ...]:
    """`nn.CosineSimilarity` and `nn.PairwiseDistance`: both inputs broadcast, one dimension is reduced."""
    tensors = tuple(many[0] for many in call.inputs.values())
    notes = stretched(tensors)
    at = call.params.get("dim", 1) if "dim" in call.params else -1
    if call.params.get("keepdim"):
        notes[at] = SizeNote(
            Formula("1"),
            "keepdim=True keeps the reduced dimension with size 1.",
            notes[at].source,
        )
    else:
        del notes[at]
    return tuple(notes)


def gather(call: SizeCall) -> tuple[SizeNote, ...]:
    """`torch.gather`: one value for each index, so the shape is that of `index`."""
    index = call.inputs["index"][0]
    words = f"One value is gathered for each index of {index.name}."
    return tuple(
        unchanged(index, i, "" if size == Dim(1) else words)
        for i, size in enumerate(index.shape)
    )
