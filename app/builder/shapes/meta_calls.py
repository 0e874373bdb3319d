"""One call of the catalog run on meta tensors: torch's own rules, no memory.

Each call runs with two batch sizes; a dimension, or a number, that differs depends on N.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace

from app.builder.catalog import custom, custom_calls, ops
from app.builder.catalog.catalog import OpSpec
from app.builder.catalog.introspect import find
from app.builder.codegen import tensor_values
from app.builder.literals import DType, Slice
from app.builder.params import with_part
from app.builder.results import CallFailed, Ran
from app.builder.shapes.meta_shortcuts import meta_result
from app.builder.value_types import (
    BATCHES,
    Dim,
    NumberType,
    Size,
    TensorType,
    TupleType,
    ValueType,
    sizes_at,
)
from app.source.layer_files import LayerFile, error_text
from app.source.layer_modules import failure
from app.util import module_tree
from app.util.frozen import FrozenMap
from app.util.rng import borrowed

# Real tensors, tried only for torch's message, have a realistic batch size: one of which no size is a multiple.
REAL_BATCHES = (67, 71, 73, 79)
PROBE_BATCH = 7
_SIZE = r"(?<!\d)\d{1,9}(?!\d)"
_LARGEST_REAL = 1 << 20
_LARGEST_REAL_WEIGHTS = 1 << 24
_LARGEST_REAL_OUTPUT = 1 << 25
_LARGEST_REAL_PADDING = 256
RECURRENT = ("nn.LSTM", "nn.GRU", "nn.RNN")
_LEADING_SIZE = {"Tensor.view": "size", "torch.reshape": "shape"}


def run(
    spec: OpSpec,
    params: FrozenMap[str, Any],
    inputs: FrozenMap[str, tuple[ValueType, ...]],
) -> Ran | CallFailed:
    """Run one call on meta tensors with both batch sizes."""
    if spec.kind == "input":
        shape = tuple(params["shape"])
        if message := _wrong_range(params):
            return CallFailed(message)
        batch = params.get("batch", 0)
        if batch is not None and batch > len(shape):
            return CallFailed(
                f"batch is dimension {batch}, and shape has {len(shape)} sizes beside it"
            )
        sizes = shape if batch is None else (*shape[:batch], Dim(1), *shape[batch:])
        return Ran((TensorType(sizes, params.get("dtype", DType("float32")).name),))
    if spec.key in ops.SAME and len(inputs) == 1:
        (value,) = inputs["input"]
        if (
            isinstance(value, TensorType)
            and value.dtype == "float32"
            and value.strides is None
        ):
            return Ran((value,))
    if spec.kind == "number":
        return Ran((NumberType.from_batches(params["value"], params["value"]),))
    if spec.kind in ("parameter", "buffer"):
        return _free_tensor(spec, params)
    try:
        outcome = _ran(spec, params, inputs, BATCHES)
    except (Exception, SystemExit) as error:  # whatever torch raises is the answer
        if layer_file := custom.file_of(spec):
            return _for_real(spec, params, inputs, layer_file)
        for batch in _own_batches(spec, params, inputs):
            try:
                return _ran(spec, params, inputs, (batch, batch))
            except (
                Exception
            ):  # try the next batch size; the error reported is that of any batch
                continue
        return CallFailed(
            _with_n(_message(error), *BATCHES), _message_for_n(spec, params, inputs)
        )
    drawn = next(
        (value.dtype for value in outcome.outputs if isinstance(value, TensorType)), ""
    )
    if (
        drawn.startswith(ops.UNDRAWN.get(spec.key, ()))
        and params.get("training") is not False
    ):
        return CallFailed(
            f"torch cannot draw random {drawn}; choose a floating-point dtype",
            dtype=True,
        )
    other = any(
        dtype != "float32"
        for values in inputs.values()
        for value in values
        for dtype in _dtypes(value)
    )
    other = other or (spec.kind == "module" and params.get("dtype") is not None)
    large = (
        sum(_values(value, PROBE_BATCH) for value in outcome.outputs)
        > _LARGEST_REAL_OUTPUT
    )
    lenient = (
        spec.key in ops.LENIENT or params.get("eps") == 0
    )  # which BatchNorm refuses in training, but not on meta
    if (other or lenient) and not large:
        # Meta tensors pass where dtypes do not agree, in `nn.Linear` for one.
        message = _real_message(spec, params, inputs, PROBE_BATCH)
        if message:
            message = _message_for_n(spec, params, inputs) or message
            return CallFailed(message, message, dtype=other)
    return outcome


def count_parameters(spec: OpSpec, params: FrozenMap[str, Any]) -> Ran | CallFailed:
    """Count the parameters of an uncalled module."""
    try:
        with torch.device("meta"):
            return Ran((), TorchCall.resolve(spec, params).parameters)
    except (Exception, SystemExit) as error:  # any error is the result
        return CallFailed(_message(error), _message(error))


def _for_real(
    spec: OpSpec,
    params: FrozenMap[str, Any],
    inputs: FrozenMap[str, tuple[ValueType, ...]],
    file: LayerFile,
) -> Ran | CallFailed:
    """Run a custom class that fails on meta tensors on small real ones; errors refer to the line of its file."""

    def pair_of(recorded: bool) -> tuple[TorchCall, tuple[Any, Any]]:
        with (
            borrowed(0),
            torch.set_grad_enabled(recorded),
        ):  # initialising weights must not advance the global RNG
            call = TorchCall.resolve(spec, params)
            if isinstance(call.target, torch.nn.Module):
                call.target.eval()
            size = sum(
                _values(value, custom_calls.BATCHES[1])
                for group in inputs.values()
                for value in group
            )
            return call, custom_calls.run_small(
                lambda batch: call(inputs, batch, "cpu", 1.0), size
            )

    try:
        try:
            call, pair = pair_of(False)
        except Exception:  # it may put a hook on a gradient
            call, pair = pair_of(True)
        first, second = (custom_calls.grown(*pair, batch) for batch in BATCHES)
        return Ran(_outputs(spec, params, first, second), call.parameters)
    except (Exception, SystemExit) as error:  # whatever the class raises is the answer
        return CallFailed(failure(file) or error_text(error, file))


def _wrong_range(params: FrozenMap[str, Any]) -> str:
    """Describe an invalid range of an input, "" if it is valid."""
    low, high = params.get("low"), params.get("high")
    integral = params.get("dtype", DType("float32")).name.startswith(("int", "uint"))
    if integral and any(type(bound) is float for bound in (low, high)):
        return f"low and high of an integer dtype must be ints, not {low} and {high}"
    return (
        f"low={low} is not below high={high}"
        if None not in (low, high) and not low < high
        else ""
    )


def _free_tensor(spec: OpSpec, params: FrozenMap[str, Any]) -> Ran | CallFailed:
    """Infer a parameter or buffer, whose shape does not depend on N."""
    try:
        tensor = tensor_values.create_tensor(spec.key, params)
        if (
            str(tensor.dtype) != "torch.float32"
        ):  # meta tensors pass where no CPU knows how
            small = (
                {"shape": (1,) * len(params["shape"])}
                if "shape" in params and spec.key != "packed"
                else {}
            )
            tensor_values.create_tensor(spec.key, params.update(small), "cpu")
        if spec.kind == "parameter" and params.get("requires_grad", True):
            tensor = torch.nn.Parameter(tensor)
    except Exception as error:  # any error is the result
        return CallFailed(_message(error), _message(error))
    return Ran(
        (_type(tensor, tensor),), tensor.numel() if spec.kind == "parameter" else 0
    )


def _dtypes(value: ValueType) -> tuple[str, ...]:
    if isinstance(value, TensorType):
        return (value.dtype,)
    if isinstance(value, NumberType):
        return ()
    return tuple(dtype for item in value.items for dtype in _dtypes(item))


def _ran(
    spec: OpSpec,
    params: FrozenMap[str, Any],
    inputs: FrozenMap[str, tuple[ValueType, ...]],
    batches: tuple[int, int],
) -> Ran:
    """The output types inferred from two batch sizes; raises what torch raises. Equal sizes mean a fixed batch."""
    step_inputs, restore = one_step(spec, params, inputs)
    with torch.no_grad(), torch.device("meta"):
        call = TorchCall.resolve(spec, params)
        if isinstance(
            stack := call.target, torch.nn.Transformer
        ):  # all layers have the same output shape
            stack.encoder.layers, stack.decoder.layers = (
                stack.encoder.layers[:1],
                stack.decoder.layers[:1],
            )
        if isinstance(
            call.target, torch.nn.modules.batchnorm._BatchNorm
        ):  # the same shapes in half the time
            call.target.eval()
        first, second = (call(step_inputs, batch, "meta") for batch in batches)
    fixed = batches[0] if batches[0] == batches[1] else 0
    return Ran(restore(_outputs(spec, params, first, second)), call.parameters, fixed)


def one_step(
    spec: OpSpec,
    params: FrozenMap[str, Any],
    inputs: FrozenMap[str, tuple[ValueType, ...]],
) -> tuple[
    FrozenMap[str, tuple[ValueType, ...]],
    Callable[[tuple[ValueType, ...]], tuple[ValueType, ...]],
]:
    """Cut a recurrent layer's inputs to one time step; return them and a function that restores the length of outputs.

    On meta tensors torch loops over the steps in Python, which takes seconds for a long sequence.
    """
    value = inputs["input"][0] if spec.key in RECURRENT else None
    if not isinstance(value, TensorType) or len(value.shape) not in (2, 3):
        return inputs, lambda outputs: outputs
    time_dim = 1 if len(value.shape) == 3 and params.get("batch_first") else 0
    time = value.shape[time_dim]
    if time == 0:
        return inputs, lambda outputs: outputs

    def restore(outputs: tuple[ValueType, ...]) -> tuple[ValueType, ...]:
        first = _with_size(outputs[0], time_dim, time)
        if time_dim == 1:  # it is computed with time in front and turned round
            width, batch = first.shape[2], first.shape[0]
            assert isinstance(width, int)
            outer = (
                Dim(batch.scale * width, batch.offset * width)
                if isinstance(batch, Dim)
                else batch * width
            )
            first = replace(first, strides=(width, outer, 1))
        return (first, *outputs[1:])

    return inputs.set("input", (_with_size(value, time_dim, 1),)), restore


def _with_size(value: ValueType, dimension: int, size: Size) -> TensorType:
    assert isinstance(value, TensorType)
    return replace(
        value,
        shape=(*value.shape[:dimension], size, *value.shape[dimension + 1 :]),
        strides=None,
    )


def _own_batches(
    spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, Any]
) -> tuple[int, ...]:
    """Return the literal batch size of a call: the first size of a view."""
    name = _LEADING_SIZE.get(spec.key, "")
    sizes = (
        params.get(name) if name not in inputs and f"{name}[0]" not in inputs else None
    )
    return (
        sizes[:1]
        if isinstance(sizes, tuple) and sizes and 0 < sizes[0] <= 2**16
        else ()
    )


class TorchCall(Struct, frozen=True):
    """One call of the catalog with its literals, to be run on tensors; `target` is the module or the function."""

    spec: OpSpec
    target: Any
    literals: dict[str, Any]
    parameters: int = 0

    @classmethod
    def resolve(cls, spec: OpSpec, params: FrozenMap[str, Any]) -> TorchCall:
        """Resolve the target and, if it is a class, construct the module."""
        literals = {name: _torch_value(value) for name, value in params.items()}
        literals |= {
            name: _bracketed(value)
            for name, value in literals.items()
            if _is_index(spec, name)
        }
        target = find(spec.target)
        if spec.kind != "module":
            return cls(spec, target, literals)
        call_names = {param.name for param in spec.params if param.call}
        module = target(
            **{
                name: value
                for name, value in literals.items()
                if name not in call_names
            }
        )
        at_call = {
            name: value for name, value in literals.items() if name in call_names
        }
        return cls(
            spec,
            module,
            at_call,
            sum(parameter.numel() for parameter in module_tree.parameters(module)),
        )

    def __call__(
        self,
        inputs: FrozenMap[str, tuple[ValueType, ...]],
        batch: int,
        device: str,
        fill: float = 0.0,
    ) -> Any:
        """Call it with tensors of the input types; `fill` is the value of floating-point ones.

        A loop until something grows would never end on zeros.
        """
        literals, tensors_by_port = dict(self.literals), dict[str, Any]()
        for port in self.spec.inputs:
            if port.name in inputs:
                tensors = [
                    _tensor(value, batch, device, fill) for value in inputs[port.name]
                ]
                if port.wired:
                    literals[port.param] = with_part(
                        literals.get(port.param), port, tensors[0]
                    )
                else:
                    tensors_by_port[port.name] = (
                        tensors if port.variadic else tensors[0]
                    )
                    literals.pop(port.name, None)  # the default of an unconnected port
        if self.spec.key in ops.LIKE:
            literals["device"] = tensors_by_port.pop("like").device
        if self.spec.key == "torch.arange":
            literals.setdefault("start", 0)  # it takes no step without a start
        if self.spec.kind == "operator":
            return self.target(*self._in_order(tensors_by_port, literals))
        operands = [
            port.name for port in self.spec.inputs if self.spec.operand(port.name)
        ]
        tensors_by_port |= {
            name: literals.pop(name) for name in operands if name in literals
        }
        connected = [port for port in self.spec.inputs if port.name in tensors_by_port]
        in_order = {
            port.name
            for port in connected
            if (port.required and not port.named) or port.name in operands
        }
        first = [
            tensors_by_port[port.name] for port in connected if port.name in in_order
        ]
        named = {
            port.name: tensors_by_port[port.name]
            for port in connected
            if port.name not in in_order
        }
        if self.spec.key in ops.LITERALS_FIRST:
            return self.target(*literals.values(), *first)
        quick = (
            meta_result(self.target, tuple(first), {**named, **literals})
            if device == "meta"
            else None
        )
        return self.target(*first, **named, **literals) if quick is None else quick

    def _in_order(
        self, tensors_by_port: dict[str, Any], literals: dict[str, Any]
    ) -> list[Any]:
        """List the positional arguments of an operator: inputs or their literals, then the other literals."""
        ordered = []
        for port in self.spec.inputs:
            if not port.wired and (
                port.name in tensors_by_port or port.name in literals
            ):
                ordered.append(
                    tensors_by_port[port.name]
                    if port.name in tensors_by_port
                    else literals[port.name]
                )
        rest = [
            param.name
            for param in self.spec.params
            if param.name not in self.spec.input_names
        ]
        return [*ordered, *(literals[name] for name in rest if name in literals)]


def _torch_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_torch_value, value))
    if isinstance(value, Slice):
        return slice(*value.parts)
    return getattr(torch, value.name) if isinstance(value, DType) else value


def _is_index(spec: OpSpec, name: str) -> bool:
    param = spec.param(name)
    return param is not None and param.kind == "index"


def _bracketed(index: Any) -> Any:
    """Convert the tuples of an index to lists."""
    return (
        tuple(list(item) if isinstance(item, tuple) else item for item in index)
        if type(index) is tuple
        else index
    )


def _tensor(value: ValueType, batch: int, device: str, fill: float) -> Any:
    if isinstance(value, TupleType):
        return tuple(_tensor(item, batch, device, fill) for item in value.items)
    if isinstance(value, NumberType):
        return value.with_batch(batch)
    dtype = getattr(torch, value.dtype)
    fill = fill if dtype.is_floating_point else 0.0
    if value.strides is None:
        return torch.full(value.with_batch(batch), fill, dtype=dtype, device=device)
    return torch.empty_strided(
        value.with_batch(batch),
        sizes_at(value.strides, batch),
        dtype=dtype,
        device=device,
    ).fill_(fill)


def _outputs(
    spec: OpSpec, params: FrozenMap[str, Any], first: Any, second: Any
) -> tuple[ValueType, ...]:
    count = spec.outputs_given(params)
    if not isinstance(first, tuple | list) or (count == 1 and not spec.outputs_by):
        return (_type(first, second),)
    if spec.outputs_by and len(first) != count:
        raise ValueError(
            f"{spec.outputs_by} sets {count} outputs, but {len(first)} are returned"
        )
    return tuple(
        _type(a, b) for a, b in zip(first, second, strict=True) if a is not None
    )


def _type(first: Any, second: Any) -> ValueType:
    if isinstance(first, tuple | list):
        return TupleType(tuple(_type(a, b) for a, b in zip(first, second, strict=True)))
    if isinstance(first, int | float):
        if type(first) is not type(second):
            sizes_text = (
                f"{first!r} for {BATCHES[0]} samples, {second!r} for {BATCHES[1]}"
            )
            raise ValueError(f"a number that depends on the batch size: {sizes_text}")
        return NumberType.from_batches(first, second)
    sizes = tuple(_size(a, b) for a, b in zip(first.shape, second.shape, strict=True))
    strides = None
    if not (first.is_contiguous() and second.is_contiguous()):
        strides = tuple(
            _size(a, b) for a, b in zip(first.stride(), second.stride(), strict=True)
        )
    return TensorType(sizes, str(first.dtype).removeprefix("torch."), strides)


def _size(first: int, second: int) -> int | Dim:
    if first == second:
        return first
    scale, rest = divmod(second - first, BATCHES[1] - BATCHES[0])
    offset = first - scale * BATCHES[0]
    # Far below zero is where the line through the two points of a square meets N = 0.
    if rest or offset < -BATCHES[0]:
        message = "a size that is not proportional to the batch size"
        raise ValueError(
            f"{message}: {first} for {BATCHES[0]} samples, {second} for {BATCHES[1]}"
        )
    return Dim(scale, offset)


def _message(error: BaseException) -> str:
    return str(error).partition("\n")[0].strip() or type(error).__name__


def _with_n(message: str, *batches: int) -> str:
    """Write the sizes in torch's message that grow with the batch as the program does.

    >>> _with_n("mat1 and mat2 shapes cannot be multiplied (1876x28 and 5x3)", 67)
    'mat1 and mat2 shapes cannot be multiplied (28Nx28 and 5x3)'
    """

    def as_dim(found: re.Match[str]) -> str:
        size = int(found[0])
        scale = next((size // batch for batch in batches if size % batch == 0), 0)
        return str(Dim(scale)) if scale else found[0]

    return re.sub(_SIZE, as_dim, message)


def _message_for_n(
    spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, Any]
) -> str:
    """Return torch's message on real tensors with N for their batch, "" as `_real_message` does."""
    values = [str(value) for value in (*params.values(), *inputs.values())]
    sizes = [int(size) for size in re.findall(_SIZE, " ".join(values))]
    free = (b for b in REAL_BATCHES if all(size % b or not size for size in sizes))
    batch = next(free, REAL_BATCHES[0])
    return _with_n(_real_message(spec, params, inputs, batch), batch)


