"""Explanations of failed broadcasts, concatenations and products, and their cures."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from app.builder.diagnostics.problems import Cure, ReplaceOp, SetParam
from app.builder.explain.context import Explanation, FailedCall, Wire, batched
from app.builder.rules import upstream
from app.builder.value_types import Dim, Size
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap

Shape = tuple[Size, ...]
# What the dimensions behind the batch are called, by the number of all.
_DIMENSIONS = {
    2: ("The features",),
    4: ("The channels", "The height", "The width"),
    5: ("The channels", "The depth", "The height", "The width"),
}
_VERBS = {"The features": "are", "The channels": "are"}
# The parameter that sets the channels or features of the output of a layer.
_PRODUCERS = {
    **{f"nn.Conv{n}d": "out_channels" for n in (1, 2, 3)},
    **{f"nn.ConvTranspose{n}d": "out_channels" for n in (1, 2, 3)},
    "nn.Linear": "out_features",
}
_SCALED = {3: "nn.Conv1d", 4: "nn.Conv2d", 5: "nn.Conv3d"}


def no_broadcast(broken: FailedCall) -> Explanation | None:
    """Explain two shapes that do not broadcast by the first pair of dimensions that differ."""
    wires = broken.wires
    if len(wires) < 2:
        return None
    left, right = (
        wires[0],
        next(
            (wire for wire in wires[1:] if not meet(wires[0].shape, wire.shape)),
            wires[1],
        ),
    )
    for back in range(1, min(len(left.shape), len(right.shape)) + 1):
        a, b = left.shape[-back], right.shape[-back]
        if a != b and 1 not in (a, b):
            message = f"{broken.label} cannot join {left.type} and {right.type}"
            reason = (
                f"{_dimension(left, right, back)} {a} from {left.source.name} and {b} from "
                f"{right.source.name}; they must be equal, or one of them 1."
            )
            return (
                message,
                reason,
                tuple(meetings(broken, left, right)) if len(wires) == 2 else (),
            )
    return None


def _dimension(left: Wire, right: Wire, back: int) -> str:
    """Name the dimension that is number `back` from the right, as the subject of a sentence."""
    rank = len(left.shape)
    if rank != len(right.shape) or left.shape[0] != Dim(1) or back == rank:
        return f"Counted from the right, dimension {back} is"
    dimension = rank - back
    names = _DIMENSIONS.get(rank, ())
    return (
        f"{names[dimension - 1]} (dimension {dimension}) {_VERBS.get(names[dimension - 1], 'is')}"
        if names
        else f"Dimension {dimension} is"
    )


def meet(a: Shape, b: Shape) -> bool:
    """Return whether two shapes broadcast.

    >>> meet((4, 1), (4, 3)), meet((3,), (4, 3)), meet((4,), (3,))
    (True, True, False)
    """
    return all(
        x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b), strict=False)
    )


def meetings(broken: FailedCall, left: Wire, right: Wire) -> Iterator[Cure]:
    """Propose inserts on one of two wires that make their shapes broadcast; each is tried before it is offered.

    The side branch is changed rather than the main one: the wire from further upstream, else the second.
    """
    first_is_shortcut = left.ref.node in upstream(broken.graph, (right.ref.node,))
    sides = (
        ((left, right), (right, left))
        if first_is_shortcut
        else ((right, left), (left, right))
    )
    for makers in (_with_ones, _turned, _projected, _resized, _produced):
        for changed, other in sides:
            cure = makers(broken, changed, other)
            if cure is not None:
                yield cure
                if makers is not _turned:
                    break


def _with_ones(broken: FailedCall, wire: Wire, other: Wire) -> Cure | None:
    """Insert dimensions of size 1 where the other shape has more."""
    positions = _matched_positions(wire.shape, other.shape)
    missing = (
        [i for i in range(len(other.shape)) if i not in positions] if positions else []
    )
    if positions is None or not missing:
        return None
    if len(missing) == 1:
        insert = broken.before(wire, "torch.unsqueeze", dim=missing[0])
        return Cure(f"Insert unsqueeze({missing[0]})", (insert,))
    target: list[Size] = [1] * len(other.shape)
    for position, size in zip(positions, wire.shape, strict=True):
        target[position] = size
    if sum(isinstance(size, Dim) for size in target) > 1:
        return None
    shape = tuple(-1 if isinstance(size, Dim) else size for size in target)
    return Cure(
        f"Reshape to {shape_text(tuple(target))}",
        (broken.before(wire, "torch.reshape", shape=shape),),
    )


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


def _turned(broken: FailedCall, wire: Wire, other: Wire) -> Cure | None:
    """Permute the non-batch dimensions."""
    rank = len(wire.shape)
    if (
        rank != len(other.shape)
        or not 3 <= rank <= 5
        or sorted(map(str, wire.shape)) != sorted(map(str, other.shape))
    ):
        return None
    for order in permutations(range(1, rank)):
        dims = (0, *order)
        if tuple(wire.shape[i] for i in dims) == other.shape:
            label = f"Insert permute{dims} after {wire.source.name}"
            return Cure(label, (broken.before(wire, "torch.permute", dims=dims),))
    return None


def _projected(broken: FailedCall, wire: Wire, other: Wire) -> Cure | None:
    """Insert a Linear or 1×1 convolution that yields the other's features or channels."""
    rank = len(wire.shape)
    if (
        rank != len(other.shape)
        or rank < 2
        or not (batched(wire.shape) and batched(other.shape))
    ):
        return None
    unlike = [i for i in range(rank) if wire.shape[i] != other.shape[i]]
    if unlike == [rank - 1] and rank < 4:
        linear = broken.before(wire, "nn.Linear", out_features=other.shape[-1])
        return Cure(
            f"Insert Linear to {other.shape[-1]} after {wire.source.name}", (linear,)
        )
    if 1 not in unlike or rank not in _SCALED:
        return None
    strides = {
        _stride(a, b) for a, b in zip(wire.shape[2:], other.shape[2:], strict=True)
    }
    if len(strides) != 1 or None in strides:
        return None
    stride = strides.pop()
    params = {
        "out_channels": other.shape[1],
        "kernel_size": 1,
        **({"stride": stride} if stride != 1 else {}),
    }
    label = f"Insert {_SCALED[rank].partition('.')[2]} {shape_text('1' * (rank - 2))} after {wire.source.name}"
    return Cure(label, (broken.before(wire, _SCALED[rank], **params),))


