"""Forward modes to capture a graph as in training: AMP, checkpoint, compile, and the graph of a gradient."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from msgspec.structs import replace as with_values
from torch.utils.checkpoint import checkpoint

from app.autograd.errors import CaptureCancelledError
from app.autograd.walk import is_accumulate
from app.util.torch_calls import FunctionCalls

if TYPE_CHECKING:
    from torch import Tensor, nn

    from app.autograd.capture_options import CaptureOptions
    from app.autograd.layers import OriginRecorder
    from app.autograd.tape import TapeNode

# The backend that builds the graph of a compiled net as any other does, and needs no compiler.
BACKEND = "aot_eager"


class Special(Struct, frozen=True):
    """Modes of a forward pass: autocast, checkpointing, compile, second order.

    `amp` is "", "bfloat16" or "float16": net and loss run under `torch.autocast`. The modules in `checkpoint` run under
    `torch.utils.checkpoint`, with `use_reentrant=reentrant`. `compile` runs the net through `torch.compile`, whose
    graph has one node per compiled piece. `second_order` computes the gradients with `create_graph=True` and captures
    the graph of their squared norm. `outputs` are the indices of the net's outputs at which backward starts without a
    loss; all if empty.
    """

    amp: str = ""
    checkpoint: tuple[str, ...] = ()
    reentrant: bool = False
    compile: bool = False
    second_order: bool = False
    outputs: tuple[int, ...] = ()

    @classmethod
    def from_options(cls, options: CaptureOptions) -> Special:
        """Return the modes that the options select."""
        return cls(
            amp=options.amp,
            checkpoint=options.checkpoint,
            compile=options.compile,
            second_order=options.second_order,
            outputs=() if options.loss else options.outputs,
        )

    def casting(self, device: str) -> AbstractContextManager[Any]:
        """Return autocast for a device type ("cpu"), or a null context."""
        return (
            torch.autocast(device, getattr(torch, self.amp))
            if self.amp
            else nullcontext()
        )

    def chosen(self, ends: list[Tensor]) -> list[Tensor]:
        """Return the chosen outputs of the net. Raises IndexError for one that it does not have."""
        return [ends[index] for index in self.outputs] if self.outputs else ends

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Checkpoint the modules and compile the net; restore both afterwards.

        Raises AttributeError for a path in `checkpoint` that the net does not have.
        """
        again = functools.partial(checkpoint, use_reentrant=self.reentrant)
        changed: dict[nn.Module, Any] = {
            module: functools.partial(again, module.forward)
            for module in map(model.get_submodule, self.checkpoint)
        }
        before = {module: vars(module).get("forward") for module in (*changed, model)}
        try:
            for module, forward in changed.items():
                module.forward = forward
            if self.compile:
                model.forward = torch.compile(model.forward, backend=BACKEND)
            yield
        finally:
            for module, forward in before.items():
                if forward is not None:
                    module.forward = forward
                else:
                    vars(module).pop("forward", None)


PLAIN = Special()


class SecondOrder:
    """Differentiable gradients of `ends` with respect to `parameters`. `value` is the sum of their squares.

    Backward's nodes continue the same sequence numbers, so each can be attributed to the node of the first graph that
    was running. Raises RuntimeError if backward does.
    """

    def __init__(
        self, ends: Iterable[Tensor], parameters: Iterable[Tensor], nodes: Iterable[Any]
    ) -> None:
        counter = torch._C._autograd._get_sequence_nr
        self._starts: list[int] = []
        self._makers: list[int] = []
        hooks = []
        for node in nodes:
            if not is_accumulate(node):
                hooks.append(
                    node.register_prehook(self._note(node._sequence_nr(), counter))
                )
        self._began = counter()
        roots = [end for end in ends if end.requires_grad]
        trainable = [parameter for parameter in parameters if parameter.requires_grad]
        ones = [torch.ones_like(root) for root in roots]
        try:
            # On one thread for all devices, since sequence numbers are per thread.
            with torch.autograd.set_multithreading_enabled(False):
                grads = torch.autograd.grad(
                    roots, trainable, ones, create_graph=True, allow_unused=True
                )
        finally:
            for hook in hooks:
                hook.remove()
        self._ended = counter()
        squares = [
            grad.square().sum()
            for grad in grads
            if grad is not None and grad.requires_grad
        ]
        self.value: Tensor | None = torch.stack(squares).sum() if squares else None

    def _note(self, number: int, counter: Any) -> Any:
        def hook(_grads: Any) -> None:
            self._starts.append(counter())
            self._makers.append(number)

        return hook

    def with_location(
        self, record: TapeNode, node: Any, recorder: OriginRecorder, answered: int
    ) -> TapeNode:
        """Return the record of a node created by backward, with the location of the node that was running."""
        number = node._sequence_nr()
        if record.is_leaf or not self._began <= number < self._ended:
            return record
        at = bisect_right(self._starts, number) - 1
        if at < 0 or self._makers[at] >= answered:
            return with_values(record, order=2)
        origin = recorder.origin(self._makers[at])
        return with_values(
            record,
            layer=origin.layer,
            call=origin.call,
            node=origin.node,
            line=origin.line,
            file=origin.file,
            order=2,
        )


def device_of(tensors: Iterable[Tensor]) -> str:
    """Return the device type of the first tensor, "cpu" without any."""
    return next((tensor.device.type for tensor in tensors), "cpu")


def until_cancelled(
    cancelled: Callable[[], bool], options: CaptureOptions
) -> AbstractContextManager[object]:
    """Return a context in which the next operation of torch raises CaptureCancelledError once `cancelled` is true."""

    def called(func: Any, args: Any, kwargs: Any, _frame: FrameType) -> Any:
        if cancelled():
            raise CaptureCancelledError("The capture was cancelled.")
        return func(*args, **kwargs)

    # nothing is compiled under a mode
    return nullcontext() if options.compile else FunctionCalls(called)
