"""Tensors for a model's declared inputs, for several batches and smaller images."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from msgspec import Struct
from torch import nn

from app.export.measure import noise
from app.source.generated import InputSpec
from app.util import module_tree
from app.util.formatting import shape_text

LEAN = 0.4
LARGE, SMALLER = (
    128,
    (64, 96, 128),
)  # sides of pictures that may be made smaller, and to what
LOOKED_UP = 16  # whole numbers, where no layer says how many it knows
FEW = 4  # a batch that is used as it is
# How numbers are spread: around zero, in [0, 1], and small whole numbers alone.
SPREADS = ("signed", "positive")


class InputShapes(Struct, frozen=True):
    """The shapes of all inputs in a stage. `batch` is None for an input without one; `side` is that of smaller images,
    0 for the declared sizes."""

    sizes: tuple[tuple[int, ...], ...]
    batch: int | None
    side: int = 0

    def __str__(self) -> str:
        return shape_text(self.sizes[0]) if self.sizes else ""


class Inputs:
    """Makes the inputs of one model. `high` is the exclusive bound of integers, `spread` the scale of floats."""

    def __init__(
        self,
        specs: tuple[InputSpec, ...],
        given: tuple[tuple[int, ...], ...],
        model: nn.Module,
    ) -> None:
        self._specs, self._given = specs, given
        sizes = [
            module.num_embeddings
            for module in module_tree.modules(model)
            if isinstance(module, nn.Embedding)
        ]
        rows = [
            len(table) for table in module_tree.parameters(model) if table.dim() == 2
        ]  # of what may be looked up, too
        few = min((count for count in rows if count > FEW), default=LOOKED_UP)
        self.high, self.spread = (
            min([*sizes, 1000]) if sizes else min(few, LOOKED_UP),
            SPREADS[0],
        )

    @property
    def batch(self) -> int | None:
        """The batch of the inputs as they were declared."""
        sizes = (
            shape[spec.batch]
            for spec, shape in zip(self._specs, self._given, strict=True)
            if spec.batch is not None and len(shape) > spec.batch
        )
        return next(sizes, None)

    def batches(self) -> tuple[int | None, ...]:
        """Return the first batch size and another one."""
        batch = self.batch
        if batch is None:
            return (None,)
        return (batch, batch + 1) if batch <= FEW else (2, 3)

    def shapes(self, batch: int | None, side: int = 0) -> InputShapes:
        """Return the shapes for a batch, with larger images replaced by ones of `side`."""
        sizes = [
            declared if batch is None else spec.sizes(batch)
            for spec, declared in zip(self._specs, self._given, strict=True)
        ]
        return InputShapes(
            tuple(_with_side(shape, side) for shape in sizes), batch, side
        )

    def smaller(self) -> Iterator[int]:
        """Yield smaller sides for images."""
        for side in SMALLER:
            if any(_with_side(shape, side) != shape for shape in self._given):
                yield side

    def choices(self) -> Iterator[tuple[int, str]]:
        """Yield value ranges to try until the model accepts them: a bound for integers, a spread for floats."""
        takes_integers = any(
            not getattr(torch, spec.dtype).is_floating_point for spec in self._specs
        )
        for high in dict.fromkeys(
            (self.high, 16, 4, 2) if takes_integers else (self.high,)
        ):
            for spread in SPREADS:
                yield high, spread

    def tensors(
        self, shapes: InputShapes, key: str, double: bool, below: bool = False
    ) -> tuple[torch.Tensor, ...]:
        """Return the inputs of a stage, deterministic by `key`. Most are positive or, with `below`, negative: with
        both, a branch on values is taken both ways."""
        lean = -LEAN if below else LEAN
        return tuple(
            self._tensor(spec, size, f"{key} {number}", double, lean)
            for number, (spec, size) in enumerate(
                zip(self._specs, shapes.sizes, strict=True)
            )
        )

    def _tensor(
        self,
        spec: InputSpec,
        size: tuple[int, ...],
        key: str,
        double: bool,
        lean: float,
    ) -> torch.Tensor:
        dtype = getattr(torch, spec.dtype)
        count = torch.Size(size).numel()
        if dtype.is_complex:
            parts = noise(f"input {key}", 2 * count).reshape(*size, 2)
            return torch.view_as_complex(parts).to(
                torch.complex128 if double else dtype
            )
        values = noise(f"input {key}", count).reshape(size)
        if dtype == torch.bool:
            return values > 0
        if not dtype.is_floating_point:
            return (
                ((values.abs() - 0.25) / 0.75 * self.high)
                .long()
                .clamp(0, self.high - 1)
                .to(dtype)
            )
        values = values.abs() if self.spread == "positive" else values * 1.5 + lean
        return values if double else values.to(dtype)


def _with_side(shape: tuple[int, ...], side: int) -> tuple[int, ...]:
    if not side or len(shape) < 4 or min(shape[-2:]) < LARGE:
        return shape
    return (*shape[:-2], min(side, shape[-2]), min(side, shape[-1]))


class GivenInputs(Inputs):
    """Tensors that are there already, in the place of made ones; `dtype` is the model's own precision."""

    def __init__(self, tensors: tuple[torch.Tensor, ...], dtype: torch.dtype) -> None:
        super().__init__((), (), nn.Identity())
        self._tensors, self._dtype = tensors, dtype

    def batches(self) -> tuple[int | None, ...]:
        return (None,)

    def shapes(self, batch: int | None, side: int = 0) -> InputShapes:
        return InputShapes(tuple(tuple(tensor.shape) for tensor in self._tensors), None)

    def choices(self) -> Iterator[tuple[int, str]]:
        yield self.high, self.spread

    def tensors(
        self, shapes: InputShapes, key: str, double: bool, below: bool = False
    ) -> tuple[torch.Tensor, ...]:
        dtype = torch.float64 if double else self._dtype
        return tuple(
            tensor.to(dtype) if tensor.is_floating_point() else tensor
            for tensor in self._tensors
        )
