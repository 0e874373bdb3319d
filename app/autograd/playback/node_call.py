"""Run one autograd node alone: by a direct call if that is equivalent, else through torch's engine.

The engine starts with the node as root, and our hook, the last one, takes the result and stops the engine before the
hooks of the next nodes see gradients that are not yet summed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from torch.autograd.graph import GradientEdge

from app.autograd.memory import raw_saved
from app.autograd.playback.direct_call import (
    after_tensor_hooks,
    called,
    can_be_called,
    inside_engine,
    is_custom,
    passes_on,
)
from app.autograd.walk import is_accumulate
from tapedeck import devices

if TYPE_CHECKING:
    from torch import Tensor


class _Taken(BaseException):
    """Stops the engine; a BaseException, so that user code with `except Exception` does not catch it."""


class Called(Struct, frozen=True):
    """Result of a node. `received` are its incoming gradients after hooks, by output number; `computed` its results, by
    slot, reduced to the shapes and dtypes of its inputs. `aside` counts the nodes that were created to run it."""

    received: list[Tensor | None]
    computed: list[Tensor | None]
    seconds: float
    aside: int = 0


def call(
    node: Any,
    arriving: list[Tensor | None],
    create_graph: bool = False,
    recomputes: bool = False,
    hooks: bool = True,
) -> Called:
    """Run `node` on its incoming gradients, by output number. Retains its graph and modifies no leaf's `.grad`.

    `recomputes` means that it may recompute a part of the forward. Without `hooks` those of tensors and nodes are not
    run, unless only torch's engine can run the node. The caller sets the grad mode to `create_graph`.
    Raises what the node raises: RuntimeError for a saved tensor that was changed in place, or any error of a custom
    Function or hook.
    """
    if not hooks and (is_accumulate(node) or passes_on(node)):
        return Called(arriving, [] if is_accumulate(node) else list(arriving), 0.0)
    if is_accumulate(node):
        return _leaf(node, arriving, create_graph)
    if all(gradient is None for gradient in arriving):
        if not is_custom(node):
            return Called(arriving, [None] * len(node.next_functions), 0.0)
        arriving = [
            zeros_like(node._input_metadata[0]),
            *arriving[1:],
        ]  # a Function gets zeros instead of None
    if can_be_called(node, arriving, hooks):
        received = (
            after_tensor_hooks(node, arriving, create_graph) if hooks else arriving
        )
        wait = _waiter([gradient for gradient in received if gradient is not None])

        def alone() -> tuple[list[Tensor | None] | None, float]:
            return called(node, received, wait)

        computed, seconds = inside_engine(alone) if recomputes else alone()
        if computed is not None:
            return Called(received, computed, seconds, int(recomputes))
    return _by_engine(node, arriving, create_graph)


def _by_engine(node: Any, arriving: list[Tensor | None], create_graph: bool) -> Called:
    received: list[Any] = []
    computed: list[Any] = []
    clock = [0.0, 0.0]
    wait = _waiter([gradient for gradient in arriving if gradient is not None])

    def before(gradients: tuple[Tensor | None, ...]) -> None:
        received.extend(gradients)
        wait()
        clock[0] = time.perf_counter()

    def after(gradients: tuple[Tensor | None, ...], _arrived: Any) -> None:
        wait()
        clock[1] = time.perf_counter()
        computed.extend(gradients)
        raise _Taken

    handles = [node.register_prehook(before), node.register_hook(after)]
    try:
        with torch.autograd.set_multithreading_enabled(False):
            _run(node, arriving, create_graph)
    except _Taken as stop:
        stop.__traceback__ = None
    finally:
        for handle in handles:
            handle.remove()
    return Called(received, computed, clock[1] - clock[0])


def _run(node: Any, arriving: list[Tensor | None], create_graph: bool) -> None:
    active_outputs = [
        output for output, gradient in enumerate(arriving) if gradient is not None
    ]
    roots = [GradientEdge(node, output) for output in active_outputs]
    gradients = [arriving[output] for output in active_outputs]
    if is_custom(node):
        # A reentrant checkpoint rejects selected inputs; nothing below the node is reached anyway.
        torch.autograd.backward(
            roots, gradients, retain_graph=True, create_graph=create_graph
        )
        return
    targets = [
        GradientEdge(child, output)
        for child, output in node.next_functions
        if child is not None
    ]
    torch.autograd.grad(
        roots,
        targets,
        gradients,
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
    )


def _leaf(node: Any, arriving: list[Tensor | None], create_graph: bool) -> Called:
    """Return the gradient for a leaf's `.grad`, after the leaf's hooks, without accumulating it."""
    if arriving[0] is None:
        return Called([None], [], 0.0)
    edge = GradientEdge(node, 0)
    with torch.autograd.set_multithreading_enabled(False):
        started = time.perf_counter()
        (gradient,) = torch.autograd.grad(
            [edge], [edge], [arriving[0]], create_graph=create_graph
        )
        return Called([gradient], [], time.perf_counter() - started)


def zeros_like(metadata: Any) -> Tensor:
    """Return zeros in the shape and dtype, on the device, of an input's metadata."""
    return torch.zeros(
        tuple(metadata.shape), dtype=metadata.dtype, device=metadata.device
    )


