"""Values of the free parameters and buffers of a generated module, and the base64 text that stores them.

>>> text = packed(torch.arange(2**16))
>>> len(text) < 2**17, torch.equal(unpacked(text, torch.int64, (2**16,)), torch.arange(2**16))
(True, True)
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from typing import Any

import torch

from app.builder.codegen.free_tensors import DEFAULTS, dtype_of
from app.builder.codegen.tensor_literals import MOST_BYTES


def packed(tensor: torch.Tensor) -> str:
    """Encode a tensor as text; it may be longer than a project accepts."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().flatten()
    data = bytes(plain.view(torch.uint8).tolist())
    return base64.b85encode(zlib.compress(data, 9)).decode("ascii")


def unpacked(
    text: str, dtype: torch.dtype, shape: tuple[int, ...], device: str = "cpu"
) -> torch.Tensor:
    """Decode a tensor. Raises ValueError if the bytes do not match dtype and shape."""
    byte_count = math.prod(shape) * dtype.itemsize
    if byte_count > MOST_BYTES:
        raise ValueError(f"{byte_count:,} bytes exceed the limit of {MOST_BYTES:,}")
    try:
        data = zlib.decompressobj().decompress(base64.b85decode(text), byte_count + 1)
    except zlib.error as error:
        raise ValueError(f"the values cannot be unpacked: {error}") from error
    if len(data) != byte_count or not data:
        raise ValueError(
            f"the values do not fit {shape} in {dtype}, which takes {byte_count:,} bytes"
        )
    if device == "meta":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def create_tensor(
    key: str, params: Mapping[str, Any], device: str = "meta"
) -> torch.Tensor:
    """Create the tensor; raises what torch raises, and ValueError for a shape that the filling does not support."""
    # On the CPU it draws from a separate generator.
    chance: dict[str, Any] = (
        {}
        if device == "meta"
        else {"generator": torch.Generator(device).manual_seed(0)}
    )
    if key == "constant":
        dtype = (
            getattr(torch, params["dtype"].name)
            if params.get("dtype") is not None
            else None
        )
        return torch.tensor(params["value"], dtype=dtype, device=device)
    shape, fill = tuple(params["shape"]), params.get("fill", "zeros")
    where: dict[str, Any] = {
        "dtype": getattr(torch, dtype_of(params).name),
        "device": device,
    }
    if key == "packed":
        return unpacked(params["values"], where["dtype"], shape, device)
    value = {name: params.get(name, default) for name, default in DEFAULTS.items()}
    if fill == "normal":
        return torch.randn(shape, **chance, **where) * value["std"]
    if fill == "uniform":
        if value["low"] > value["high"]:
            raise ValueError(
                f"uniform expects low ({value['low']}) below high ({value['high']})"
            )
        return torch.empty(shape, **where).uniform_(
            value["low"], value["high"], **chance
        )
    if fill == "full":
        return torch.full(shape, value["value"], **where)
    if fill == "eye":
        if len(shape) != 2:
            raise ValueError(f"eye expects a shape of two sizes, not {shape}")
        return torch.eye(*shape, **where)
    if fill == "arange":
        return torch.arange(math.prod(shape), **where).view(shape)
    if fill in ("tril", "triu"):
        if len(shape) < 2:
            raise ValueError(
                f"{fill} expects a shape of two sizes or more, not {shape}"
            )
        return getattr(torch.ones(shape, **where), fill)()
    return (torch.ones if fill == "ones" else torch.zeros)(shape, **where)
