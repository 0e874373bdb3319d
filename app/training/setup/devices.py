"""Available devices, and the resolution of "auto"."""

from __future__ import annotations

import platform

import torch

from app.training.job import DEVICE, NO_DEVICE, JobError
from app.training.setup.device import Device, Resolved
from tapedeck import devices as accelerators


def devices() -> tuple[Device, ...]:
    """Return the available devices, fastest first. Imports torch."""
    present = (
        Device(name, accelerators.full_name(name), accelerators.total_memory(name))
        for name in accelerators.names()
    )
    return (*present, Device("cpu", f"CPU, {torch.get_num_threads()} threads"))


def device_name(device: str) -> str:
    """Return the display name of a device. Imports torch for an accelerator."""
    if device == "cpu":
        return platform.processor() or "CPU"
    return accelerators.full_name(device)


def resolve(name: str, present: tuple[Device, ...] | None = None) -> Resolved:
    """Resolve a device name: "auto" takes the fastest, an unavailable one falls back to the CPU with a note.

    Raises JobError for a name that is no device at all.

    >>> resolve("cuda:7", (Device("cpu", "CPU"),)).note
    'cuda:7 is not available here, so the run uses the CPU. Choose one of: auto, cpu.'
    >>> resolve("auto", (Device("cuda:0", "H200"), Device("cpu", "CPU"))).id
    'cuda:0'
    """
    if not DEVICE.fullmatch(name):
        raise JobError(NO_DEVICE.format(name))
    present = devices() if present is None else present
    ids = [device.id for device in present]
    for device_id in (ids[0] if name == "auto" else name, f"{name}:0"):
        if device_id in ids:
            return Resolved(device_id)
    return Resolved(
        "cpu",
        f"{name} is not available here, so the run uses the CPU. Choose one of: {', '.join(('auto', *ids))}.",
    )
