"""Append-only tables of float64 or int64: a line of column names, then rows of eight bytes per number.

Appended rows survive a crash of the process; a partial last row is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.util.errors import CodedError

Array: TypeAlias = NDArray[np.float64]
FLOATS, INTEGERS = "<f8", "<i8"
LONGEST_HEAD = 1 << 25  # a table of histograms has 34 columns a layer


class TableError(CodedError, ValueError):
    """Raised for an invalid table file; the message names it."""


def append(
    path: Path,
    names: Sequence[str],
    rows: Sequence[Sequence[float | None]],
    kind: str = FLOATS,
) -> None:
    """Append rows of one kind of numbers, None as NaN; create the table if needed. Raises OSError and TableError."""
    data = np.array(rows, dtype=kind)  # which makes nan of None
    head = _head(names, kind)
    with path.open("ab") as file:
        end = file.tell()
        if end:
            if _read_head(path) != (list(names), kind, len(head)):
                raise TableError(f"{path} has other columns")
            if spare := (end - len(head)) % (8 * len(names)):
                file.truncate(end - spare)  # what an append that was cut off has left
        else:
            file.write(head)
        file.write(data.tobytes())


def read(path: Path) -> tuple[list[str], Array]:
    """Read names and complete rows, shape (columns, rows), int64 if the table holds integers; empty for an absent file.

    Raises TableError.
    """
    if not path.exists():
        return [], np.empty((0, 0))
    names, kind, start = _read_head(path)
    numbers = np.fromfile(path, dtype=kind, offset=start)
    rows = len(numbers) // len(names) if names else 0
    return names, numbers[: rows * len(names)].reshape(rows, len(names)).T.astype(
        kind[1:]
    )


def names_of(path: Path) -> list[str]:
    """Read the column names. Raises OSError and TableError."""
    return _read_head(path)[0]


def keep(
    path: Path, condition: Callable[[dict[str, Array]], NDArray[np.bool_]]
) -> None:
    """Truncate a table before the first row that is not `condition`. Raises OSError and TableError."""
    names, columns = read(path)
    if not names:
        return
    good = condition(dict(zip(names, columns, strict=True)))
    count = len(good) if good.all() else int(np.argmin(good))
    with path.open("rb+") as file:
        file.truncate(_read_head(path)[2] + count * 8 * len(names))


def _head(names: Sequence[str], kind: str) -> bytes:
    kinds = {} if kind == FLOATS else {"type": kind}
    return json.dumps({"columns": list(names), **kinds}).encode() + b"\n"


def _read_head(path: Path) -> tuple[list[str], str, int]:
    """Return the column names, the kind of numbers, and where the rows begin."""
    with path.open("rb") as file:
        line = file.readline(LONGEST_HEAD)
    try:
        head = json.loads(line)
        names, kind = head["columns"], head.get("type", FLOATS)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TableError(f"{path} is not a run table") from error
    if (
        not isinstance(names, list)
        or not all(isinstance(name, str) for name in names)
        or not names
    ):
        raise TableError(f"{path} is not a run table")
    if kind not in (FLOATS, INTEGERS):
        raise TableError(
            f"{path} has numbers of the type {kind}, which this program does not read; update Tapedeck"
        )
    return names, kind, len(line)
