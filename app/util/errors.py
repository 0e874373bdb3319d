"""Errors with a code for programs; messages are for users."""

from __future__ import annotations

import locale
import re
from contextlib import suppress


class CodedError(Exception):
    """An error with a code, by default from its class name: NoSuchPortError has "no_such_port".

    `exit_code` is what a command ends with: 1 where something failed, 2 where what was asked for is wrong, or a file
    cannot be read or written.
    """

    code = ""
    exit_code = 1

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            cls.code = re.sub(
                r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Error")
            ).lower()


def speak_english() -> None:
    """Have the messages of the C library in English, as all texts of the program; Qt takes them from the environment.

    `OSError` else says "Der Dateiname ist zu lang" in the middle of a sentence.
    """
    with suppress(locale.Error, AttributeError):  # Windows has no such category
        locale.setlocale(locale.LC_MESSAGES, "C")
