"""Match the operations of one call in two models, and find the first that differ."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor
from torch.overrides import resolve_name

from app.features.compare.compute.structure import common
from app.observe import tensors

# Products whose every element is a sum over a dimension that both have.
_PRODUCTS = frozenset(
    """linear matmul __matmul__ __rmatmul__ mm bmm addmm baddbmm addbmm einsum conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d scaled_dot_product_attention tensordot inner bilinear""".split()
)
_MOVES = frozenset(
    """view reshape contiguous transpose permute flatten unflatten squeeze unsqueeze expand expand_as chunk split
    unbind __getitem__ T mT clone detach to type_as size select narrow view_as movedim swapaxes repeat tile""".split()
)


def reduction_length(func: Any, inputs: Sequence[Tensor], output: Tensor) -> int:
    """Return about how many terms one element of a result sums.

    >>> reduction_length(torch.matmul, [torch.zeros(2, 8), torch.zeros(8, 3)], torch.zeros(2, 3))
    8
    """
    name = getattr(func, "__name__", "")
    if not inputs or not output.numel():
        return 1
    if name in _PRODUCTS and len(inputs) > 1:
        return max(
            1, math.isqrt(inputs[0].numel() * inputs[1].numel() // output.numel())
        )
    last = output.shape[-1] if output.dim() else 1
    return max(1, max(tensor.numel() for tensor in inputs) // output.numel(), last)


class Operation(Struct, frozen=True, eq=False):
    """An operation that ran: its name, arguments that are no tensors, its place, and the numbers that it computed."""

    name: str
    settings: tuple[str, ...]
    place: tuple[str, int]
    values: Tensor

    @staticmethod
    def of(
        func: Any,
        args: Any,
        kwargs: Any,
        outputs: Sequence[Tensor],
        location: tuple[str, int],
    ) -> Operation:
        return Operation(
            _name(func), tensors.settings_of(args, kwargs), location, _flat(outputs)
        )

    @property
    def moves(self) -> bool:
        """Return whether it computes nothing: it makes a view, or moves elements."""
        return self.name in _MOVES

    @property
    def text(self) -> str:
        return (
            f"{self.name}({', '.join(self.settings)})" if self.settings else self.name
        )


def _name(func: Any) -> str:
    name: str | None = None
    with contextlib.suppress(
        Exception
    ):  # what names an unknown callable may raise anything
        name = resolve_name(func)
    full_name = str(name or getattr(func, "__name__", "operation"))
    return full_name.removesuffix(".__get__").rpartition(".")[2]


def _flat(outputs: Sequence[Tensor]) -> Tensor:
    parts = [
        torch.view_as_real(tensor) if tensor.is_complex() else tensor
        for tensor in outputs
        if tensor.layout is torch.strided
    ]
    flat = [
        tensor.detach().reshape(-1).to("cpu", copy=True).double() for tensor in parts
    ]
    return torch.cat(flat) if flat else torch.empty(0)


def first_different(
    a: Sequence[Operation], b: Sequence[Operation], bound: float
) -> tuple[Operation | None, Operation | None]:
    """Return the first operations of A and of B that differ: two in the same place that compute other numbers, unless
    one before them computes numbers that no operation of the other model does.

    What makes views or moves elements is passed over unless nothing else differs.
    """
    pairs = common(
        [operation.name for operation in a], [operation.name for operation in b]
    )
    for also_moves in (False, True):
        index_a, other = (
            _first_alone(a, b, bound, also_moves),
            _first_alone(b, a, bound, also_moves),
        )
        for at, to in pairs:
            if not (also_moves or not a[at].moves) or _equal(
                a[at].values, b[to].values, bound
            ):
                continue
            if (index_a is None or at <= index_a) and (other is None or to <= other):
                return a[at], b[to]
            break
        if index_a is not None or other is not None:
            return a[index_a] if index_a is not None else None, b[
                other
            ] if other is not None else None
    return None, None


def first_by_name(
    a: Sequence[Operation], b: Sequence[Operation]
) -> tuple[Operation | None, Operation | None]:
    """Return the first operation of each that the other does not run at that place, by name: what differs in gradients
    alone, such as `detach`, computes the same numbers."""
    pairs = common(
        [operation.name for operation in a], [operation.name for operation in b]
    )
    ours, theirs = {at for at, _ in pairs}, {to for _, to in pairs}
    return (
        next((operation for at, operation in enumerate(a) if at not in ours), None),
        next((operation for at, operation in enumerate(b) if at not in theirs), None),
    )


def _first_alone(
    mine: Sequence[Operation], others: Sequence[Operation], bound: float, moves: bool
) -> int | None:
    for at, operation in enumerate(mine):
        if operation.moves and not moves:
            continue
        if not any(_equal(operation.values, other.values, bound) for other in others):
            return at
    return None


def _equal(a: Tensor, b: Tensor, bound: float) -> bool:
    if a.numel() != b.numel():
        return False
    if torch.equal(a, b):
        return True
    counts = (a != b) & ~(a.isnan() & b.isnan())
    x, y = a[counts], b[counts]
    if not bool((x.isfinite() & y.isfinite()).all()):
        return False
    return float((x - y).norm()) <= bound * max(float(a[a.isfinite()].norm()), 1e-300)
