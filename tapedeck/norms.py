"""L2 norms of gradients: the one place that computes them, for the program and in a watched script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_BY_ROW_OR_COLUMN = (
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
)


def values_of(gradient: Tensor) -> Tensor:
    """Return the stored values of a gradient, detached: of a sparse one each row once, of a complex one magnitudes."""
    values = gradient.detach()
    if values.layout is torch.sparse_coo:
        values = values.coalesce().values()
    elif values.layout in _BY_ROW_OR_COLUMN:
        values = values.values()
    return values.abs() if values.is_complex() else values


def norm_of(values: Tensor) -> Tensor:
    """Return the L2 norm as a scalar on the device, in single precision at least."""
    if values.dtype.itemsize < 4:
        return torch.linalg.vector_norm(values, dtype=torch.float32)
    return torch.linalg.vector_norm(values)


def norms_of(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the L2 norm of each gradient, a scalar on its device, in single precision at least."""
    values = [values_of(gradient) for gradient in gradients]
    wide = [tensor for tensor in values if tensor.dtype.itemsize >= 4]
    norms = iter(torch._foreach_norm(wide) if wide else ())
    return [
        next(norms) if tensor.dtype.itemsize >= 4 else norm_of(tensor)
        for tensor in values
    ]
