"""Edit an incoming gradient while a backward pass is played."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from msgspec import Struct

from tapedeck.norms import norm_of, values_of

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("zero", "scale", "clip", "noise", "ones")


class GradEdit(Struct, frozen=True):
    """`kind` is "zero", "scale" (by `amount`), "clip" (the norm, to `amount` at most), "noise" (normal noise is added,
    of `amount` times the standard deviation of the gradient, drawn with `seed`) or "ones"."""

    kind: str
    amount: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(
                f"There is no edit called {self.kind}. Choose one of {', '.join(KINDS)}."
            )


def edited(gradient: Tensor, edit: GradEdit) -> Tensor:
    """Apply an edit to a copy of `gradient`. Sparse gradients become dense for noise and ones."""
    if edit.kind == "scale":
        return gradient * edit.amount
    if edit.kind == "zero":
        return torch.zeros_like(gradient)
    if edit.kind == "clip":
        norm = float(norm_of(values_of(gradient)))
        return (
            gradient * (edit.amount / norm) if norm > edit.amount else gradient.clone()
        )
    dense = gradient.to_dense() if gradient.layout is not torch.strided else gradient
    if edit.kind == "ones":
        return torch.ones_like(dense)
    generator = torch.Generator().manual_seed(edit.seed)
    noise = torch.randn(dense.shape, generator=generator, dtype=dense.dtype).to(
        dense.device
    )
    spread = values_of(dense).float().std(correction=0) if dense.numel() else 0.0
    return dense + noise * (edit.amount * float(spread))
