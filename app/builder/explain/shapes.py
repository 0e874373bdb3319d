"""Explain why an op that rearranges, splits or selects rejects its input, and propose the nearest valid parameters."""

from __future__ import annotations

import math
import re
from typing import Any

from app.builder.diagnostics.problems import Cure, ReplaceOp
from app.builder.explain.context import Explanation, FailedCall, Wire, divisors
from app.builder.value_types import Dim
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap
from app.util.language import tr

_MODES = {3: "linear", 4: "bilinear", 5: "trilinear"}


def _does_not_fit(call: FailedCall, wire: Wire, target: object) -> str:
    return tr(
        "{call.label} to {target} does not fit {wire.type}",
        call=call,
        target=target,
        wire=wire,
    )


def no_view(call: FailedCall, wire: Wire) -> Explanation | None:
    param = "size" if call.spec.param("size") else "shape"
    target = call.param(param)
    if not isinstance(target, tuple):
        return None
    if wire.type.strides is not None and "stride" in call.torch_messages:
        message = tr(
            "{call.label} cannot view {wire.type} as {target}: it is not contiguous in memory",
            call=call,
            wire=wire,
            target=target,
        )
        reason = tr(
            "A transposed tensor is a view of the original memory; reshape copies it."
        )
        edit = ReplaceOp(call.step.id, "torch.reshape", FrozenMap(shape=target))
        cure = Cure(tr("Use {layer} instead", layer="torch.reshape"), (edit,))
        return message, reason, (cure,)
    message = _does_not_fit(call, wire, target)
    flat = wire.type.per_sample()
    count = math.prod(size for size in target if isinstance(size, int) and size > 0)
    if flat is None:
        reason = tr(
            "{count} values do not go into {wire.type}.", count=count, wire=wire
        )
        return message, reason, ()
    reason = tr(
        "A sample of {wire.type} has {flat} values, {target} takes {count} at a time.",
        wire=wire,
        flat=flat,
        target=target,
        count=count,
    )
    return message, reason, (call.set(param, (-1, flat)),)


def no_unflatten(call: FailedCall, wire: Wire) -> Explanation | None:
    dim, sizes = call.param("dim"), call.param("unflattened_size")
    if type(dim) is not int or not isinstance(sizes, tuple) or not sizes:
        return None
    if not -wire.rank <= dim < wire.rank:
        return None
    size = wire.shape[dim]
    message = tr(
        "Unflatten cannot make {sizes} of dimension {dim} of {wire.type}",
        sizes=sizes,
        dim=dim,
        wire=wire,
    )
    reason = tr(
        "It has {size} values, and the product of the sizes must equal that.", size=size
    )
    options = ((*sizes[:-1], -1), (-1, *sizes[1:]), (1, -1))
    cures = tuple(
        call.set("unflattened_size", new)
        for new in options
        if new.count(-1) == 1
        and isinstance(size, int)
        and size % abs(math.prod(new) or size + 1) == 0
    )
    return message, reason, cures[:1]


def no_axes(call: FailedCall, wire: Wire) -> Explanation | None:
    dims, rank = call.param("dims"), wire.rank
    if not isinstance(dims, tuple):
        return None
    natural = (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))
    cures = (call.set("dims", natural),)
    if len(dims) == rank:
        reason = tr("Each of 0 to {last} must be named once.", last=rank - 1)
        return _does_not_fit(call, wire, dims), reason, cures
    message = tr(
        "permute names {count} dimensions, {wire.type} has {wire.rank}",
        count=len(dims),
        wire=wire,
    )
    return message, tr("Each dimension must be named once."), cures


def out_of_range(call: FailedCall, wire: Wire) -> Explanation | None:
    """Explain a parameter that names a dimension which the input lacks."""
    if "Dimension out of range" not in call.torch_messages:
        return None
    for param in call.spec.params:
        value = call.param(param.name)
        dims = value if isinstance(value, tuple) else (value,)
        fitting = tuple(
            dim for dim in dims if type(dim) is int and -wire.rank <= dim < wire.rank
        )
        if "dim" not in param.name or len(fitting) == len(dims):
            continue
        message = tr(
            "{call.name} has {param}={value}, which {wire.type} does not have",
            call=call,
            param=param.name,
            value=value,
            wire=wire,
        )
        reason = tr(
            "{wire.type} has the dimensions 0 to {last}; -1 is the last.",
            wire=wire,
            last=wire.rank - 1,
        )
        new: Any = fitting or (-1,) if isinstance(value, tuple) else -1
        return message, reason, (call.set(param.name, new),)
    return None


# --- Pieces


def _along(call: FailedCall, wire: Wire, default: int = 0) -> tuple[int, int] | None:
    """Return the selected dimension and its size, None if either is unknown or the batch."""
    dim = call.param("dim", default)
    if type(dim) is not int or not -wire.rank <= dim < wire.rank:
        return None
    size = wire.shape[dim]
    return None if isinstance(size, Dim) else (dim, size)


