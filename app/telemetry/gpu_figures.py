"""Values that a GPU and CUDA's allocator report."""

from __future__ import annotations

from msgspec import Struct


class GpuReading(Struct, frozen=True):
    """Percentages, degrees Celsius, bytes; None if not available, explained by `reason`."""

    name: str = ""
    utilisation: int | None = None
    temperature: int | None = None
    used: int | None = None
    total: int | None = None
    reason: str = ""


class Allocator(Struct, frozen=True):
    """CUDA's caching allocator, in bytes. `split` is free memory inside used blocks, available to smaller tensors only;
    its fraction of the reserved memory is the fragmentation."""

    allocated: int
    reserved: int
    peak: int
    split: int

    @property
    def fragmentation(self) -> float:
        """`split` / `reserved`, 0 to 1."""
        return self.split / self.reserved if self.reserved else 0.0
