"""How far two tensors are apart, and how far rounding can bring them apart."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from app.features.compare.values import Apart
from app.util import module_tree
from tapedeck import devices

# Of a layer's few operations and of the terms that cancel in them: equal models in float32 and bfloat16, and in float32
# and float64, stay below it (python -m tests.slow.planted_bugs --equal).
FACTOR = 16.0
# In double precision the bound may be generous: what a bug adds is millions of times larger than rounding.
FACTOR_DOUBLE = 2.0**20
# Errors are relative to the tensor's norm, or to this fraction of that of what it was computed from: what cancels to
# nearly nothing consists of rounding alone.
FLOOR = 1e-3
HUGE = 1e8  # a mask's value, such as -1e9, would hide all others in a norm
_BITS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return u, half the distance from 1 to the next number: 2^-24 of float32."""
    return torch.finfo(dtype).eps / 2


def roundoff_of(model: nn.Module) -> float:
    """Return the coarsest unit roundoff among a model's parameters; that of the default dtype without any."""
    dtypes = {
        parameter.dtype
        for parameter in module_tree.parameters(model)
        if parameter.is_floating_point()
    }
    return max(map(unit_roundoff, dtypes or {torch.get_default_dtype()}))


def bound(roundoff: float, length: int) -> float:
    """Return the largest relative error that rounding explains: c · √K · u for reductions of K terms with unit roundoff
    u. √K is the growth of the error of a sum with independent roundings (Higham and Mary, A New Approach to
    Probabilistic Rounding Error Analysis, 2019).

    >>> bound(2**-24, 256) < 2e-5
    True
    """
    factor = FACTOR_DOUBLE if roundoff <= unit_roundoff(torch.float64) else FACTOR
    return factor * math.sqrt(max(length, 1)) * roundoff


def relative_error(b: Tensor, a: Tensor, scale: float = 0.0) -> float:
    """Return ‖b−a‖₂ / max(‖a‖₂, FLOOR · scale): 0 where both are equal, infinite where shapes differ, or which elements
    are finite. Positions that hold the same infinity, NaN, or huge number do not count."""
    if a.shape != b.shape:
        return math.inf
    a, b = a.detach(), b.detach().to(a.device)
    if a.dtype == b.dtype and torch.equal(a, b):
        return 0.0
    x, y = _doubled(a), _doubled(b)
    counts = (x != y) & ~(x.isnan() & y.isnan())
    if not bool(counts.any()):
        return 0.0
    if not bool((x[counts].isfinite() & y[counts].isfinite()).all()):
        return math.inf
    counts |= x.isfinite() & (x.abs() < HUGE)
    norm = max(float(x[counts].norm()), FLOOR * scale)
    distance = float((y[counts] - x[counts]).norm())
    return distance / norm if norm else math.inf


def apart(b: Tensor, a: Tensor, scale: float = 0.0) -> Apart:
    """Return relative error, cosine and distance in ulp of two tensors of one shape, huge and non-finite values left
    out of the cosine."""
    error = relative_error(b, a, scale)
    if not error or not math.isfinite(error):
        return Apart(error, 1.0 if not error else 0.0, 0.0 if not error else math.inf)
    x, y = _doubled(a.detach()).flatten(), _doubled(b.detach().to(a.device)).flatten()
    numbers = x.isfinite() & y.isfinite() & (x.abs() < HUGE)
    x, y = x[numbers], y[numbers]
    length = float(x.norm() * y.norm())
    return Apart(
        error, float(x @ y) / length if length else 0.0, _ulps(b.detach(), a.detach())
    )


def furthest(errors: list[Apart]) -> Apart | None:
    """Return the largest error, smallest cosine and largest distance of several tensors; None of none."""
    if not errors:
        return None
    return Apart(
        max(error.relative for error in errors),
        min(error.cosine for error in errors),
        max(error.ulp for error in errors),
    )


def size_of(tensor: Tensor) -> float:
    """Return the norm of the finite values of a tensor, huge ones excluded."""
    values = _doubled(tensor.detach())
    return float(values[values.isfinite() & (values.abs() < HUGE)].norm())


def _doubled(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return devices.doubled(real)


def _ulps(b: Tensor, a: Tensor) -> float:
    """Return the largest distance of two elements, counted in numbers of the coarser dtype between them."""
    if not a.is_floating_point() or not b.is_floating_point():
        return 0.0
    dtype = max((a.dtype, b.dtype), key=unit_roundoff)
    if dtype not in _BITS:
        return 0.0
    x, y = (_ordered(tensor.to(dtype).contiguous()) for tensor in (a, b.to(a.device)))
    return float((x - y).abs().max()) if x.numel() else 0.0


def _ordered(tensor: Tensor) -> Tensor:
    """Return integers that are in the order of the numbers, consecutive for neighbours."""
    bits = tensor.view(_BITS[tensor.dtype]).long()
    lowest = -(1 << (8 * tensor.dtype.itemsize - 1))
    return devices.doubled(torch.where(bits < 0, lowest - bits, bits))
