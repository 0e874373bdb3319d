"""The command that installs PyTorch into the Python of the window, and what it says of its progress."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib import metadata, util

from msgspec import Struct

PROGRAM = "tapedeck-torch"
PACKAGES = ("torch", "torchvision")
INDEX = "TORCH_INDEX"  # the variable that `make run` takes too
RAW_PROGRESS = (24, 1)  # the first pip that says how much it has downloaded
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class NoInstallerError(Exception):
    """This Python has neither pip nor uv; the message says what helps."""


class InstallerLine(Struct, frozen=True):
    """What a line of the installer says: how much of a download is done, from 0 to 1, or a text."""

    text: str = ""
    done: float | None = None


def there() -> str:
    """Return the version of the torch that this Python has, "of unknown version" for one without; "" for none. It is
    not imported."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "of unknown version" if util.find_spec("torch") is not None else ""


def default_index() -> str:
    """Return the address of the index that the environment names, "" for pip's own."""
    return os.environ.get(INDEX, "")


def command(index: str = "") -> list[str]:
    """Return the command that installs torch in the range of the program, from an index, "" for the installer's own.

    Raises NoInstallerError.
    """
    source = ["--index-url", index] if index else []
    if util.find_spec("pip") is not None:
        shown = ["--progress-bar", "raw"] if _pip() >= RAW_PROGRESS else []
        pip = [sys.executable, "-m", "pip", "install", "--no-input", *shown]
        return [*pip, *source, *_requirements()]
    if uv := shutil.which("uv"):
        return [
            uv,
            "pip",
            "install",
            "--python",
            sys.executable,
            *source,
            *_requirements(),
        ]
    raise NoInstallerError(
        f"{sys.executable} has neither pip nor uv. Run {sys.executable} -m ensurepip, then open this again."
    )


def _pip() -> tuple[int, ...]:
    try:
        version = metadata.version("pip")
    except metadata.PackageNotFoundError:
        return ()
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _requirements() -> list[str]:
    """Return the packages in the ranges that the installed program names."""
    try:
        stated = metadata.requires(PROGRAM) or []
    except metadata.PackageNotFoundError:
        stated = []
    by_name = {
        match[0]: text.partition(";")[0].strip()
        for text in stated
        if (match := _NAME.match(text)) and "extra ==" not in text
    }
    return [by_name.get(name, name) for name in PACKAGES]


def parse_line(line: str) -> InstallerLine:
    """Return what a line of pip says.

    >>> parse_line("Progress 512 of 2048").done, parse_line("Collecting torch>=2.10").text
    (0.25, 'Collecting torch>=2.10')
    """
    if (match := _PROGRESS.search(line)) is not None:
        return InstallerLine(done=int(match[1]) / max(int(match[2]), 1))
    return InstallerLine(line.strip())
