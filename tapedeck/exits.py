"""How the process of a script ends: by a status, by an exception, or by one in the thread that trains."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from tapedeck.frames import DONE, Ending


def by_status(code: object) -> Ending:
    """Return the ending of a script that passes `code` to `sys.exit`.

    >>> by_status("no data").note, by_status(None).reason
    ('The script exited with 1: no data', 'done')
    """
    if code is None:
        return DONE
    if not isinstance(code, int):
        return Ending("stopped", f"The script exited with 1: {code}")
    status = code & 0xFF if os.name == "posix" else int(code)
    return Ending("stopped", f"The script exited with {status}.") if status else DONE


def by_exception(error: BaseException) -> Ending:
    """Return the ending of a script that an exception ends."""
    if isinstance(error, SystemExit):
        return by_status(error.code)
    if isinstance(error, KeyboardInterrupt):
        return Ending("stopped", "The script was interrupted.")
    return Ending(error=f"{type(error).__name__}: {error}")


def unhandled() -> BaseException | None:
    """Return the exception that ends this process, as far as Python keeps it; a prompt goes on after one."""
    error: BaseException | None = getattr(sys, "last_value", None)
    return None if hasattr(sys, "ps1") or sys.flags.interactive else error


class Exits:
    """Has `leaves` called with the status before `os._exit` ends the process, and `dies` with what ends a thread."""

    def __init__(
        self,
        leaves: Callable[[int], None],
        dies: Callable[[BaseException, threading.Thread | None], None],
    ) -> None:
        self._leaves, self._dies = leaves, dies
        self._exit, self._excepthook = os._exit, threading.excepthook
        self._ours = (self._leave, self._die)  # bound once, to be known again
        os._exit, threading.excepthook = self._ours

    def _leave(self, status: int) -> NoReturn:
        try:
            self._leaves(status)
        finally:
            self._exit(status)

    def _die(self, args: Any) -> None:
        try:
            if isinstance(args.exc_value, Exception):
                self._dies(args.exc_value, args.thread)
        finally:
            self._excepthook(args)

    def remove(self) -> None:
        """Put back what was there, unless somebody else has replaced it since."""
        if os._exit is self._ours[0]:
            os._exit = self._exit
        if threading.excepthook is self._ours[1]:
            threading.excepthook = self._excepthook
