"""Request: the state of an engine."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Request


class Vitals(Struct, frozen=True):
    """`memory` is resident memory in bytes, `kept` the number of objects held under handles."""

    pid: int
    memory: int | None
    kept: int


class Measure(Request[Vitals], frozen=True):
    """How the engine fares."""

    lane: ClassVar[str] = "measure"
