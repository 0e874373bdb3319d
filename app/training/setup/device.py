"""A device that torch found, and the one that a run takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """`id` is torch's name for it; `memory` is in bytes, None where the device does not tell."""

    id: str
    name: str
    memory: int | None = None


@dataclass(frozen=True)
class Resolved:
    """The device that a run takes; `note` says so where it is not the one that was asked for."""

    id: str
    note: str | None = None
