"""Run a model once, forward and backward, and record inputs and outputs of every matched module.

`Recording` keeps it. `Forced` compares it with what was recorded of another model, call by call, and hands on the
recorded tensors in place of the model's own: every module gets what its counterpart got, with the same state of the
generator, and so does the code between the calls of a module. What differs then was added there, not inherited.
Between two calls the graph of autograd is cut; each piece of it gets the gradients that were recorded at its ends.
"""

from __future__ import annotations

import contextlib
import math
import sys
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn

from app.features.compare.compute import metrics
from app.features.compare.compute.borders import (
    LARGEST_BUFFER,
    as_input,
    direction,
    is_listening,
)
from app.features.compare.compute.containers import in_order, replace_tensors
from app.features.compare.compute.operations import Operation, reduction_length
from app.features.compare.values import Pass
from app.observe import tensors
from app.util import module_tree, rng, user_frames
from app.util.module_tree import temporary_mode
from app.util.torch_calls import FunctionCalls


class Spot(Struct, eq=False):
    """A tensor at the border of a call: its value then, and the gradient that came back to it."""

    value: Tensor
    needs_gradient: bool = False
    gradient: Tensor | None = None

    def take(self, gradient: Tensor) -> None:
        self.gradient = gradient.detach().clone()


class Call(Struct, eq=False):
    """A call of a module. `path` and `number` say which, `inputs` and `outputs` are its tensors in order, `written` the
    values of inputs that it changed in place. `roundoff` and `length` are the coarsest unit roundoff and the longest
    reduction among its own operations, without those of the matched modules that it calls."""

    path: str
    number: int
    module: nn.Module
    place: tuple[str, int] = ("", 0)
    inputs: list[Spot] = []
    outputs: list[Spot] = []
    written: dict[int, Spot] = {}
    buffers: dict[str, Tensor] = {}
    before: Tensor | None = None
    after: Tensor | None = None
    roundoff: float = 0.0
    length: int = 1
    operations: list[Operation] | None = None
    # While it runs: the tensors that it was called with, their replacements, and the versions of these.
    substitutes: list[tuple[Tensor, Tensor, int]] = []
    replaced: dict[int, Tensor] = {}
    caller: Call | None = None
    reference: Call | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.path, self.number


class Gradients(Struct):
    """Those of parameters by name; `refused` is torch's error where backward raised."""

    of_parameters: dict[str, Tensor | None] = {}
    refused: str = ""


