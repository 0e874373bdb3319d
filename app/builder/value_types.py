"""The types of values on wires: tensors with a symbolic batch, numbers that may depend on it, and tuples of both."""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct

from app.util.formatting import shape_text
from app.util.frozen import Shared

# Every call runs with both batch sizes; what differs between them depends on N. Both are primes that no layer has as a
# size, so that the batch is not taken for channels, nor a batch of one size for one of any.
BATCHES = (1009, 2017)


class Dim(Struct, frozen=True):
    """A dimension that grows with the batch: `scale * N + offset`.

    >>> str(Dim(1, 0)), str(Dim(49, 0)), str(Dim(1, 3))
    ('N', '49N', 'N+3')
    """

    scale: int
    offset: int = 0

    def __str__(self) -> str:
        n = "N" if self.scale == 1 else f"{self.scale}N"
        return n + (f"{self.offset:+d}" if self.offset else "").replace("-", "−")

    def with_batch(self, batch: int) -> int:
        return self.scale * batch + self.offset


Size = int | Dim


def sizes_at(sizes: tuple[Size, ...], batch: int) -> tuple[int, ...]:
    """Return the sizes with N = `batch`."""
    return tuple(
        size.with_batch(batch) if isinstance(size, Dim) else size for size in sizes
    )


class TensorType(Shared, frozen=True):
    """A tensor: its sizes, of which some may depend on the batch N, and the name of its dtype.

    `strides` is None where it lies in memory row by row; a transposed one does not, and `view` minds.

    >>> str(TensorType((Dim(1), 32, 26, 26)))
    'N×32×26×26'
    """

    shape: tuple[Size, ...]
    dtype: str = "float32"
    strides: tuple[Size, ...] | None = None

    def __str__(self) -> str:
        return shape_text(self.shape, "scalar")

    @property
    def tuple_text(self) -> str:
        """As Python writes a shape: `(N, 32, 26, 26)`."""
        text = ", ".join(str(size).replace("−", "-") for size in self.shape)
        return f"({text},)" if len(self.shape) == 1 else f"({text})"

    def with_batch(self, batch: int) -> tuple[int, ...]:
        """Return the shape with N = `batch`."""
        return sizes_at(self.shape, batch)

    def per_sample(self) -> int | None:
        """Return the number of values per sample, None if the first dimension is not the batch."""
        if (
            self.shape
            and self.shape[0] == Dim(1)
            and all(isinstance(size, int) for size in self.shape[1:])
        ):
            return math.prod(size for size in self.shape[1:] if isinstance(size, int))
        return None


class NumberType(Struct, frozen=True):
    """A number: its value at each of the two batch sizes, and its kind, "int", "float" or "bool".

    >>> [str(NumberType.from_batches(*pair)) for pair in ((1009, 2017), (64, 64), (0.5, 0.5))]
    ['N', '64', '0.5']
    """

    first: int | float | bool
    second: int | float | bool
    kind: str = "int"

    @classmethod
    def from_batches(cls, first: Any, second: Any) -> NumberType:
        return cls(first, second, type(first).__name__)

    @property
    def constant(self) -> bool:
        return self.first == self.second or self.first != self.first

    @property
    def size(self) -> Size | None:
        """It as a size, None if it is none or does not grow in step with the batch."""
        if self.kind != "int" or self.constant:
            return self.first if self.kind == "int" else None  # type: ignore[return-value]
        scale, rest = divmod(self.second - self.first, BATCHES[1] - BATCHES[0])
        return None if rest else Dim(int(scale), int(self.first - scale * BATCHES[0]))

    def __str__(self) -> str:
        return (
            str(self.size)
            if self.kind == "int" and self.size is not None
            else (repr(self.first) if self.constant else "f(N)")
        )

    @property
    def tuple_text(self) -> str:
        """Format for a comment, with a plain minus."""
        return str(self).replace("−", "-")

    def with_batch(self, batch: int) -> int | float | bool:
        """Return the value with N = `batch`: computed, or extrapolated linearly, which is exact for sizes."""
        if self.constant or batch == BATCHES[0]:
            return self.first
        if batch == BATCHES[1]:
            return self.second
        if self.kind == "bool":
            return self.first
        if self.kind == "int":  # whole numbers may be too large for floating point
            return self.first + (self.second - self.first) * (batch - BATCHES[0]) // (
                BATCHES[1] - BATCHES[0]
            )
        return self.first + (self.second - self.first) / (BATCHES[1] - BATCHES[0]) * (
            batch - BATCHES[0]
        )


class TupleType(Struct, frozen=True):
    """Several values as one, as an LSTM's `(h_n, c_n)` or the shape of a tensor."""

    items: tuple[ValueType, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


ValueType = TensorType | NumberType | TupleType


def kind_of(value: ValueType | None) -> str:
    """Return the kind of port that accepts a value: "tensor", "number" or "tuple".

    >>> kind_of(TupleType((NumberType(1, 1),)))
    'tuple'
    """
    return (
        "tuple"
        if isinstance(value, TupleType)
        else "number"
        if isinstance(value, NumberType)
        else "tensor"
    )


def kinds_fit(output_kind: str, port_kind: str) -> bool:
    """Return whether an output of one kind may be wired to a port of another. Several kinds are joined by "or"; "any"
    accepts all of them, as a block's inputs do before inference.

    >>> kinds_fit("number", "tensor or number"), kinds_fit("tuple", "tensor or number"), kinds_fit("tuple", "any")
    (True, False, True)
    """
    return (
        output_kind == port_kind
        or "any" in (output_kind, port_kind)
        or not set(output_kind.split(" or ")).isdisjoint(port_kind.split(" or "))
    )
