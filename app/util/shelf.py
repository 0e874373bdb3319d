"""The shelf of features: one folder of `app.features` each, whose files are found by the role that their name says.

Installed packages add to it: an entry point of the group `tapedeck.features` names a package with files of the same
roles. It is installed code and runs without a question; with TAPEDECK_PLUGINS=none it is left alone. What lies in the
current folder adds nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import PathDistribution
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from app.util.language import tr
from app.util.resources import PROGRAM
from tapedeck import plugin

PACKAGE = f"{PROGRAM}.features"
FEATURES = Path(__file__).resolve().parent.parent / "features"
GROUP = "tapedeck.features"
_broken: dict[str, str] = {}


def modules(role: str) -> list[str]:
    """Return the names of the modules of a role, such as "task" or "cli.options", one of each feature that has it.

    >>> modules("nothing")
    []
    """
    file = f"{role.replace('.', '/')}.py"
    folders = sorted(
        folder.name for folder in FEATURES.iterdir() if (folder / file).is_file()
    )
    return [f"{PACKAGE}.{folder}.{role}" for folder in folders]


@cache
def plugins() -> dict[str, Path]:
    """Return the folder of each package that an installed distribution adds; none of them is imported."""
    if os.environ.get("TAPEDECK_PLUGINS") == "none" or plugin.PROGRAM != PROGRAM:
        return {}
    here = Path.cwd()
    stated = (
        entry_point.value
        for entry in dict.fromkeys(sys.path)
        if entry and Path(entry).resolve() != here
        for file in sorted(Path(entry).glob("*.dist-info/entry_points.txt"))
        if f"[{GROUP}]" in file.read_text("utf-8", "replace")
        for entry_point in PathDistribution(file.parent).entry_points.select(
            group=GROUP
        )
    )
    return {name: folder for name in stated if (folder := _folder(name)) is not None}


def _folder(package: str) -> Path | None:
    """Return the folder of a package, and note one that is not there."""
    top, *below = package.split(".")
    spec = find_spec(top)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    folders = [Path(place, *below) for place in places]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        _broken[package] = tr("there is no package {package}", package=package)
    return folder


def plugin_modules(role: str) -> Iterator[ModuleType]:
    """Import the modules of a role of other packages; one that fails is noted."""
    for package, folder in plugins().items():
        if (folder / f"{role}.py").is_file():
            with noting(package):
                yield import_module(f"{package}.{role}")


@contextmanager
def noting(package: str) -> Iterator[None]:
    """Note what is raised by the code of another package, and go on without it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        _broken[package] = f"{type(error).__name__}: {error}"


def plugin_of(module: str) -> str:
    """Return the package of another distribution that a module lies in, "" for one of the program's own."""
    return next((name for name in plugins() if f"{module}.".startswith(f"{name}.")), "")


def broken() -> dict[str, str]:
    """Return what was raised by each package that does not work, as far as it has been tried."""
    return dict(_broken)
