"""Explain the output sizes of convolutions and pooling.

The formulas are those of PyTorch's documentation, section "Shape" of `torch.nn.Conv2d`, `torch.nn.ConvTranspose2d`,
`torch.nn.MaxPool2d`, `torch.nn.AvgPool2d` and `torch.nn.MaxUnpool2d` (those for one and three dimensions read the
same): h is H_in, k kernel_size, s stride, p padding, d dilation, o output_padding, each for its own axis.
"""

from __future__ import annotations

from collections.abc import Callable

from app.builder.dimensions.calls import (
    InputTensor,
    SizeCall,
    SizeNote,
    set_by,
    unchanged,
)
from app.builder.dimensions.formula import Formula, Symbol
from app.builder.value_types import Size
from app.util.formatting import shape_text, spelled_count

AxisRule = Callable[[SizeCall, InputTensor, int, int], SizeNote]

_CONV = "(h + 2*p - d*(k - 1) - 1)//s + 1"
_POOL = "(h + 2*p - k)//s + 1"
_CONV_CEIL = "ceil(h + 2*p - d*(k - 1) - 1, s) + 1"
_POOL_CEIL = "ceil(h + 2*p - k, s) + 1"
_TRANSPOSED = "(h - 1)*s - 2*p + d*(k - 1) + o + 1"
_UNPOOL = "(h - 1)*s - 2*p + k"
_LAST_WINDOW = " The last window would start in the padding, so it is dropped."


