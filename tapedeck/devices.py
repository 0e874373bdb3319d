"""The accelerator of a process, whoever made it: the one that torch names, and what it tells by `torch.accelerator`.

A backend that `torch.accelerator` cannot ask is asked by the module that torch has for it, such as `torch.mps`. What it
does not tell either is None.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import torch

_CANNOT = (RuntimeError, NotImplementedError, AttributeError, TypeError)
# What the modules of backends call the figures of `torch.accelerator.memory_stats`.
_FIGURES = {
    "allocated_bytes.all.current": "memory_allocated current_allocated_memory",
    "reserved_bytes.all.current": "memory_reserved driver_allocated_memory",
    "allocated_bytes.all.peak": "max_memory_allocated",
    "inactive_split_bytes.all.current": "",
}


class Memory(NamedTuple):
    """Memory of an accelerator in bytes, by the allocator of this process; None where it does not tell.

    `split` is free memory inside used blocks.
    """

    allocated: int | None = None
    reserved: int | None = None
    peak: int | None = None
    split: int | None = None


def names() -> list[str]:
    """Return the accelerators that are here, such as "cuda:0" and "cuda:1"."""
    device = torch.accelerator.current_accelerator(check_available=True)
    count = torch.accelerator.device_count() if device is not None else 0
    return [f"{device}:{index}" for index in range(count)]


def accelerator_in_use() -> str:
    """Return the type of the accelerator that this process has begun to use, "" if none."""
    device = torch.accelerator.current_accelerator()
    if device is None:
        return ""
    module = torch.get_device_module(device)
    begun = getattr(module, "is_initialized", module.is_available)
    return device.type if begun() else ""


def full_name(device: str) -> str:
    """Return what the maker calls a device, or its type."""
    kind = torch.device(device).type
    module, backend = torch.get_device_module(kind), getattr(torch.backends, kind, None)
    with suppress(*_CANNOT):
        return str(module.get_device_name(device))
    with suppress(*_CANNOT):
        return str(module.get_device_properties(device).name)
    with suppress(*_CANNOT):
        return str(backend.get_name())  # type: ignore[union-attr]
    return kind


def total_memory(device: str) -> int | None:
    """Return the memory that a device has, in bytes."""
    module = torch.get_device_module(device)
    with suppress(*_CANNOT):
        return int(module.get_device_properties(device).total_memory)
    with suppress(*_CANNOT):
        return torch.accelerator.get_memory_info(device)[1]
    with suppress(*_CANNOT):
        return int(module.recommended_max_memory())
    return None


def memory(device: str) -> Memory:
    """Return what the allocator of this process holds on a device."""
    stats = torch.accelerator.memory_stats(device)
    module = torch.get_device_module(device)
    return Memory(
        *(
            int(stats[figure]) if figure in stats else _figure(module, names.split())
            for figure, names in _FIGURES.items()
        )
    )


def _figure(module: Any, functions: list[str]) -> int | None:
    for function in functions:
        with suppress(*_CANNOT):
            return int(getattr(module, function)())
    return None


def forget_peak(device: str) -> None:
    """Begin to measure the peak of the allocated memory anew; of the CPU's nothing is measured."""
    with suppress(*_CANNOT, ValueError):  # of a device that is no accelerator
        torch.accelerator.reset_peak_memory_stats(device)


def empty_cache(device: str) -> int:
    """Return unused cached memory to the device; return the number of bytes."""
    before = memory(device).reserved
    with torch.accelerator.device_index(torch.device(device).index or 0):
        torch.accelerator.empty_cache()
    return (before or 0) - (memory(device).reserved or 0)


def synchronize(device: Any) -> None:
    """Wait for what a device computes; on the CPU nothing is left to wait for."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and torch.device(device).type == accelerator.type:
        torch.accelerator.synchronize(device)


def event(device: str) -> Any:
    """Return an event that is reached when the device gets there; None where the device has none with a time."""
    if not _times_events(torch.device(device).type):
        return None
    reached = torch.Event(device, enable_timing=True)
    reached.record()
    return reached


@cache
def _times_events(kind: str) -> bool:
    """Return whether events of this type of device tell the time between them."""
    if kind == "cpu":
        return False
    first, last = (torch.Event(kind, enable_timing=True) for _ in range(2))
    with suppress(*_CANNOT):
        for each in (first, last):
            each.record()
        last.synchronize()
        return first.elapsed_time(last) >= 0
    return False


@cache
def widest_float(kind: str) -> torch.dtype:
    """Return float64 where devices of this type compute with it, else float32."""
    with suppress(*_CANNOT):
        return (torch.ones(1, dtype=torch.float64, device=kind) + 1).dtype
    return torch.float32


def for_double(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor where float64 is computed: on its device, or a copy of it on the CPU."""
    widest = widest_float(tensor.device.type)
    return tensor if widest is torch.float64 else tensor.cpu()


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64; of a device without float64 a copy on the CPU."""
    return for_double(tensor).double()


def rng_states() -> dict[str, list[torch.Tensor]]:
    """Return the states of the generators of the accelerator in use, one for each device, by its type; {} without."""
    kind = accelerator_in_use()
    if not kind:
        return {}
    module: Any = torch.get_device_module(kind)
    devices = [torch.device(kind, index) for index in range(module.device_count())]
    return {kind: [module.get_rng_state(device) for device in devices]}


def set_rng_states(states: dict[str, Any]) -> None:
    """Restore what `rng_states` returned; states of an accelerator that is not here, or of another number of devices,
    are skipped.
    """
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return
    saved, module = states.get(device.type, []), torch.get_device_module(device)
    if len(saved) == module.device_count():
        for index, state in enumerate(saved):
            module.set_rng_state(state, torch.device(device.type, index))


def seed(number: int) -> None:
    """Seed the generators of the accelerator in use."""
    if kind := accelerator_in_use():
        module: Any = torch.get_device_module(kind)
        every = hasattr(module, "manual_seed_all")
        (module.manual_seed_all if every else module.manual_seed)(number)
