"""A stream of bytes between two machines that share nothing but a folder: numbered files, each removed once it is read.

It is slow, and there wherever a cluster has a file system for all of its nodes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

CHUNK = 1 << 20  # bytes of a file


class Spool:
    """One end of a stream in `folder`, which is there: it writes files named `sends` and a number, and reads `reads`.

    `ended` becomes True when the other end has closed the stream. Raises OSError.
    """

    def __init__(self, folder: Path, sends: str, reads: str) -> None:
        self.folder, self.ended = folder, False
        self._sends, self._reads = sends, reads
        self._sent = self._read = 0

    def send(self, data: bytes) -> None:
        """Append bytes to the stream; none of them close it."""
        name = f"{self._sends}-{self._sent:08}"
        self._sent += 1
        part = self.folder / f".{name}"
        part.write_bytes(data)
        os.replace(part, self.folder / name)

    def receive(self) -> bytes:
        """Return what has come since.

        The folder is listed, since a network's file system answers a look for one name from memory for a while.
        """
        names, data = set(os.listdir(self.folder)), b""
        while (name := f"{self._reads}-{self._read:08}") in names and not self.ended:
            file = self.folder / name
            piece = file.read_bytes()
            file.unlink()
            self._read += 1
            self.ended = not piece
            data += piece
        return data

    def close(self) -> None:
        """Close the stream; who finds it closed removes its folder."""
        if self.ended:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.send(b"")