def added(gradient: Tensor, other: Tensor) -> Tensor:
    """Add gradients as the engine does: a sparse one is added to the dense one."""
    return (
        other + gradient
        if gradient.layout is not torch.strided and other.layout is torch.strided
        else gradient + other
    )


def may_use_rng(node: Any) -> bool:
    """Return True if the node runs custom code or recomputes a checkpoint, so that it may draw random numbers."""
    return is_custom(node) or any(raw.unpack_hook is not None for _, raw in _raws(node))


def forget_recomputed(node: Any) -> None:
    """Free what a checkpoint recomputed for this step.

    Its frame holds that for the rest of a backward pass; here every step is a separate pass, and all of them would
    add up to more than the checkpoint saved.
    """
    for frame in {
        id(frame): frame for _, raw in _raws(node) for frame in _frames(raw.unpack_hook)
    }.values():
        for name in ("recomputed", "recomp_counter", "is_recomputed"):
            getattr(frame, name).clear()
        for reference in frame.weak_holders:
            holder = reference()
            if holder is not None:
                holder.handles.clear()


def _raws(node: Any) -> Iterator[tuple[str, Any]]:
    return (item for _, items in raw_saved(node) for item in items)


def _frames(hook: Any) -> Iterator[Any]:
    for cell in getattr(hook, "__closure__", None) or ():
        if type(cell.cell_contents).__name__ == "_CheckpointFrame":
            yield cell.cell_contents


@contextmanager
def undone(node: Any, buffers: Iterable[Tensor]) -> Iterator[None]:
    """Undo what running a node changes beside its results: buffers, of a layer that runs forward again, and what the
    `ctx` of a Function holds."""
    buffer_values = [(buffer, buffer.detach().clone()) for buffer in buffers]
    attributes = dict(vars(node)) if is_custom(node) else None
    try:
        yield
    finally:
        for buffer, before in buffer_values:
            if not torch.equal(buffer, before):
                buffer.data.copy_(
                    before
                )  # `data` leaves the version alone that saved tensors are checked by
        if attributes is not None:
            vars(node).clear()
            vars(node).update(attributes)


@contextmanager
def own_grads(parameters: dict[str, Any]) -> Iterator[dict[str, Tensor]]:
    """Collect the gradients accumulated into the parameters within, and restore `.grad` afterwards."""
    original_grads = {name: parameter.grad for name, parameter in parameters.items()}
    grads: dict[str, Tensor] = {}
    for parameter in parameters.values():
        parameter.grad = None
    try:
        yield grads
        grads.update(
            {name: p.grad for name, p in parameters.items() if p.grad is not None}
        )
    finally:
        for name, parameter in parameters.items():
            parameter.grad = original_grads[name]


def _waiter(gradients: list[Tensor]) -> Any:
    """Return a function that synchronises the device, if it is asynchronous."""
    return partial(devices.synchronize, gradients[0].device)
