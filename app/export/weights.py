"""Weights on the disk: safetensors, and a state_dict as torch saves it. A file is whole or absent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from app.export.errors import WeightsError
from app.export.text_files import write_atomically
from app.util import tensor_files

if TYPE_CHECKING:
    from torch import Tensor

StateDict = Mapping[str, "Tensor"]


def save_safetensors(state_dict: StateDict, path: str | Path) -> None:
    """Write a `.safetensors` file. Tensors that share memory are written once each, under all their names."""
    from safetensors.torch import save_file

    alone = _each_alone(state_dict)
    write_atomically(path, lambda temporary: save_file(alone, temporary, metadata={"format": "pt"}))


def save_pt(state_dict: StateDict, path: str | Path) -> None:
    """Write a `.pt` file that `torch.load(path, weights_only=True)` reads."""
    plain = {name: value.detach().to("cpu").contiguous() for name, value in state_dict.items()}
    write_atomically(path, lambda temporary: _save(plain, temporary))


def _save(plain: dict[str, Tensor], path: Path) -> None:
    """Save through an open file: torch.save to a path would name the inner archive after that path."""
    import torch

    with path.open("wb") as file:
        torch.save(plain, file)


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """Load the state_dict of a `.safetensors` or a `.pt` file, on the CPU, executing nothing.

    Raises WeightsError.
    """
    import torch

    path = Path(path)
    try:
        if path.suffix == ".safetensors":
            return tensor_files.load_safetensors(path)
        weights = tensor_files.load(path)
    except tensor_files.UnreadableTensorsError as error:
        raise WeightsError(str(error)) from error
    if not isinstance(weights, dict) or not all(isinstance(value, torch.Tensor) for value in weights.values()):
        raise WeightsError(f"{path} contains no state_dict: it must map names to tensors.")
    return weights


def _each_alone(state_dict: StateDict) -> dict[str, Tensor]:
    """Return contiguous tensors on the CPU without shared memory, as safetensors requires."""
    seen: set[int] = set()
    alone = {}
    for name, value in state_dict.items():
        tensor = value.detach().to("cpu").contiguous()
        memory = tensor.untyped_storage().data_ptr()
        alone[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return alone
