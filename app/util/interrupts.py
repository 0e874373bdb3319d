"""Ctrl+C ends a command with one line and a shell's exit status, at any time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

STATUS = 130  # as a shell names a command that SIGINT ended
_IMPORTING = "<frozen importlib"


def write_interrupted() -> None:
    """Write the line. Imports nothing."""
    with contextlib.suppress(OSError):
        os.write(2, b"\ntapedeck: interrupted\n")


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl+C, but exit at once during an import.

    There the exception gets lost or replaced: numpy, torch and the interpreter itself catch it. An ignored SIGINT, as
    by `nohup`, stays ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        if before not in (signal.SIG_IGN, None):
            signal.signal(signal.SIGINT, _stop)
    except ValueError:  # this is not the main thread
        before = None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _stop(_number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTING):
            _leave()
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave() -> None:
    """End this process without the interpreter's shutdown; temporary folders go, children end by themselves."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.modules["app.util.leftovers"].remove_own()
    write_interrupted()
    os._exit(STATUS)
