"""Values of a tensor as a text: its bytes, compressed, in letters that stand in source as they are.

>>> import torch
>>> text = packed(torch.arange(2**16))
>>> len(text) < 2**17, torch.equal(unpacked(text, torch.int64, (2**16,)), torch.arange(2**16))
(True, True)
"""

from __future__ import annotations

import base64
import math
import re
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

LONGEST = 2**18  # letters
MOST_BYTES = 2**27
ROW = 88  # letters in a line of source
_TEXT = re.compile(r"[0-9A-Za-z!#$%&()*+\-;<=>?@^_`{|}~]+")  # base 85: no quote and no backslash

# What the source says of it, where there is any.
IMPORTS = ("import base64", "import zlib")
FUNCTION = '''def unpacked(text, dtype, shape):
    """The tensor whose bytes a text holds, compressed."""
    data = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(data, dtype=dtype).reshape(shape)'''


def is_packed(text: str) -> bool:
    """Whether a text may hold values: in letters that need no care in source, and not too many of them."""
    return len(text) <= LONGEST and _TEXT.fullmatch(text) is not None


def packed(tensor: torch.Tensor) -> str:
    """The text for a tensor; it may be longer than a project keeps."""
    import torch

    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().flatten()
    data = bytes(plain.view(torch.uint8).tolist())
    return base64.b85encode(zlib.compress(data, 9)).decode("ascii")


def unpacked(text: str, dtype: torch.dtype, shape: tuple[int, ...], device: str = "cpu") -> torch.Tensor:
    """The tensor of a text. Raises ValueError if those are not the bytes of such a tensor."""
    import torch

    wanted = math.prod(shape) * dtype.itemsize
    if wanted > MOST_BYTES:
        raise ValueError(f"{wanted:,} bytes exceed the limit of {MOST_BYTES:,}")
    try:
        data = zlib.decompressobj().decompress(base64.b85decode(text), wanted + 1)
    except zlib.error as error:
        raise ValueError(f"the values cannot be unpacked: {error}") from error
    if len(data) != wanted or not data:
        raise ValueError(f"the values do not fit {shape} in {dtype}, which takes {wanted:,} bytes")
    if device == "meta":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def in_source(text: str, rest: str) -> str:
    """The call that unpacks a text, as an argument in a constructor. `rest` are its other arguments."""
    if len(text) <= ROW // 2:
        return f'unpacked("{text}", {rest})'
    margin = " " * 16
    rows = [f'{margin}"{text[start : start + ROW]}"' for start in range(0, len(text), ROW)]
    dtype, shape = rest.split(", ", 1)
    return "\n".join(["unpacked(", *rows]) + f",\n{margin}{dtype},\n{margin}{shape},\n{' ' * 12})"
