"""Measure several gradients with a single device synchronization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch

from app.autograd.playback.steps import GradientLook, GradStats, Picture
from app.telemetry.histogram_of import histogram
from app.util.formatting import significant
from tapedeck import devices
from tapedeck.norms import norm_of, values_of

if TYPE_CHECKING:
    from torch import Tensor

_LOW, _HIGH = 1e-15, 1e15  # beyond these the squares of single precision are lost
_DENSE_MOST = 50_000_000  # elements that a sparse gradient may have to be compared with a dense one


@cache
def _name(dtype: torch.dtype) -> str:
    """Return one shared string per dtype: records of many steps are stored."""
    return str(dtype).removeprefix("torch.")


@torch.no_grad()
def measure(
    gradients: Sequence[Tensor | None], scale: float = 1.0
) -> list[GradStats | None]:
    """Measure each gradient, None for None; `scale` is the gradient scaler's factor of the loss."""
    value_tensors = [
        None if gradient is None else values_of(gradient) for gradient in gradients
    ]
    rows = iter(
        _fetched(
            [
                values
                for values in value_tensors
                if values is not None and values.numel()
            ]
        )
    )
    stats: list[GradStats | None] = []
    for gradient, values in zip(gradients, value_tensors, strict=True):
        if gradient is None or values is None:
            stats.append(None)
            continue
        norm = low = high = total = nonzero = finite = 0.0
        if values.numel():
            norm, low, high, total, nonzero, finite = next(rows)
        absmax = math.nan if math.isnan(low) else max(abs(low), abs(high))
        if 0 < absmax < _LOW or _HIGH < absmax < math.inf:
            norm = absmax * float(norm_of(values / absmax))
        count = max(gradient.numel(), 1)
        stats.append(
            GradStats(
                tuple(map(int, gradient.shape)),
                _name(gradient.dtype),
                norm,
                absmax,
                total / count,
                (gradient.numel() - nonzero)
                / count,  # unstored elements of a sparse gradient are 0
                values.numel() - int(finite),
                norm / scale,
            )
        )
    return stats


def _parts(values: Tensor) -> tuple[Tensor, ...]:
    """norm, least, greatest, sum, count of values that are not 0, each a scalar on the device."""
    low, high = torch.aminmax(values)
    total = values.sum(dtype=torch.float32 if values.dtype.itemsize < 4 else None)
    return norm_of(values), low, high, total, torch.count_nonzero(values)


def _numbers(values: Tensor) -> list[float]:
    """Measure on the CPU: `_parts` and the count of finite values, which is slowest and implied if min and max are
    finite."""
    numbers = [scalar.item() for scalar in _parts(values)]
    bounded = math.isfinite(numbers[1]) and math.isfinite(numbers[2])
    return [*numbers, values.numel() if bounded else int(values.isfinite().sum())]


def _row(values: Tensor) -> Tensor:
    """Measure the same on a device, shape (6,)."""
    wide = devices.widest_float(values.device.type)
    return torch.stack(
        [scalar.to(wide) for scalar in (*_parts(values), values.isfinite().sum())]
    )


def _fetched(value_tensors: list[Tensor]) -> list[list[float]]:
    """Fetch the numbers of each, with one synchronisation."""
    if all(values.is_cpu for values in value_tensors):
        return [_numbers(values) for values in value_tensors]
    rows = [_row(values) for values in value_tensors]
    if len({row.device for row in rows}) > 1:
        rows = [row.cpu() for row in rows]
    return torch.stack(rows).tolist()


