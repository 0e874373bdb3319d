"""A state_dict that is loaded from its file on first access."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from app.util.leftovers import TemporaryFolder

if TYPE_CHECKING:
    from torch import Tensor


def _unread(path: Path) -> dict[str, Tensor]:
    raise OSError(
        f"{path} can only be read in a process that has imported app.util.tensor_files."
    )


class TensorsOnDisk(Mapping[str, "Tensor"]):
    """The state_dict in a file that `torch.save` wrote, loaded on first access to a tensor.

    The file is moved, or with `copy` copied, to a temporary folder that is deleted with this object. Creation and
    access raise OSError. `app.util.tensor_files` sets `read`, so passing the file on needs no torch.
    """

    read: ClassVar[Callable[[Path], dict[str, Tensor]]] = staticmethod(_unread)

    def __init__(self, path: Path, copy: bool = False) -> None:
        self._folder = TemporaryFolder()
        self.path = Path(self._folder.name) / "weights.pt"
        (shutil.copyfile if copy else shutil.move)(path, self.path)

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return type(self).read(self.path)

    def __getitem__(self, key: str) -> Tensor:
        return self._tensors[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)
