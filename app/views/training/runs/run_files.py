"""What the record of a run needs torch for, asked of the engine on the threads of the run, which may wait."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from app.engine.client import shared
from app.engine.protocol import Handle, Request
from app.engine.requests.runs import BeginEventFiles, EndEventFiles, GoOnFrom, WriteEvents
from app.engine.values import RemoteError
from app.runs.checkpoint_files import GoingOn
from app.training.events import Event
from app.training.job import Job

A = TypeVar("A")


def _answer(request: Request[A]) -> A:
    """Wait for the answer. Raises what a handler raises, RuntimeError for what is no error of ours."""
    try:
        return shared().ask(request).result()
    except RemoteError as error:
        raise RuntimeError(str(error)) from error


def going_on(run: Path, checkpoint: Path) -> GoingOn:
    """Where a checkpoint of a run stands; later ones are let go. Raises RunError, RuntimeError."""
    return _answer(GoOnFrom(run, checkpoint))


class EventFiles:
    """TensorBoard's files of a run, written by the engine."""

    def __init__(self, run: Path, job: Job) -> None:
        """Begin them. Raises RunError, DataError, RuntimeError."""
        self._files: Handle = _answer(BeginEventFiles(run, job))

    def tell(self, events: list[Event]) -> None:
        _answer(WriteEvents(self._files, tuple(events)))

    def close(self) -> None:
        _answer(EndEventFiles(self._files))
        shared().release(self._files)
