"""An engine with one process for one request: a run, a snippet, an import."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Any, TypeVar

from app.engine import child_process, pool
from app.engine.channel import LONGEST
from app.engine.client import Engine, _Process
from app.engine.protocol import Request
from app.source import layer_files

A = TypeVar("A")


class OwnEngine(Engine):
    """An engine whose process is started at once and never restarted; pending requests fail with EngineDiedError.

    `start` starts it, such as `partial(pool.start, "engine", ...)`, and `hear` gets its stderr. The caller watches its
    memory, its time and whether it is stopped. Trusted layer files need no trial first. Answers have at most `longest`
    bytes. Raises OSError if it cannot be started.
    """

    def __init__(
        self,
        start: Callable[[], Any],
        hear: Callable[[IO[bytes]], Any] = child_process.StderrReader,
        longest: int = LONGEST,
    ) -> None:
        process = _Process(1, start, hear, longest)
        self._how = ""
        super().__init__(start)
        self._own = self._process = process
        self.child, self.stderr = process.child, process.stderr
        self._begin(process)

    def how_it_ended(self) -> str:
        """Return how it ended, as the second half of a sentence; waits for its end."""
        return self._how or child_process.describe_exit(
            self.child.wait(), self._own.kills
        )

    def kill(self) -> None:
        """End it now, whatever it does."""
        self.child.kill()

    def close(self) -> None:
        """Kill it and its children during a request; else it ends when its input closes."""
        if self._own.open:
            self.kill()
        super().close()
        if os.name == "posix":
            child_process.end_group(self.child.pid)

    def _current(self) -> _Process:
        return self._own

    def _trusted(self) -> tuple[frozenset[str], frozenset[str]]:
        allowed, _ = layer_files.trusted()
        return allowed, allowed

    def _death_message(self, how: str) -> str:
        self._how = how
        return f"The process {how}."


def once(request: Request[A]) -> A:
    """Run one request in a new process that ends afterwards.

    Raises what the handler raises, EngineDiedError, and OSError if no process can be started.
    """
    engine = OwnEngine(lambda: pool.start("engine"))
    try:
        return engine.ask(request).result()
    finally:
        engine.close()
