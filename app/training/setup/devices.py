"""Available devices, and the resolution of "auto"."""

from __future__ import annotations

import platform
import re

import torch

from app.training.job import DEVICE, JobError
from app.training.setup.device import Device, Resolved


def devices() -> tuple[Device, ...]:
    """Return the available devices, fastest first. Imports torch."""
    available = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        available.append(
            Device(f"cuda:{index}", properties.name, properties.total_memory)
        )
    if torch.backends.mps.is_available():
        available.append(
            Device("mps", "Apple GPU (Metal)", torch.mps.recommended_max_memory())
        )
    return (*available, Device("cpu", f"CPU, {torch.get_num_threads()} threads"))


def device_name(device: str) -> str:
    """Return the display name of a device. Imports torch for a GPU."""
    if not device.startswith("cuda"):
        return platform.processor() or "CPU"
    return torch.cuda.get_device_name(device)


def resolve(name: str, present: tuple[Device, ...] | None = None) -> Resolved:
    """Resolve a device name: "auto" takes the fastest, an unavailable one falls back to the CPU with a note.

    Raises JobError for a name that is no device at all.

    >>> resolve("cuda:7", (Device("cpu", "CPU"),)).note
    'cuda:7 is not available here, so the run uses the CPU.'
    >>> resolve("auto", (Device("cuda:0", "H200"), Device("cpu", "CPU"))).id
    'cuda:0'
    """
    if not DEVICE.fullmatch(name):
        raise JobError(
            f"device is “{name}”; it must be auto, cpu, mps, cuda or cuda:0, cuda:1 ..."
        )
    present = devices() if present is None else present
    if name == "auto":
        return Resolved(present[0].id)
    device_id = re.sub(r"^cuda$", "cuda:0", name)
    if any(device.id == device_id for device in present):
        return Resolved(device_id)
    return Resolved("cpu", f"{name} is not available here, so the run uses the CPU.")
