"""Lines of the user's code among the frames of a call: neither of this program, nor of torch, nor of Python itself;
warnings that are shown at them, and how many frames a process may have."""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

_OURS = f"{Path(__file__).resolve().parents[1]}{os.sep}"
GENERATED = "<tapedeck-"  # how the name begins that a net's source is compiled under
_OF_FX = "<eval_with_key>"  # the same of torch.fx
_PYTHON = sysconfig.get_paths()["stdlib"]
# What watches a model, or analyses blocks within blocks, needs several frames for each level: a model as deep as torch
# can run with Python's own limit of 1,000 needs several times as many.
FRAMES = 6000
FRAME_BYTES = 1024  # of the C stack, at most, for each of them


def location(frame: FrameType | None, generated: bool = False) -> tuple[str, int]:
    """Return file and line of the innermost frame of user code; ("", 0) if there is none.

    With `generated`, a net's generated source counts too.
    """
    while frame is not None:
        name = frame.f_code.co_filename
        if is_users(name) or (generated and name.startswith(GENERATED)):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def location_of_error(trace: TracebackType | None) -> tuple[str, int]:
    """Return file and line of the innermost frame of user code in a traceback; ("", 0) if there is none."""
    innermost = ("", 0)
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            innermost = (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return innermost


def is_users(file: str) -> bool:
    """Return whether a file belongs neither to this program, nor to torch, nor to Python. Installed packages count.

    So does text without a file whose lines are known, such as a cell of a notebook.
    """
    if file.startswith("<"):
        return file in linecache.cache and not file.startswith((GENERATED, _OF_FX))
    return _is_users_file(file)


def is_ours(file: str) -> bool:
    """Return whether a file belongs to this program."""
    return file.startswith(_OURS)


@cache
def _is_users_file(file: str) -> bool:
    if is_ours(file):
        return False
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if torch is not None and file.startswith(f"{Path(torch).parent}{os.sep}"):
        return False
    return not file.startswith(_PYTHON) or "-packages" in file


@contextlib.contextmanager
def at_users_lines() -> Iterator[None]:
    """Show warnings that would name a file of this program at the innermost line of user code instead, if any."""
    show = warnings.showwarning

    def show_at_line(
        message: Any, category: Any, filename: str, lineno: int, *rest: Any, **more: Any
    ) -> None:
        if is_ours(filename):
            file, line = location(sys._getframe(1))
            filename, lineno = (file, line) if file else (filename, lineno)
        show(message, category, filename, lineno, *rest, **more)

    warnings.showwarning = show_at_line
    try:
        yield
    finally:
        if (
            warnings.showwarning is show_at_line
        ):  # else somebody else has replaced it since
            warnings.showwarning = show


def allow_deep_calls() -> None:
    """Raise Python's limit on nested calls to `FRAMES`, or to what the stack of this process has room for."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _room()))


def _room() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    size, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return (
        FRAMES if size == resource.RLIM_INFINITY else min(FRAMES, size // FRAME_BYTES)
    )