def _real_message(
    spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, Any], batch: int
) -> str:
    """Return torch's message on real tensors, which can be searched for; "" if it runs or is too large to try.

    Weights of torch's layers stay uninitialised and dropout is off, so no random number is drawn and a concurrent run
    is not delayed.
    """
    numbers = sum(_values(value, batch) for group in inputs.values() for value in group)
    if spec.key in ops.RANDOM or numbers > _LARGEST_REAL:
        return ""
    padding = params.get("padding")
    if any(
        type(p) is int and p > _LARGEST_REAL_PADDING
        for p in (padding if type(padding) is tuple else (padding,))
    ):
        return ""
    try:
        with torch.no_grad():
            with torch.device("meta"):
                call = TorchCall.resolve(spec, params)
            if call.parameters > _LARGEST_REAL_WEIGHTS:
                return ""
            if custom.is_custom(
                spec.key
            ):  # its buffers may be indices, whose values matter
                with borrowed(0):
                    call = TorchCall.resolve(spec, params)
                if isinstance(call.target, torch.nn.Module):
                    call.target.eval()
            elif isinstance(call.target, torch.nn.Module):
                call.target.to_empty(device="cpu").train(
                    params.get("eps") == 0
                )  # no norm draws a random number
                _without_chance(call.target, inputs, batch)
            call(inputs, batch, "cpu")
    except Exception as error:  # its message is the result
        return _message(error)
    return ""


def _without_chance(
    module: torch.nn.Module, inputs: FrozenMap[str, Any], batch: int
) -> None:
    """Fractional pooling chooses its windows at random; here they are given, so that no random number is drawn."""
    if isinstance(module, torch.nn.FractionalMaxPool2d | torch.nn.FractionalMaxPool3d):
        shape, spatial = (
            inputs["input"][0].with_batch(batch),
            3 if isinstance(module, torch.nn.FractionalMaxPool3d) else 2,
        )
        samples = 1 if len(shape) <= spatial + 1 else shape[0]
        channels = shape[-spatial - 1] if len(shape) > spatial else 1
        module._random_samples = torch.full((samples, channels, spatial), 0.5)


def _values(value: ValueType, batch: int) -> int:
    """Count the numbers in a value."""
    if isinstance(value, TensorType):
        return math.prod(value.with_batch(batch))
    if isinstance(value, NumberType):
        return 1
    return sum(_values(item, batch) for item in value.items)
