"""A table as columns over rows of any kind: how they are shown, sorted and copied. Qt-free."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import itemgetter
from typing import Any

from msgspec import Struct

from app.util.formatting import UNKNOWN


class Column(Struct, frozen=True):
    """A column of a table: its heading, what its cells say, and how they look.

    Each function takes a row. `value` is what a column is sorted by and what its cells are in CSV, None for a row
    without one, which comes last; without it the text is. `color` names a token of the theme, `font` a role of it,
    `icon` an icon and its token; "" and () are the usual ones. A tooltip is the text unless `tip` has another, `spoken`
    is for screen readers. `copied` is the heading in copies, `exact` a cell in CSV, where they are others.
    """

    title: str
    text: Callable[[Any], str]
    meaning: str = ""
    number: bool = False
    value: Callable[[Any], Any] | None = None
    tip: Callable[[Any], str] | None = None
    color: Callable[[Any], str] | None = None
    font: Callable[[Any], str] | None = None
    icon: Callable[[Any], tuple[str, ...]] | None = None
    spoken: Callable[[Any], str] | None = None
    exact: Callable[[Any], object] | None = None
    copied: str = ""

    def value_of(self, row: Any) -> Any:
        """Return what a cell is sorted by."""
        return self.value(row) if self.value is not None else self.text(row)

    def csv_cell(self, row: Any) -> object:
        """Return the cell in CSV: exact, and empty where there is no value."""
        value = self.exact(row) if self.exact is not None else self.value_of(row)
        value = self.text(row) if value is None else value
        return "" if value == UNKNOWN else value


def text_columns(heads: Sequence[str], numbers: Collection[int] = ()) -> list[Column]:
    """Return columns over rows of texts, those of `numbers` in the font of formulas at the right; a text behind those
    of the columns is the token of the row's colour."""

    def color(row: Sequence[str]) -> str:
        return row[len(heads)] if len(row) > len(heads) else ""

    return [
        Column(
            head,
            itemgetter(at),
            number=at in numbers,
            color=color,
            font=(lambda _row: "formula") if at in numbers else None,
        )
        for at, head in enumerate(heads)
    ]


def sort_key(value: Any) -> Any:
    """Return what a value is sorted by: text regardless of case, "Run 2" before "Run 10".

    >>> sorted(["Run 10", "run 2", "Run 1"], key=sort_key)
    ['Run 1', 'run 2', 'Run 10']
    """
    if not isinstance(value, str):
        return value
    pieces = re.split(r"(\d+)", value.casefold())
    return [
        (0, int(piece), "") if piece.isdigit() else (1, 0, piece) for piece in pieces
    ]


def in_order(values: Sequence[Any], descending: bool = False) -> list[int]:
    """Return the places of values in their order; None and NaN come last, whatever the direction.

    >>> in_order([2, None, 1]), in_order([2, None, 1], descending=True)
    ([2, 0, 1], [0, 2, 1])
    """
    known = [
        at for at, value in enumerate(values) if value is not None and value == value
    ]
    placed = set(known)
    known.sort(key=lambda at: sort_key(values[at]), reverse=descending)
    return [*known, *(at for at in range(len(values)) if at not in placed)]


def as_text(columns: Sequence[Column], rows: Iterable[Any]) -> str:
    """Return rows as they are shown, separated by tabs, below their headings."""
    lines = [[column.copied or column.title for column in columns]]
    lines += [[column.text(row) for column in columns] for row in rows]
    return "\n".join("\t".join(line) for line in lines)


def as_csv(columns: Sequence[Column], rows: Iterable[Any]) -> str:
    """Return rows as CSV with exact numbers; unknown values are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(column.copied or column.title for column in columns)
    writer.writerows([column.csv_cell(row) for column in columns] for row in rows)
    return out.getvalue()
