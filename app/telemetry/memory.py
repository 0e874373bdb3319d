"""Memory of the device, or the resident memory of this process."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Literal

from msgspec import Struct

from tapedeck import devices

EVERY = 0.25


class MemoryReading(Struct, frozen=True):
    """Memory in bytes. `scope` is their owner; figures that it does not provide are None."""

    scope: Literal["device", "process"]
    allocated: int | None = None
    reserved: int | None = None
    peak: int | None = None
    resident: int | None = None


def read(device: str) -> MemoryReading:
    """Return the memory of an accelerator, or of this process for the CPU and where an accelerator tells none."""
    figures = devices.memory(device) if device != "cpu" else devices.Memory()
    if figures.allocated is None:
        return MemoryReading("process", resident=resident())
    return MemoryReading("device", figures.allocated, figures.reserved, figures.peak)


def resident() -> int | None:
    """Return the resident memory of this process in bytes; None if the system does not report it."""
    if sys.platform == "linux":
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if sys.platform == "darwin":
        return _resident_darwin()
    if sys.platform == "win32":
        return _resident_windows()
    return None


class _TaskInfo(ctypes.Structure):
    """`struct proc_taskinfo` of <sys/proc_info.h>."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "virtual_size",
            "resident_size",
            "total_user",
            "total_system",
            "threads_user",
            "threads_system",
        )
    ] + [(f"count_{index}", ctypes.c_int32) for index in range(12)]


def _resident_darwin() -> int | None:
    proc_pidtaskinfo = 4
    info = _TaskInfo()
    library = ctypes.CDLL("/usr/lib/libproc.dylib")
    arguments = (
        os.getpid(),
        proc_pidtaskinfo,
        ctypes.c_uint64(0),
        ctypes.byref(info),
        ctypes.sizeof(info),
    )
    written = library.proc_pidinfo(*arguments)
    return int(info.resident_size) if written == ctypes.sizeof(info) else None


class _MemoryCounters(ctypes.Structure):
    """`PROCESS_MEMORY_COUNTERS` of <psapi.h>."""

    _fields_ = [("cb", ctypes.c_uint32), ("page_faults", ctypes.c_uint32)] + [
        (name, ctypes.c_size_t)
        for name in (
            "peak_working_set",
            "working_set",
            "quota_peak_paged",
            "quota_paged",
            "quota_peak_non_paged",
            "quota_non_paged",
            "page_file",
            "peak_page_file",
        )
    ]


def _resident_windows() -> int | None:
    libraries: Any = ctypes.__dict__["windll"]
    counters = _MemoryCounters(cb=ctypes.sizeof(_MemoryCounters))
    libraries.kernel32.GetCurrentProcess.restype = ctypes.c_void_p
    process = ctypes.c_void_p(libraries.kernel32.GetCurrentProcess())
    answered = libraries.psapi.GetProcessMemoryInfo(
        process, ctypes.byref(counters), counters.cb
    )
    return int(counters.working_set) if answered else None
