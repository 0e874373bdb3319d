"""What a snapshot of an allocator says, in sentences, for the window and the command."""

from __future__ import annotations

from app.features.memory.values import AllocationSite, DeviceSnapshot, OutOfMemory
from app.util.formatting import bytes_text
from app.util.language import tr, trn


def summary(device: DeviceSnapshot) -> str:
    """Return what a device had in use, reserved and free."""
    text = tr(
        "Device {number}: {in_use} in use of {reserved} reserved; the largest free block has {free}.",
        number=device.device,
        in_use=bytes_text(device.in_use),
        reserved=bytes_text(device.reserved),
        free=bytes_text(device.largest_free),
    )
    if not device.events:
        return f"{text} {tr('No history was recorded.')}"
    peak = trn(
        "At most {peak} were in use over {count} recorded event.",
        "At most {peak} were in use over {count} recorded events.",
        device.events,
        peak=bytes_text(device.peak),
    )
    return f"{text} {peak}"


def site_text(site: AllocationSite) -> str:
    """Return the line that allocated, and what of torch it called."""
    if not site.path:
        return tr("before the recording")
    where = f"{site.path}:{site.line} {site.function}"
    return f"{where} ({site.inside})" if site.inside else where


def out_of_memory_text(failure: OutOfMemory) -> str:
    """Return what could not be allocated, and where."""
    return tr(
        "Out of memory: {size} wanted, {free} left on the device, in {path}:{line} {function}.",
        size=bytes_text(failure.size),
        free=bytes_text(failure.device_free),
        path=failure.path,
        line=failure.line,
        function=failure.function,
    )
