"""Path of icons, themes and examples: `resources/` in a checkout, inside the package in an installed wheel; and of the
program itself."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
PROGRAM = __name__.rpartition(".util.")[
    0
]  # `app` in a checkout; a wheel keeps it inside `tapedeck`
TOP = PROGRAM.partition(".")[0]  # the importable package that it lies in
PATH_ENTRY = (
    Path(__file__).resolve().parents[__name__.count(".")]
)  # the folder of that package, for PYTHONPATH


def python_path() -> str:
    """Return a PYTHONPATH for processes that import the program, and find the packages that this process finds."""
    return os.pathsep.join(
        [
            str(PATH_ENTRY),
            *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
        ]
    )


def _root() -> Path:
    """Return the folder of the resources; a wheel contains a copy, which takes precedence."""
    packed = _PACKAGE / "_resources"
    return packed if packed.is_dir() else _PACKAGE.parent / "resources"


def manual() -> Path | None:
    """Return the first page of the manual where it has been built or came with a wheel."""
    folders = (_PACKAGE / "_resources", _PACKAGE.parent / "build")
    pages = (folder / "manual" / "index.html" for folder in folders)
    return next((page for page in pages if page.is_file()), None)


def path(*parts: str) -> Path:
    """Return the file or folder `parts` under the resources: `path("examples", "digits.tape")`.

    Raises FileNotFoundError if it is not there, which means that the installation is incomplete.
    """
    resource = _root().joinpath(*parts)
    if not resource.exists():
        raise FileNotFoundError(
            f"{resource} is missing: the installation is incomplete, install tapedeck again"
        )
    return resource
