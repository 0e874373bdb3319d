"""Node search: letters of the name or class, and `shape:64` for output shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from app.builder.value_types import TensorType, TupleType, ValueType


class Query(Struct, frozen=True):
    """`words` are for name and class, `shapes` are runs of sizes, each of which a value must have."""

    words: str
    shapes: tuple[tuple[str, ...], ...] = ()


def parse(text: str) -> Query:
    """Parse a search text.

    >>> parse("conv shape:64 shape:Nx8x8")
    Query(words='conv', shapes=(('64',), ('N', '8', '8')))
    """
    parts = text.split()
    shapes = [part[6:] for part in parts if part.lower().startswith("shape:")]
    words = " ".join(part for part in parts if not part.lower().startswith("shape:"))
    sizes = (
        tuple(size for size in re.split(r"[x×,*()]+", shape) if size)
        for shape in shapes
    )
    return Query(words, tuple(run for run in sizes if run))


def has_shapes(query: Query, values: Iterable[ValueType]) -> bool:
    """Return whether each sequence of sizes occurs consecutively in some value's shape."""
    known = [shape for value in values for shape in _shapes(value)]
    return all(any(_stands_in(run, shape) for shape in known) for run in query.shapes)


def _shapes(value: ValueType) -> list[tuple[str, ...]]:
    if isinstance(value, TensorType):
        return [tuple(map(str, value.shape))]
    return (
        [shape for item in value.items for shape in _shapes(item)]
        if isinstance(value, TupleType)
        else []
    )


def _stands_in(run: tuple[str, ...], shape: tuple[str, ...]) -> bool:
    return any(shape[i : i + len(run)] == run for i in range(len(shape) - len(run) + 1))
