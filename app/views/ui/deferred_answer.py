"""Results of a `Future` delivered as Qt callbacks, so that the window does not wait for a run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, QTimer

AGAIN = 30  # milliseconds between two looks whether it is there


def when_done(
    future: Future,
    owner: QObject,
    on_answer: Callable[[Any], None],
    on_error: Callable[[BaseException], None],
) -> None:
    """Call `on_answer` or `on_error` when the future is done, unless `owner` was deleted."""
    if not future.done():
        QTimer.singleShot(
            AGAIN, owner, partial(when_done, future, owner, on_answer, on_error)
        )
        return
    error = (
        RuntimeError("the run has ended") if future.cancelled() else future.exception()
    )
    if error is not None:
        on_error(error)
    else:
        on_answer(future.result())
