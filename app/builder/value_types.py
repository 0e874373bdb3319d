"""The types of values on wires: tensors with a symbolic batch, and tuples of them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Dim:
    """A dimension that grows with the batch: `scale * N + offset`.

    >>> str(Dim(1, 0)), str(Dim(49, 0)), str(Dim(1, 3))
    ('N', '49N', 'N+3')
    """

    scale: int
    offset: int = 0

    def __str__(self) -> str:
        n = "N" if self.scale == 1 else f"{self.scale}N"
        return n + (f"{self.offset:+d}" if self.offset else "").replace("-", "−")

    def at(self, batch: int) -> int:
        return self.scale * batch + self.offset


Size = int | Dim


def sizes_at(sizes: tuple[Size, ...], batch: int) -> tuple[int, ...]:
    """The sizes with N = `batch`."""
    return tuple(size.at(batch) if isinstance(size, Dim) else size for size in sizes)


@dataclass(frozen=True)
class TensorType:
    """A tensor: its sizes, of which some may depend on the batch N, and the name of its dtype.

    `strides` is None where it lies in memory row by row; a transposed one does not, and `view` minds.

    >>> str(TensorType((Dim(1), 32, 26, 26)))
    'N×32×26×26'
    """

    shape: tuple[Size, ...]
    dtype: str = "float32"
    strides: tuple[Size, ...] | None = None

    def __str__(self) -> str:
        return "×".join(map(str, self.shape)) or "scalar"

    @property
    def tuple_text(self) -> str:
        """As Python writes a shape: `(N, 32, 26, 26)`."""
        text = ", ".join(str(size).replace("−", "-") for size in self.shape)
        return f"({text},)" if len(self.shape) == 1 else f"({text})"

    def at(self, batch: int) -> tuple[int, ...]:
        """The shape with N = `batch`."""
        return sizes_at(self.shape, batch)

    def per_sample(self) -> int | None:
        """How many values one sample has, None if the first dimension is not the batch."""
        if self.shape and self.shape[0] == Dim(1) and all(isinstance(size, int) for size in self.shape[1:]):
            return math.prod(size for size in self.shape[1:] if isinstance(size, int))
        return None


@dataclass(frozen=True)
class TupleType:
    """Several values as one, as an LSTM's `(h_n, c_n)`."""

    items: tuple[ValueType, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


ValueType = TensorType | TupleType