def convolution(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the sizes of `nn.Conv1d` to `nn.Conv3d`: `_CONV` per axis, as many channels as `out_channels`."""
    return _windows(call, _channels(call), _conv_axis)


def transposed(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the sizes of `nn.ConvTranspose1d` to `3d`: `_TRANSPOSED` per axis, and `out_channels`."""
    return _windows(call, _channels(call), _transposed_axis)


def pooling(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the sizes of max and average pooling: `_POOL` per axis, `_CONV` where there is a dilation."""
    return _windows(call, _same_channels(call), _pool_axis)


def adaptive(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the sizes of adaptive pooling: `output_size` per axis, that of the input for None."""
    return _windows(call, _same_channels(call), _adaptive_axis)


def unpooling(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the sizes of `nn.MaxUnpool1d` to `3d`: `_UNPOOL` per axis."""
    return _windows(call, _same_channels(call), _unpool_axis)


def unfolding(call: SizeCall) -> tuple[SizeNote, ...]:
    """`nn.Unfold`: (N, C, H, W) becomes (N, C·∏k, L), L the number of windows."""
    arrived = call.first
    c, rank = arrived.symbol("c", -3), len(arrived.shape)
    kernel = tuple(
        Symbol(f"k{i}", f"kernel_size[{i}]", call.each("kernel_size", i))
        for i in (0, 1)
    )
    words = "A column holds all values of one window: channels times the pixels of the kernel."
    column = SizeNote(Formula("c*k0*k1", (c, *kernel)), words, arrived.origin(-3))
    text, symbols = _window_count(call, arrived.shape[-2], arrived.shape[-1], arrived)
    count = SizeNote(
        Formula(text, symbols),
        "One column for each position of the window.",
        arrived.origin(-1),
    )
    return (*(unchanged(arrived, i) for i in range(rank - 3)), column, count)


def sliding(call: SizeCall) -> tuple[SizeNote, ...]:
    """`x.unfold(dimension, size, step)`: the number of windows, and their size as an additional last dimension."""
    arrived = call.first
    at = call.params["dimension"] % len(arrived.shape)
    size, step = (
        Symbol("k", "size", call.params["size"]),
        Symbol("s", "step", call.params["step"]),
    )
    notes = [unchanged(arrived, i) for i in range(len(arrived.shape))]
    words = "The number of windows that fit, one per step."
    notes[at] = SizeNote(
        Formula("(h - k)//s + 1", (arrived.symbol("h", at), size, step)),
        words,
        arrived.origin(at),
    )
    return (*notes, set_by("size", call.params["size"], "The values of one window."))


def _window_count(
    call: SizeCall, height: Size, width: Size, arrived: InputTensor
) -> tuple[str, tuple[Symbol, ...]]:
    """Return the number of window positions: the product of the counts per axis."""
    text, symbols = [], []
    for axis, (letter, size) in enumerate((("h", height), ("w", width))):
        named = _symbols(call, axis)
        text.append(
            f"(({letter} + 2*p{axis} - d{axis}*(k{axis} - 1) - 1)//s{axis} + 1)"
        )
        symbols.append(
            Symbol(
                letter, f"dim {len(arrived.shape) - 2 + axis} of {arrived.name}", size
            )
        )
        symbols += [
            Symbol(f"{one.letter}{axis}", f"{one.meaning}[{axis}]", one.value)
            for one in named
        ]
    return "*".join(text), tuple(symbols)


def folding(call: SizeCall) -> tuple[SizeNote, ...]:
    """`nn.Fold`: (N, C·∏k, L) becomes (N, C, *output_size)."""
    arrived = call.first
    rank = len(arrived.shape)
    kernel = tuple(
        Symbol(f"k{i}", f"kernel_size[{i}]", call.each("kernel_size", i))
        for i in (0, 1)
    )
    words = "Each column becomes a window with this many channels; overlapping windows are summed."
    channels = SizeNote(
        Formula("c/(k0*k1)", (arrived.symbol("c", rank - 2), *kernel)),
        words,
        arrived.origin(rank - 2),
    )
    sides = (
        set_by(
            f"output_size[{i}]", call.each("output_size", i), source=arrived.origin(-1)
        )
        for i in (0, 1)
    )
    return (*(unchanged(arrived, i) for i in range(rank - 2)), channels, *sides)


def fractional(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the sizes of `nn.FractionalMaxPool2d` and `3d`: `output_size`, or ⌊h · output_ratio⌋ per axis."""
    return _windows(call, _same_channels(call), _fractional_axis)


def _fractional_axis(
    call: SizeCall, arrived: InputTensor, dimension: int, axis: int
) -> SizeNote:
    before, ratio = arrived.shape[dimension], call.params.get("output_ratio")
    if call.params.get("output_size") is not None:
        size = call.each("output_size", axis)
        return set_by(
            "output_size",
            size,
            f"output_size sets the {size}: windows with uneven strides cover {before}.",
        )
    ratio = ratio[axis] if isinstance(ratio, tuple) else ratio
    if ratio is None:
        raise KeyError("output_ratio")
    symbols = (
        arrived.symbol("h", dimension, "input size"),
        Symbol("r", "output_ratio", float(ratio)),
    )
    return SizeNote(
        Formula("floor(h*r)", symbols),
        f"output_ratio keeps {ratio} of the {before}, rounded down.",
        arrived.origin(dimension),
    )


def axes(op: str) -> int:
    """Return the number of dimensions of an op's window: the digit of its name."""
    return int(op[-2])


def _windows(
    call: SizeCall, channels: SizeNote, axis_rule: AxisRule
) -> tuple[SizeNote, ...]:
    arrived, count = call.first, axes(call.op)
    first = len(arrived.shape) - count
    before = tuple(unchanged(arrived, i) for i in range(first - 1))
    return (
        *before,
        channels,
        *(axis_rule(call, arrived, first + axis, axis) for axis in range(count)),
    )


def _channels(call: SizeCall) -> SizeNote:
    return set_by("out_channels", call.params["out_channels"])


def _same_channels(call: SizeCall) -> SizeNote:
    arrived = call.first
    return unchanged(
        arrived,
        len(arrived.shape) - axes(call.op) - 1,
        "Each channel is pooled separately.",
    )


def _conv_axis(
    call: SizeCall, arrived: InputTensor, dimension: int, axis: int
) -> SizeNote:
    h = arrived.symbol("h", dimension, "input size")
    padding = call.params.get("padding", 0)
    if padding == "same":
        words = f"padding='same' pads so that {_window(call)} keeps the size."
        return unchanged(arrived, dimension, words)
    p = 0 if padding == "valid" else call.each("padding", axis)
    symbols = (h, *_symbols(call, axis, p=p))
    return SizeNote(
        Formula(_CONV, symbols),
        _fits(call, arrived, dimension, axis, p),
        arrived.origin(dimension),
    )


def _pool_axis(
    call: SizeCall, arrived: InputTensor, dimension: int, axis: int
) -> SizeNote:
    kernel, p = call.each("kernel_size", axis), call.each("padding", axis)
    s, d = call.each("stride", axis, kernel), call.each("dilation", axis, 1)
    dilated = "dilation" in call.params
    text = (
        (_CONV if dilated else _POOL)
        if not call.params.get("ceil_mode")
        else _CONV_CEIL
        if dilated
        else _POOL_CEIL
    )
    letters = "pdks" if dilated else "pks"
    symbols = (
        arrived.symbol("h", dimension, "input size"),
        *(one for one in _symbols(call, axis, p=p, s=s, d=d) if one.letter in letters),
    )
    words = _fits(call, arrived, dimension, axis, p, s)
    if call.params.get("ceil_mode"):
        size, room = Formula(text, symbols).result, arrived.shape[dimension]
        if (
            isinstance(size, int)
            and isinstance(room, int)
            and (size - 1) * s >= room + p
        ):
            text, words = f"{text} - 1", words + _LAST_WINDOW
        elif size != Formula(_CONV if dilated else _POOL, symbols).result:
            words += " ceil_mode counts the last one, which is cut off."
    return SizeNote(Formula(text, symbols), words, arrived.origin(dimension))


def _transposed_axis(
    call: SizeCall, arrived: InputTensor, dimension: int, axis: int
) -> SizeNote:
    h = arrived.symbol("h", dimension, "input size")
    o = Symbol("o", "output_padding", call.each("output_padding", axis))
    symbols = (h, *_symbols(call, axis, p=call.each("padding", axis)), o)
    stride = call.each("stride", axis, 1)
    words = f"{_window(call)} is applied once for each position of the input"
    words += f", {spelled_count(stride, _unit(call))} apart." if stride > 1 else "."
    if call.each("padding", axis):
        words += f" padding cuts {spelled_count(call.each('padding', axis), _unit(call))} from each side."
    return SizeNote(
        Formula(_TRANSPOSED, symbols),
        words[0].upper() + words[1:],
        arrived.origin(dimension),
    )


def _unpool_axis(
    call: SizeCall, arrived: InputTensor, dimension: int, axis: int
) -> SizeNote:
    h = arrived.symbol("h", dimension, "input size")
    stride = call.each("stride", axis, call.each("kernel_size", axis))
    symbols = (h, *(one for one in _symbols(call, axis, s=stride) if one.letter != "d"))
    words = "Each value returns to the position it was taken from; the rest is zero."
    return SizeNote(Formula(_UNPOOL, symbols), words, arrived.origin(dimension))


def _adaptive_axis(
    call: SizeCall, arrived: InputTensor, dimension: int, axis: int
) -> SizeNote:
    value = call.params["output_size"]
    if isinstance(value, tuple):
        value = value[axis] if len(value) > 1 else value[0]
    if value is None:
        return unchanged(
            arrived,
            dimension,
            "output_size is None here, which keeps the size of the input.",
        )
    before = arrived.shape[dimension]
    return set_by(
        "output_size",
        value,
        f"output_size sets the {value}, for any input: here {before} are pooled.",
    )


def _symbols(call: SizeCall, axis: int, **given: int) -> tuple[Symbol, ...]:
    """p, d, k and s of an axis."""
    names = (
        ("p", "padding", 0),
        ("d", "dilation", 1),
        ("k", "kernel_size", 1),
        ("s", "stride", 1),
    )
    return tuple(
        Symbol(
            letter,
            name,
            given[letter] if letter in given else call.each(name, axis, default),
        )
        for letter, name, default in names
    )


def _unit(call: SizeCall) -> str:
    return {1: "step", 2: "pixel", 3: "voxel"}[axes(call.op)]


def _window(call: SizeCall) -> str:
    """Describe the window: `a 3×3 kernel`, `a kernel of 3 with dilation 2`."""
    sizes = [call.each("kernel_size", axis) for axis in range(axes(call.op))]
    kind = "window" if "pool" in call.op.lower() else "kernel"
    words = (
        f"a {shape_text(sizes)} {kind}" if len(sizes) > 1 else f"a {kind} of {sizes[0]}"
    )
    spread = [call.each("dilation", axis, 1) for axis in range(axes(call.op))]
    if any(number != 1 for number in spread):
        words += f" with dilation {spread[0] if len(set(spread)) == 1 else shape_text(spread)}"
    return words


def _fits(
    call: SizeCall,
    arrived: InputTensor,
    dimension: int,
    axis: int,
    p: int,
    stride: int | None = None,
) -> str:
    """Describe the effect of a window on a size in one sentence."""
    s = stride or call.each("stride", axis, 1)
    unit, window = _unit(call), _window(call)
    window = "A" + window[1:]
    around = f"with padding {p}" if p else "without padding"
    if s > 1:
        fitting, room = call.shape[dimension], arrived.shape[dimension]
        held = f"{room} {unit}s" + (f" and {p} of padding on each side" if p else "")
        return f"{window} at stride {s} fits {fitting} times into {held}."
    trimmed = (
        call.each("dilation", axis, 1) * (call.each("kernel_size", axis) - 1) - 2 * p
    )
    if not trimmed:
        return f"{window} {around} keeps the size."
    verb = "trims" if trimmed > 0 else "adds"
    side = f"{spelled_count(abs(trimmed) // 2, unit)} {'from' if trimmed > 0 else 'to'} each side"
    return f"{window} {around} {verb} {side if trimmed % 2 == 0 else f'{spelled_count(abs(trimmed), unit)} in all'}."
