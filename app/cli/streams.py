"""Make stdout, stderr and stdin safe: any text can be printed, and a closed stream is reported in one sentence."""

from __future__ import annotations

import contextlib
import io
import os
import sys

UNREAD, UNWRITTEN = 141, 2  # exit statuses: the first as a shell names SIGPIPE


def prepare() -> None:
    """Escape characters that a stream's encoding lacks, and redirect closed streams to nowhere.

    Otherwise the next file to be opened gets the descriptor of the closed stream, and output is printed into it.
    """
    for number in range(3):
        with contextlib.suppress(OSError):
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper) and _refuses_letters(stream):
            stream.reconfigure(errors="backslashreplace")


def _refuses_letters(stream: io.TextIOWrapper) -> bool:
    """Return whether text can raise UnicodeEncodeError. In the C locale only surrogate-escaped bytes can be written."""
    is_utf8 = stream.encoding.lower().replace("-", "") == "utf8"
    return (
        stream.errors == "strict" or stream.errors == "surrogateescape" and not is_utf8
    )


def finish() -> None:
    """Flush the output while errors can still be reported. Raises OSError."""
    sys.stdout.flush()


def is_broken(error: OSError) -> bool:
    """Return whether stdout is closed, of which an unbuffered one tells in `error` alone."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return isinstance(error, BrokenPipeError)


def give_up(error: OSError) -> int:
    """Report that stdout cannot be written, and drop the remaining output; return the exit status."""
    unread = isinstance(error, BrokenPipeError)
    why = (
        "it was closed before everything was written"
        if unread
        else error.strerror or str(error)
    )
    with contextlib.suppress(OSError):
        print(f"tapedeck: standard output cannot be written: {why}", file=sys.stderr)
    # The interpreter would retry at shutdown.
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    return UNREAD if unread else UNWRITTEN


class StatusLine:
    """A status line on a terminal, erased at the end; does nothing without a terminal."""

    def __init__(self) -> None:
        self._seen = sys.stderr.isatty()

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._seen:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def __call__(self, message: str) -> None:
        if self._seen:
            print(f"\r\033[K{message}…", end="", file=sys.stderr, flush=True)
