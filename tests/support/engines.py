"""The process of an engine from outside: stopped, killed, and asked something."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from app.engine.client import Engine
from app.engine.protocol import Request


def stop(pid: int) -> None:
    """Stop a process from outside, and see that all of its threads stand."""
    os.kill(pid, signal.SIGSTOP)
    stats = [task / "stat" for task in Path(f"/proc/{pid}/task").iterdir()]
    while any(
        stat.read_text("ascii").rpartition(")")[2].split()[0] != "T" for stat in stats
    ):
        pass


def asked(engine: Engine, wanted: type[Request[object]] | Request[object]) -> bool:
    """Whether that question, or one of that kind, was sent and has no answer, and no other waits to be sent: that would
    go to the next process, and the newest of several takes the place of those before it."""
    process = engine._process
    if process is None or not engine._outbox.empty():
        return False
    sent = [question.request for question in [*process.open.values()]]
    return any(
        isinstance(one, wanted) if isinstance(wanted, type) else one == wanted
        for one in sent
    )
