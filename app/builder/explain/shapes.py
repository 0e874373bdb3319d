"""Explain why an op that rearranges, splits or selects rejects its input, and propose the nearest valid parameters."""

from __future__ import annotations

import math
import re
from typing import Any

from app.builder.diagnostics.problems import Cure, ReplaceOp
from app.builder.explain.context import Explanation, FailedCall, divisors
from app.builder.value_types import Dim
from app.util.frozen import FrozenMap

_MODES = {3: "linear", 4: "bilinear", 5: "trilinear"}


def no_view(broken: FailedCall) -> Explanation | None:
    wire = broken.first
    param = "size" if broken.spec.param("size") else "shape"
    target_shape = broken.param(param)
    if wire is None or not isinstance(target_shape, tuple):
        return None
    shape, flat = wire.type, wire.type.per_sample()
    value_count = math.prod(
        size for size in target_shape if isinstance(size, int) and size > 0
    )
    message = f"{broken.label} to {target_shape} does not fit {shape}"
    if shape.strides is not None and "stride" in broken.torch_messages:
        turned = f"{broken.label} cannot view {shape} as {target_shape}: it is not contiguous in memory"
        edit = ReplaceOp(broken.step.id, "torch.reshape", FrozenMap(shape=target_shape))
        return (
            turned,
            "A transposed tensor is a view of the original memory; reshape copies it.",
            (Cure("Use torch.reshape instead", (edit,)),),
        )
    if flat is None:
        return message, f"{value_count} values do not go into {shape}.", ()
    reason = f"A sample of {shape} has {flat} values, {target_shape} takes {value_count} at a time."
    return message, reason, (broken.set(param, (-1, flat)),)


def no_unflatten(broken: FailedCall) -> Explanation | None:
    wire, dim, sizes = (
        broken.first,
        broken.param("dim"),
        broken.param("unflattened_size"),
    )
    if (
        wire is None
        or type(dim) is not int
        or not isinstance(sizes, tuple)
        or not sizes
    ):
        return None
    if not -len(wire.shape) <= dim < len(wire.shape):
        return None
    size = wire.shape[dim]
    message = f"Unflatten cannot make {sizes} of dimension {dim} of {wire.type}"
    options = ((*sizes[:-1], -1), (-1, *sizes[1:]), (1, -1))
    cures = tuple(
        broken.set("unflattened_size", new)
        for new in options
        if new.count(-1) == 1
        and isinstance(size, int)
        and size % abs(math.prod(new) or size + 1) == 0
    )
    return (
        message,
        f"It has {size} values, and the product of the sizes must equal that.",
        cures[:1],
    )


def no_axes(broken: FailedCall) -> Explanation | None:
    wire, dims = broken.first, broken.param("dims")
    if wire is None or not isinstance(dims, tuple):
        return None
    rank = len(wire.shape)
    natural = (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))
    cures = (broken.set("dims", natural),)
    if len(dims) == rank:
        return (
            f"permute to {dims} does not fit {wire.type}",
            f"Each of 0 to {rank - 1} must be named once.",
            cures,
        )
    return (
        f"permute names {len(dims)} dimensions, {wire.type} has {rank}",
        "Each dimension must be named once.",
        cures,
    )


def out_of_range(broken: FailedCall) -> Explanation | None:
    """Explain a parameter that names a dimension which the input lacks."""
    wire = broken.first
    if wire is None or "Dimension out of range" not in broken.torch_messages:
        return None
    rank = len(wire.shape)
    for param in broken.spec.params:
        value = broken.param(param.name)
        dims = value if isinstance(value, tuple) else (value,)
        if "dim" not in param.name or all(
            type(dim) is int and -rank <= dim < rank for dim in dims
        ):
            continue
        message = (
            f"{broken.name} has {param.name}={value}, which {wire.type} does not have"
        )
        reason = f"{wire.type} has the dimensions 0 to {rank - 1}; -1 is the last."
        new: Any = tuple(
            dim for dim in dims if type(dim) is int and -rank <= dim < rank
        ) or (-1,)
        new = new if isinstance(value, tuple) else -1
        return message, reason, (broken.set(param.name, new),)
    return None


# --- Pieces


def _along(broken: FailedCall, default: int = 0) -> tuple[int, int] | None:
    """Return the selected dimension and its size, None if either is unknown or the batch."""
    wire, dim = broken.first, broken.param("dim", default)
    if (
        wire is None
        or type(dim) is not int
        or not -len(wire.shape) <= dim < len(wire.shape)
    ):
        return None
    size = wire.shape[dim]
    return None if isinstance(size, Dim) else (dim, size)


