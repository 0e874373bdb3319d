"""Measure the peak of torch's allocator of the CPU, as its profiler notes what is allocated and freed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.profiler import ProfilerActivity, profile


class AllocatorPeak:
    """The most bytes at once of what was allocated while measuring; what was there before does not count."""

    def __init__(self) -> None:
        self.bytes = 0

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure what this thread and torch's own allocate. Profilers cannot be nested."""
        with profile(
            activities=[ProfilerActivity.CPU], profile_memory=True
        ) as profiled:
            yield
        sizes: dict[int, int] = {}
        now = 0
        for event in _allocations(profiled):
            size: int = event.alloc_size
            if size > 0:
                sizes[event.ptr] = size
                now += size
            else:
                now -= sizes.pop(event.ptr, 0)
            self.bytes = max(self.bytes, now)


def _allocations(profiled: profile) -> list[Any]:
    """Return what the allocator did, in order."""
    assert (
        profiled.profiler is not None and profiled.profiler.kineto_results is not None
    )
    nodes = list(profiled.profiler.kineto_results.experimental_event_tree())
    allocations = []
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if node.tag.name == "Allocation":
            allocations.append(node)
    allocations.sort(key=lambda node: node.start_time_ns)
    return [node.extra_fields for node in allocations]
