"""What is asked of an engine itself: what it is, and how it fares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from app.engine.protocol import Request


@dataclass(frozen=True)
class Vitals:
    """`memory` is resident memory in bytes, `kept` how many things are alive under handles."""

    pid: int
    memory: int | None
    kept: int


@dataclass(frozen=True)
class Measure(Request[Vitals]):
    """How the engine fares."""

    lane: ClassVar[str] = "measure"
