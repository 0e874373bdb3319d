"""Unwrapping of Qt's optional return values."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def present(optional: T | None) -> T:
    """Return what Qt declares as optional, such as the layout of a widget that was given one.

    Raises RuntimeError where it is missing after all, so that the fault shows where it is.

    >>> present("a part")
    'a part'
    """
    if optional is None:
        raise RuntimeError(
            "A part of the window is missing that its constructor created."
        )
    return optional
