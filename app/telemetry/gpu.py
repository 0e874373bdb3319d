"""Utilisation and temperature of an accelerator, as its maker's library tells torch, and its allocator's figures."""

from __future__ import annotations

from typing import Any

import torch

from app.telemetry.gpu_figures import Allocator, GpuReading
from tapedeck import devices


def read(device: str) -> GpuReading:
    """Query `device`, such as "cuda:0". The CPU, and many accelerators, have no such numbers."""
    module = torch.get_device_module(device)
    queries = [getattr(module, name, None) for name in ("utilization", "temperature")]
    if not any(queries):
        return GpuReading(
            reason=f"{device} reports neither utilisation nor temperature"
        )
    utilisation, refused = _asked(queries[0], device)
    temperature, _ = _asked(queries[1], device)
    used = total = None
    if (
        devices.accelerator_in_use()
    ):  # else this query alone would claim memory of the device
        free, total = torch.accelerator.get_memory_info(device)
        used = total - free
    return GpuReading(
        devices.full_name(device), utilisation, temperature, used, total, refused
    )


def _asked(query: Any, device: str) -> tuple[int | None, str]:
    """Return what a library tells of the device, or why it does not."""
    try:
        return int(query(device)), ""
    except Exception as error:  # whatever the maker's library raises
        return None, str(error)


def allocator(device: str) -> Allocator | None:
    """Return the figures of the device's allocator; None where it tells none."""
    if device == "cpu":
        return None
    allocated, *others = devices.memory(device)
    return None if allocated is None else Allocator(allocated, *others)


def write_snapshot(device: str, path: str) -> bool:
    """Save a snapshot of the device's allocator, for pytorch.org/memory_viz; return whether it has such. Raises
    OSError."""
    memory: Any = getattr(torch.get_device_module(device), "memory", None)
    if not hasattr(memory, "_dump_snapshot"):
        return False
    memory._dump_snapshot(path)
    return True
