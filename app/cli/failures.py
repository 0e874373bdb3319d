"""Error messages for failing code: a sentence with file and line, and the traceback of the user's own files."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from app.source import layer_files

if TYPE_CHECKING:
    from app.training.events import Failed


def describe_failure(failed: Failed, whole: bool, more: str = "") -> str:
    """Describe a failed run in a sentence, after printing frames of the user's code to stderr."""
    if failed.kind == "error" or whole:
        print_traceback(failed.traceback, whole)
    return " ".join(filter(None, (ended(failed.message), failed.cure, more)))


def print_traceback(text: str, whole: bool) -> None:
    """Print to stderr the frames of the user's files in a traceback, or the `whole` of it."""
    from app import cli

    lines = (text if whole else layer_files.own_frames(text)).splitlines()
    if lines:
        print(*map(cli.printable, lines), sep="\n", file=sys.stderr)


def ended(words: str) -> str:
    """End a sentence with a full stop."""
    return words if words.endswith((".", "!", "?")) else f"{words}."


def of_own_code(error: Exception, whole: bool) -> str:
    """Describe an error raised in the user's files, after printing its frames; "" for errors of other code."""
    place = layer_files.error_location(error.__traceback__)
    if not place:
        return ""
    print_traceback("".join(traceback.format_exception(error)), whole)
    words = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    return ended(f"your own code failed with {words} ({place})")
