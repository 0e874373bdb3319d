"""Path of icons, themes and examples: `resources/` in a checkout, inside the package in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def _root() -> Path:
    """Return the folder of the resources; a wheel contains a copy, which takes precedence."""
    packed = _PACKAGE / "_resources"
    return packed if packed.is_dir() else _PACKAGE.parent / "resources"


def path(*parts: str) -> Path:
    """Return the file or folder `parts` under the resources: `path("examples", "digits.tape")`.

    Raises FileNotFoundError if it is not there, which means that the installation is incomplete.
    """
    found = _root().joinpath(*parts)
    if not found.exists():
        raise FileNotFoundError(f"{found} is missing: the installation is incomplete, install tapedeck again")
    return found
