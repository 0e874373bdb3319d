"""Background writer of checkpoints: the run waits for copies in memory, not for the disk.

A state is copied between two steps and written atomically by a thread. A best checkpoint that is superseded before it
is written is dropped.
"""

from __future__ import annotations

import threading
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from app.training.checkpoints import checkpoint
from app.training.events import Saved

if TYPE_CHECKING:
    pass

REST = 2.0  # seconds between two best checkpoints: an epoch of a small net takes less than writing does


class Saver:
    """Writes into `folder`, on a thread that starts with the first checkpoint and ends with `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._condition = threading.Condition()
        self._waiting: dict[str, tuple[int, dict[str, Any]]] = {}
        self._told: list[Saved] = []
        self._closing = False
        self._thread: threading.Thread | None = None
        self._rested = 0.0
        self.writing = (
            0.0  # seconds that the newest checkpoint by step took to be written
        )
        self.news = (
            False  # whether events are pending; read at every step without the lock
        )

    def put(self, name: str, step: int, state: dict[str, Any]) -> None:
        """Copy a state and queue it for writing.

        A newer state of the same name replaces a pending one. If checkpoints by step come faster than the disk writes
        them, the run waits, since every one was requested.
        """
        copy = copied(state)
        with self._condition:
            if name not in (checkpoint.BEST, checkpoint.LAST):
                self._condition.wait_for(lambda: not any(map(_by_step, self._waiting)))
            replaces = name in self._waiting
            self._waiting[name] = (step, copy)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._write, name="checkpoints", daemon=True
                )
                self._thread.start()
            elif not (
                replaces and self._rests(name)
            ):  # the thread knows until when that one has to wait
                self._condition.notify_all()

    @property
    def busy(self) -> bool:
        """Return whether a checkpoint by step is not written yet, which another one would wait for."""
        with self._condition:
            return any(map(_by_step, self._waiting))

    def set_aside(self, name: str, other: str) -> None:
        """Rename a checkpoint, once it is written; a problem is reported as that of a write."""
        with self._condition:
            self._rested = 0.0
            self._condition.notify_all()
            self._condition.wait_for(lambda: name not in self._waiting)
            try:
                (self.folder / name).replace(self.folder / other)
            except FileNotFoundError:
                return
            except OSError as error:
                problem = f"{self.folder / name} could not be renamed: {error.strerror or error}."
                self._told.append(Saved(0, str(self.folder / name), problem))
                self.news = True

    def drain(self) -> list[Saved]:
        """Return the checkpoints written since the last call, and failures."""
        with self._condition:
            saved, self._told, self.news = self._told, [], False
        return saved

    def close(self) -> list[Saved]:
        """Wait until everything is written; return the results."""
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()
        return self.drain()

    def _write(self) -> None:
        while True:
            with self._condition:
                name = self._next()
                while name is None and not (self._closing and not self._waiting):
                    self._condition.wait(self._patience())
                    name = self._next()
                if name is None:
                    return
                step, state = self._waiting[name]
            began = monotonic()
            try:
                problem = checkpoint.keep(self.folder, name, state)
            except (
                Exception
            ) as error:  # the run waits for this thread, which must not end
                problem = f"{self.folder / name} could not be written: {type(error).__name__}: {error}."
            if _by_step(name):
                self.writing = monotonic() - began
            with self._condition:
                if self._waiting[name][1] is state:
                    del self._waiting[name]
                if name == checkpoint.BEST:
                    self._rested = monotonic() + REST
                self._told.append(Saved(step, str(self.folder / name), problem))
                self.news = True
                self._condition.notify_all()

    def _next(self) -> str | None:
        """Return the name of the state to write now; the best one may wait for a better one."""
        names = sorted(
            self._waiting,
            key=lambda name: (name == checkpoint.LAST, name == checkpoint.BEST),
        )
        return next((name for name in names if not self._rests(name)), None)

    def _rests(self, name: str) -> bool:
        return (
            name == checkpoint.BEST and not self._closing and monotonic() < self._rested
        )

    def _patience(self) -> float | None:
        """Return the seconds until the next deadline."""
        return max(self._rested - monotonic(), 0.001) if self._waiting else None


def _by_step(name: str) -> bool:
    return name not in (checkpoint.BEST, checkpoint.LAST)


def copied(state: Any) -> Any:
    """Return the same nested dicts, lists and tuples with CPU copies of their tensors."""
    if isinstance(state, torch.Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        return type(state)((key, copied(value)) for key, value in state.items())
    if isinstance(state, list | tuple):
        return type(state)(copied(value) for value in state)
    return state
