"""Observe, or capture, a model in a separate process with a time limit."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TypeVar

from app.engine import child_process, pool
from app.engine.own_engine import LimitedQuestion, OwnEngine, RequestStoppedError
from app.engine.protocol import EngineDiedError, Request
from app.engine.requests.observe import Observe
from app.sources.spec import ModelRaisedError, SourceError

PATIENCE = 120.0  # seconds for the model's own code

A = TypeVar("A")


class ObserveTimeoutError(ModelRaisedError):
    """It took longer than it may."""


def engine_of(model: Observe) -> OwnEngine:
    """Start an engine for the code of a model. Raises OSError if none can be started."""
    folder = model.folder or (
        str(Path(model.source.where).parent) if model.source.kind == "file" else ""
    )
    fresh = bool(folder) and shadows_packages(Path(folder))
    return OwnEngine(partial(pool.start, "engine", cwd=child_process.ROOT, fresh=fresh))


def timeout_words(model: Observe, patience: float) -> str:
    """Say that a model took longer than it may."""
    return f"{model.source} did not finish within {patience:.0f} s and was stopped"


def death_words(model: Observe, engine: OwnEngine) -> str:
    """Say that a model ended its process; waits for its end."""
    return (
        f"{model.source} ended the process that it ran in: it {engine.how_it_ended()}"
    )


def answer(
    request: Request[A],
    model: Observe,
    patience: float = PATIENCE,
    cancelled: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _words: None,
) -> A:
    """Answer a request about a model in a process that is killed after `patience` seconds; the caller has asked
    whether it may run.

    Raises SourceError, also for a model that ended its process, OSError if none can be started, and what the handler
    raises.
    """
    engine = engine_of(model)
    try:
        return answer_in(engine, request, patience, cancelled, tell)
    except RequestStoppedError as error:
        if error.reason == "cancelled":
            raise SourceError("cancelled") from error
        raise ObserveTimeoutError(timeout_words(model, patience)) from error
    except EngineDiedError as error:
        raise ModelRaisedError(death_words(model, engine)) from error


def answer_in(
    engine: OwnEngine,
    request: Request[A],
    patience: float = math.inf,
    cancelled: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _words: None,
) -> A:
    """Answer a request in a new process, and end it. Raises RequestStoppedError, EngineDiedError, and what the handler
    raises."""
    try:
        return LimitedQuestion(engine, request, patience, cancelled).answer(tell)
    finally:
        engine.kill()
        engine.close()


def shadows_packages(folder: Path) -> bool:
    """Return whether a module in a folder shadows an installed package: a process that has imported the package would
    not import the module.

    A folder without `__init__.py`, such as `__pycache__`, shadows nothing: Python prefers a package found later on the
    path, and joins folders of one name.
    """
    try:
        modules = (
            path
            for path in folder.iterdir()
            if path.suffix == ".py" or (path / "__init__.py").is_file()
        )
        names = {path.stem for path in modules}
        folder = folder.resolve()
        elsewhere = [
            entry for entry in sys.path if Path(entry or ".").resolve() != folder
        ]  # it may be there too
    except OSError:
        return False
    return any(
        PathFinder.find_spec(name, elsewhere) is not None
        for name in names
        if name.isidentifier()
    )
