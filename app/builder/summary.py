"""The two lines under a node's name, made from its parameters. Qt-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.builder.catalog.catalog import OpSpec, Param
from app.builder.catalog.custom import is_custom
from app.builder.graph import Node
from app.builder.literals import AUTO, DType, index_code
from app.builder.params import format_param, with_parts
from app.util.formatting import counted, shape_text

FROM_WIRE = "←"

# Input and output sizes, by torch's parameter names.
_PAIRS = (
    ("in_channels", "out_channels"),
    ("in_features", "out_features"),
    ("input_size", "hidden_size"),
    ("num_embeddings", "embedding_dim"),
)
_SIZES = ("num_features", "normalized_shape", "embed_dim")
_WINDOWS = ("kernel_size", "output_size")


def summary_line(spec: OpSpec, node: Node, resolved: Mapping[str, Any]) -> str:
    """Format the class and its main parameters; `resolved` overrides the values of the node.

    A convolution gives "Conv2d 1→32, 3×3", a dropout "Dropout p=0.25", a flatten "Flatten 1 to −1".
    """
    values = {
        param.name: resolved.get(param.name, spec.value(node, param.name))
        for param in spec.params
    }
    if spec.kind == "unknown":
        return (
            f"{spec.label}, not usable yet"
            if is_custom(spec.key)
            else f"{spec.label}, unknown"
        )
    if spec.kind == "input":
        return (
            f"Tensor {_times(values['shape'])}"
            if values.get("shape") is not None
            else "Tensor"
        )
    if spec.kind == "block":  # exposed parameters distinguish its instances
        shown = [f"{name}={_times(value)}" for name, value in values.items()][:2]
        return f"{spec.label} {', '.join(shown)}" if shown else spec.label
    if spec.kind in ("number", "parameter", "buffer") or spec.key == "operator.getitem":
        return f"{spec.label} {_own_value(spec, values)}".rstrip()
    parts = [*_pair(values), *_sizes(values), *_windows(spec, values)] or _others(
        spec, node, values
    )
    return f"{spec.label} {', '.join(parts)}" if parts else spec.label


def detail_line(spec: OpSpec, node: Node, parameters: int | None) -> str:
    """Format the line with the parameter count, or the dtype of an input; "" if the node has no such line."""
    if spec.kind == "input":
        dtype = spec.value(node, "dtype")
        return f"{dtype.name if isinstance(dtype, DType) else dtype}, batch N"
    if parameters:
        return f"{counted(parameters, 'param')}"
    return ""


def has_detail(spec: OpSpec, parameters: int | None) -> bool:
    """Return whether a node has a third line; independent of shapes, so that nodes do not grow after inference."""
    weighty = spec.kind == "module" and spec.category in (
        "conv",
        "linear",
        "norm",
        "seq",
    )
    return (
        spec.kind in ("input", "block")
        or weighty
        or bool(parameters)
        or spec.param("num_parameters") is not None
    )


def compact(count: int) -> str:
    """Abbreviate a count.

    >>> compact(128), compact(18496), compact(1179776), compact(999_999)
    ('128', '18.5k', '1.18M', '1M')
    """
    rounded = float(f"{count:.3g}")
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rounded >= factor:
            return f"{rounded / factor:.12g}{unit}"
    return str(count)


def _pair(values: Mapping[str, Any]) -> list[str]:
    for before, after in _PAIRS:
        if before in values and after in values:
            return [f"{_number(values[before])}→{_number(values[after])}"]
    return []


def _sizes(values: Mapping[str, Any]) -> list[str]:
    texts = [
        _times(values[name])
        for name in _SIZES
        if name in values and values[name] is not AUTO
    ]
    if "num_heads" in values:
        texts.append(f"{_number(values['num_heads'])} heads")
    return texts


def _windows(spec: OpSpec, values: Mapping[str, Any]) -> list[str]:
    return [
        _window(spec.param(name), values[name])
        for name in _WINDOWS
        if values.get(name) is not None
    ]


def _window(param: Param | None, value: Any) -> str:
    if isinstance(value, int) and param is not None and param.count > 1:
        value = (value,) * param.count
    return _times(value)


def _others(spec: OpSpec, node: Node, values: Mapping[str, Any]) -> list[str]:
    """List required parameters and those that differ from their defaults; a range of dimensions is written as one."""
    if "start_dim" in values and "end_dim" in values:
        return [f"{_number(values['start_dim'])} to {_number(values['end_dim'])}"]
    shown = []
    wired = {port.param for port in spec.inputs if port.wired}
    for param in spec.params:
        value = values[param.name]
        noteworthy = (
            param.required
            or param.name == "p"
            or (param.name in node.params and value != param.default)
        )
        if param.name in wired:
            noteworthy = True
        elif value is None or (isinstance(value, bool) and param.name == "inplace"):
            continue
        if not noteworthy:
            continue
        text = _typed(spec, param, value)
        shown.append(
            text if param.positional and param.name != "p" else f"{param.name}={text}"
        )
    return shown[:2]


def _own_value(spec: OpSpec, values: Mapping[str, Any]) -> str:
    """Format the shape of a free tensor, a number, or an index."""
    if spec.key == "operator.getitem":
        return f"[{_typed(spec, spec.params[0], values['index'])}]"
    if "shape" in values:
        return _times(values["shape"]) if values["shape"] is not None else ""
    value = values.get("value")
    if not isinstance(value, tuple):
        return _number(value)
    sizes = []
    while isinstance(value, tuple):
        sizes.append(str(len(value)))
        value = value[0] if value else None
    return shape_text(sizes)


def _typed(spec: OpSpec, param: Param, value: Any) -> str:
    """Format a parameter as typed, with an arrow in place of wired values."""
    wires = {
        port.name: "_"
        for port in spec.inputs
        if port.wired and port.param == param.name
    }
    if param.name in wires:
        return FROM_WIRE
    if param.kind == "index":
        text = index_code(value)
        return (
            with_parts(param, text, wires).replace("_", FROM_WIRE) if wires else text
        ).replace("-", "−")
    text = format_param(value)
    if wires and isinstance(value, tuple):
        text = ", ".join(
            FROM_WIRE if f"{param.name}[{i}]" in wires else format_param(item)
            for i, item in enumerate(value)
        )
    return text.replace("-", "−").rstrip(",")


def _times(value: Any) -> str:
    if isinstance(value, tuple):
        return shape_text(_number(item) for item in value)
    return _number(value)


def _number(value: Any) -> str:
    if value is AUTO or value is None:
        return "?"
    return format_param(value).replace("-", "−").rstrip(",")
