"""What prevents a start, in one sentence with its cure, as `doctor` has it: before a command, and after one failed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from app.cli import console, doctor
from app.cli.display import obstacle
from app.cli.doctor import DoctorCheck
from app.util import shelf
from app.util.errors import CodedError

if TYPE_CHECKING:
    from app.sources.spec import AskedModel


def hindrance(window: bool) -> str:
    """Return what prevents a command or the window, "" if nothing does. Imports nothing."""
    for check in doctor.installed(window):
        if check.state == "missing":
            return sentence(check)
    barrier = obstacle() if window else None
    return str(barrier) if barrier is not None else ""


def cause(error: BaseException) -> str:
    """Return what is wrong with a package that is needed and whose import raised an error; "" if none did."""
    for raised in _chain(error):
        for module in _modules(raised):
            check = doctor.unimportable(module, raised)
            if check is not None:
                return sentence(check)
    if isinstance(error, CodedError) and error.code in (
        "engine_died",
        "torch_unreadable",
    ):
        check = doctor.torch_check()
        return sentence(check) if check.state == "missing" else ""
    return ""


def window(file: str | None, model: AskedModel | None = None) -> int:
    """Open the window, as `run_window` does; say in one sentence why there is none."""
    message = hindrance(window=True)
    if message:
        return refuse(message)
    if file is not None and ":" in file and file.endswith(".jsonl"):
        try:
            for name in shelf.modules("cli.elsewhere"):
                file = import_module(name).frames_here(file)
        except CodedError as error:
            return refuse(str(error))
    # For the rest of the process: `Housekeeping` collects, on the window's thread. What a start makes lives on.
    gc.disable()
    try:
        from app.views.app import run_window

        return run_window(file, model)
    except Exception as error:
        message = cause(error)
        if not message:
            raise
        return refuse(message)


def refuse(message: str) -> int:
    """Print why there is no start; return the exit code."""

    console.warn(console.shortened(message))
    return 1


def sentence(check: DoctorCheck) -> str:
    """Return a check as a sentence."""
    return f"{check.name}: {check.found}; {check.cure}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, the first cause first."""
    if error is not None:
        yield from _chain(error.__cause__ or error.__context__)
        yield error


def _modules(error: BaseException) -> Iterator[str]:
    """Yield the top-level modules whose import an error may have ended, the most likely first."""
    names = [*_importing(error.__traceback__)]
    if isinstance(error, ModuleNotFoundError) and error.name is not None and not names:
        yield error.name.partition(".")[0]
    yield from reversed(names)
    if (
        isinstance(error, ImportError)
        and error.name is not None
        and error.path is not None
    ):
        yield error.name.partition(".")[0]


def _importing(trace: TracebackType | None) -> Iterator[str]:
    """Yield the installed modules that were being imported, the outermost first."""
    while trace is not None:
        code = trace.tb_frame.f_code
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if code.co_name == "<module>" and not _is_ours(code.co_filename):
            yield module.partition(".")[0]
        trace = trace.tb_next


def _is_ours(file: str) -> bool:
    return Path(__file__).parents[1] in Path(file).parents
