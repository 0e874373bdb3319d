"""Constant tensors: neither parameters nor in the state_dict, so their values go into the source."""

from __future__ import annotations

import math
from typing import Any

import torch

from app.builder.codegen.tensor_literals import LONGEST, MOST_BYTES
from app.builder.codegen.tensor_values import packed
from app.builder.literals import DType
from app.features.importing.compute.lowering.binding import BindingError

FEW = 16  # values, readable at a glance
TYPED = 256  # values; longer literals are encoded


def constant_params(tensor: torch.Tensor, name: str) -> tuple[str, dict[str, Any]]:
    """Return the op for a constant tensor and its parameters: a fill, a readable literal, or encoded bytes. Raises
    BindingError if the text would be too long."""
    shape, dtype = tuple(tensor.shape), DType(str(tensor.dtype).removeprefix("torch."))
    fill = fill_of(tensor) if tensor.numel() > FEW else None
    if fill is not None:
        params: dict[str, Any] = {"shape": shape, **fill}
        return "buffer", params if tensor.dtype == torch.float32 else {
            **params,
            "dtype": dtype,
        }
    if tensor.numel() <= TYPED and not tensor.dtype.is_complex:
        return "constant", {"value": _nested(tensor.tolist()), "dtype": dtype}
    size = math.prod(shape) * tensor.element_size()
    text = packed(tensor) if 0 < size <= MOST_BYTES else ""
    if not 0 < len(text) <= LONGEST:
        raise BindingError(
            f"{name} is in no state_dict, and its {tensor.numel():,} values take more than {LONGEST:,} letters of "
            "source; register it as a buffer that is, and its values go with the weights"
        )
    return "packed", {"values": text, "shape": shape, "dtype": dtype}


def fill_of(tensor: torch.Tensor) -> dict[str, Any] | None:
    """Return the fill of a buffer that reproduces a tensor, None if there is none."""
    if tensor.dtype.is_complex or not tensor.numel() or tensor.device.type == "meta":
        return None
    first = tensor.flatten()[0]
    if bool((tensor == first).all()):
        value = first.item()
        if value in (0, 1):
            return {"fill": "ones" if value else "zeros"}
        return (
            {"fill": "full", "value": _shortest(value, tensor.dtype)}
            if math.isfinite(value)
            else None
        )
    candidates: dict[str, torch.Tensor] = {
        "arange": torch.arange(tensor.numel()).view(tensor.shape)
    }
    if tensor.dim() == 2:
        candidates["eye"] = torch.eye(*tensor.shape)
    if tensor.dim() >= 2:
        ones = torch.ones(tensor.shape)
        candidates |= {"tril": ones.tril(), "triu": ones.triu()}
    for fill, values in candidates.items():
        if not (fill == "arange" and tensor.dtype == torch.bool) and torch.equal(
            values.to(tensor.dtype), tensor
        ):
            return {"fill": fill}
    return None


def _shortest(value: Any, dtype: torch.dtype) -> Any:
    """Shorten a float to the digits its dtype needs: 0.1 for 0.10000000149 in float32."""
    if not isinstance(value, float):
        return value
    rounded = torch.tensor(value, dtype=dtype)
    candidates = (float(f"{value:.{digits}g}") for digits in range(1, 17))
    return next(
        (
            short
            for short in candidates
            if torch.equal(torch.tensor(short, dtype=dtype), rounded)
        ),
        value,
    )


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value
