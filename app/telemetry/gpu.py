"""GPU utilisation and temperature from NVIDIA's management library, and statistics of CUDA's allocator."""

from __future__ import annotations

from typing import Any

import torch

from app.telemetry.gpu_figures import Allocator, GpuReading


def read(device: str) -> GpuReading:
    """Query `device`, such as "cuda:0". Everything else has no such numbers."""
    if not device.startswith("cuda"):
        return GpuReading(
            reason=f"{device} reports neither utilisation nor temperature"
        )
    try:
        import pynvml
    except ImportError:
        return GpuReading(reason="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuReading(reason=f"NVIDIA's management library reports: {error}")
    try:
        return _read(pynvml, pynvml.nvmlDeviceGetHandleByUUID(_uuid(device)))
    except pynvml.NVMLError as error:
        return GpuReading(reason=f"NVIDIA's management library reports: {error}")
    finally:
        pynvml.nvmlShutdown()


def _uuid(device: str) -> str:
    """Return the GPU's UUID: CUDA_VISIBLE_DEVICES may renumber GPUs."""
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _read(library: Any, handle: Any) -> GpuReading:
    """Query this GPU; unsupported values are None."""

    def query(function: Any, *arguments: Any) -> Any:
        try:
            return function(handle, *arguments)
        except library.NVMLError:
            return None

    name, rates = (
        query(library.nvmlDeviceGetName),
        query(library.nvmlDeviceGetUtilizationRates),
    )
    memory = query(library.nvmlDeviceGetMemoryInfo)
    return GpuReading(
        str(name or ""),
        rates.gpu if rates is not None else None,
        query(library.nvmlDeviceGetTemperature, library.NVML_TEMPERATURE_GPU),
        memory.used if memory is not None else None,
        memory.total if memory is not None else None,
    )


def allocator(device: str) -> Allocator | None:
    """Return the statistics of CUDA's allocator; None for another device."""
    if not device.startswith("cuda"):
        return None
    stats = torch.cuda.memory_stats(device)
    names = (
        "allocated_bytes.all.current",
        "reserved_bytes.all.current",
        "allocated_bytes.all.peak",
        "inactive_split_bytes.all.current",
    )
    return Allocator(*(int(stats.get(name, 0)) for name in names))


def empty_cache(device: str) -> int:
    """Return unused cached memory to the device; return the number of bytes."""
    before = torch.cuda.memory_reserved(device)
    with torch.cuda.device(device):
        torch.cuda.empty_cache()
    return before - torch.cuda.memory_reserved(device)


def write_snapshot(path: str) -> None:
    """Save a snapshot of CUDA's allocator, for pytorch.org/memory_viz. Raises OSError."""
    torch.cuda.memory._dump_snapshot(path)
