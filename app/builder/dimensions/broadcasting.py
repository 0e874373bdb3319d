"""Alignment of shapes that broadcast, right-justified, with stretched, missing and clashing dimensions, as in PyTorch's
broadcasting semantics."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from app.builder.value_types import Size

SAME, STRETCHED, MISSING, CLASH = "same", "stretched", "missing", "clash"


class Aligned(Struct, frozen=True):
    """One shape above another: (size, SAME | STRETCHED | MISSING | CLASH) a dimension."""

    name: str
    node: str
    cells: tuple[tuple[str, str], ...]


def line_up(
    tensors: Sequence[tuple[str, str, tuple[Size, ...]]],
) -> tuple[Aligned, ...]:
    """Align the (name, node, shape) of tensors, one row each; () for fewer than two.

    >>> [row.cells for row in line_up((("a", "a", (4, 1)), ("b", "b", (3,))))]
    [(('4', 'same'), ('1', 'stretched')), (('', 'missing'), ('3', 'same'))]
    >>> [row.cells for row in line_up((("a", "a", (4,)), ("b", "b", (3,))))]
    [(('4', 'clash'),), (('3', 'clash'),)]
    """
    if len(tensors) < 2:
        return ()
    rank = max(len(shape) for _, _, shape in tensors)
    padded = [(*(None,) * (rank - len(shape)), *shape) for _, _, shape in tensors]
    sizes_by_column = [
        {size for size in sizes if size not in (None, 1)}
        for sizes in zip(*padded, strict=True)
    ]
    return tuple(
        Aligned(
            name,
            node,
            tuple(
                _cell(size, others)
                for size, others in zip(row, sizes_by_column, strict=True)
            ),
        )
        for (name, node, _), row in zip(tensors, padded, strict=True)
    )


def _cell(size: Size | None, others: set[Size | None]) -> tuple[str, str]:
    """Classify a dimension of a shape; `others` are the sizes other than 1 in that column."""
    if size is None:
        return "", MISSING
    if size == 1:
        return "1", STRETCHED if others else SAME
    return str(size), CLASH if len(others) > 1 else SAME
