"""Explain the output sizes of convolutions and pooling.

The formulas are those of PyTorch's documentation, section "Shape" of `torch.nn.Conv2d`, `torch.nn.ConvTranspose2d`,
`torch.nn.MaxPool2d` and `torch.nn.AvgPool2d` (those for one and three dimensions read the same): h is H_in, k
kernel_size, s stride, p padding, d dilation, o output_padding, each for its own axis.
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
from app.util.formatting import shape_text
from app.util.language import marked, tr, trn

AxisRule = Callable[[SizeCall, InputTensor, int, int], SizeNote]

_CONV = "(h + 2*p - d*(k - 1) - 1)//s + 1"
_POOL = "(h + 2*p - k)//s + 1"
_CONV_CEIL = "ceil(h + 2*p - d*(k - 1) - 1, s) + 1"
_POOL_CEIL = "ceil(h + 2*p - k, s) + 1"
_TRANSPOSED = "(h - 1)*s - 2*p + d*(k - 1) + o + 1"
_DROPPED = marked("The last window would start in the padding, so it is dropped.")
_KERNEL = (marked("a kernel of {size}"), marked("a {size} kernel"))
_POOLED = (marked("a window of {size}"), marked("a {size} window"))
_NUMBERS = (
    marked("one"),
    marked("two"),
    marked("three"),
    marked("four"),
    marked("five"),
    marked("six"),
)


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
        tr("Each channel is pooled separately."),
    )


def _conv_axis(
    call: SizeCall, arrived: InputTensor, dimension: int, axis: int
) -> SizeNote:
    h = arrived.symbol("h", dimension, tr("input size"))
    padding = call.params.get("padding", 0)
    if padding == "same":
        explanation = tr(
            "padding='same' pads so that {window} keeps the size.", window=_window(call)
        )
        return unchanged(arrived, dimension, explanation)
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
        arrived.symbol("h", dimension, tr("input size")),
        *(
            symbol
            for symbol in _symbols(call, axis, p=p, s=s, d=d)
            if symbol.letter in letters
        ),
    )
    explanation = _fits(call, arrived, dimension, axis, p, s)
    if call.params.get("ceil_mode"):
        size, room = Formula(text, symbols).result, arrived.shape[dimension]
        if (
            isinstance(size, int)
            and isinstance(room, int)
            and (size - 1) * s >= room + p
        ):
            text, explanation = f"{text} - 1", f"{explanation} {tr(_DROPPED)}"
        elif size != Formula(_CONV if dilated else _POOL, symbols).result:
            explanation += f" {tr('ceil_mode counts the last one, which is cut off.')}"
    return SizeNote(Formula(text, symbols), explanation, arrived.origin(dimension))


def _transposed_axis(
    call: SizeCall, arrived: InputTensor, dimension: int, axis: int
) -> SizeNote:
    h = arrived.symbol("h", dimension, tr("input size"))
    o = Symbol("o", "output_padding", call.each("output_padding", axis))
    symbols = (h, *_symbols(call, axis, p=call.each("padding", axis)), o)
    stride = call.each("stride", axis, 1)
    window = _capitalised(_window(call))
    explanation = (
        tr(
            "{window} is applied once for each position of the input, {amount} apart.",
            window=window,
            amount=_amount(call, stride),
        )
        if stride > 1
        else tr(
            "{window} is applied once for each position of the input.", window=window
        )
    )
    if padding := call.each("padding", axis):
        cut_off = tr(
            "padding cuts {amount} from each side.", amount=_amount(call, padding)
        )
        explanation += f" {cut_off}"
    return SizeNote(
        Formula(_TRANSPOSED, symbols), explanation, arrived.origin(dimension)
    )


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
            tr("output_size is None here, which keeps the size of the input."),
        )
    before = arrived.shape[dimension]
    return set_by(
        "output_size",
        value,
        tr(
            "output_size sets the {value}, for any input: here {before} are pooled.",
            value=value,
            before=before,
        ),
    )


def _symbols(call: SizeCall, axis: int, **overrides: int) -> tuple[Symbol, ...]:
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
            overrides[letter]
            if letter in overrides
            else call.each(name, axis, default),
        )
        for letter, name, default in names
    )


def _amount(call: SizeCall, number: int) -> str:
    """Format a number of positions, small ones as words: `one pixel`, `12 steps`."""
    is_spelled = 0 < number <= len(_NUMBERS)
    spelled = tr(_NUMBERS[number - 1]) if is_spelled else str(number)
    amounts = (
        trn("{number} step", "{number} steps", number, number=spelled),
        trn("{number} pixel", "{number} pixels", number, number=spelled),
        trn("{number} voxel", "{number} voxels", number, number=spelled),
    )
    return amounts[axes(call.op) - 1]


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def _window(call: SizeCall) -> str:
    """Describe the window: `a 3×3 kernel`, `a kernel of 3 with dilation 2`."""
    count = axes(call.op)
    sizes = [call.each("kernel_size", axis) for axis in range(count)]
    kinds = _POOLED if "pool" in call.op.lower() else _KERNEL
    window = tr(kinds[count > 1], size=shape_text(sizes))
    spread = [call.each("dilation", axis, 1) for axis in range(count)]
    if set(spread) == {1}:
        return window
    return tr(
        "{window} with dilation {dilation}",
        window=window,
        dilation=spread[0] if len(set(spread)) == 1 else shape_text(spread),
    )


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
    window = _capitalised(_window(call))
    if s > 1:
        sentence = (
            marked(
                "{window} at stride {stride} fits {count} times into {room} and {padding} of padding on each side."
            )
            if p
            else marked("{window} at stride {stride} fits {count} times into {room}.")
        )
        return tr(
            sentence,
            window=window,
            stride=s,
            count=call.shape[dimension],
            room=_room(call, arrived.shape[dimension]),
            padding=p,
        )
    window = (
        tr("{window} with padding {padding}", window=window, padding=p)
        if p
        else tr("{window} without padding", window=window)
    )
    trimmed = (
        call.each("dilation", axis, 1) * (call.each("kernel_size", axis) - 1) - 2 * p
    )
    if not trimmed:
        return tr("{window} keeps the size.", window=window)
    sides, rest = divmod(abs(trimmed), 2)
    amount = _amount(call, abs(trimmed) if rest else sides)
    if trimmed > 0:
        sentence = (
            marked("{window} trims {amount} in all.")
            if rest
            else marked("{window} trims {amount} from each side.")
        )
    else:
        sentence = (
            marked("{window} adds {amount} in all.")
            if rest
            else marked("{window} adds {amount} to each side.")
        )
    return tr(sentence, window=window, amount=amount)


def _room(call: SizeCall, size: Size) -> str:
    """Format the positions of an axis: `28 pixels`."""
    rooms = (marked("{size} steps"), marked("{size} pixels"), marked("{size} voxels"))
    return tr(rooms[axes(call.op) - 1], size=size)
