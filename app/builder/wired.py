"""A parameter of which a wire gives a part: `size[0]`, `index[1].stop`."""

from __future__ import annotations

from typing import Any

from app.builder.catalog import Port
from app.builder.literals import Slice


def with_part(literal: Any, port: Port, value: Any) -> Any:
    """A literal with what a wire gives in the place that the port names; slices become Python's own.

    Raises ValueError if the literal has no such place.
    """
    place = port.name.removeprefix(port.param)
    if not place:
        return value
    item, _, part = place.partition(".")
    number = int(item.strip("[]")) if item else None
    whole = literal
    if number is not None:
        if not isinstance(literal, tuple) or number >= len(literal):
            raise ValueError(f"{port.param} has no element {number}, and a wire gives it")
        whole = literal[number]
    if part:
        if not isinstance(whole, slice | Slice):
            raise ValueError(f"{port.name.rpartition('.')[0]} is no slice, and a wire gives its {part}")
        parts = {"start": whole.start, "stop": whole.stop, "step": whole.step, part: value}
        value = slice(*parts.values())
    if number is None:
        return value
    return (*literal[:number], value, *literal[number + 1 :])
