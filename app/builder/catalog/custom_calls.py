"""A class of a person's own, run on small real tensors: it may do what meta ones cannot, go through numpy for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

BATCHES = (5, 7)
LARGEST = 1 << 20  # values that arrive, at the larger batch


def run_small(call: Callable[[int], Any], values: int) -> tuple[Any, Any]:
    """What `call(batch)` gives with both batches, of what has `values` numbers."""
    if values > LARGEST:
        raise ValueError("it does not run on meta tensors, and its input is too large to try with real ones")
    first, second = (call(batch) for batch in BATCHES)
    return first, second


def grown(first: Any, second: Any, batch: int) -> Any:
    """What the two batches gave, as it would be with another: tensors on "meta".

    >>> grown(torch.zeros(5, 3), torch.zeros(7, 3), 1009).shape
    torch.Size([1009, 3])
    """
    if isinstance(first, tuple | list):
        return tuple(grown(a, b, batch) for a, b in zip(first, second, strict=True))
    if type(first) is int and type(second) is int:
        return _size(first, second, batch)
    if not isinstance(first, torch.Tensor):
        return first
    sizes = [_size(a, b, batch) for a, b in zip(first.shape, second.shape, strict=True)]
    return torch.empty(sizes, dtype=first.dtype, device="meta")


def _size(a: int, b: int, batch: int) -> int:
    step, rest = divmod(b - a, BATCHES[1] - BATCHES[0])
    if rest:
        told = f"{a} for {BATCHES[0]} samples, {b} for {BATCHES[1]}"
        raise ValueError(f"a size that is not proportional to the batch size: {told}")
    return a + step * (batch - BATCHES[0])
