"""Return the dense tensors that make up a sparse tensor of any layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_BY_ROW = (torch.sparse_csr, torch.sparse_bsr)
_BY_COLUMN = (torch.sparse_csc, torch.sparse_bsc)


def values_of(tensor: Tensor) -> Tensor:
    """Return the stored values of a tensor, sharing its memory; a dense tensor itself."""
    if tensor.layout is torch.strided:
        return tensor
    return tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()


def parts_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the dense tensors behind a tensor: itself, or its indices and, last, its values. Empty if its memory
    cannot be read, as for mkldnn."""
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in _BY_ROW:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in _BY_COLUMN:
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    if tensor.layout is torch.jagged:
        return tensor.offsets(), tensor.values()  # type: ignore[attr-defined]
    return ()


def at_places_of(sparse: Tensor, gradient: Tensor) -> Tensor:
    """Return the elements of `gradient`, dense or sparse, at the indices of `sparse`, in the order and shape of its
    values. A COO tensor has to be coalesced."""
    values = values_of(sparse)
    numbers = torch.arange(
        1, values.numel() + 1, dtype=torch.float64, device=values.device
    ).view_as(values)
    if sparse.layout is torch.sparse_coo:
        positions = torch.sparse_coo_tensor(
            sparse._indices(), numbers, sparse.shape
        ).to_dense()
    else:
        first, second, _ = parts_of(sparse)
        positions = torch.sparse_compressed_tensor(
            first, second, numbers, sparse.shape, layout=sparse.layout
        ).to_dense()
    dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
    gathered = torch.zeros(values.numel(), dtype=dense.dtype, device=dense.device)
    present = positions > 0
    gathered[positions[present].long() - 1] = dense[present]
    return gathered.view_as(values)
