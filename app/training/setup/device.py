"""A device that torch found, and the one that a run takes."""

from __future__ import annotations

from msgspec import Struct


class Device(Struct, frozen=True):
    """A device: `id` is torch's name for it; `memory` is in bytes, None if unknown."""

    id: str
    name: str
    memory: int | None = None


class Resolved(Struct, frozen=True):
    """The device of a run; `note` explains a fallback."""

    id: str
    note: str | None = None
