"""A process that waits for the next run with PyTorch loaded, so that a run in a process of its own begins at once."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import dataclass

from app.engine import child_process

PROGRAM = ("-P", "-m", "app.engine.run_main")


@dataclass(frozen=True)
class Begun:
    """A process of a run, and what it writes to stderr."""

    child: subprocess.Popen[bytes]
    told: child_process.Told


_waiting: Begun | None = None
_lock = threading.Lock()


def begin(extra: dict[str, str] | None = None) -> Begun:
    """Start the process of a run; it loads PyTorch first. Raises OSError."""
    child = child_process.start(list(PROGRAM), extra or {})
    assert child.stderr is not None
    return Begun(child, child_process.Told(child.stderr))


def prepare() -> None:
    """Have one process wait. One that cannot be started is not: the run that wants one says why.

    Call it from a thread that lives as long as the program: Linux ends a process with the thread that started it.
    """
    global _waiting
    with _lock:
        if _waiting is not None and _waiting.child.poll() is None:
            return
        if _waiting is not None:
            _close(_waiting)
        try:
            _waiting = begin()
        except OSError:
            _waiting = None


def take() -> Begun | None:
    """The process that waits, which is the caller's from now on; None if there is none."""
    global _waiting
    with _lock:
        taken, _waiting = _waiting, None
    if taken is not None and taken.child.poll() is not None:
        _close(taken)
        return None
    return taken


def dismiss() -> None:
    """End the process that waits, if there is one."""
    if (taken := take()) is None:
        return
    taken.child.kill()
    taken.child.wait()
    _close(taken)
    if os.name == "posix":
        child_process.end_group(taken.child.pid)


def _close(gone: Begun) -> None:
    for stream in (gone.child.stdin, gone.child.stdout):
        if stream is not None:
            stream.close()
