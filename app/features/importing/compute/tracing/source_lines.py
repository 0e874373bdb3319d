"""Source locations in the user's code while a model is traced."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import torch
from msgspec import Struct

from app.util.user_frames import is_users

_OURS = f"{Path(__file__).resolve().parents[3]}{os.sep}"
_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_MODULES = f"{_TORCH}{os.sep.join(('nn', 'modules', 'module.py'))}"
_PASSED = (
    _OURS,
    f"{_TORCH}fx{os.sep}",
    "<",
)  # skipped between a value and the code that reads it


class SourceLine(Struct, frozen=True, order=True):
    """A line of a function, formatted for messages."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function}, line {self.line} of {Path(self.file).name}"


def here() -> SourceLine | None:
    """Return the line of the user's code that runs now."""
    return next(
        (
            _source_line(frame.f_code, frame.f_lineno)
            for frame in _frames()
            if is_users(frame.f_code.co_filename)
        ),
        None,
    )


def direct_reader() -> SourceLine | None:
    """Return it if that code reads the value directly, not through a torch function."""
    outer = next(
        (
            frame
            for frame in _frames()
            if not frame.f_code.co_filename.startswith(_PASSED)
        ),
        None,
    )
    theirs = outer is not None and is_users(outer.f_code.co_filename)
    return (
        _source_line(outer.f_code, outer.f_lineno)
        if outer is not None and theirs
        else None
    )


def _frames() -> Iterator[FrameType]:
    """Yield the frames inside the traced model, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _begins(frame.f_code):
        yield frame
        frame = frame.f_back


def _begins(code: CodeType) -> bool:
    return code.co_name == "follow" and code.co_filename.startswith(_OURS)


def of_error(error: BaseException | None) -> SourceLine | None:
    """Return the innermost line of the user's code in the traceback of an error or its cause."""
    location = None
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            if _begins(trace.tb_frame.f_code):
                location = None  # outer frames are not the model's
            if is_users(trace.tb_frame.f_code.co_filename):
                location = _source_line(trace.tb_frame.f_code, trace.tb_lineno)
            trace = trace.tb_next
        error = error.__cause__ or error.__context__
    return location


def of_forward(kind: type) -> SourceLine | None:
    """Return where a class defines `forward`."""
    code = getattr(inspect.unwrap(getattr(kind, "forward", kind)), "__code__", None)
    return (
        _source_line(code, code.co_firstlineno)
        if code is not None and is_users(code.co_filename)
        else None
    )


def _source_line(code: CodeType, line: int) -> SourceLine:
    name = code.co_qualname
    while name.endswith(">") and ".<locals>." in name:  # a comprehension, or a lambda
        name = name.rpartition(".<locals>.")[0]
    return SourceLine(code.co_filename, line, name.rpartition("<locals>.")[2])


def through_torch() -> bool:
    """Return whether the user's code called the caller of this function, if only through methods of nn.Module."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == _MODULES:
        frame = frame.f_back
    return frame is not None and is_users(frame.f_code.co_filename)
