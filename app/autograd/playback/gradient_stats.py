"""Describe one gradient as plain data, without holding the tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from app.autograd.gradient_norms import measure
from app.autograd.playback.steps import GradientLook, Picture
from app.telemetry.histogram_of import histogram
from app.util.formatting import significant

if TYPE_CHECKING:
    from torch import Tensor

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
