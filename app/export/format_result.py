"""The result of writing a network in another format, as a value."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from app.util.errors import CodedError

Kind = Literal["PT2", "ONNX"]


class FormatError(CodedError):
    """A net that a format does not support, or a file that does not run; the text says which and why."""


class OpenAxis(Struct, frozen=True):
    """An axis of an input that a file takes in any size, counted from 0, which is the batch."""

    name: str
    axis: int

    def __str__(self) -> str:
        return f"{self.name}.{self.axis}"


def parse_axis(text: str) -> OpenAxis:
    """Parse an axis, written as NAME.AXIS. Raises FormatError.

    >>> parse_axis("tokens.1")
    OpenAxis(name='tokens', axis=1)
    """
    name, _, axis = text.rpartition(".")
    if not name or not axis.isdecimal() or not int(axis):
        raise FormatError(
            f"{text!r} does not name an axis; write NAME.AXIS, such as tokens.1; axis 0 is the batch"
        )
    return OpenAxis(name, int(axis))


class WrittenFormat(Struct, frozen=True):
    """A file that was written and run. `any_batch` is False if it is limited to batches of one, because of `why`.

    `largest` is the largest difference to the outputs of the live net, relative to the largest number of the same
    output, None if not numeric; `random` means that the net draws random numbers, so that runs may differ. `fixed`
    are the sizes that are those of the inputs that it was made with, such as "tokens.1 = 16".
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
    fixed: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """A sentence for the user."""
        batch = (
            "batches of any size" if self.any_batch else f"batches of one ({self.why})"
        )
        batch += f" with {', '.join(self.fixed)}" if self.fixed else ""
        return f"{self.path.name} takes {batch}; {self.by} {self.finding}."
