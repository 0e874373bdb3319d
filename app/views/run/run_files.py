"""Requests to the engine for the parts of a run's record that need torch; blocking, for the run's threads."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from app.engine.client import shared
from app.engine.protocol import Handle, Request
from app.engine.requests.runs import (
    BeginEventFiles,
    EndEventFiles,
    GoOnFrom,
    WriteEvents,
)
from app.engine.values import RemoteError
from app.runs import store
from app.runs.checkpoint_files import GoingOn
from app.runs.store import Kept
from app.training.events import Event
from app.training.job import Job

A = TypeVar("A")


def _wait_for(request: Request[A]) -> A:
    """Block until the answer. Raises what a handler raises, RuntimeError for any other error."""
    try:
        return shared().ask(request).result()
    except RemoteError as error:
        raise RuntimeError(str(error)) from error


def resume_from(run: Path, checkpoint: Path) -> GoingOn:
    """Return the state at a checkpoint of a run; later checkpoints are dropped. Raises RunError, RuntimeError."""
    return _wait_for(GoOnFrom(run, checkpoint))


def fork_from(before: Kept, stored_run: Kept, checkpoint: Path) -> GoingOn:
    """Give a new run the history of the one that it continues; return the state at the checkpoint.

    Raises OSError, RunError, RuntimeError.
    """
    store.copy_history(before, stored_run)
    if (
        stored_run.record.changed is not None
        and stored_run.record.changed != before.record.changed
    ):
        store.keep_begin(checkpoint, stored_run)
    return resume_from(stored_run.folder, checkpoint)


class EventFiles:
    """TensorBoard's files of a run, written by the engine."""

    def __init__(self, run: Path, job: Job) -> None:
        """Begin them. Raises RunError, DataError, RuntimeError."""
        self._files: Handle = _wait_for(BeginEventFiles(run, job))

    def write(self, events: list[Event]) -> None:
        _wait_for(WriteEvents(self._files, tuple(events)))

    def close(self) -> None:
        _wait_for(EndEventFiles(self._files))
        shared().release(self._files)
