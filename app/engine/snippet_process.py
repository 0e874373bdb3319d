"""The separate engine that runs a snippet: with a time and a memory limit, and killable at once."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from app.autograd.snippets.snippet import Ending, Limits, Snippet, SnippetAnswer
from app.engine import child_process, pool
from app.engine.client import Question
from app.engine.own_engine import OwnEngine
from app.engine.protocol import EngineDiedError
from app.engine.requests.autograd.snippet import RunSnippet
from app.util.formatting import bytes_text
from app.util.leftovers import TemporaryFolder

START = 120.0  # seconds that torch may take to load
POLL_INTERVAL = 0.02  # seconds between two polls of the process
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
            answer = _Attempt(engine, snippet, limits).watch(cancelled, tell)
        finally:
            engine.close()
        tell(text := engine.stderr.text())
        return replace(answer, output=text)


class _Attempt:
    """A running snippet."""

    def __init__(self, engine: OwnEngine, snippet: Snippet, limits: Limits) -> None:
        self._engine, self._limits = engine, limits
        self._working = threading.Event()
        self._began, self._base = time.monotonic(), 0
        self._question: Question[SnippetAnswer] = engine.ask(
            RunSnippet(snippet, limits), lambda _: self._working.set()
        )

    def watch(
        self, cancelled: Callable[[], bool], tell: Callable[[str], None]
    ) -> SnippetAnswer:
        """Wait for its end, or enforce its limits."""
        printed, told, working = self._engine.stderr, 0, False
        while not self._question.done():
            if not working and self._working.is_set():
                working, self._began, self._base = (
                    True,
                    time.monotonic(),
                    self._memory(),
                )
            if cancelled():
                return self._end("stopped", "Stopped.")
            if self._took > (self._limits.seconds if working else START):
                reason = (
                    f"its limit of {self._limits.seconds:g} s"
                    if working
                    else f"{START:.0f} s for loading torch"
                )
                return self._end(
                    "time",
                    f"The snippet did not finish within {reason} and was stopped.",
                )
            if working and self._memory() - self._base > self._limits.memory:
                return self._end("memory", self._memory_text())
            if printed.count != told:
                told = printed.count
                tell(printed.text(now=True))
            futures.wait([self._question], POLL_INTERVAL)
        return self._answer()

    def _answer(self) -> SnippetAnswer:
        try:
            answer = self._question.result()
        except EngineDiedError:
            return self._died(
                f"The process of the snippet {self._engine.how_it_ended()}."
            )
        except Exception as error:  # of its process, not of the text
            return self._died(f"The snippet could not be run: {error}.")
        return (
            replace(answer, words=self._memory_text())
            if answer.ended == "memory"
            else answer
        )

    @property
    def _took(self) -> float:
        return time.monotonic() - self._began

    def _memory(self) -> int:
        return child_process.memory_of(self._engine.child.pid) or 0

    def _memory_text(self) -> str:
        limit = bytes_text(self._limits.memory)
        return f"The snippet exceeded its memory limit of {limit} and was stopped."

    def _died(self, words: str) -> SnippetAnswer:
        return SnippetAnswer("died", words, seconds=self._took)

    def _end(self, ended: Ending, words: str) -> SnippetAnswer:
        took = self._took
        self._question.stop()
        self._engine.kill()
        return SnippetAnswer(ended, words, seconds=took)


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
        whole = begin.rpartition(b"\n")[0] or begin, end.partition(b"\n")[2] or end
        first, last = (part.decode("utf-8", "replace") for part in whole)
        return f"{first}\n… {bytes_text(self.count - sum(map(len, whole)))} left out\n{last}"
