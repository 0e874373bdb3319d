"""One call of the catalog run on meta tensors: torch's own rules, no memory.

Each call runs with two batch sizes; a dimension that differs depends on N. Both are primes that no layer has as a size,
so that the batch is not taken for channels, nor a batch of one size for one of any.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from app.builder import ops
from app.builder.catalog import OpSpec
from app.builder.introspect import find
from app.builder.literals import DType
from app.builder.value_types import Dim, Size, TensorType, TupleType, ValueType, sizes_at
from app.frozen import FrozenMap

BATCHES = (1009, 2017)
# Real tensors, tried for torch's words alone, have a batch as people use it.
REAL_BATCH = 64
PROBE_BATCH = 7
_LARGEST_REAL = 1 << 20
_LARGEST_REAL_WEIGHTS = 1 << 24
_LARGEST_REAL_OUTPUT = 1 << 25
_LARGEST_REAL_PADDING = 256
RECURRENT = ("nn.LSTM", "nn.GRU", "nn.RNN")
_LEADING_SIZE = {"Tensor.view": "size", "torch.reshape": "shape"}


@dataclass(frozen=True)
class Failed:
    """The call does not run: torch's words, from meta tensors and, where it was small enough to try, from real ones.

    `dtype` says that the shapes fit and the dtypes do not.
    """

    error: str
    real_error: str = ""
    dtype: bool = False


@dataclass(frozen=True)
class Ran:
    """The call runs: types of its outputs and how many parameters its module has.

    `fixed_batch` is the only batch size that it runs with, 0 where it runs with any.
    """

    outputs: tuple[ValueType, ...]
    parameters: int = 0
    fixed_batch: int = 0


def run(spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, tuple[ValueType, ...]]) -> Ran | Failed:
    """Run one call on meta tensors with both batch sizes."""
    if spec.kind == "input":
        shape = tuple(params["shape"])
        return Ran((TensorType((Dim(1), *shape), params.get("dtype", DType("float32")).name),))
    try:
        outcome = _ran(spec, params, inputs, BATCHES)
    except Exception as error:  # whatever torch raises is the answer
        for batch in _own_batches(spec, params):
            try:
                return _ran(spec, params, inputs, (batch, batch))
            except Exception:  # not this one either; what there is to say is why it fails with any batch
                continue
        return Failed(_words(error), _real_words(spec, params, inputs, REAL_BATCH))
    other = any(dtype != "float32" for values in inputs.values() for value in values for dtype in _dtypes(value))
    large = sum(_values(value, PROBE_BATCH) for value in outcome.outputs) > _LARGEST_REAL_OUTPUT
    if (other or spec.key in ops.LENIENT) and not large:
        # Meta tensors pass where dtypes do not agree, in `nn.Linear` for one.
        words = _real_words(spec, params, inputs, PROBE_BATCH)
        if words:
            return Failed(words, _real_words(spec, params, inputs, REAL_BATCH) or words, dtype=other)
    return outcome


def _dtypes(value: ValueType) -> tuple[str, ...]:
    if isinstance(value, TensorType):
        return (value.dtype,)
    return tuple(dtype for item in value.items for dtype in _dtypes(item))


def _ran(
    spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, tuple[ValueType, ...]], batches: tuple[int, int]
) -> Ran:
    """What comes out with two batch sizes; raises what torch raises. With one size twice nothing depends on N."""
    taken, restore = one_step(spec, params, inputs)
    with torch.no_grad(), torch.device("meta"):
        call = Call.of(spec, params)
        if isinstance(stack := call.target, torch.nn.Transformer):  # one layer gives the shape that all give
            stack.encoder.layers, stack.decoder.layers = stack.encoder.layers[:1], stack.decoder.layers[:1]
        first, second = (call(taken, batch, "meta") for batch in batches)
    fixed = batches[0] if batches[0] == batches[1] else 0
    return Ran(restore(_outputs(spec, params, first, second)), call.parameters, fixed)


def one_step(
    spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, tuple[ValueType, ...]]
) -> tuple[FrozenMap[str, tuple[ValueType, ...]], Callable[[tuple[ValueType, ...]], tuple[ValueType, ...]]]:
    """The inputs of a recurrent layer cut to one step of time, and what puts the time back into its outputs.

    On meta tensors torch goes through the steps one by one in Python, which takes seconds for a long sequence; the
    shapes of a step do not depend on how many there are.
    """
    value = inputs["input"][0] if spec.key in RECURRENT else None
    if not isinstance(value, TensorType) or len(value.shape) not in (2, 3):
        return inputs, lambda outputs: outputs
    place = 1 if len(value.shape) == 3 and params.get("batch_first") else 0
    time = value.shape[place]
    if time == 0:
        return inputs, lambda outputs: outputs

    def restore(outputs: tuple[ValueType, ...]) -> tuple[ValueType, ...]:
        first = _with_size(outputs[0], place, time)
        if place == 1:  # it is computed with time in front and turned round
            width, batch = first.shape[2], first.shape[0]
            assert isinstance(width, int)
            outer = Dim(batch.scale * width, batch.offset * width) if isinstance(batch, Dim) else batch * width
            first = replace(first, strides=(width, outer, 1))
        return (first, *outputs[1:])

    return inputs.set("input", (_with_size(value, place, 1),)), restore


def _with_size(value: ValueType, place: int, size: Size) -> TensorType:
    assert isinstance(value, TensorType)
    return replace(value, shape=(*value.shape[:place], size, *value.shape[place + 1 :]), strides=None)


def _own_batches(spec: OpSpec, params: FrozenMap[str, Any]) -> tuple[int, ...]:
    """The batch size that a person wrote into the call: the first size of a view."""
    sizes = params.get(_LEADING_SIZE.get(spec.key, ""))
    return sizes[:1] if isinstance(sizes, tuple) and sizes and 0 < sizes[0] <= 2**16 else ()


@dataclass(frozen=True)
class Call:
    """One call of the catalog with its literals, to be run on tensors; `target` is the module or the function."""

    spec: OpSpec
    target: Any
    literals: dict[str, Any]
    parameters: int = 0

    @classmethod
    def of(cls, spec: OpSpec, params: FrozenMap[str, Any]) -> Call:
        """Look the target up and, if it is a class, make the module."""
        literals = {name: _torch_value(value) for name, value in params.items()}
        target = find(spec.target)
        if spec.kind != "module":
            return cls(spec, target, literals)
        call_names = {param.name for param in spec.params if param.call}
        module = target(**{name: value for name, value in literals.items() if name not in call_names})
        at_call = {name: value for name, value in literals.items() if name in call_names}
        return cls(spec, module, at_call, sum(parameter.numel() for parameter in module.parameters()))

    def __call__(self, inputs: FrozenMap[str, tuple[ValueType, ...]], batch: int, device: str) -> Any:
        """Run it with tensors of the types that arrive."""
        first: list[Any] = []
        named: dict[str, Any] = {}
        for port in self.spec.inputs:
            if port.name in inputs:
                made = [_tensor(value, batch, device) for value in inputs[port.name]]
                given = made if port.variadic else made[0]
                if port.required and not port.named:
                    first.append(given)
                else:
                    named[port.name] = given
        if self.spec.key in ops.LITERALS_FIRST:
            return self.target(*self.literals.values(), *first)
        return self.target(*first, **named, **self.literals)


def _torch_value(value: Any) -> Any:
    return getattr(torch, value.name) if isinstance(value, DType) else value


def _tensor(value: ValueType, batch: int, device: str) -> Any:
    if isinstance(value, TupleType):
        return tuple(_tensor(item, batch, device) for item in value.items)
    dtype = getattr(torch, value.dtype)
    if value.strides is None:
        return torch.zeros(value.at(batch), dtype=dtype, device=device)
    return torch.empty_strided(value.at(batch), sizes_at(value.strides, batch), dtype=dtype, device=device).zero_()


def _outputs(spec: OpSpec, params: FrozenMap[str, Any], first: Any, second: Any) -> tuple[ValueType, ...]:
    count = spec.outputs_given(params)
    if not isinstance(first, tuple | list) or (count == 1 and not spec.outputs_by):
        return (_type(first, second),)
    if spec.outputs_by and len(first) != count:
        raise ValueError(f"{spec.outputs_by} asks for {count} outputs, and {len(first)} come")
    return tuple(_type(a, b) for a, b in zip(first, second, strict=True) if a is not None)


def _type(first: Any, second: Any) -> ValueType:
    if isinstance(first, tuple | list):
        return TupleType(tuple(_type(a, b) for a, b in zip(first, second, strict=True)))
    sizes = tuple(_size(a, b) for a, b in zip(first.shape, second.shape, strict=True))
    strides = None
    if not (first.is_contiguous() and second.is_contiguous()):
        strides = tuple(_size(a, b) for a, b in zip(first.stride(), second.stride(), strict=True))
    return TensorType(sizes, str(first.dtype).removeprefix("torch."), strides)


def _size(first: int, second: int) -> int | Dim:
    if first == second:
        return first
    scale, rest = divmod(second - first, BATCHES[1] - BATCHES[0])
    offset = first - scale * BATCHES[0]
    # Far below zero is where the line through the two points of a square meets N = 0.
    if rest or offset < -BATCHES[0]:
        words = "a size that does not grow in step with the batch"
        raise ValueError(f"{words}: {first} for {BATCHES[0]} samples, {second} for {BATCHES[1]}")
    return Dim(scale, offset)


def _words(error: Exception) -> str:
    return str(error).partition("\n")[0].strip() or type(error).__name__


def _real_words(spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, Any], batch: int) -> str:
    """What torch says with real tensors, whose words people can look up; "" if it runs or is too large to try.

    The weights are left as memory had them and nothing is dropped out, so no random number is drawn and a run that
    goes on beside it is not held up.
    """
    numbers = sum(_values(value, batch) for group in inputs.values() for value in group)
    if spec.key in ops.RANDOM or numbers > _LARGEST_REAL:
        return ""
    padding = params.get("padding")
    if any(type(p) is int and p > _LARGEST_REAL_PADDING for p in (padding if type(padding) is tuple else (padding,))):
        return ""
    try:
        with torch.no_grad():
            with torch.device("meta"):
                call = Call.of(spec, params)
            if call.parameters > _LARGEST_REAL_WEIGHTS:
                return ""
            if isinstance(call.target, torch.nn.Module):
                call.target.to_empty(device="cpu").eval()
                _without_chance(call.target, inputs, batch)
            call(inputs, batch, "cpu")
    except Exception as error:  # its words are what was asked for
        return _words(error)
    return ""


def _without_chance(module: torch.nn.Module, inputs: FrozenMap[str, Any], batch: int) -> None:
    """Fractional pooling chooses its windows at random; here they are given, so that no random number is drawn."""
    if isinstance(module, torch.nn.FractionalMaxPool2d | torch.nn.FractionalMaxPool3d):
        shape, spatial = inputs["input"][0].at(batch), 3 if isinstance(module, torch.nn.FractionalMaxPool3d) else 2
        samples = 1 if len(shape) <= spatial + 1 else shape[0]
        channels = shape[-spatial - 1] if len(shape) > spatial else 1
        module._random_samples = torch.full((samples, channels, spatial), 0.5)


def _values(value: ValueType, batch: int) -> int:
    """How many numbers the value holds."""
    if isinstance(value, TensorType):
        return math.prod(value.at(batch))
    return sum(_values(item, batch) for item in value.items)
