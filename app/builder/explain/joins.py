"""Explanations of failed broadcasts, concatenations and products, and their cures."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

from app.builder.diagnostics.problems import Cure, ReplaceOp, SetParam
from app.builder.explain.context import Explanation, FailedCall, Wire, batched
from app.builder.rules import upstream
from app.builder.value_types import Dim, Size
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap
from app.util.language import marked, tr

Shape = tuple[Size, ...]
_FROM_THE_RIGHT = marked(
    "Counted from the right, dimension {back} is {a} from {left.name} and {b} from {right.name}."
)
_OTHER = marked("Dimension {dim} is {a} from {left.name} and {b} from {right.name}.")
_FEATURES = marked(
    "The features (dimension {dim}) are {a} from {left.name} and {b} from {right.name}."
)
_CHANNELS = marked(
    "The channels (dimension {dim}) are {a} from {left.name} and {b} from {right.name}."
)
_DEPTH = marked(
    "The depth (dimension {dim}) is {a} from {left.name} and {b} from {right.name}."
)
_HEIGHT = marked(
    "The height (dimension {dim}) is {a} from {left.name} and {b} from {right.name}."
)
_WIDTH = marked(
    "The width (dimension {dim}) is {a} from {left.name} and {b} from {right.name}."
)
# What is said of the dimensions behind the batch, by the number of all.
_UNLIKE = {
    2: (_FEATURES,),
    4: (_CHANNELS, _HEIGHT, _WIDTH),
    5: (_CHANNELS, _DEPTH, _HEIGHT, _WIDTH),
}
# The parameter that sets the channels or features of the output of a layer.
_PRODUCERS = {
    **{f"nn.Conv{n}d": "out_channels" for n in (1, 2, 3)},
    **{f"nn.ConvTranspose{n}d": "out_channels" for n in (1, 2, 3)},
    "nn.Linear": "out_features",
}
_PICTURES = range(3, 6)  # numbers of dimensions


def no_broadcast(call: FailedCall, left: Wire) -> Explanation | None:
    """Explain two shapes that do not broadcast by the first pair of dimensions that differ."""
    rest = call.wires[1:]
    right = next((wire for wire in rest if not meet(left.shape, wire.shape)), None)
    if right is None:
        return None
    pairs = zip(reversed(left.shape), reversed(right.shape), strict=False)
    back, (a, b) = next(
        (back, pair) for back, pair in enumerate(pairs, 1) if not _fit(*pair)
    )
    message = tr(
        "{call.label} cannot join {left.type} and {right.type}",
        call=call,
        left=left,
        right=right,
    )
    dim = left.rank - back
    is_named = left.rank == right.rank and left.shape[0] == Dim(1) and dim
    names = _UNLIKE.get(left.rank, (_OTHER,) * dim)
    where = names[dim - 1] if is_named else _FROM_THE_RIGHT
    reason = tr(where, left=left, right=right, a=a, b=b, dim=dim, back=back)
    reason = f"{reason} {tr('They must be equal, or one of them 1.')}"
    cures = tuple(meetings(call, left, right)) if len(rest) == 1 else ()
    return message, reason, cures


def _fit(a: Size, b: Size) -> bool:
    return a == b or 1 in (a, b)


def meet(a: Shape, b: Shape) -> bool:
    """Return whether two shapes broadcast.

    >>> meet((4, 1), (4, 3)), meet((3,), (4, 3)), meet((4,), (3,))
    (True, True, False)
    """
    return all(map(_fit, reversed(a), reversed(b)))


def meetings(call: FailedCall, left: Wire, right: Wire) -> Iterator[Cure]:
    """Propose inserts on one of two wires that make their shapes broadcast; each is tried before it is offered.

    The side branch is changed rather than the main one: the wire from further upstream, else the second.
    """
    first_is_shortcut = left.ref.node in upstream(call.graph, (right.ref.node,))
    sides = (
        ((left, right), (right, left))
        if first_is_shortcut
        else ((right, left), (left, right))
    )
    for makers in (_with_ones, _turned, _projected, _resized, _produced):
        for changed, other in sides:
            cure = makers(call, changed, other)
            if cure is not None:
                yield cure
                if makers not in (_turned, _produced):
                    break


def _with_ones(call: FailedCall, wire: Wire, other: Wire) -> Cure | None:
    """Insert dimensions of size 1 where the other shape has more."""
    positions = _matched_positions(wire.shape, other.shape)
    if positions is None:
        return None
    missing = [dim for dim in range(other.rank) if dim not in positions]
    if len(missing) == 1:
        label = tr("Insert {layer}", layer=f"unsqueeze({missing[0]})")
        return call.insert(label, wire, "torch.unsqueeze", dim=missing[0])
    target: list[Size] = [1] * other.rank
    for position, size in zip(positions, wire.shape, strict=True):
        target[position] = size
    if sum(isinstance(size, Dim) for size in target) > 1:
        return None
    shape = tuple(-1 if isinstance(size, Dim) else size for size in target)
    label = tr("Reshape to {shape}", shape=shape_text(target))
    return call.insert(label, wire, "torch.reshape", shape=shape)


def _matched_positions(short: Shape, long: Shape) -> tuple[int, ...] | None:
    """Match the dimensions of one shape to those of another, in order and as far left as possible."""
    positions: list[int] = []
    for size in short:
        start = positions[-1] + 1 if positions else 0
        position = next((i for i in range(start, len(long)) if size == long[i]), None)
        if position is None:
            return None
        positions.append(position)
    return tuple(positions) if len(short) < len(long) else None


def _turned(call: FailedCall, wire: Wire, other: Wire) -> Cure | None:
    """Permute the non-batch dimensions."""
    if wire.rank != other.rank or wire.rank not in _PICTURES:
        return None
    for order in permutations(range(1, wire.rank)):
        dims = (0, *order)
        if tuple(wire.shape[dim] for dim in dims) == other.shape:
            return _insert_after(call, wire, "torch.permute", str(dims), dims=dims)
    return None


def _insert_after(
    call: FailedCall, wire: Wire, op: str, arguments: str = "", **params: Any
) -> Cure:
    """Offer a call behind a layer, as the label names it."""
    label = tr(
        "Insert {layer} after {wire.name}",
        layer=f"{op.rpartition('.')[2]}{arguments}",
        wire=wire,
    )
    return call.insert(label, wire, op, **params)


def _linear_after(call: FailedCall, wire: Wire, size: Size) -> Cure:
    label = tr("Insert Linear to {size} after {wire.name}", size=size, wire=wire)
    return call.insert(label, wire, "nn.Linear", out_features=size)


def _projected(call: FailedCall, wire: Wire, other: Wire) -> Cure | None:
    """Insert a Linear or 1×1 convolution that yields the other's features or channels."""
    if not _are_batches(wire, other) or wire.rank < 2:
        return None
    dims = _unlike(wire, other)
    if dims == [wire.rank - 1] and wire.rank < 4:
        return _linear_after(call, wire, other.shape[-1])
    if 1 not in dims or wire.rank not in _PICTURES:
        return None
    strides = set(map(_stride, wire.shape[2:], other.shape[2:]))
    stride = strides.pop()
    if strides or stride is None:
        return None
    sides = wire.rank - 2
    params = {"stride": stride} if stride != 1 else {}
    return _insert_after(
        call,
        wire,
        f"nn.Conv{sides}d",
        f" {shape_text('1' * sides)}",
        out_channels=other.shape[1],
        kernel_size=1,
        **params,
    )


