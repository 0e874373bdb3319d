"""Frames between the window's process and a run's: a length, then msgpack. Steps travel as columns of float64."""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from app.engine.codec import decode, encode
from app.training.events import Event, GradientNorms, StepDone

_LENGTH = struct.Struct("<Q")
LONGEST = 1 << 31
_STEP = ("epoch", "step", "loss", "samples", "seconds", "rate")
_WHOLE = {0, 1, 3}


class Broken(Exception):
    """The other end is gone, or what came of it is no frame."""


class Pipe:
    """Both directions between two processes. `send` may be called from any thread, `frames` is for one."""

    def __init__(self, reads: IO[bytes], writes: IO[bytes]) -> None:
        self._reads, self._writes = reads, writes
        self._sending = threading.Lock()

    def send(self, kind: str, *values: Any) -> None:
        """Raises OSError or ValueError if nobody listens any more."""
        data = msgspec.msgpack.encode([kind, *values])
        with self._sending:
            self._writes.write(_LENGTH.pack(len(data)) + data)
            self._writes.flush()

    def frames(self) -> Iterator[list[Any]]:
        """What the other end sends, until it is gone."""
        while len(head := self._reads.read(_LENGTH.size)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            if length > LONGEST:
                raise Broken(f"a frame of {length:,} bytes")
            data = self._reads.read(length)
            if len(data) < length:
                return
            try:
                yield msgspec.msgpack.decode(data)
            except msgspec.DecodeError as error:
                raise Broken(str(error)) from error

    def close(self) -> None:
        """The other end sees the end of what it reads."""
        with self._sending:
            try:
                self._writes.close()
            except OSError:
                # It wants to write what nobody reads any more.
                return


class Mark:
    """Epoch and step in a file that two processes look at: where a run stood is known even when it is gone at once."""

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


def packed(events: list[Event]) -> list[Any]:
    """Events as plain data, in their order."""
    found: list[Any] = []
    for kind, group in groupby(events, type):
        if kind is StepDone:
            rows = [[getattr(event, name) for name in _STEP] for event in group]
            found.append(["steps", np.array(rows, dtype="<f8").T.tobytes()])
        elif kind is GradientNorms:
            found += _packed_norms(list(group))  # type: ignore[arg-type]
        else:
            found += (["event", encode(event)] for event in group)
    return found


def _packed_norms(events: list[GradientNorms]) -> Iterator[list[Any]]:
    for layers, group in groupby(events, lambda event: event.layers):
        rows = np.array([[event.step, *event.norms] for event in group], dtype="<f8")
        yield ["norms", list(layers), rows.tobytes()]


def unpacked(found: list[Any]) -> Iterator[Event]:
    """The events that `packed` was given; numbers come back bit for bit. Raises ValueError."""
    for kind, *values in found:
        if kind == "steps":
            columns = np.frombuffer(values[0], dtype="<f8").reshape(len(_STEP), -1)
            lists: list[list[Any]] = [
                (column.astype(np.int64) if i in _WHOLE else column).tolist() for i, column in enumerate(columns)
            ]
            yield from (StepDone(*row) for row in zip(*lists, strict=True))
        elif kind == "norms":
            layers = tuple(values[0])
            for step, *norms in np.frombuffer(values[1], dtype="<f8").reshape(-1, 1 + len(layers)).tolist():
                yield GradientNorms(int(step), layers, tuple(norms))
        else:
            yield decode(values[0])
