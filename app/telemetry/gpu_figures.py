"""What a GPU and CUDA's allocator report, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuReading:
    """Shares in percent, degrees Celsius, bytes; None is not available, and then `reason` says why."""

    name: str = ""
    utilisation: int | None = None
    temperature: int | None = None
    used: int | None = None
    total: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Allocator:
    """CUDA's caching allocator, in bytes. `split` lies free inside blocks that are in use, where only smaller tensors
    fit; its share of what is reserved is the fragmentation.
    """

    allocated: int
    reserved: int
    peak: int
    split: int

    @property
    def fragmentation(self) -> float:
        return self.split / self.reserved if self.reserved else 0.0