class ModelPass(ABC):
    """Runs a model with hooks on some of its modules: `paths` maps their paths to the keys that calls are kept by.
    `watch` is the key of the call whose own operations are kept."""

    def __init__(
        self,
        model: nn.Module,
        paths: Mapping[str, str],
        watch: tuple[str, int] | None = None,
    ) -> None:
        self.model, self.watch = model, watch
        self.roundoff = metrics.roundoff_of(model)
        self.calls: dict[tuple[str, int], Call] = {}
        self.gradients = Gradients()
        self.stack: list[Call] = []
        self.busy = False
        self._paths = paths
        self._made = Counter[str]()

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        train: bool,
        seed: int,
        functions: bool = True,
    ) -> None:
        """Run forward and backward. Weights, buffers, `.grad`, modes and the generator are afterwards as before. Raises
        what forward raises."""
        model = self.model
        saved = [(tensor, tensor.grad) for tensor in module_tree.parameters(model)]
        for parameter, _ in saved:
            parameter.grad = None
        try:
            with (
                rng.borrowed(seed),
                temporary_mode(model, train),
                torch.enable_grad(),
                self._hooks(functions),
            ):
                arguments = replace_tensors((args, dict(kwargs)), as_input)
                output = model(*arguments[0], **arguments[1])
                self.gradients.refused = self._run_backward(output)
            named = module_tree.named_parameters(model, remove_duplicate=False)
            self.gradients.of_parameters = {name: tensor.grad for name, tensor in named}
            self.finished()
        finally:
            for parameter, gradient in saved:
                parameter.grad = gradient

    def _run_backward(self, output: Any) -> str:
        try:
            self.backward(output)
        except (RuntimeError, NotImplementedError) as error:
            return f"{type(error).__name__}: {error}".split("\n")[0]
        return ""

    # -- what a kind of pass does

    @abstractmethod
    def enter(self, call: Call, tensor: Tensor) -> Tensor:
        """Record an input tensor of a call and return the tensor to pass instead."""

    @abstractmethod
    def leave(self, call: Call, output: Any) -> Any:
        """Record the output of a call, and return the value for its caller."""

    def begun(self, call: Call) -> None:  # noqa: B027  for those that need it
        """Called when a call has received all its tensors."""

    @abstractmethod
    def backward(self, output: Any) -> None:
        """Run backward from the model's outputs. Raises as torch does."""

    def finished(self) -> None:  # noqa: B027  for those that need it
        """Both passes have run, and gradients are still there."""

    # -- hooks

    @contextlib.contextmanager
    def _hooks(self, functions: bool) -> Iterator[None]:
        hooks: list[Any] = []
        try:
            for path, module in module_tree.named_modules(self.model):
                if path in self._paths:
                    hooks.append(
                        module_tree.before_call(
                            module, self._before(path), with_kwargs=True
                        )
                    )
                    hooks.append(
                        module_tree.on_call(module, self._after, with_kwargs=True)
                    )
            with FunctionCalls(self._called) if functions else contextlib.nullcontext():
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _before(self, path: str) -> Callable[..., Any]:
        key = self._paths[path]

        def hook(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            if not is_listening():
                return None
            with self._hidden():
                self._made[key] += 1
                location = user_frames.location(sys._getframe(1), generated=True)
                location = location if location[1] else _defined(module)
                call = Call(
                    key,
                    self._made[key],
                    module,
                    location,
                    caller=self.stack[-1] if self.stack else None,
                )
                self.calls[call.key] = call
                if call.key == self.watch:
                    call.operations = []
                ordered = {
                    name: kwargs[name] for name in in_order(module, args, kwargs)
                }
                arguments = replace_tensors(
                    (args, ordered), lambda tensor: self._once(call, tensor)
                )
                self.begun(call)
                self.stack.append(call)
            return arguments

        return hook

    def _once(self, call: Call, tensor: Tensor) -> Tensor:
        """Return one replacement for one tensor: attention takes a query that is its key in another way."""
        if id(tensor) not in call.replaced:
            call.replaced[id(tensor)] = self.enter(call, tensor)
        return call.replaced[id(tensor)]

    def _after(self, module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> Any:
        if not is_listening() or not any(
            running.module is module for running in self.stack
        ):
            return None
        with self._hidden():
            while self.stack[-1].module is not module:  # those that an exception left
                self.stack.pop()
            call = self.stack.pop()
            output = self.leave(call, output)
            call.substitutes.clear()
            call.replaced.clear()
            return output

    @contextlib.contextmanager
    def _hidden(self) -> Iterator[None]:
        """Exclude computations in this block from the model's operations."""
        before, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = before

    def _called(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        if self.busy or not self.stack or not is_listening():
            return func(*args, **kwargs)
        self.busy = True
        try:
            result = func(*args, **kwargs)
            self._note_operation(func, args, kwargs, result, frame)
        finally:
            self.busy = False
        return result

    def _note_operation(
        self, func: Any, args: Any, kwargs: Any, result: Any, frame: FrameType
    ) -> None:
        """Note an operation that the innermost call ran itself."""
        made = [result] if isinstance(result, Tensor) else tensors.tensors_in(result)
        if not made:
            return
        call = self.stack[-1]
        for one in made:
            if one.is_floating_point():
                call.roundoff = max(call.roundoff, metrics.unit_roundoff(one.dtype))
        given = tensors.tensors_in((args, kwargs))
        call.length = max(call.length, reduction_length(func, given, made[0]))
        if call.operations is not None:
            location = user_frames.location(frame, generated=True)
            with torch.no_grad():
                call.operations.append(Operation.of(func, args, kwargs, made, location))


class Recording(ModelPass):
    """Records inputs and outputs of every call, with gradients."""

    def enter(self, call: Call, tensor: Tensor) -> Tensor:
        spot, watched = _watched(tensor)
        call.inputs.append(spot)
        call.substitutes.append((tensor, watched, tensors.version_of(watched)))
        return watched

    def begun(self, call: Call) -> None:
        call.before = torch.get_rng_state()

    def leave(self, call: Call, output: Any) -> Any:
        for number, (tensor, watched, version) in enumerate(call.substitutes):
            if tensors.version_of(watched) != version:
                spot, after = _watched(watched)
                call.written[number] = spot
                if watched is not tensor:
                    _write(tensor, after)
        output = replace_tensors(output, lambda tensor: self._given_back(call, tensor))
        call.buffers = {
            name: buffer.detach().clone() for name, buffer in _buffers(call.module)
        }
        call.after = torch.get_rng_state()
        return output

    def _given_back(self, call: Call, tensor: Tensor) -> Tensor:
        spot, watched = _watched(tensor)
        call.outputs.append(spot)
        return watched

    def backward(self, output: Any) -> None:
        differentiable = [
            tensor
            for tensor in tensors.tensors_in(output, objects=True)
            if tensor.requires_grad
        ]
        if differentiable:
            torch.autograd.backward(
                differentiable,
                [
                    direction(tensor, number)
                    for number, tensor in enumerate(differentiable)
                ],
            )


class Part(Struct, frozen=True):
    """A difference that a call adds by its own operations: `error` relative, `what` differs. `at_a` and `at_b` are the
    lines in both models, of the call itself or of one in it whose inputs differ."""

    direction: Pass
    key: tuple[str, int]
    error: float
    what: str
    at_a: tuple[str, int] = ("", 0)
    at_b: tuple[str, int] = ("", 0)


class Forced(ModelPass):
    """Passes every call the inputs recorded in `reference`, and lists the differences."""

    def __init__(
        self,
        model: nn.Module,
        paths: Mapping[str, str],
        reference: Recording,
        watch: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(model, paths, watch)
        self.reference = reference
        self.parts: list[Part] = []
        self._ends: list[tuple[Tensor, Spot]] = []
        self._leaves: list[tuple[Tensor, Spot, Call, str]] = []

    def _judge(
        self,
        call: Call | None,
        mine: Tensor,
        expected: Tensor,
        description: str,
        at: Call | None = None,
    ) -> None:
        """Compare a tensor that the operations of `call` computed, for its call `at` if that is another one."""
        if call is None:
            return  # the inputs of the model
        scale = 0.0
        if call.reference is not None:
            scale = max(
                (_root_mean_square(spot.value) for spot in call.reference.inputs),
                default=0.0,
            )
            scale *= math.sqrt(max(expected.numel(), 1))
        error = metrics.relative_error(mine, expected, scale)
        if error:
            self._add("forward", call, error, description + _shapes(mine, expected), at)

    def _add(
        self,
        direction: Pass,
        call: Call,
        error: float,
        description: str,
        at: Call | None = None,
    ) -> None:
        at = at or call
        at_a = at.reference.place if at.reference is not None else ("", 0)
        self.parts.append(Part(direction, call.key, error, description, at_a, at.place))

    def enter(self, call: Call, tensor: Tensor) -> Tensor:
        if call.reference is None and call.key in self.reference.calls:
            call.reference = self.reference.calls[call.key]
        reference, number = call.reference, len(call.inputs)
        if reference is None or number >= len(reference.inputs):
            replacement = tensor.clone() if tensor.requires_grad else tensor
            call.inputs.append(Spot(tensor.detach()))
            call.substitutes.append(
                (tensor, replacement, tensors.version_of(replacement))
            )
            return replacement
        spot = reference.inputs[number]
        self._judge(
            call.caller,
            tensor,
            spot.value,
            f"input {number + 1} of {call.path or 'the model'}",
            call,
        )
        call.inputs.append(spot)
        replacement = self._cut(
            call, tensor, spot, call, f"the gradient at its input {number + 1}"
        )
        call.substitutes.append((tensor, replacement, tensors.version_of(replacement)))
        return replacement

    def begun(self, call: Call) -> None:
        if call.reference is None:
            call.reference = self.reference.calls.get(call.key)
        reference = call.reference
        if reference is None:
            return
        if len(call.inputs) != len(reference.inputs) and call.caller is not None:
            reason = f"{call.path} is called with {len(call.inputs)} tensors, and with {len(reference.inputs)} in A"
            self._add("forward", call.caller, math.inf, reason, call)
        if reference.before is not None:
            torch.set_rng_state(reference.before)

    def leave(self, call: Call, output: Any) -> Any:
        reference = call.reference
        if reference is None:
            return output
        for number, (tensor, watched, version) in enumerate(call.substitutes):
            wrote, spot = (
                tensors.version_of(watched) != version,
                reference.written.get(number),
            )
            if not wrote and spot is None:
                continue
            before = call.inputs[number]
            expected = spot if spot is not None else Spot(before.value)
            self._judge(
                call,
                watched,
                expected.value,
                f"what it leaves in its input {number + 1}",
            )
            _write(
                tensor,
                self._cut(
                    call,
                    watched,
                    expected,
                    call.caller,
                    f"the gradient at what {call.path} wrote",
                ),
            )
        output = replace_tensors(
            output, lambda tensor: self._given_back(call, reference, tensor)
        )
        self._count_outputs(call, len(call.outputs))
        for name, mine in _buffers(call.module):
            expected_buffer = reference.buffers.get(name)
            if expected_buffer is not None and expected_buffer.shape == mine.shape:
                self._judge(call, mine, expected_buffer, f"its buffer {name}")
                if not torch.equal(mine, expected_buffer):
                    mine.data.copy_(
                        expected_buffer
                    )  # batch norm saves it for backward, and uses it in eval mode alone
        if reference.after is not None:
            torch.set_rng_state(reference.after)
        return output

    def _count_outputs(self, call: Call, count: int) -> None:
        if call.reference is not None and count != len(call.reference.outputs):
            description = (
                f"it returns {count} tensors, and {len(call.reference.outputs)} in A"
            )
            self._add("forward", call, math.inf, description)

    @staticmethod
    def _output_words(reference: Call, number: int) -> str:
        return (
            "its output" if len(reference.outputs) == 1 else f"its output {number + 1}"
        )

    def _given_back(self, call: Call, reference: Call, tensor: Tensor) -> Tensor:
        number = len(call.outputs)
        if number >= len(reference.outputs):
            call.outputs.append(Spot(tensor.detach()))
            return tensor
        spot = reference.outputs[number]
        call.outputs.append(spot)
        self._judge(call, tensor, spot.value, self._output_words(reference, number))
        return self._cut(
            call,
            tensor,
            spot,
            call.caller,
            f"the gradient at the output of {call.path or 'the model'}",
        )

    def _cut(
        self,
        call: Call,
        tensor: Tensor,
        spot: Spot,
        blamed: Call | None,
        description: str,
    ) -> Tensor:
        """Cut the graph at a tensor, and return the recorded one, from which the next piece of the graph starts.

        `blamed` computes the gradient that arrives there.
        """
        value = spot.value
        if value.is_floating_point() and tensor.is_floating_point():
            value = value.to(tensor.dtype)
        value = value.to(tensor.device)
        if tensor.requires_grad:
            self._ends.append((tensor.clone(), spot))
        differentiable = value.is_floating_point() or value.is_complex()
        leaf = value.clone()
        if (
            differentiable
            and torch.is_grad_enabled()
            and (tensor.requires_grad or spot.needs_gradient)
        ):
            leaf.requires_grad_()
            if blamed is not None:
                self._leaves.append((leaf, spot, blamed, description))
            return leaf.clone()
        return leaf

    def backward(self, output: Any) -> None:
        ends = [
            (tensor, spot.gradient)
            for tensor, spot in self._ends
            if spot.gradient is not None
        ]
        ends = [
            (tensor, gradient)
            for tensor, gradient in ends
            if tensor.shape == gradient.shape
        ]
        if ends:
            torch.autograd.backward(
                [tensor for tensor, _ in ends],
                [
                    gradient.to(tensor.dtype).to(tensor.device)
                    for tensor, gradient in ends
                ],
            )

    def finished(self) -> None:
        if self.gradients.refused or self.reference.gradients.refused:
            return
        arriving: dict[tuple[str, int], float] = defaultdict(float)
        for spot, call in self._borders():
            if spot.gradient is not None:
                arriving[call.key] = max(
                    arriving[call.key], _root_mean_square(spot.gradient)
                )
        for leaf, spot, call, description in reversed(self._leaves):
            if spot.value.shape != leaf.shape:
                continue
            scale = arriving[call.key] * math.sqrt(leaf.numel())
            error, detail = gradient_error(leaf.grad, spot.gradient, scale)
            if error:
                self._add("backward", call, error, description + detail)

    def _borders(self) -> Iterator[tuple[Spot, Call]]:
        """Yield the tensors whose gradients enter the backward pass of a call's own operations."""
        for call in self.calls.values():
            for spot in call.outputs:
                yield spot, call
            if call.caller is not None:
                for spot in call.inputs:
                    yield spot, call.caller


def gradient_error(
    mine: Tensor | None, expected: Tensor | None, scale: float
) -> tuple[float, str]:
    """Return the relative error of a gradient, and a suffix for its name; a missing gradient counts as zeros."""
    if mine is None and expected is None:
        return 0.0, ""
    if mine is None or expected is None:
        there = expected if mine is None else mine
        if there is None or not bool(there.any()):
            return 0.0, ""
        return math.inf, " is missing" if mine is None else " is there, and not in A"
    return metrics.relative_error(mine, expected, scale), ""


def _defined(module: nn.Module) -> tuple[str, int]:
    """Return where the forward of a module is defined, if that is user code or code of an installed package."""
    code = getattr(type(module).forward, "__code__", None)
    if code is None or not user_frames.is_users(code.co_filename):
        return "", 0
    return code.co_filename, code.co_firstlineno


def _watched(tensor: Tensor) -> tuple[Spot, Tensor]:
    """Return the record of a tensor, and the tensor or a copy whose gradient is recorded."""
    spot = Spot(tensor.detach().clone(), tensor.requires_grad)
    if not tensor.requires_grad or not torch.is_grad_enabled():
        return spot, tensor
    watched = tensor.clone()
    watched.register_hook(spot.take)
    return spot, watched


def _write(tensor: Tensor, values: Tensor) -> None:
    """Copy into a tensor what a call wrote into the copy passed to it."""
    with contextlib.suppress(
        RuntimeError
    ):  # one that cannot be written to, such as an expanded one
        if tensor.requires_grad and tensor.is_leaf:
            with torch.no_grad():
                tensor.copy_(values)
        else:
            tensor.copy_(values)


def _buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, buffer in module._buffers.items():
        if buffer is not None and buffer.numel() <= LARGEST_BUFFER:
            yield name, buffer


def _root_mean_square(tensor: Tensor) -> float:
    return metrics.size_of(tensor) / math.sqrt(max(tensor.numel(), 1))


def _shapes(mine: Tensor, expected: Tensor) -> str:
    if mine.shape == expected.shape:
        return ""
    shape, other = (
        "×".join(map(str, tensor.shape)) or "scalar" for tensor in (mine, expected)
    )
    return f" is {shape}, and {other} in A"
