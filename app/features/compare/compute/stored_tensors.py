"""The tensors that an ONNX file or an exported program holds, each read when it is asked for. Nothing is run."""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from app.sources.onnx_file import DTYPES as ONNX_DTYPES
from app.sources.pt2_file import DTYPES as PT2_DTYPES
from app.sources.spec import SourceError
from app.util import tensor_files

StoredTensors = Mapping[str, Callable[[], Tensor]]
_RAW, _EXTERNAL = "raw_data", 1
LARGEST_EXPANDED = 1 << 28  # bytes of a tensor whose values share memory


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what a damaged or malicious file raises into a SourceError."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:  # of onnx, zipfile, and torch's loader of weights
        reason = str(error).strip().partition("\n")[0].partition(". ")[0]
        raise SourceError(
            f"the weights in {path.name} cannot be read: {reason or type(error).__name__}"
        ) from error


def _read(path: Path, read: Callable[..., Tensor], *arguments: object) -> Tensor:
    with _reading(path):
        return read(*arguments)


def of_onnx(path: Path) -> StoredTensors:
    """Return the weights of an ONNX file by name. It raises SourceError, and so does reading one of them."""
    onnx: Any = importlib.import_module("onnx")
    with _reading(path):
        graph = onnx.load(str(path), load_external_data=False).graph
    return {
        tensor.name: partial(_read, path, _of_onnx, path, tensor)
        for tensor in graph.initializer
    }


def _of_onnx(path: Path, tensor: Any) -> Tensor:
    name, _ = ONNX_DTYPES.get(tensor.data_type, ("", 0))
    dtype = getattr(torch, name, None)
    if tensor.data_location == _EXTERNAL:
        content = _external(path, tensor)
    elif tensor.HasField(_RAW):
        content = tensor.raw_data
    else:
        numpy_helper: Any = importlib.import_module("onnx.numpy_helper")
        return torch.tensor(numpy_helper.to_array(tensor))
    if (
        dtype is None
    ):  # as of fewer bits than a byte: the bytes tell whether they differ
        return torch.frombuffer(bytearray(content) or bytearray(1), dtype=torch.uint8)
    return _shaped(content, dtype, tuple(tensor.dims))


def _external(path: Path, tensor: Any) -> bytes:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    folder = path.parent.resolve()
    file = (folder / entries.get("location", "")).resolve()
    if not file.is_relative_to(folder) or not file.is_file():
        raise SourceError(
            f"{entries.get('location')} with the values of {tensor.name} is not beside {path.name}"
        )
    with file.open("rb") as stream:
        stream.seek(int(entries.get("offset", 0)))
        return stream.read(int(entries.get("length", -1)))


def of_pt2(path: Path) -> StoredTensors:
    """Return the parameters, buffers and constants of an exported program by name. It raises SourceError, and so does
    reading one of them."""
    with _reading(path), zipfile.ZipFile(path) as archive:
        configs = [
            name for name in archive.namelist() if name.endswith("s_config.json")
        ]
        tensors: dict[str, Callable[[], Tensor]] = {}
        for config in configs:
            folder = config.rpartition("/")[0]
            for name, entry in json.loads(archive.read(config))["config"].items():
                member = f"{folder}/{entry['path_name']}"
                tensors[name] = partial(_read, path, _of_pt2, path, member, entry)
        if configs:
            return tensors
        # What torch wrote before 2.9: one file of torch.save.
        for member in archive.namelist():
            if member.endswith(("serialized_state_dict.pt", "serialized_constants.pt")):
                stored: dict[str, Any] = tensor_files.load_bytes(archive.read(member))
                for name, value in stored.items():
                    if isinstance(value, Tensor):
                        tensors[name] = partial(Tensor.detach, value)
    return tensors


def _of_pt2(path: Path, member: str, entry: Mapping[str, Any]) -> Tensor:
    with zipfile.ZipFile(path) as archive:
        content = archive.read(member)
    if entry["use_pickle"]:
        value: Tensor = tensor_files.load_bytes(content)
        return value
    meta = entry["tensor_meta"]
    name, _ = PT2_DTYPES.get(meta["dtype"], ("", 0))
    dtype = getattr(torch, name, None)
    if dtype is None:
        raise SourceError(f"{path.name} has {member} in a dtype that is not known")
    sizes, strides = (
        tuple(size["as_int"] for size in meta[key]) for key in ("sizes", "strides")
    )
    if not content:
        return _shaped(content, dtype, sizes)
    # A stride of 0 makes any number of values of a few bytes.
    if prod(sizes) * dtype.itemsize > max(len(content), LARGEST_EXPANDED):
        raise SourceError(f"{path.name} has {member} with more values than bytes")
    storage = torch.frombuffer(bytearray(content), dtype=dtype)
    return storage.as_strided(sizes, strides, meta["storage_offset"]["as_int"])


def _shaped(content: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not content:
        return torch.zeros(0, dtype=dtype).reshape(shape)
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
