"""An answer that a run gives between two of its steps: the window does not wait for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, QTimer

AGAIN = 30  # milliseconds between two looks whether it is there


def when_done(
    future: Future, owner: QObject, on_answer: Callable[[Any], None], on_error: Callable[[BaseException], None]
) -> None:
    """Hand over what a future brings, for as long as `owner` lives."""
    if not future.done():
        QTimer.singleShot(AGAIN, owner, partial(when_done, future, owner, on_answer, on_error))
        return
    error = RuntimeError("the run has ended") if future.cancelled() else future.exception()
    if error is not None:
        on_error(error)
    else:
        on_answer(future.result())
