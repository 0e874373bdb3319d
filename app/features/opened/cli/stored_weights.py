"""Weights of one layer in a folder of safetensors, whole or sharded: only the bytes of that layer are read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from app.sources.spec import SourceError
from app.util import tensor_files

WHOLE = "model.safetensors"
PIECE = 1 << 26  # bytes that are read at a time
LARGEST_HEADER = 1 << 27
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


class StoredWeight(Struct, frozen=True):
    """A tensor of a file: its shape and dtype, and statistics of its elements, NaN for one without any."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    mean: float
    std: float
    least: float
    greatest: float


class _Place(Struct, frozen=True):
    file: Path
    begin: int
    end: int
    shape: tuple[int, ...]
    dtype: str


def weights_of(folder: Path, layer: str) -> tuple[StoredWeight, ...]:
    """Return the weights of a layer and its submodules, by its path. Raises SourceError if there are none."""
    try:
        names = [
            name
            for name in _files(folder)
            if not layer or name == layer or name.startswith(f"{layer}.")
        ]
        if not names:
            some = sorted({name.rpartition(".")[0] or name for name in _files(folder)})
            raise SourceError(
                f"{folder} has no weights of {layer}; there are {', '.join(some[:8])}"
            )
        return tuple(
            _described(name, location) for name, location in _places(folder, names)
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(
            f"the safetensors of {folder} cannot be read: {error}"
        ) from error


def _files(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor, by the index or the header of the only file."""
    if (index := tensor_files.index_in(folder)) is not None:
        return tensor_files.files_of_index(index)
    if not (folder / WHOLE).is_file():
        raise SourceError(f"{folder} has neither an index of files nor {WHOLE}")
    return dict.fromkeys(_header(folder / WHOLE)[0], folder / WHOLE)


def _header(file: Path) -> tuple[dict[str, Any], int]:
    """Return the tensors described in a file's header, and the offset of their bytes."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if not 0 < size <= LARGEST_HEADER:
            raise ValueError(f"{file.name} is not a safetensors file")
        header: dict[str, Any] = json.loads(stream.read(size))
    header.pop("__metadata__", None)
    return header, 8 + size


def _places(folder: Path, names: list[str]) -> Iterator[tuple[str, _Place]]:
    files, headers = _files(folder), {}
    for name in names:
        file = files[name]
        if file not in headers:
            headers[file] = _header(file)
        header, start = headers[file]
        entry = header[name]
        begin, end = entry["data_offsets"]
        yield (
            name,
            _Place(
                file, start + begin, start + end, tuple(entry["shape"]), entry["dtype"]
            ),
        )


def _described(name: str, location: _Place) -> StoredWeight:
    kind = _DTYPES.get(location.dtype)
    dtype = str(kind).removeprefix("torch.") if kind is not None else location.dtype
    if kind is None or location.begin == location.end:
        return StoredWeight(name, location.shape, dtype, *(math.nan,) * 4)
    count, total, squares, least, greatest = 0, 0.0, 0.0, math.inf, -math.inf
    for piece in _pieces(location, kind):
        count += piece.numel()
        total += float(piece.sum())
        squares += float((piece * piece).sum())
        least, greatest = (
            min(least, float(piece.min())),
            max(greatest, float(piece.max())),
        )
    mean = total / count
    return StoredWeight(
        name,
        location.shape,
        dtype,
        mean,
        math.sqrt(max(squares / count - mean**2, 0.0)),
        least,
        greatest,
    )


def _pieces(location: _Place, kind: torch.dtype) -> Iterator[Tensor]:
    """Yield the elements in float64, some at a time."""
    with location.file.open("rb") as stream:
        stream.seek(location.begin)
        left = location.end - location.begin
        while left:
            data = bytearray(stream.read(min(left, PIECE)))
            if not data:
                raise ValueError(f"{location.file.name} ends before its tensors do")
            left -= len(data)
            yield torch.frombuffer(data, dtype=kind).to(torch.float64)
