"""Lines of the user's code among the frames of a call: neither of this program, nor of torch, nor of Python itself."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType

_OURS = f"{Path(__file__).resolve().parents[1]}{os.sep}"
GENERATED = "<tapedeck-"  # how the name begins that a net's source is compiled under
_OF_FX = "<eval_with_key>"  # the same of torch.fx
_PYTHON = sysconfig.get_paths()["stdlib"]


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
    found = ("", 0)
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            found = (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found


def is_users(file: str) -> bool:
    """Return whether a file belongs neither to this program, nor to torch, nor to Python. Installed packages count.

    So does text without a file whose lines are known, such as a cell of a notebook.
    """
    if file.startswith("<"):
        return file in linecache.cache and not file.startswith((GENERATED, _OF_FX))
    return _is_users_file(file)


@cache
def _is_users_file(file: str) -> bool:
    if file.startswith(_OURS):
        return False
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if torch is not None and file.startswith(f"{Path(torch).parent}{os.sep}"):
        return False
    return not file.startswith(_PYTHON) or "-packages" in file