@torch.no_grad()
def products(parts: Sequence[Tensor], absmax: float) -> list[list[float]] | None:
    """Return the inner products of gradients of one shape, each divided by `absmax`; None if not computable.

    For complex ones the real part, which is the inner product of vectors of twice the length.
    """
    if not 0 < absmax < math.inf:
        return None
    flat = []
    for gradient in parts:
        gradient = gradient.detach()
        if gradient.layout is not torch.strided:
            if gradient.numel() > _DENSE_MOST:
                return None
            gradient = gradient.to_dense()
        if gradient.is_complex():
            gradient = torch.view_as_real(gradient.resolve_conj())
        wide = gradient.float() if gradient.dtype.itemsize < 4 else gradient
        flat.append((wide / absmax).reshape(-1))
    inner_products = [[0.0] * len(flat) for _ in flat]
    for i, vector in enumerate(flat):
        for j, other in enumerate(flat[: i + 1]):
            inner_products[i][j] = inner_products[j][i] = float(
                torch.dot(vector, other.to(vector.dtype))
            )
    return inner_products


ROWS, COLUMNS = 8, 8
MOST_PICTURES = 64
LONGEST_SIDE = 512


@torch.no_grad()
def describe_gradient(
    gradient: Tensor, at: tuple[int, ...] = (), scale: float = 1.0
) -> GradientLook:
    """Describe a gradient of any shape. `at` are indices into the leading dimensions: all but the last two, and of
    pictures with channels all but the last three; missing ones are 0, and they are clipped to the size."""
    (stats,) = measure([gradient], scale)
    assert stats is not None
    dense = gradient.detach()
    dense = dense.to_dense() if dense.layout is not torch.strided else dense
    plain = dense.abs() if dense.is_complex() else dense
    keep = 3 if plain.ndim >= 4 else min(plain.ndim, 2)
    leading = tuple(plain.shape[: plain.ndim - keep])
    chosen = tuple(
        min(at[d] if d < len(at) else 0, size - 1) for d, size in enumerate(leading)
    )
    shown = plain[chosen] if plain.numel() else plain.reshape(-1)
    corner = dense[chosen] if dense.numel() else dense.reshape(-1)
    while corner.ndim > 2:
        corner = corner[0]
    return GradientLook(
        stats=stats,
        where=_index_text(dense.ndim, chosen),
        rows=_rows(corner),
        histogram=histogram("", plain),
        nan=int(plain.isnan().sum()),
        positive_inf=int((plain == torch.inf).sum()),
        negative_inf=int((plain == -torch.inf).sum()),
        pictures=_pictures(shown) if plain.numel() else (),
        at=chosen,
        leading=leading,
    )


def _index_text(ndim: int, chosen: tuple[int, ...]) -> str:
    """Return the index of the part that the rows show."""
    if ndim == 0:
        return ""
    indices = [*map(str, chosen), *["0"] * (ndim - len(chosen) - 2)]
    return (
        "["
        + ", ".join([*indices, *([f":{ROWS}"] if ndim > 1 else []), f":{COLUMNS}"])
        + "]"
    )


def _rows(corner: Tensor) -> tuple[tuple[str, ...], ...]:
    if not corner.numel():
        return ()
    values = (
        corner.reshape(-1, corner.shape[-1])[:ROWS, :COLUMNS]
        if corner.ndim
        else corner.reshape(1, 1)
    )
    return tuple(
        tuple(significant(value, 4) for value in row) for row in values.tolist()
    )


def _pictures(shown: Tensor) -> tuple[Picture, ...]:
    planes = shown.reshape(1, -1) if shown.ndim < 2 else shown
    planes = planes[None] if planes.ndim == 2 else planes[:MOST_PICTURES]
    down, across = (-(-size // LONGEST_SIDE) for size in planes.shape[1:])
    planes = planes[:, ::down, ::across].float().cpu()
    finite = planes.isfinite()
    largest = float(planes[finite].abs().max()) if bool(finite.any()) else 0.0
    # Divided first: the inverse of a very small gradient would be infinite.
    scaled = planes / largest if largest else torch.zeros_like(planes)
    levels = torch.where(finite, (scaled * 127).round() + 128, 0).to(torch.uint8)
    _, height, width = levels.shape
    return tuple(
        Picture(height, width, plane.contiguous().numpy().tobytes(), (down, across))
        for plane in levels
    )
