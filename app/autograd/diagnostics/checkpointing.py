"""Measure activation checkpointing of a block: bytes freed at the peak against the time to recompute it.

Peak memory is counted at torch's operations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from app.autograd.batch import TrainingBatch, backward_of, preserve_gradients
from app.autograd.diagnostics.results import StepCost, WhatIf
from app.autograd.forward_modes import PLAIN, Special, device_of
from app.autograd.sparse import parts_of
from app.util import module_tree, rng
from app.util.language import tr
from app.util.module_tree import temporary_mode
from app.util.torch_calls import KernelCalls
from tapedeck import devices

# Timed steps, alternating without and with the checkpoint; the median is shown, with lowest and highest.
REPEATS = 5
_NOT_CALLED = (nn.ModuleList, nn.ModuleDict, torch.jit.ScriptModule)


def what_if(batch: TrainingBatch, path: str, *, repeats: int = REPEATS) -> WhatIf:
    """Checkpoint the module at `path` and compare. Raises what the net raises, AttributeError for an unknown path."""
    return table(batch, (path,), repeats=repeats)[0]


def table(
    batch: TrainingBatch,
    paths: Iterable[str] | None = None,
    *,
    repeats: int = REPEATS,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[WhatIf, ...]:
    """Compare for each of `paths`, None for every block of the net; the one that frees most comes first.

    A table that is cancelled has the rows that were ready.
    """
    module_paths = tuple(blocks(batch.model) if paths is None else paths)
    kinds = {
        path: type(module_tree.submodule(batch.model, path)).__name__
        for path in module_paths
    }
    with preserve_gradients(batch.model), temporary_mode(batch.model, batch.train):
        grads, peak = _measured(batch, PLAIN)
        plain_held = _held_bytes(batch, PLAIN)
        rows = []
        for path in module_paths:
            if cancelled():
                break
            special = Special(checkpoint=(path,))
            others, again_peak = _measured(batch, special)
            plain_seconds, again_seconds = _timed(batch, special, repeats)
            rows.append(
                WhatIf(
                    path,
                    kinds[path],
                    StepCost(plain_held, peak, plain_seconds),
                    StepCost(_held_bytes(batch, special), again_peak, again_seconds),
                    gradient_difference(grads, others),
                    _remark(module_tree.submodule(batch.model, path), batch.train),
                )
            )
    return tuple(sorted(rows, key=lambda row: -row.freed))


def blocks(model: nn.Module) -> tuple[str, ...]:
    """Return the paths worth a checkpoint: modules with submodules that their parent calls, outermost first.

    A `ModuleList` is not called itself, so its members count; TorchScript modules are opaque.
    """
    return tuple(
        path
        for path, module in module_tree.named_modules(model)
        if path and _is_block(path, module)
    )


def _is_block(path: str, module: nn.Module) -> bool:
    """Return whether a parent calls this module, which has modules of its own."""
    return (
        module_tree.has_children(module)
        and not isinstance(module, _NOT_CALLED)
        and "parametrizations" not in path
    )


def _measured(
    batch: TrainingBatch, special: Special
) -> tuple[list[Tensor | None], int]:
    """Measure the gradients and the peak memory of one step."""
    model = batch.model
    before = [
        *module_tree.parameters(model),
        *module_tree.buffers(model),
        *batch.tensors,
    ]
    if isinstance(batch.loss, nn.Module):
        before += [
            *module_tree.parameters(batch.loss),
            *module_tree.buffers(batch.loss),
        ]
    peak = Peak(before)
    with (
        peak,
        torch.autograd.set_multithreading_enabled(False),
    ):  # the mode sees this thread's operations only
        _step(batch, special)
    grads = [parameter.grad for parameter in module_tree.parameters(model)]
    _clear(model)
    return grads, peak.bytes


def _held_bytes(batch: TrainingBatch, special: Special) -> int:
    with batch.hold(special=special) as graph:
        return graph.tape.held_bytes


def _timed(
    batch: TrainingBatch, special: Special, repeats: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Time a step with and without checkpointing, in seconds per round; both alternate so that other load affects them
    equally."""
    timings: tuple[list[float], list[float]] = ([], [])
    for number in range(repeats + 1):
        pair = list(zip((PLAIN, special), timings, strict=True))
        for kind, seconds in pair[::-1] if number % 2 else pair:
            began = time.perf_counter()
            _step(batch, kind)
            _finish(batch)
            if number:  # the first warms up
                seconds.append(time.perf_counter() - began)
            _clear(batch.model)
    return tuple(timings[0]), tuple(timings[1])


def _step(batch: TrainingBatch, special: Special) -> None:
    with special.applied(batch.model), rng.borrowed(batch.seed), torch.enable_grad():
        backward_of(batch.forward())


def _finish(batch: TrainingBatch) -> None:
    devices.synchronize(device_of(batch.tensors))


def _clear(model: nn.Module) -> None:
    for parameter in module_tree.parameters(model):
        parameter.grad = None


def gradient_difference(
    ours: list[Tensor | None], theirs: list[Tensor | None]
) -> float:
    """Return the largest difference of gradients, relative to the largest entry of each of `ours`; infinite where one
    is missing."""
    worst = 0.0
    for gradient, other in zip(ours, theirs, strict=True):
        if gradient is None or other is None:
            worst = worst if gradient is other else float("inf")
        elif not torch.equal(gradient, other):
            scale = float(gradient.abs().max()) or 1.0
            worst = max(worst, float((gradient - other).abs().max()) / scale)
    return worst


def _remark(block: nn.Module, train: bool) -> str:
    """Warn of norms inside, which update their running statistics twice per step."""
    norms: list[Any] = [
        module
        for module in module_tree.modules(block)
        if getattr(module, "track_running_stats", False)
        and getattr(module, "running_mean", None) is not None
    ]
    if not (norms and train):
        return ""
    return tr(
        "{layer} in it updates its running statistics twice per step.",
        layer=type(norms[0]).__name__,
    )


class Peak(KernelCalls):
    """A context that measures peak memory: `bytes` is the most allocated at once by operations in it.

    Counts activations, gradients and temporaries. Existing tensors (`before`: parameters, a batch) do not count, and
    neither does a kernel's workspace.
    """

    def __init__(self, before: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._known = {key for tensor in before for key in _keys(tensor)}
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._now = 0
        self.bytes = 0

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        result = func(*args, **kwargs)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                for component in parts_of(leaf):
                    self._add(component)
        return result

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known or key in self._alive:
            return
        self._alive[key] = (StorageWeakRef(storage), storage.nbytes())
        self._now += storage.nbytes()
        if (
            self._now > self.bytes
        ):  # freed tensors are still in the sum, so sweep before accepting a new peak
            self._sweep()
            self.bytes = max(self.bytes, self._now)

    def _sweep(self) -> None:
        for key in [
            key for key, (storage, _) in self._alive.items() if storage.expired()
        ]:
            self._now -= self._alive.pop(key)[1]


def _keys(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(component.untyped_storage()._cdata for component in parts_of(tensor))
