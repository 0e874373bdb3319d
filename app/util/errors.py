"""The code of an error, by which programs tell errors apart whose texts are for people."""

from __future__ import annotations

import re


class CodedError(Exception):
    """An error with a code, which is its name unless it says another: NoSuchPortError has "no_such_port"."""

    code = ""

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()
