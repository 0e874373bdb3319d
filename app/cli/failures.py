"""The one place where a command's exception becomes a sentence and an exit code."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from app.cli import console, startup
from app.util.errors import CodedError

if TYPE_CHECKING:
    from app.training.events import Failed

FAILED, REFUSED = 1, 2
# What an engine says of a file, by the name of the class.
UNREADABLE = (
    "FileNotFoundError",
    "IsADirectoryError",
    "NotADirectoryError",
    "PermissionError",
)


def explained(error: BaseException, whole: bool) -> tuple[str, int]:
    """Return the sentence for an exception and the exit code of the command, after printing to stderr the frames of the
    user's code, or all frames if `whole`."""
    if message := startup.cause(error):
        if whole:
            traceback.print_exception(error)
        return message, FAILED
    from app.source import (
        raised,
    )  # which needs the packages, one of which may be what failed

    trace = raised.trace_of(error)
    if isinstance(error, CodedError) and raised.is_ours(error):
        if whole and error.__cause__ is not None:
            print_traceback(trace, whole)
        return str(error).strip() or type(error).__name__, error.exit_code
    print_traceback(trace, whole)
    message = raised.sentence(error)
    if raised.place_of(error):
        return ended(f"your own code failed with {message}"), FAILED
    if isinstance(error, OSError) or raised.kind_of(error) in UNREADABLE:
        return message, REFUSED
    more = "" if whole else "; --traceback shows where"
    return f"{message}{more}", FAILED


def describe_failure(failed: Failed, full: bool, more: str = "") -> str:
    """Describe a failed run in a sentence, after printing frames of the user's code to stderr."""
    if failed.kind == "error" or full:
        print_traceback(failed.traceback, full)
    return " ".join(filter(None, (ended(failed.message), failed.cure, more)))


def print_traceback(text: str, full: bool) -> None:
    """Print to stderr the frames of the user's files in a traceback, or with `full` all of it."""
    from app.source import layer_files

    lines = (text if full else layer_files.own_frames(text)).splitlines()
    if lines:
        print(*map(console.printable, lines), sep="\n", file=sys.stderr)


def ended(sentence: str) -> str:
    """End a sentence with a full stop."""
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
