"""Exported files that are text, whole or absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.export.errors import WeightsError
from app.util import atomic


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically with `write`. Raises WeightsError, leaving `path` unchanged."""
    try:
        atomic.write(path, write)
    except OSError as error:
        raise WeightsError(atomic.failure_text(error)) from error


def write_text(path: str | Path, text: str) -> None:
    """Write a text file (UTF-8, \\n) whole or not at all. Raises WeightsError."""
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode()))