def _are_batches(first: Wire, second: Wire) -> bool:
    """Return whether both have the batch first, and the same rank."""
    return first.rank == second.rank and batched(first.shape) and batched(second.shape)


def _unlike(first: Wire, second: Wire) -> list[int]:
    """Return the dimensions in which two shapes of the same rank differ."""
    return [dim for dim in range(first.rank) if first.shape[dim] != second.shape[dim]]


def _produced(call: FailedCall, wire: Wire, other: Wire) -> Cure | None:
    """Have the layer that a wire comes from return the channels or features of the other wire."""
    if not _are_batches(wire, other):
        return None
    node, edges = wire.source, call.graph.into(wire.source.id)
    while node.op not in _PRODUCERS and len(edges) == 1:
        node = call.graph.nodes[edges[0].source]
        edges = call.graph.into(node.id)
    param = _PRODUCERS.get(node.op, "")
    dim = wire.rank - 1 if param == "out_features" else 1
    if not param or _unlike(wire, other) != [dim]:
        return None
    size = other.shape[dim]
    label = tr(
        "Set {layer}.{param} to {size} instead of {before}",
        layer=node.name,
        param=param,
        size=size,
        before=wire.shape[dim],
    )
    edit = SetParam(call.graph.owner(node.id).id, param, size)
    return Cure(label, (edit,), replaces=True)


