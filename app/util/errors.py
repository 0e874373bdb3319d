"""Errors with a code for programs; messages are for users."""

from __future__ import annotations

import re


class CodedError(Exception):
    """An error with a code, by default from its class name: NoSuchPortError has "no_such_port"."""

    code = ""

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()
