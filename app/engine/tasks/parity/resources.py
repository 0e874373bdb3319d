"""Time and memory limits of a comparison, and its usage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from app.util import module_tree

SHARE = 0.6  # of the free memory
UNKNOWN = 4 * 2**30  # bytes, if the free memory is unknown


def free_bytes() -> int:
    """Return the memory that a comparison may use."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = next(
            int(line.split()[1]) * 1024
            for line in lines
            if line.startswith("MemAvailable")
        )
        return int(SHARE * free)
    with suppress(AttributeError, ValueError, OSError):
        return int(SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2)
    return UNKNOWN


def parameter_count(model: nn.Module) -> int:
    """Count the numbers in parameters and buffers."""
    return sum(
        tensor.numel()
        for tensor in (*module_tree.parameters(model), *module_tree.buffers(model))
    )


class OutputBytes:
    """Sum of the output bytes of a net's innermost modules in one call."""

    def __init__(self) -> None:
        self.total = 0

    @contextmanager
    def watching(self, net: nn.Module) -> Iterator[None]:
        hooks = [
            module_tree.on_call(module, self._count)
            for module in module_tree.modules(net)
            if not module_tree.has_children(module)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _count(self, _module: nn.Module, _args: Any, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            self.total += result.numel() * result.element_size()