def _stride(size: Size, target_size: Size) -> int | None:
    """Return the stride at which a window of 1 turns one size into another, or None."""
    if not isinstance(size, int) or not isinstance(target_size, int) or target_size < 1:
        return None
    return next(
        (step for step in range(1, size + 1) if -(-size // step) == target_size), None
    )


def _resized(call: FailedCall, wire: Wire, other: Wire) -> Cure | None:
    """Resize a picture to the size of the other."""
    if (
        wire.rank not in _PICTURES
        or not _are_batches(wire, other)
        or wire.shape[1] != other.shape[1]
    ):
        return None
    return _to_size(call, wire, other.shape[2:])


def _to_size(call: FailedCall, wire: Wire, sizes: Shape) -> Cure:
    label = tr("Resize {wire.name} to {shape}", wire=wire, shape=shape_text(sizes))
    size = sizes if len(sizes) > 1 else sizes[0]
    return call.insert(label, wire, "nn.Upsample", size=size, scale_factor=None)


# --- Lists of tensors


def no_cat(call: FailedCall, first: Wire) -> Explanation | None:
    dim = call.param("dim", 0)
    if not isinstance(dim, int):
        return None
    for wire in call.wires[1:]:
        message = tr(
            "{call.label} cannot join {left.type} and {right.type}",
            call=call,
            left=first,
            right=wire,
        )
        if wire.rank != first.rank:
            reason = tr(
                "{left.name} gives {left.type}, {right.name} gives {right.type}: the number of dimensions differs.",
                left=first,
                right=wire,
            )
            return message, reason, tuple(_same_rank(call, first, wire, dim))
        if not wire.rank:
            reason = tr(
                "{left.name} and {right.name} have no dimension to join along.",
                left=first,
                right=wire,
            )
            return tr("{call.label} cannot join scalars", call=call), reason, ()
        dims = _unlike(first, wire)
        others = [each for each in dims if each != dim % wire.rank]
        if others:
            reason = tr(
                "Along dim={dim} all other dimensions must agree; dimension {other} is {a} from {left.name} and {b} "
                "from {right.name}.",
                dim=dim,
                other=others[0],
                a=first.shape[others[0]],
                b=wire.shape[others[0]],
                left=first,
                right=wire,
            )
            return message, reason, tuple(_cat_cures(call, dims))
    return None


def _same_rank(call: FailedCall, a: Wire, b: Wire, dim: int) -> Iterator[Cure]:
    low, high = sorted((a, b), key=lambda wire: wire.rank)
    if low.rank + 1 == high.rank:
        yield _unsqueeze_after(call, low, dim % high.rank)
    if low.rank == 2:
        yield _insert_after(call, high, "nn.Flatten")


def _unsqueeze_after(call: FailedCall, wire: Wire, dim: int) -> Cure:
    return _insert_after(call, wire, "torch.unsqueeze", f"({dim})", dim=dim)


def _cat_cures(call: FailedCall, dims: list[int]) -> Iterator[Cure]:
    """Another dimension if they differ in that one alone; else all pictures as large as the first."""
    first, *rest = call.wires
    if len(dims) == 1:
        yield call.set("dim", dims[0])
    if all(dim >= 2 for dim in dims) and all(
        batched(wire.shape) for wire in call.wires
    ):
        size = first.shape[2:]
        resized = [
            _to_size(call, wire, size) for wire in rest if wire.shape[2:] != size
        ]
        if first.rank in _PICTURES and resized:
            edits = tuple(edit for cure in resized for edit in cure.edits)
            every = tr("Resize all to {shape}", shape=shape_text(size))
            yield Cure(resized[0].label if len(resized) == 1 else every, edits)


def no_stack(call: FailedCall, first: Wire) -> Explanation | None:
    wire = next((wire for wire in call.wires if wire.shape != first.shape), None)
    if wire is None:
        return None
    message = tr(
        "stack cannot stack {right.type} on {left.type}", left=first, right=wire
    )
    reason = tr(
        "All must have one shape; {left.name} and {right.name} differ.",
        left=first,
        right=wire,
    )
    dims = _unlike(first, wire) if wire.rank == first.rank else []
    if len(dims) != 1:
        return message, reason, ()
    cat = ReplaceOp(call.step.id, "torch.cat", FrozenMap(dim=dims[0]))
    cure = Cure(tr("Use cat along dim={dim}", dim=dims[0]), (cat,))
    return message, reason, (cure,)


# --- Products


def no_einsum(call: FailedCall, _first: Wire) -> Explanation | None:
    """Explain an einsum letter with two sizes, or a term of the wrong rank."""
    equation = call.param("equation")
    if not isinstance(equation, str):
        return None
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    if len(terms) != len(call.wires):
        message = tr(
            "einsum({equation!r}) names {terms} tensors, {wires} are connected",
            equation=equation,
            terms=len(terms),
            wires=len(call.wires),
        )
        return message, tr("Between the commas there is a term for each tensor."), ()
    met: dict[str, tuple[Size, Wire]] = {}
    for term, wire in zip(terms, call.wires, strict=True):
        if "." in term:
            return None
        if len(term) != wire.rank:
            message = tr(
                "einsum expects {rank} dimensions for {term!r}, gets {wire.type} from {wire.name}",
                rank=len(term),
                term=term,
                wire=wire,
            )
            reason = tr(
                "In {equation!r} each letter is one dimension.", equation=equation
            )
            return message, reason, ()
        for letter, size in zip(term, wire.shape, strict=True):
            before, giver = met.setdefault(letter, (size, wire))
            if not _fit(before, size):
                message = tr(
                    "einsum cannot take {letter!r} for {a} and for {b}",
                    letter=letter,
                    a=before,
                    b=size,
                )
                reason = tr(
                    "{letter!r} is {a} in {left.type} from {left.name} and {b} in {right.type} from {right.name}.",
                    letter=letter,
                    a=before,
                    b=size,
                    left=giver,
                    right=wire,
                )
                return message, reason, ()
    return None


def no_matmul(call: FailedCall, _first: Wire) -> Explanation | None:
    if len(call.wires) != 2 or not all(wire.rank for wire in call.wires):
        return None
    left, right = call.wires
    message = tr(
        "{call.label} cannot multiply {left.type} and {right.type}",
        call=call,
        left=left,
        right=right,
    )
    if call.spec.key == "torch.bmm" and {left.rank, right.rank} != {3}:
        reason = tr(
            "Both must have 3 dimensions; {left.name} and {right.name} have {left.rank} and {right.rank}.",
            left=left,
            right=right,
        )
        # a vector per sample as a row, or as a column
        turned = [
            (wire, dim) for wire, dim in ((left, 1), (right, 2)) if wire.rank == 2
        ]
        cures = [_unsqueeze_after(call, wire, dim) for wire, dim in turned]
        return message, reason, tuple(cures)
    inner = right.shape[-2:][0]
    if left.shape[-1] == inner:
        return None
    reason = tr(
        "The last dimension of the first, {a} from {left.name}, must equal the last but one of the second, {b} from "
        "{right.name}.",
        a=left.shape[-1],
        b=inner,
        left=left,
        right=right,
    )
    return message, reason, tuple(_product_cures(call, left, right, inner))


def _product_cures(
    call: FailedCall, left: Wire, right: Wire, inner: Size
) -> Iterator[Cure]:
    turn = {"dim0": -2, "dim1": -1}
    if right.rank > 1 and left.shape[-1] == right.shape[-1]:
        yield call.insert(tr("Transpose the second"), right, "torch.transpose", **turn)
    if left.rank > 1 and left.shape[-2] == inner:
        yield call.insert(tr("Transpose the first"), left, "torch.transpose", **turn)
    if isinstance(inner, int) and isinstance(left.shape[-1], int):
        yield _linear_after(call, left, inner)
