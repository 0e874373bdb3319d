"""The result of writing a network in another format, as a value."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from app.util.errors import CodedError
from app.util.late_dataclass import dataclass

Kind = Literal["PT2", "ONNX"]


class FormatError(CodedError):
    """A net that a format does not support, or a file that does not run; the text says which and why."""


@dataclass(frozen=True)
class WrittenFormat:
    """A file that was written and run. `any_batch` is False if it is limited to batches of one, because of `why`.

    `largest` is the largest difference to the outputs of the live net, relative to the largest number of the same
    output, None if not numeric; `random` means that the net draws random numbers, so that runs may differ.
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
        """A sentence for the user."""
        batch = "batches of any size" if self.any_batch else f"batches of one ({self.why})"
        return f"{self.path.name} takes {batch}; {self.by} {self.finding}."
