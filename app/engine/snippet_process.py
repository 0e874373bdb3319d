"""The process in which a snippet runs: it has a time and a memory limit, can be ended at once, and hands back data.

A `Child` may be started before anybody knows what is to run, so that torch is there when it is; it runs one snippet.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

import msgspec

from app.autograd.codec import packed, unpacked
from app.autograd.snippets.snippet import Ending, Limits, Snippet, SnippetAnswer
from app.engine import child_process, pool
from app.util.formatting import bytes_text
from app.util.leftovers import TemporaryFolder

START = 120.0  # seconds that torch may take to load
LOOK = 0.02  # seconds between two looks at the process
MOST = 64 << 20  # bytes of an answer
KEPT = 200_000  # bytes of what is printed that are kept
READY = b"ready\n"
WATCHED = sys.platform == "linux"  # whether memory can be watched here
LENGTH = struct.Struct("<Q")
THREADS = "2"


def run(
    snippet: Snippet,
    limits: Limits = Limits(),  # noqa: B008  frozen
    cancelled: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _output: None,
) -> SnippetAnswer:
    """Run a snippet in a process of its own and say what came of it; see `Child.run`."""
    child = Child()
    try:
        return child.run(snippet, limits, cancelled, tell)
    finally:
        child.close()


class Child:
    """A process that runs one snippet. Raises OSError where none can be started."""

    def __init__(self) -> None:
        self._folder = TemporaryFolder()
        extra = {"OMP_NUM_THREADS": THREADS, "MKL_NUM_THREADS": THREADS, "PYTHONUNBUFFERED": "1"}
        self._process = started = pool.start("snippet", extra, Path(self._folder.name))
        assert started.stdout is not None and started.stderr is not None
        self._ready = threading.Event()
        self._answer = b""
        self._reader = threading.Thread(target=self._read, args=(started.stdout,), name="snippet", daemon=True)
        self._reader.start()
        self._printed = _Printed(started.stderr)

    @property
    def waits(self) -> bool:
        """Whether it is there and can be given something to run."""
        return self._process.poll() is None

    def _read(self, stream: IO[bytes]) -> None:
        """Hear that it is ready, then its answer; what a snippet started may hold the other end for longer."""
        try:
            if self._exactly(stream, len(READY)) == READY:
                self._ready.set()
                (length,) = LENGTH.unpack(self._exactly(stream, LENGTH.size))
                self._answer = self._exactly(stream, min(length, MOST))
        except (OSError, ValueError, struct.error):
            return  # it ended without an answer, and how is told by who waits for it

    @staticmethod
    def _exactly(stream: IO[bytes], count: int) -> bytes:
        data = bytearray()
        while len(data) < count and (part := os.read(stream.fileno(), min(count - len(data), 1 << 20))):
            data += part
        return bytes(data)

    def run(
        self,
        snippet: Snippet,
        limits: Limits = Limits(),  # noqa: B008  frozen
        cancelled: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda _output: None,
    ) -> SnippetAnswer:
        """Run a snippet; the caller has seen to it that a person wants that. `tell` hears what it has printed.

        Ended at once when it is `cancelled`, and when it takes more than its limits; the answer says so. Memory is
        watched on Linux alone.
        """
        with contextlib.suppress(BrokenPipeError):  # it has ended, and how is told below
            assert self._process.stdin is not None
            self._process.stdin.write(packed((snippet, limits)))
            self._process.stdin.close()
        ended, words = self._watch(limits, cancelled, tell)
        if ended == "done":
            answer = self._answered()
        else:
            answer = SnippetAnswer(ended, words)
        if answer.ended == "memory":
            answer = replace(answer, words=_memory_words(limits))
        tell(text := self._printed.text())
        return replace(answer, output=text, seconds=answer.seconds or self._took)

    def _watch(self, limits: Limits, cancelled: Callable[[], bool], tell: Callable[[str], None]) -> tuple[Ending, str]:
        """Wait for its end, or bring that about; how it ended and why."""
        began, base, told = time.monotonic(), 0, 0
        working = False
        while self._process.poll() is None:
            if not working and self._ready.is_set():
                working, began, base = True, time.monotonic(), child_process.memory_of(self._process.pid) or 0
            self._took = time.monotonic() - began
            if cancelled():
                return self._end("stopped", "Stopped.")
            if self._took > (limits.seconds if working else START):
                reason = f"its limit of {limits.seconds:g} s" if working else f"{START:.0f} s for loading torch"
                return self._end("time", f"The snippet had not come to its end after {reason} and was stopped.")
            if working and (child_process.memory_of(self._process.pid) or 0) - base > limits.memory:
                return self._end("memory", "")
            if self._printed.count != told:
                told = self._printed.count
                tell(self._printed.text(now=True))
            time.sleep(LOOK)
        self._reader.join(5.0)
        if (code := self._process.wait()) or not self._answer:
            how = child_process.ending_words(code, self._kills)
            return "died", f"The process of the snippet {how}."
        return "done", ""

    _took = 0.0
    _kills: int | None = None

    def _end(self, ended: Ending, words: str) -> tuple[Ending, str]:
        self._process.kill()
        self._process.wait()
        return ended, words

    def _answered(self) -> SnippetAnswer:
        try:
            return unpacked(self._answer, SnippetAnswer)
        except (msgspec.DecodeError, ValueError) as error:
            return SnippetAnswer("died", f"What the snippet left cannot be read: {error}.")

    def close(self) -> None:
        """End it and whatever it has started."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if os.name == "posix":
            child_process.end_group(self._process.pid)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):  # it wants to write what nobody reads any more
                    stream.close()
        self._folder.cleanup()


def _memory_words(limits: Limits) -> str:
    return f"The snippet wanted more memory than its limit of {bytes_text(limits.memory)} and was stopped."


class _Printed:
    """What a process prints: its beginning is kept, the rest is counted."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._kept = bytearray()
        self.count = 0
        self._thread = threading.Thread(target=self._read, args=(stream,), name="output of a snippet", daemon=True)
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):  # it was closed while something held its other end
            while data := os.read(stream.fileno(), 1 << 16):
                self._kept += data[: max(0, KEPT - len(self._kept))]
                self.count += len(data)

    def text(self, now: bool = False) -> str:
        """What was printed, once the process has ended or `now`."""
        if not now:
            self._thread.join(2.0)
        text = bytes(self._kept).decode("utf-8", "replace")
        left = self.count - KEPT
        return text if left <= 0 else f"{text}\n… and {bytes_text(left)} more"