def no_split(call: FailedCall, wire: Wire) -> Explanation | None:
    sizes, along = call.param("split_size_or_sections"), _along(call, wire)
    if not isinstance(sizes, tuple) or along is None or sum(sizes) == along[1]:
        return None
    dim, size = along
    message = tr(
        "{call.label} into {sizes} does not fit {wire.type}",
        call=call,
        sizes=sizes,
        wire=wire,
    )
    reason = tr(
        "Dimension {dim} has {size}, and the sizes add up to {sum}.",
        dim=dim,
        size=size,
        sum=sum(sizes),
    )
    rest = size - sum(sizes[:-1])
    count = len(sizes)
    new = (
        (*sizes[:-1], rest)
        if rest > 0
        else tuple(size // count + (i < size % count) for i in range(count))
    )
    return message, reason, (call.set("split_size_or_sections", new),)


def no_piece(call: FailedCall, wire: Wire) -> Explanation | None:
    """Explain `narrow`, `select` or `topk` beyond the end of a dimension."""
    along = _along(call, wire, -1 if call.spec.key == "torch.topk" else 0)
    if along is None:
        return None
    dim, size = along
    reason = tr(
        "Dimension {dim} of {wire.type}, from {wire.name}, has {size}.",
        dim=dim,
        wire=wire,
        size=size,
    )
    if call.spec.key == "torch.narrow":
        start, length = call.param("start", 0), call.param("length")
        if type(start) is not int or type(length) is not int or start + length <= size:
            return None
        message = tr(
            "{call.label} expects {length} from {start} on, and {wire.type} ends at {size}",
            call=call,
            length=length,
            start=start,
            wire=wire,
            size=size,
        )
        fits = 0 <= start < size
        cure = call.set("length", size - start) if fits else call.set("start", 0)
        return message, reason, (cure,)
    name = "index" if call.spec.key == "torch.select" else "k"
    value, most = call.param(name), size - 1 if name == "index" else size
    if type(value) is not int or value <= most:
        return None
    message = tr(
        "{call.label} has {name}={value}, at most {most} fits {wire.type}",
        call=call,
        name=name,
        value=value,
        most=most,
        wire=wire,
    )
    return message, reason, (call.set(name, most),)


def no_expand(call: FailedCall, wire: Wire) -> Explanation | None:
    sizes = call.param("size")
    if not isinstance(sizes, tuple):
        return None
    full_sizes = (*(-1,) * (wire.rank - len(sizes)), *sizes)
    missing = len(full_sizes) - wire.rank
    new = tuple(
        size if i < missing or wire.shape[i - missing] == 1 else -1
        for i, size in enumerate(full_sizes)
    )
    if new == sizes:
        return None
    reason = tr("Only a dimension of 1 can be expanded; −1 keeps a dimension.")
    return _does_not_fit(call, wire, sizes), reason, (call.set("size", new),)


def no_halves(call: FailedCall, wire: Wire) -> Explanation | None:
    along = _along(call, wire, -1)
    if along is None or along[1] % 2 == 0:
        return None
    even = [
        dim
        for dim, size in enumerate(wire.shape)
        if isinstance(size, int) and size % 2 == 0
    ]
    message = tr(
        "{call.label} cannot halve dimension {dim} of {wire.type}",
        call=call,
        dim=along[0],
        wire=wire,
    )
    reason = tr(
        "It has {size}; it must be even, as one half gates the other.", size=along[1]
    )
    return message, reason, tuple(call.set("dim", dim) for dim in even[-1:])


# --- Pixels


def no_mode(call: FailedCall, wire: Wire) -> Explanation | None:
    """Explain an interpolation mode for another number of dimensions."""
    if not re.search("mode needs|Got .*D input", call.torch_messages):
        return None
    message = tr(
        "{call.label} in mode {mode!r} does not take {wire.type}",
        call=call,
        mode=call.param("mode"),
        wire=wire,
    )
    reason = tr(
        "linear is for N×C×L, bilinear and bicubic for N×C×H×W, trilinear for N×C×D×H×W."
    )
    fitting = _MODES.get(wire.rank) if call.spec.param("mode") else None
    return message, reason, (call.set("mode", fitting),) if fitting else ()


def no_shuffle(call: FailedCall, wire: Wire) -> Explanation | None:
    """Explain channels that are not divisible by upscale_factor²."""
    factor = call.param("upscale_factor")
    channels = wire.shape[-3] if wire.rank >= 3 else None
    if type(factor) is not int or not isinstance(channels, int):
        return None
    need = factor * factor
    if channels % need == 0:
        return None
    message = tr(
        "{call.label} cannot make {factor}×{factor} pixels of {channels} channels",
        call=call,
        factor=factor,
        channels=channels,
    )
    reason = tr(
        "The channels of {wire.type}, from {wire.name}, must be divisible by {divisor}.",
        wire=wire,
        divisor=f"{factor}·{factor} = {need}",
    )
    cures = [
        call.set("upscale_factor", r)
        for r in range(factor - 1, 1, -1)
        if channels % (r * r) == 0
    ][:1]
    if wire.rank == 4:
        size = -(-channels // need) * need
        label = tr("Insert Conv2d 1×1 to {channels} channels", channels=size)
        conv = {"out_channels": size, "kernel_size": 1}
        cures.append(call.insert(label, wire, "nn.Conv2d", **conv))
    return message, reason, tuple(cures)


def no_unshuffle(call: FailedCall, wire: Wire) -> Explanation | None:
    """Explain sides that are not divisible by downscale_factor."""
    factor = call.param("downscale_factor")
    if type(factor) is not int or wire.rank < 3:
        return None
    height, width = wire.shape[-2:]
    if (
        not isinstance(height, int)
        or not isinstance(width, int)
        or not (height % factor or width % factor)
    ):
        return None
    message = tr(
        "{call.label} cannot split {sides} into blocks of {factor}×{factor}",
        call=call,
        sides=shape_text((height, width)),
        factor=factor,
    )
    reason = tr(
        "Both sides of {wire.type}, from {wire.name}, must be divisible by {factor}.",
        wire=wire,
        factor=factor,
    )
    right, below = -width % factor, -height % factor
    label = tr("Pad to {shape}", shape=shape_text((height + below, width + right)))
    pad = call.insert(label, wire, "nn.ZeroPad2d", padding=(0, right, 0, below))
    fitting = (r for r in divisors(math.gcd(height, width), factor) if r > 1)
    smaller = [call.set("downscale_factor", r) for r in list(fitting)[:1]]
    return message, reason, (pad, *smaller)
