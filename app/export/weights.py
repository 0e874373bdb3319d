"""Weights on the disk: safetensors, and a state_dict as torch saves it. A file is whole or absent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from app.export.text_files import write_atomically

if TYPE_CHECKING:
    from torch import Tensor

StateDict = Mapping[str, "Tensor"]


def save_safetensors(state_dict: StateDict, path: str | Path) -> None:
    """Write a `.safetensors` file. Tensors that share memory are written once each, under all their names."""
    alone = _each_alone(state_dict)
    write_atomically(
        path, lambda temporary: save_file(alone, temporary, metadata={"format": "pt"})
    )


def save_pt(state_dict: StateDict, path: str | Path) -> None:
    """Write a `.pt` file that `torch.load(path, weights_only=True)` reads."""
    plain = {
        name: value.detach().to("cpu").contiguous()
        for name, value in state_dict.items()
    }
    write_atomically(path, lambda temporary: _save(plain, temporary))


def _save(plain: dict[str, Tensor], path: Path) -> None:
    """Save through an open file: torch.save to a path would name the inner archive after that path."""
    with path.open("wb") as file:
        torch.save(plain, file)


def _each_alone(state_dict: StateDict) -> dict[str, Tensor]:
    """Return contiguous tensors on the CPU without shared memory, as safetensors requires."""
    memories: set[int] = set()
    alone = {}
    for name, value in state_dict.items():
        tensor = value.detach().to("cpu").contiguous()
        memory = tensor.untyped_storage().data_ptr()
        alone[name] = tensor.clone() if memory in memories else tensor
        memories.add(memory)
    return alone