def _produced(broken: FailedCall, wire: Wire, other: Wire) -> Cure | None:
    """Have the layer that a wire comes from return the channels or features of the other wire."""
    rank = len(wire.shape)
    if rank != len(other.shape) or not (batched(wire.shape) and batched(other.shape)):
        return None
    node, edges = wire.source, broken.graph.into(wire.source.id)
    while node.op not in _PRODUCERS and len(edges) == 1:
        node = broken.graph.nodes[edges[0].source]
        edges = broken.graph.into(node.id)
    param = _PRODUCERS.get(node.op, "")
    dimension = rank - 1 if param == "out_features" else 1
    if not param or [i for i in range(rank) if wire.shape[i] != other.shape[i]] != [
        dimension
    ]:
        return None
    owner, size = broken.graph.owner(node.id), other.shape[dimension]
    label = f"Set {node.name}.{param} to {size} instead of {wire.shape[dimension]}"
    return Cure(label, (SetParam(owner.id, param, size),), replaces=True)


def _stride(size: Size, target_size: Size) -> int | None:
    """Return the stride at which a window of 1 turns one size into another, or None."""
    if not isinstance(size, int) or not isinstance(target_size, int) or target_size < 1:
        return None
    return next(
        (step for step in range(1, size + 1) if -(-size // step) == target_size), None
    )


def _resized(broken: FailedCall, wire: Wire, other: Wire) -> Cure | None:
    """Resize a picture to the size of the other."""
    rank = len(wire.shape)
    if (
        not 3 <= rank <= 5
        or rank != len(other.shape)
        or wire.shape[1] != other.shape[1]
    ):
        return None
    if not (batched(wire.shape) and batched(other.shape)):
        return None
    return _to_size(broken, wire, other.shape[2:])


def _to_size(broken: FailedCall, wire: Wire, sizes: Shape) -> Cure:
    params = {"size": sizes if len(sizes) > 1 else sizes[0], "scale_factor": None}
    label = f"Resize {wire.source.name} to {shape_text(sizes)}"
    return Cure(label, (broken.before(wire, "nn.Upsample", **params),))


# --- Lists of tensors


def no_cat(broken: FailedCall) -> Explanation | None:
    wires = broken.wires
    dim = broken.param("dim", 0)
    if len(wires) < 2 or not isinstance(dim, int):
        return None
    first = wires[0]
    for wire in wires[1:]:
        message = f"cat cannot join {first.type} and {wire.type}"
        if len(wire.shape) != len(first.shape):
            reason = f"{first.source.name} gives {first.type}, {wire.source.name} gives {wire.type}: "
            return (
                message,
                reason + "the number of dimensions differs.",
                tuple(_same_rank(broken, first, wire, dim)),
            )
        if not wire.shape:
            reason = f"{first.source.name} and {wire.source.name} have no dimension to join along."
            return "cat cannot join scalars", reason, ()
        unlike = [
            i
            for i, (a, b) in enumerate(zip(first.shape, wire.shape, strict=True))
            if a != b
        ]
        others = [i for i in unlike if i != dim % len(wire.shape)]
        if others:
            reason = f"Along dim={dim} all other dimensions must agree; dimension {others[0]} is "
            reason += f"{first.shape[others[0]]} from {first.source.name} and {wire.shape[others[0]]} from "
            reason += f"{wire.source.name}."
            return message, reason, tuple(_cat_cures(broken, wires, unlike))
    return None


def _same_rank(broken: FailedCall, a: Wire, b: Wire, dim: int) -> Iterator[Cure]:
    low, high = sorted((a, b), key=lambda wire: len(wire.shape))
    if len(low.shape) + 1 == len(high.shape):
        insert = broken.before(low, "torch.unsqueeze", dim=dim % len(high.shape))
        yield Cure(
            f"Insert unsqueeze({dim % len(high.shape)}) after {low.source.name}",
            (insert,),
        )
    if len(low.shape) == 2:
        yield Cure(
            f"Insert Flatten after {high.source.name}",
            (broken.before(high, "nn.Flatten"),),
        )


def _cat_cures(
    broken: FailedCall, wires: tuple[Wire, ...], unlike: list[int]
) -> Iterator[Cure]:
    """Another dimension if they differ in that one alone; else all pictures as large as the first."""
    first = wires[0]
    if len(unlike) == 1:
        yield broken.set("dim", unlike[0])
    if all(i >= 2 for i in unlike) and all(batched(wire.shape) for wire in wires):
        size = first.shape[2:]
        resized = [
            _to_size(broken, wire, size) for wire in wires[1:] if wire.shape[2:] != size
        ]
        if 3 <= len(first.shape) <= 5 and resized:
            label = (
                resized[0].label
                if len(resized) == 1
                else f"Resize all to {shape_text(size)}"
            )
            yield Cure(label, tuple(edit for cure in resized for edit in cure.edits))


def no_stack(broken: FailedCall) -> Explanation | None:
    first = broken.first
    wire = next(
        (wire for wire in broken.wires[1:] if first and wire.shape != first.shape), None
    )
    if first is None or wire is None:
        return None
    message = f"stack cannot stack {wire.type} on {first.type}"
    reason = (
        f"All must have one shape; {first.source.name} and {wire.source.name} differ."
    )
    cures: tuple[Cure, ...] = ()
    if len(wire.shape) == len(first.shape):
        unlike = [
            i
            for i, (a, b) in enumerate(zip(first.shape, wire.shape, strict=True))
            if a != b
        ]
        if len(unlike) == 1:
            cat = ReplaceOp(broken.step.id, "torch.cat", FrozenMap(dim=unlike[0]))
            cures = (Cure(f"Use cat along dim={unlike[0]}", (cat,)),)
    return message, reason, cures


# --- Products


def no_einsum(broken: FailedCall) -> Explanation | None:
    """Explain an einsum letter with two sizes, or a term of the wrong rank."""
    equation = broken.param("equation")
    terms = (
        equation.replace(" ", "").partition("->")[0].split(",")
        if isinstance(equation, str)
        else []
    )
    if len(terms) != len(broken.wires):
        message = f"einsum({equation!r}) names {len(terms)} tensors, {len(broken.wires)} are connected"
        return (
            (message, "Between the commas there is a term for each tensor.", ())
            if terms
            else None
        )
    met: dict[str, tuple[Size, Wire]] = {}
    for term, wire in zip(terms, broken.wires, strict=True):
        if "." in term:
            return None
        if len(term) != len(wire.shape):
            message = f"einsum expects {len(term)} dimensions for {term!r}, gets {wire.type} from {wire.source.name}"
            return message, f"In {equation!r} each letter is one dimension.", ()
        for letter, size in zip(term, wire.shape, strict=True):
            before, giver = met.setdefault(letter, (size, wire))
            if before != size and 1 not in (before, size):
                message = f"einsum cannot take {letter!r} for {before} and for {size}"
                reason = f"{letter!r} is {before} in {giver.type} from {giver.source.name} and {size} in {wire.type} "
                return message, f"{reason}from {wire.source.name}.", ()
    return None


def no_matmul(broken: FailedCall) -> Explanation | None:
    if len(broken.wires) != 2 or not all(wire.shape for wire in broken.wires):
        return None
    left, right = broken.wires
    message = f"{broken.label} cannot multiply {left.type} and {right.type}"
    if broken.spec.key == "torch.bmm" and {len(left.shape), len(right.shape)} != {3}:
        reason = f"Both must have 3 dimensions; {left.source.name} and {right.source.name} have "
        reason += f"{len(left.shape)} and {len(right.shape)}."
        return message, reason, tuple(_batched_products(broken, left, right))
    inner = right.shape[-2] if len(right.shape) > 1 else right.shape[-1]
    if left.shape[-1] == inner:
        return None
    reason = (
        f"The last dimension of the first, {left.shape[-1]} from {left.source.name}, must equal the last but one of "
        f"the second, {inner} from {right.source.name}."
    )
    return message, reason, tuple(_product_cures(broken, left, right, inner))


def _batched_products(broken: FailedCall, left: Wire, right: Wire) -> Iterator[Cure]:
    """Propose to turn a vector per sample into a row or a column."""
    for wire, dim in ((left, 1), (right, 2)):
        if len(wire.shape) == 2:
            insert = broken.before(wire, "torch.unsqueeze", dim=dim)
            yield Cure(f"Insert unsqueeze({dim}) after {wire.source.name}", (insert,))


def _product_cures(
    broken: FailedCall, left: Wire, right: Wire, inner: Size
) -> Iterator[Cure]:
    turn = {"dim0": -2, "dim1": -1}
    if len(right.shape) > 1 and left.shape[-1] == right.shape[-1]:
        yield Cure(
            "Transpose the second", (broken.before(right, "torch.transpose", **turn),)
        )
    if len(left.shape) > 1 and left.shape[-2] == inner:
        yield Cure(
            "Transpose the first", (broken.before(left, "torch.transpose", **turn),)
        )
    if isinstance(inner, int) and isinstance(left.shape[-1], int):
        linear = broken.before(left, "nn.Linear", out_features=inner)
        yield Cure(f"Insert Linear to {inner} after {left.source.name}", (linear,))
