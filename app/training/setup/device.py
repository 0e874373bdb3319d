"""A device that torch found, and the one that a run takes."""

from __future__ import annotations

from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class Device:
    """A device: `id` is torch's name for it; `memory` is in bytes, None if unknown."""

    id: str
    name: str
    memory: int | None = None


@dataclass(frozen=True)
class Resolved:
    """The device of a run; `note` explains a fallback."""

    id: str
    note: str | None = None
