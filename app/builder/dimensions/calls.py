"""Input and output of the size rules: a call with its input tensors, and one `SizeNote` per dimension."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from app.builder.dimensions.formula import Formula, Symbol
from app.builder.value_types import Dim, Size, TensorType
from app.util.language import marked, tr


class DimensionSource(Struct, frozen=True):
    """One dimension of one output of a node."""

    node: str
    output: int
    dimension: int


class InputTensor(Struct, frozen=True):
    """A tensor at an input port, from output number `output` of a node named `name`."""

    node: str
    output: int
    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.type.shape

    def origin(self, dimension: int) -> DimensionSource:
        return DimensionSource(
            self.node, self.output, dimension % max(len(self.shape), 1)
        )

    def symbol(self, letter: str, dimension: int, meaning: str = "") -> Symbol:
        """Return the size of a dimension as a symbol."""
        origin = self.origin(dimension)
        return Symbol(
            letter,
            meaning
            or tr("dim {dim} of {layer}", dim=origin.dimension, layer=self.name),
            self.shape[dimension],
        )


class SizeCall(Struct, frozen=True):
    """A node as its rule sees it: parameters with AUTO filled in, inputs by port, and its output."""

    op: str
    label: str
    name: str
    params: Mapping[str, Any]
    inputs: Mapping[str, tuple[InputTensor, ...]]
    output: int
    shape: tuple[Size, ...]
    category: str = ""
    muted: bool = False
    repeat: int = 1

    @property
    def first(self) -> InputTensor:
        return next(iter(self.inputs.values()))[0]

    def each(self, name: str, axis: int, default: int = 0) -> int:
        """Return a parameter for one axis, whether it is a number or a tuple."""
        value = self.params.get(name, default)
        if isinstance(value, tuple):
            value = value[axis] if len(value) > 1 else value[0]
        return default if value is None else value


class SizeNote(Struct, frozen=True):
    """Explanation of one dimension of an output."""

    formula: Formula
    words: str
    source: DimensionSource | None = None


Rule = Callable[[SizeCall], tuple[SizeNote, ...]]


def unchanged(arrived: InputTensor, dimension: int, explanation: str = "") -> SizeNote:
    """Note a dimension that is unchanged."""
    size = arrived.shape[dimension]
    formula = Formula("x", (arrived.symbol("x", dimension),))
    explanation = explanation or tr(BATCH if size == Dim(1) else PASSES)
    return SizeNote(formula, explanation, arrived.origin(dimension))


def set_by(
    meaning: str,
    value: Size,
    explanation: str = "",
    source: DimensionSource | None = None,
) -> SizeNote:
    """Note a dimension that a parameter sets."""
    return SizeNote(
        Formula("x", (Symbol("x", meaning, value),)),
        explanation or tr("{what} sets the {value}.", what=meaning, value=value),
        source,
    )


BATCH = marked("N is the batch size, which stays the same.")
PASSES = marked("Passes through unchanged.")


def product(
    arrived: InputTensor, dimensions: range, letter: str = "d"
) -> tuple[str, tuple[Symbol, ...]]:
    """Return the product of some dimensions as text, and its symbols."""
    symbols = tuple(arrived.symbol(f"{letter}{i}", i) for i in dimensions)
    return "*".join(symbol.letter for symbol in symbols) or "1", symbols
