"""Run one autograd node alone: by calling it where that is the same, else through torch's engine.

The engine is started with the node for its root, and a hook of ours that comes last takes what the node computed and
stops the engine there, before the hooks of the next nodes see gradients that are not yet summed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import GradientEdge

from app.autograd.memory import raw_saved
from app.autograd.playback.direct_call import after_tensor_hooks, called, can_be_called, inside_engine, is_custom
from app.autograd.walk import is_accumulate

if TYPE_CHECKING:
    from torch import Tensor


class _Taken(BaseException):
    """What stops the engine; no `except Exception` of a person's code shall catch it."""


@dataclass(frozen=True)
class Called:
    """`received` is what reached the node after hooks, by output number; `computed` is what it gave, by slot: summed
    down to shapes that were broadcast and cast, as the engine does it in the node's turn. `aside` counts the nodes that
    were made for running it."""

    received: list[Tensor | None]
    computed: list[Tensor | None]
    seconds: float
    aside: int = 0


def call(node: Any, arriving: list[Tensor | None], create_graph: bool = False, recomputes: bool = False) -> Called:
    """Run `node` on the gradients that arrive, by output number. Its graph is kept, and no `.grad` of a leaf touched.

    `recomputes` says that it may compute a part of the forward again. The caller sets the grad mode to `create_graph`.
    Raises what the node raises: RuntimeError for a saved tensor that was changed in place, or whatever a person's
    Function or hook does.
    """
    if is_accumulate(node):
        return _leaf(node, arriving, create_graph)
    if all(gradient is None for gradient in arriving):
        if not is_custom(node):
            return Called(arriving, [None] * len(node.next_functions), 0.0)
        arriving = [zeros_like(node._input_metadata[0]), *arriving[1:]]  # a Function is given zeros instead of None
    if can_be_called(node, arriving):
        received = after_tensor_hooks(node, arriving, create_graph)
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
    except _Taken as taken:
        taken.__traceback__ = None
    finally:
        for handle in handles:
            handle.remove()
    return Called(received, computed, clock[1] - clock[0])


def _run(node: Any, arriving: list[Tensor | None], create_graph: bool) -> None:
    given = [place for place, gradient in enumerate(arriving) if gradient is not None]
    roots = [GradientEdge(node, place) for place in given]
    gradients = [arriving[place] for place in given]
    if is_custom(node):
        # A reentrant checkpoint refuses to run for chosen inputs; nothing below the node is reached anyway.
        torch.autograd.backward(roots, gradients, retain_graph=True, create_graph=create_graph)
        return
    targets = [GradientEdge(child, place) for child, place in node.next_functions if child is not None]
    torch.autograd.grad(roots, targets, gradients, retain_graph=True, create_graph=create_graph, allow_unused=True)


def _leaf(node: Any, arriving: list[Tensor | None], create_graph: bool) -> Called:
    """What a leaf's `.grad` would be given: the hooks of the leaf run, adding it up does not."""
    if arriving[0] is None:
        return Called([None], [], 0.0)
    edge = GradientEdge(node, 0)
    with torch.autograd.set_multithreading_enabled(False):
        started = time.perf_counter()
        (gradient,) = torch.autograd.grad([edge], [edge], [arriving[0]], create_graph=create_graph)
        return Called([gradient], [], time.perf_counter() - started)


def zeros_like(metadata: Any) -> Tensor:
    return torch.zeros(tuple(metadata.shape), dtype=metadata.dtype, device=metadata.device)


def added(one: Tensor, other: Tensor) -> Tensor:
    """The sum of what has arrived and what comes, as the engine adds them: a sparse one is added to the dense one."""
    return other + one if one.layout is not torch.strided and other.layout is torch.strided else one + other


def may_draw(node: Any) -> bool:
    """Return True if the node runs custom code or recomputes a checkpoint, so that it may draw random numbers."""
    return is_custom(node) or any(raw.unpack_hook is not None for _, raw in _raws(node))


def forget_recomputed(node: Any) -> None:
    """Let go of what a checkpoint computed again for this step.

    Its frame keeps that for the rest of one backward pass; here every step is a pass of its own, and what is kept of
    all of them would add up to far more than the checkpoint saved.
    """
    for frame in {id(frame): frame for _, raw in _raws(node) for frame in _frames(raw.unpack_hook)}.values():
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
def own_grads(parameters: dict[str, Any]) -> Iterator[dict[str, Tensor]]:
    """Collect what is added to the parameters' `.grad` within, and restore them afterwards."""
    kept = {name: parameter.grad for name, parameter in parameters.items()}
    found: dict[str, Tensor] = {}
    for parameter in parameters.values():
        parameter.grad = None
    try:
        yield found
        found.update({name: p.grad for name, p in parameters.items() if p.grad is not None})
    finally:
        for name, parameter in parameters.items():
            parameter.grad = kept[name]


def _waiter(gradients: list[Tensor]) -> Any:
    """Waits until the device has finished, where one computes on while Python goes on."""
    device = gradients[0].device
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    if device.type == "mps":
        return torch.mps.synchronize
    return lambda: None
