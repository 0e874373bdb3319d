"""How much of the input one value sees, along chains of convolutions and poolings.

A window of `k` taps, `d` apart, that moves by `s` widens the field by `d (k - 1)` jumps and makes the jump `s` times as
long: r' = r + d (k - 1) j, j' = s j, and the field begins p jumps further left (Araujo, Norris and Sim, "Computing
Receptive Fields of Convolutional Neural Networks", Distill 2019, eq. 1 and 3). Where paths meet it reaches from the
leftmost to the rightmost of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.builder.catalog.catalog import OpSpec
from app.builder.value_types import TensorType, ValueType
from app.util.formatting import shape_text

# Windows, by how many dimensions they slide along.
_WINDOWS = {
    f"{prefix}{name}{rank}d": rank
    for prefix, names in (("nn.", ("Conv", "MaxPool", "AvgPool", "LPPool")),)
    for name in names
    for rank in (1, 2, 3)
} | {f"F.{name}_pool{rank}d": rank for name in ("max", "avg") for rank in (1, 2, 3)}
# Elementwise and per-position ops, which leave the receptive field unchanged.
_POINTWISE = (
    frozenset(
        f"nn.{name}"
        for name in (
            "ReLU",
            "ReLU6",
            "LeakyReLU",
            "PReLU",
            "RReLU",
            "ELU",
            "SELU",
            "CELU",
            "GELU",
            "SiLU",
            "Mish",
            "Hardswish",
            "Hardsigmoid",
            "Hardtanh",
            "Softplus",
            "Softsign",
            "Sigmoid",
            "LogSigmoid",
            "Tanh",
            "Tanhshrink",
            "Threshold",
            "BatchNorm1d",
            "BatchNorm2d",
            "BatchNorm3d",
            "Dropout",
            "Dropout1d",
            "Dropout2d",
            "Dropout3d",
            "AlphaDropout",
            "Identity",
            "Softmax2d",
        )
    )
    | frozenset(
        f"F.{name}"
        for name in (
            "relu",
            "gelu",
            "silu",
            "elu",
            "leaky_relu",
            "sigmoid",
            "tanh",
            "softplus",
            "mish",
            "dropout",
        )
    )
    | {"torch.relu", "torch.sigmoid", "torch.tanh"}
)
_OVER_CHANNELS = frozenset(
    {"nn.Softmax", "nn.LogSoftmax", "F.softmax", "F.log_softmax", "torch.cat"}
)
_ELEMENTWISE = frozenset(
    f"{prefix}.{name}"
    for prefix in ("operator", "torch")
    for name in ("add", "sub", "mul", "truediv", "div")
)


class Receptive(Struct, frozen=True):
    """Receptive field of one value: its `size` in each dimension, and the `jump` between neighbouring values' fields.

    `left` is the start of the first value's field, negative in the padding. `windows` counts the windows passed.

    >>> str(Receptive((5, 5), (2, 2), (0, 0), 2))
    '5×5, jump 2'
    """

    size: tuple[int, ...]
    jump: tuple[int, ...]
    left: tuple[int, ...]
    windows: int = 0

    def __str__(self) -> str:
        jump = self.jump if len(set(self.jump)) > 1 else self.jump[:1]
        return f"{shape_text(self.size)}, jump {shape_text(jump)}"


def field_after(
    spec: OpSpec,
    params: Mapping[str, Any],
    inputs: Mapping[str, tuple[ValueType, ...]],
    outputs: Sequence[ValueType],
    arriving: Sequence[Receptive | None],
) -> Receptive | None:
    """Return the receptive field after a call; None if windows do not determine it, as after a Flatten or a Linear."""
    output = outputs[0] if outputs else None
    if not isinstance(output, TensorType):
        return None
    if spec.kind == "input":
        rank = len(output.shape) - 2
        return Receptive((1,) * rank, (1,) * rank, (0,) * rank) if rank > 0 else None
    fields = [field for field in arriving if field is not None]
    if not fields or len(fields) != len(arriving):
        return None
    if spec.key in _WINDOWS:
        rank = _WINDOWS[spec.key]
        return (
            _through(spec, params, fields[0], rank)
            if len(fields[0].size) == rank
            else None
        )
    if spec.key in _POINTWISE or (
        spec.key in _OVER_CHANNELS and _value(spec, params, "dim") == 1
    ):
        return _met(fields)
    if spec.key in _ELEMENTWISE:
        arrived = [input_type for group in inputs.values() for input_type in group]
        alike = all(
            isinstance(input_type, TensorType) and input_type.shape == output.shape
            for input_type in arrived
        )
        return _met(fields) if alike else None
    return None


def _value(spec: OpSpec, params: Mapping[str, Any], name: str) -> Any:
    """Return a parameter, or its default."""
    param = spec.param(name)
    return params.get(name, param.default if param else None)


def _each(value: Any, rank: int) -> tuple[int, ...]:
    """Expand to one number per dimension."""
    return (
        (value,) * rank
        if isinstance(value, int)
        else (*value,) * (rank if len(value) == 1 else 1)
    )


def _through(
    spec: OpSpec, params: Mapping[str, Any], field: Receptive, rank: int
) -> Receptive | None:
    """Return the receptive field after a window; None if its parameters are not numbers."""
    taps = _each(_value(spec, params, "kernel_size"), rank)
    strides = _each(_value(spec, params, "stride") or taps, rank)
    apart = _each(_value(spec, params, "dilation") or 1, rank)
    reach = [d * (k - 1) for k, d in zip(taps, apart, strict=True)]
    padding = _value(spec, params, "padding") or 0
    if isinstance(padding, str):
        padding = tuple(total // 2 if padding == "same" else 0 for total in reach)
    pads = _each(padding, rank)
    return Receptive(
        tuple(
            r + more * j
            for r, more, j in zip(field.size, reach, field.jump, strict=True)
        ),
        tuple(s * j for s, j in zip(strides, field.jump, strict=True)),
        tuple(
            at - p * j for at, p, j in zip(field.left, pads, field.jump, strict=True)
        ),
        field.windows + 1,
    )


def _met(fields: Sequence[Receptive]) -> Receptive | None:
    """Join the receptive fields of several paths; None if their jumps differ."""
    first = fields[0]
    if any(field.jump != first.jump for field in fields):
        return None
    left = (
        tuple(map(min, *(field.left for field in fields)))
        if len(fields) > 1
        else first.left
    )
    ends = [
        tuple(a + b for a, b in zip(field.left, field.size, strict=True))
        for field in fields
    ]
    right = tuple(map(max, *ends)) if len(ends) > 1 else ends[0]
    size = tuple(b - a for a, b in zip(left, right, strict=True))
    return Receptive(size, first.jump, left, max(field.windows for field in fields))
