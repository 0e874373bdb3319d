"""Measure peak tensor memory while code runs, counted at torch's operations."""

from __future__ import annotations

from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from app.autograd.sparse import parts_of
from app.util.torch_calls import KernelCalls


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
