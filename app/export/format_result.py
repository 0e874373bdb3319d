"""What came of writing a net in another format, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["PT2", "ONNX"]


class FormatError(Exception):
    """A net that a format cannot hold, or a file that does not run; the text says which and why."""


@dataclass(frozen=True)
class Written:
    """A file that was written and run. `any_batch` is False where `why` keeps it to batches of one.

    `largest` is the largest difference to the outputs of the live net, relative to the largest number of the same
    output, None where no number says it; `random` says that the net draws, so that no two runs need be the same.
    """

    path: Path
    kind: Kind
    passed: bool
    any_batch: bool
    why: str
    largest: float | None
    equal: bool
    finding: str
    by: str
    random: bool = False
    seconds: float = 0.0

    @property
    def message(self) -> str:
        """One sentence for the person."""
        batch = "batches of any size" if self.any_batch else f"batches of one ({self.why})"
        return f"{self.path.name} takes {batch}; {self.by} {self.finding}."
