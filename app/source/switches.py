"""Switches of torch that code of the user turns for the whole process when it is imported, each with its line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from msgspec import Struct

_noted: list[str] = []  # what was turned in this process


class Switches(Struct, frozen=True):
    """What holds for every operation of torch in this process, or in this thread for `gradients`."""

    gradients: bool
    dtype: str
    deterministic: bool
    anomaly: bool

    def turned_since(self, before: Switches, file: Path | None) -> Iterator[str]:
        """Yield a sentence for each switch that differs, with the line of `file` that turns it."""
        if self.gradients != before.gradients:
            yield f"Its file turns gradients {_state(self.gradients)} for all of torch{_line(file, 'grad_enabled')}"
        if self.dtype != before.dtype:
            yield f"Its file makes {self.dtype} the default of all of torch{_line(file, 'default_dtype')}"
        if self.deterministic != before.deterministic:
            location = _line(file, "deterministic_algorithms")
            yield f"Its file turns deterministic algorithms {_state(self.deterministic)} for all of torch{location}"
        if self.anomaly != before.anomaly:
            location = _line(file, "detect_anomaly")
            yield f"Its file turns the detection of anomalies {_state(self.anomaly)} for all of torch{location}"


def current() -> Switches:
    """Return the switches as they are."""
    return Switches(
        torch.is_grad_enabled(),
        str(torch.get_default_dtype()).removeprefix("torch."),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_anomaly_enabled(),
    )


@contextmanager
def noting(file: Path | None) -> Iterator[None]:
    """Note what the code of `file` turns meanwhile, for `noted`."""
    before = current()
    try:
        yield
    finally:
        _noted.extend(
            f"{sentence}." for sentence in current().turned_since(before, file)
        )


def noted() -> str:
    """Return sentences about all that was turned in this process while a model was made; "" for nothing."""
    return " ".join(dict.fromkeys(_noted))


def _state(on: bool) -> str:
    return "on" if on else "off"


def _line(file: Path | None, word: str) -> str:
    """Return where a file calls what has this word in its name, as " (line 5 of net.py)"; "" if it does not."""
    if file is None:
        return ""
    lines = file.read_text("utf-8", "replace").splitlines()
    number = next(
        (number for number, line in enumerate(lines, 1) if f"{word}(" in line), 0
    )
    return f" (line {number} of {file.name})" if number else ""
