"""Values that an accelerator and its allocator report."""

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
    """An accelerator's caching allocator, in bytes; None what it does not tell. `split` is free memory inside used
    blocks, available to smaller tensors only; its fraction of the reserved memory is the fragmentation."""

    allocated: int
    reserved: int | None = None
    peak: int | None = None
    split: int | None = None

    @property
    def fragmentation(self) -> float | None:
        """`split` / `reserved`, 0 to 1."""
        if self.reserved is None or self.split is None:
            return None
        return self.split / self.reserved if self.reserved else 0.0
