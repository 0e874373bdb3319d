"""What became of an odd file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """A file by name: how it was read, or the sentence that refuses it; and what is wrong with that, "" if nothing."""

    name: str
    outcome: str
    fault: str = ""
