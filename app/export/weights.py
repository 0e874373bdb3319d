"""Weights on the disk: safetensors, and a state_dict as torch saves it. A file is whole or absent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

StateDict = Mapping[str, "Tensor"]


class WeightsError(Exception):
    """Weights that cannot be written or read; the text says which file and why."""


def write_atomically(path: str | Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, then put it in its place. Raises WeightsError; `path` stays as it was."""
    path = Path(path)
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        # mkstemp lets its owner alone read; an exported file is like any other that the user makes.
        temporary.chmod(0o666 & ~_umask())
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise WeightsError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file (UTF-8, \\n) whole or not at all. Raises WeightsError."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(text.encode())

    write_atomically(path, write)


def save_safetensors(state_dict: StateDict, path: str | Path) -> None:
    """Write a `.safetensors` file. Tensors that share memory are written once each, under all their names."""
    from safetensors.torch import save_file

    alone = _each_alone(state_dict)
    write_atomically(path, lambda temporary: save_file(alone, temporary, metadata={"format": "pt"}))


def save_pt(state_dict: StateDict, path: str | Path) -> None:
    """Write a `.pt` file that `torch.load(path, weights_only=True)` reads."""
    import torch

    plain = {name: value.detach().to("cpu").contiguous() for name, value in state_dict.items()}
    write_atomically(path, lambda temporary: torch.save(plain, temporary))


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """The state_dict of a `.safetensors` or a `.pt` file, on the CPU. Nothing in the file is ever run.

    Raises WeightsError.
    """
    import torch
    from safetensors.torch import load_file

    path = Path(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}.") from error
    except Exception as error:
        # Damaged and dangerous files raise what their readers please.
        reason = str(error).strip().split("\n")[0]
        raise WeightsError(f"{path} holds no weights that can be read safely: {reason}") from error
    if not isinstance(weights, dict) or not all(isinstance(value, torch.Tensor) for value in weights.values()):
        raise WeightsError(f"{path} holds no state_dict: it must map names to tensors.")
    return weights


def _each_alone(state_dict: StateDict) -> dict[str, Tensor]:
    """Contiguous tensors on the CPU, none sharing memory with another, as safetensors wants them."""
    seen: set[int] = set()
    alone = {}
    for name, value in state_dict.items():
        tensor = value.detach().to("cpu").contiguous()
        memory = tensor.untyped_storage().data_ptr()
        alone[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return alone


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Make the rename last; Windows has no such call."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
