"""A growing table of float64: rows are appended, columns are read."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


class Columns:
    """Rows of float64 numbers of one width; appending is amortised, reading a column copies nothing."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self._data: Array = np.empty((len(names), 256))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, name: str) -> Array:
        """Return the column as a read-only view, shape (rows,)."""
        return self.matrix()[self.names.index(name)]

    def append(self, *row: float | None) -> None:
        """Append a row; None becomes NaN."""
        self._make_room(1)
        self._data[:, self._count] = [
            np.nan if value is None else value for value in row
        ]
        self._count += 1

    def extend(self, rows: Array) -> None:
        """Append many rows at once, shape (columns, rows)."""
        count = rows.shape[1]
        self._make_room(count)
        self._data[:, self._count : self._count + count] = rows
        self._count += count

    def _make_room(self, count: int) -> None:
        """Reserve capacity for `count` more rows."""
        if self._count + count > self._data.shape[1]:
            grown = np.empty(
                (len(self.names), max(2 * self._data.shape[1], self._count + count))
            )
            grown[:, : self._count] = self._data[:, : self._count]
            self._data = grown

    def cut(self, count: int) -> None:
        """Keep the first `count` rows."""
        # In a new array: later appends must not show in views that were returned.
        self._data = np.concatenate(
            [self._data[:, :count], np.empty((len(self.names), 256))], axis=1
        )
        self._count = count

    def matrix(self) -> Array:
        """Return all columns as a read-only view, shape (columns, rows)."""
        view = self._data[:, : self._count]
        view.flags.writeable = False
        return view