def no_split(broken: FailedCall) -> Explanation | None:
    sizes, along = broken.param("split_size_or_sections"), _along(broken)
    if not isinstance(sizes, tuple) or along is None or sum(sizes) == along[1]:
        return None
    dim, size = along
    first = broken.first
    assert first is not None
    message = f"{broken.label} into {sizes} does not fit {first.type}"
    reason = f"Dimension {dim} has {size}, and the sizes add up to {sum(sizes)}."
    rest = size - sum(sizes[:-1])
    count = len(sizes)
    new = (
        (*sizes[:-1], rest)
        if rest > 0
        else tuple(size // count + (i < size % count) for i in range(count))
    )
    return message, reason, (broken.set("split_size_or_sections", new),)


def no_piece(broken: FailedCall) -> Explanation | None:
    """Explain `narrow`, `select` or `topk` beyond the end of a dimension."""
    along, first = (
        _along(broken, -1 if broken.spec.key == "torch.topk" else 0),
        broken.first,
    )
    if along is None or first is None:
        return None
    dim, size = along
    reason = f"Dimension {dim} of {first.type}, from {first.source.name}, has {size}."
    if broken.spec.key == "torch.narrow":
        start, length = broken.param("start", 0), broken.param("length")
        if type(start) is not int or type(length) is not int or start + length <= size:
            return None
        message = f"{broken.label} expects {length} from {start} on, and {first.type} ends at {size}"
        fits = 0 <= start < size
        return (
            message,
            reason,
            (broken.set("length", size - start) if fits else broken.set("start", 0),),
        )
    name = "index" if broken.spec.key == "torch.select" else "k"
    value, most = broken.param(name), size - 1 if name == "index" else size
    if type(value) is not int or value <= most:
        return None
    return (
        f"{broken.label} has {name}={value}, at most {most} fits {first.type}",
        reason,
        (broken.set(name, most),),
    )


def no_expand(broken: FailedCall) -> Explanation | None:
    wire, sizes = broken.first, broken.param("size")
    if wire is None or not isinstance(sizes, tuple):
        return None
    full_sizes = (*(-1,) * (len(wire.shape) - len(sizes)), *sizes)
    missing = len(full_sizes) - len(wire.shape)
    new = tuple(
        size if i < missing or wire.shape[i - missing] == 1 else -1
        for i, size in enumerate(full_sizes)
    )
    if new == sizes:
        return None
    message = f"{broken.label} to {sizes} does not fit {wire.type}"
    return (
        message,
        "Only a dimension of 1 can be expanded; −1 keeps a dimension.",
        (broken.set("size", new),),
    )


def no_halves(broken: FailedCall) -> Explanation | None:
    wire, along = broken.first, _along(broken, -1)
    if wire is None or along is None or along[1] % 2 == 0:
        return None
    even = [
        i
        for i, size in enumerate(wire.shape)
        if isinstance(size, int) and size % 2 == 0
    ]
    message = f"{broken.label} cannot halve dimension {along[0]} of {wire.type}"
    cures = (broken.set("dim", even[-1]),) if even else ()
    return (
        message,
        f"It has {along[1]}; it must be even, as one half gates the other.",
        cures,
    )


# --- Pixels


def no_mode(broken: FailedCall) -> Explanation | None:
    """Explain an interpolation mode for another number of dimensions."""
    wire, mode = broken.first, broken.param("mode")
    if wire is None or not re.search("mode needs|Got .*D input", broken.torch_messages):
        return None
    message = f"{broken.label} in mode {mode!r} does not take {wire.type}"
    reason = "linear is for N×C×L, bilinear and bicubic for N×C×H×W, trilinear for N×C×D×H×W."
    fitting = _MODES.get(len(wire.shape))
    cures = (
        (broken.set("mode", fitting),) if fitting and broken.spec.param("mode") else ()
    )
    return message, reason, cures


def no_shuffle(broken: FailedCall) -> Explanation | None:
    """Explain channels that are not divisible by upscale_factor²."""
    wire, factor = broken.first, broken.param("upscale_factor")
    if (
        wire is None
        or type(factor) is not int
        or len(wire.shape) < 3
        or not isinstance(wire.shape[-3], int)
    ):
        return None
    channels, need = wire.shape[-3], factor * factor
    if channels % need == 0:
        return None
    message = (
        f"{broken.label} cannot make {factor}×{factor} pixels of {channels} channels"
    )
    reason = f"The channels of {wire.type}, from {wire.source.name}, must be divisible by {factor}·{factor} = {need}."
    cures = [
        broken.set("upscale_factor", r)
        for r in range(factor - 1, 1, -1)
        if channels % (r * r) == 0
    ][:1]
    if len(wire.shape) == 4:
        channel_count = -(-channels // need) * need
        conv = broken.before(
            wire, "nn.Conv2d", out_channels=channel_count, kernel_size=1
        )
        cures.append(Cure(f"Insert Conv2d 1×1 to {channel_count} channels", (conv,)))
    return message, reason, tuple(cures)


def no_unshuffle(broken: FailedCall) -> Explanation | None:
    """Explain sides that are not divisible by downscale_factor."""
    wire, factor = broken.first, broken.param("downscale_factor")
    if wire is None or type(factor) is not int or len(wire.shape) < 3:
        return None
    height, width = wire.shape[-2:]
    if (
        not isinstance(height, int)
        or not isinstance(width, int)
        or not (height % factor or width % factor)
    ):
        return None
    message = (
        f"{broken.label} cannot split {height}×{width} into blocks of {factor}×{factor}"
    )
    reason = f"Both sides of {wire.type}, from {wire.source.name}, must be divisible by {factor}."
    pad = broken.before(
        wire, "nn.ZeroPad2d", padding=(0, -width % factor, 0, -height % factor)
    )
    fitting = next(
        (r for r in divisors(math.gcd(height, width), factor) if r > 1), None
    )
    cures = [
        Cure(f"Pad to {height + -height % factor}×{width + -width % factor}", (pad,))
    ]
    return (
        message,
        reason,
        (*cures, *([broken.set("downscale_factor", fitting)] if fitting else [])),
    )
