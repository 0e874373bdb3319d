"""Where in a person's code something happens while a model is followed."""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

_OURS = f"{Path(__file__).resolve().parents[3]}{os.sep}"
_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_PYTHON = sysconfig.get_paths()["stdlib"]
_PASSED = (_OURS, f"{_TORCH}fx{os.sep}", "<")  # on the way from a value to who is asked


@dataclass(frozen=True, order=True)
class SourceLine:
    """A line of a function, as a person looks for it."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function}, line {self.line} of {Path(self.file).name}"


def is_theirs(file: str) -> bool:
    """Whether a file is neither ours, nor torch's, nor Python's."""
    if file.startswith(("<", _OURS, _TORCH)):
        return False
    return not file.startswith(_PYTHON) or "-packages" in file


def here() -> SourceLine | None:
    """The line of a person's code that runs now."""
    return next((_place(one.f_code, one.f_lineno) for one in _frames() if is_theirs(one.f_code.co_filename)), None)


def asked() -> SourceLine | None:
    """The same if it is that code that asks, and no function of torch that it calls."""
    outer = next((one for one in _frames() if not one.f_code.co_filename.startswith(_PASSED)), None)
    theirs = outer is not None and is_theirs(outer.f_code.co_filename)
    return _place(outer.f_code, outer.f_lineno) if outer is not None and theirs else None


def _frames() -> Iterator[FrameType]:
    """The frames of what is followed, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _begins(frame.f_code):
        yield frame
        frame = frame.f_back


def _begins(code: CodeType) -> bool:
    return code.co_name == "follow" and code.co_filename.startswith(_OURS)


def of_error(error: BaseException | None) -> SourceLine | None:
    """The innermost line of a person's code that an error, or its cause, came through."""
    found = None
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            if _begins(trace.tb_frame.f_code):
                found = None  # what is further out is not of the model
            if is_theirs(trace.tb_frame.f_code.co_filename):
                found = _place(trace.tb_frame.f_code, trace.tb_lineno)
            trace = trace.tb_next
        error = error.__cause__ or error.__context__
    return found


def of_forward(kind: type) -> SourceLine | None:
    """Where a class says what it computes."""
    code = getattr(inspect.unwrap(getattr(kind, "forward", kind)), "__code__", None)
    return _place(code, code.co_firstlineno) if code is not None and is_theirs(code.co_filename) else None


def _place(code: CodeType, line: int) -> SourceLine:
    name = code.co_qualname
    while name.endswith(">") and ".<locals>." in name:  # a comprehension, or a lambda
        name = name.rpartition(".<locals>.")[0]
    return SourceLine(code.co_filename, line, name.rpartition("<locals>.")[2])


def functions_of(kind: type) -> Iterator[Any]:
    """The functions that a class and its bases define, but for those of torch."""
    for base in kind.__mro__:
        for value in vars(base).values():
            function = inspect.unwrap(value) if callable(value) else getattr(value, "fget", None)
            code = getattr(function, "__code__", None)
            if code is not None and is_theirs(code.co_filename):
                yield function


def called_by_theirs() -> bool:
    """Whether a person's code called the function that calls the function that asks."""
    return is_theirs(sys._getframe(2).f_code.co_filename)
