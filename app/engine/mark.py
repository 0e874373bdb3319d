"""The progress of a run in a memory-mapped file: readable even after its process was killed."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path


class Mark:
    """Epoch and step. Raises OSError where the file cannot be made."""

    _PAIR = struct.Struct("<qq")

    def __init__(self, path: Path) -> None:
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(self._PAIR.size)
            self._memory = mmap.mmap(file.fileno(), self._PAIR.size)

    def set(self, epoch: int, step: int) -> None:
        self._PAIR.pack_into(self._memory, 0, epoch, step)

    def get(self) -> tuple[int, int]:
        epoch, step = self._PAIR.unpack_from(self._memory)
        return epoch, step

    def close(self) -> None:
        self._memory.close()
