"""The separate engine that runs a snippet: with a time and a memory limit, and killable at once."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from app.engine import pool
from app.engine.own_engine import LimitedQuestion, OwnEngine, RequestStoppedError
from app.engine.protocol import EngineDiedError
from app.features.snippets.values import (
    Ending,
    Limits,
    RunSnippet,
    Snippet,
    SnippetAnswer,
)
from app.util.formatting import bytes_text
from app.util.leftovers import TemporaryFolder

START = 120.0  # seconds that torch may take to load
MOST = 64 << 20  # bytes of an answer
HALF = 100_000  # bytes of output that are kept of its beginning, and as many of its end
WATCHED = sys.platform == "linux"  # whether memory can be watched here
THREADS = "2"
SURROUNDINGS = {
    "OMP_NUM_THREADS": THREADS,
    "MKL_NUM_THREADS": THREADS,
    "PYTHONUNBUFFERED": "1",
}


def run(
    snippet: Snippet,
    limits: Limits = Limits(),  # noqa: B008  frozen
    cancelled: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _output: None,
) -> SnippetAnswer:
    """Run a snippet in a separate process; the caller has obtained the user's consent. `tell` is called with its
    output.

    Killed when it is `cancelled`, and when it exceeds its limits; the answer reports that. Memory is limited on Linux
    alone. Raises OSError if no process can be started.
    """
    with TemporaryFolder() as folder:
        engine = OwnEngine(
            partial(pool.start, "engine", SURROUNDINGS, Path(folder)), _Printed, MOST
        )
        try:
            answer = _answer(engine, snippet, limits, cancelled, tell)
        finally:
            engine.close()
        tell(text := engine.stderr.text())
        return replace(answer, output=text)


def _answer(
    engine: OwnEngine,
    snippet: Snippet,
    limits: Limits,
    cancelled: Callable[[], bool],
    tell: Callable[[str], None],
) -> SnippetAnswer:
    """Wait for the end of a snippet, or enforce its limits, which count from when torch is loaded."""
    printed, shown, working = engine.stderr, 0, False
    question = LimitedQuestion(engine, RunSnippet(snippet, limits), START, cancelled)
    try:
        for message in question.messages():
            if message is not None and not working:
                working = True
                question.limit(limits.seconds, limits.memory)
            if printed.count != shown:
                shown = printed.count
                tell(printed.text(now=True))
        answer = question.answer()
    except RequestStoppedError as stop:
        took = question.took
        engine.kill()
        ending, text = _stopped(stop, limits, working)
        return SnippetAnswer(ending, text, seconds=took)
    except EngineDiedError:
        ended = f"The process of the snippet {engine.how_it_ended()}."
        return SnippetAnswer("died", ended, seconds=question.took)
    except Exception as error:  # of its process, not of the text
        failed = f"The snippet could not be run: {error}."
        return SnippetAnswer("died", failed, seconds=question.took)
    if answer.ended == "memory":
        return replace(answer, words=_memory_text(limits))
    return answer


def _stopped(
    stop: RequestStoppedError, limits: Limits, working: bool
) -> tuple[Ending, str]:
    if stop.reason == "cancelled":
        return "stopped", "Stopped."
    if stop.reason == "memory":
        return "memory", _memory_text(limits)
    limit = f"{START:.0f} s for loading torch"
    if working:
        limit = f"its limit of {limits.seconds:g} s"
    return "time", f"The snippet did not finish within {limit} and was stopped."


def _memory_text(limits: Limits) -> str:
    limit = bytes_text(limits.memory)
    return f"The snippet exceeded its memory limit of {limit} and was stopped."


class _Printed:
    """Collects a process's output: keeps its beginning and end, and counts the bytes in between."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._begin, self._end = bytearray(), bytearray()
        self.count = 0
        self._thread = threading.Thread(
            target=self._read, args=(stream,), name="output of a snippet", daemon=True
        )
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(
            OSError, ValueError
        ):  # it was closed while something held its other end
            while data := os.read(stream.fileno(), 1 << 16):
                room = HALF - len(self._begin)
                self._begin += data[:room]
                self._end += data[room:]
                del self._end[:-HALF]
                self.count += len(data)

    def text(self, now: bool = False) -> str:
        """Return the output, after the process has ended or `now`."""
        if not now:
            self._thread.join(2.0)
        begin, end, left = bytes(self._begin), bytes(self._end), self.count - 2 * HALF
        if left <= 0:
            return (begin + end).decode("utf-8", "replace")
        excerpts = begin.rpartition(b"\n")[0] or begin, end.partition(b"\n")[2] or end
        first, last = (excerpt.decode("utf-8", "replace") for excerpt in excerpts)
        return f"{first}\n… {bytes_text(self.count - sum(map(len, excerpts)))} left out\n{last}"
