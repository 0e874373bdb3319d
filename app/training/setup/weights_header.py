"""Header of a safetensors file, read without torch: eight bytes of length, then JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from app.training.config import StartWeights
from app.training.job import JobError
from app.util.formatting import shape_text

if TYPE_CHECKING:
    from torch import Tensor

CURE = "Load the weights again (File > Load weights), or start from random ones (Run > Start from random weights)."
LONGEST_HEAD = 100_000_000
REMEMBERED = 32
_digests: dict[tuple[str, int, int], str] = {}
# Names of dtypes in safetensors and in torch, and their size in bytes.
DTYPES = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "I16": ("int16", 2),
    "I32": ("int32", 4),
    "I64": ("int64", 8),
    "U16": ("uint16", 2),
    "U32": ("uint32", 4),
    "U64": ("uint64", 8),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F32": ("float32", 4),
    "F64": ("float64", 8),
    "C64": ("complex64", 8),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
}


class StartError(JobError):
    """Raised for unusable start weights; the message says why and how to fix it."""


class TensorInfo(Struct, frozen=True):
    """One tensor of a state_dict: its shape, torch's name of its dtype, and how many bytes it holds."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> TensorInfo:
        dtype = str(tensor.dtype).removeprefix("torch.")
        return cls(tuple(tensor.shape), dtype, tensor.numel() * tensor.element_size())

    def __str__(self) -> str:
        return f"{shape_text(self.shape, 'one number')} {self.dtype}"


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file. Raises OSError."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def header(start: StartWeights) -> dict[str, TensorInfo]:
    """Return the selected tensors' metadata by key, read from the file header, without torch. Raises StartError."""
    try:
        stat = Path(start.path).stat()
        infos = _header(start.path, stat.st_mtime_ns, stat.st_size)
    except FileNotFoundError as error:
        raise StartError(
            f"The file with the start weights does not exist: {start.path}. {CURE}"
        ) from error
    except OSError as error:
        raise StartError(
            f"{start.path} cannot be read: {error.strerror or error}. {CURE}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise StartError(
            f"{start.path} is not a complete safetensors file: {error}. {CURE}"
        ) from error
    gone = [key for key in start.keys if key not in infos]
    if gone:
        raise StartError(f"{start.path} has no {', '.join(gone[:4])}. {CURE}")
    return {key: infos[key] for key in start.keys or infos}


class _Hashed(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def sha256(self) -> str: ...


def is_unchanged(start: _Hashed) -> bool:
    """Return whether the file is still the one that was loaded. Raises StartError."""
    try:
        look = _stat_key(start.path)
        if look not in _digests:
            remember(start.path, sha256_of(start.path))
        return _digests.get(look) == start.sha256
    except OSError as error:
        raise StartError(
            f"{start.path} cannot be read: {error.strerror or error}. {CURE}"
        ) from error


def remember(path: str, sha256: str) -> None:
    """Cache the hash of a file until it is modified. Raises OSError."""
    while len(_digests) >= REMEMBERED:
        _digests.pop(next(iter(_digests)))
    _digests[_stat_key(path)] = sha256


def _stat_key(path: str) -> tuple[str, int, int]:
    """Return a cache key that changes when the file is rewritten."""
    stat = Path(path).stat()
    return path, stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=16)
def _header(path: str, _changed: int, size: int) -> Mapping[str, TensorInfo]:
    return read_header(Path(path), size)


def read_header(path: Path, size: int | None = None) -> dict[str, TensorInfo]:
    """Return the tensors of a `.safetensors` file by key. Raises OSError, and ValueError for an invalid file."""
    size = path.stat().st_size if size is None else size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST_HEAD):
            raise ValueError("it is truncated")
        raw = json.loads(file.read(length))
    if not isinstance(raw, dict):
        raise ValueError("its header is not a JSON object")
    infos, end = {}, 0
    for key, entry in raw.items():
        if key != "__metadata__":
            infos[key] = _info(key, entry)
            end = max(end, entry["data_offsets"][1])
    if end != size - 8 - length:
        raise ValueError(f"it should have {end + 8 + length:,} bytes and has {size:,}")
    return infos


def _info(key: str, entry: Any) -> TensorInfo:
    try:
        shape, (begin, end), name = (
            tuple(entry["shape"]),
            entry["data_offsets"],
            entry["dtype"],
        )
        dtype, width = DTYPES.get(name, (str(name).lower(), 0))
        good = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ValueError(f"its header lacks {key}") from error
    if not good or (width and prod(shape) * width != end - begin):
        raise ValueError(f"its header does not match {key}")
    return TensorInfo(shape, dtype, end - begin)


def misfits(
    weights: Mapping[str, TensorInfo], network: Mapping[str, TensorInfo]
) -> dict[str, str]:
    """Return the tensors that the network cannot load, with the reason; dtypes of the same kind are converted.

    >>> misfits({"a": TensorInfo((2,), "float32", 8)}, {"a": TensorInfo((3,), "float32", 12)})
    {'a': '2 float32 there, 3 float32 here'}
    """
    problems = {}
    for key, theirs in weights.items():
        ours = network.get(key)
        if ours is None:
            problems[key] = "the network has no tensor of that name"
        elif ours.shape != theirs.shape or not convertible(theirs.dtype, ours.dtype):
            problems[key] = f"{theirs} there, {ours} here"
    return problems


def convertible(theirs: str, ours: str) -> bool:
    """Return whether two dtypes are of the same kind and differ only in precision.

    >>> convertible("float16", "float32"), convertible("float32", "int64"), convertible("int64", "int32")
    (True, False, True)
    """
    kinds = (("float", "bfloat"), ("int", "uint"), ("complex",), ("bool",))
    return theirs == ours or any(
        theirs.startswith(kind) and ours.startswith(kind) for kind in kinds
    )


def misfit_text(start: StartWeights, problems: Mapping[str, str]) -> str:
    """Describe the keys that do not fit."""
    first = "; ".join(f"{key} ({why})" for key, why in list(problems.items())[:4])
    more = f" and {len(problems) - 4} more" if len(problems) > 4 else ""
    name, does = (
        start.name or Path(start.path).name,
        "does" if len(problems) == 1 else "do",
    )
    return f"{len(problems)} of the start weights of {name} {does} not fit the network: {first}{more}."
