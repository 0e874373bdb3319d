"""What went wrong in a model that is imported: its code, the line, and arguments that do not fit."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.features.importing.values import ModelImportError

if TYPE_CHECKING:
    from app.features.importing.compute.lowering.ir import DraftError
    from app.features.importing.compute.tracing.frames import TraceError


def code_of(error: BaseException) -> str:
    """Return the code of a failure in the user's code; some kinds differ only by the text of the exception."""
    message = str(error)
    if isinstance(error, ModuleNotFoundError):
        return "module_not_found"
    if isinstance(error, ImportError) and "attempted relative import" in message:
        return "relative_import"
    if isinstance(error, EOFError):
        return "asks_for_input"
    if isinstance(error, AssertionError) and "Torch not compiled with" in message:
        return "no_cuda"
    if isinstance(error, TypeError):
        if "forward() " in message:
            return "inputs"
        if "__init__() " in message or "unexpected keyword argument" in message:
            return "constructor"
        if "required positional argument" in message:
            return "arguments"
    return "own_code"


def code_of_trace(error: TraceError | DraftError) -> str:
    """Return the code of a failure to trace a model, or of the error that its own code raised."""
    cause = error.__cause__ if error.code == "not_followed" else None
    while cause is not None:
        if (code := code_of(cause)) != "own_code":
            return code
        cause = cause.__cause__
    return error.code


def fitting(
    called: Callable[..., Any], name: str, code: str, *args: Any, **named: Any
) -> None:
    """Raise ModelImportError of this code for arguments that do not match the signature, with the signature."""
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return  # calling it raises
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        if code == "arguments" and named.keys() - signature.parameters.keys():
            code = "constructor"
        signature_text = ", ".join(
            str(parameter.replace(annotation=parameter.empty))
            for parameter in signature.parameters.values()
        )
        raise ModelImportError(f"{name}({signature_text}): {error}", code) from error


def line_in(error: BaseException | None, path: Path) -> str:
    """`, line 12`, where an error or its cause arose in a file; nothing where it did elsewhere."""
    location = ""
    while error is not None:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(path):
                location = f", line {frame.lineno}"
        error = error.__cause__ or error.__context__
    return location
