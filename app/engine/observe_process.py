"""Observe a model in a separate process with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent import futures
from functools import partial
from pathlib import Path

from app.engine import child_process, pool
from app.engine.import_process import shadows_packages
from app.engine.own_engine import OwnEngine
from app.engine.protocol import EngineDiedError
from app.engine.requests.observe import Observe
from app.observe.observation import Observation
from app.sources.spec import SourceError

PATIENCE = 120.0  # seconds for the model's own code
POLL_INTERVAL = 0.02  # seconds between two polls for an answer or a cancellation


class ObserveTimeoutError(SourceError):
    """It took longer than it may."""


def observe(
    request: Observe, patience: float = PATIENCE, cancelled: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _words: None,
) -> Observation:  # fmt: skip
    """Observe a model in a process that is ended after `patience` seconds; the caller has asked whether it may run.

    Raises SourceError, also for a model that ended its process, and OSError if none can be started.
    """
    folder = request.folder or (str(Path(request.source.where).parent) if request.source.kind == "file" else "")
    fresh = bool(folder) and shadows_packages(Path(folder))
    engine = OwnEngine(partial(pool.start, "engine", cwd=child_process.ROOT, fresh=fresh))
    try:
        question, end = engine.ask(request, tell), time.monotonic() + patience
        while not question.done():
            if cancelled():
                raise SourceError("cancelled")
            if time.monotonic() > end:
                words = f"{request.source} had not come to its end after {patience:.0f} s and was stopped"
                raise ObserveTimeoutError(words)
            futures.wait([question], POLL_INTERVAL)
        return question.result()
    except EngineDiedError as error:
        raise SourceError(f"{request.source} ended the process that it ran in: it {engine.how_it_ended()}") from error
    finally:
        engine.kill()
        engine.close()
