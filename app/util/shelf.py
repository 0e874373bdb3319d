"""The shelf of features: one folder of `app/features` each, whose files are found by the role that their name says."""

from __future__ import annotations

from pathlib import Path

from app.util.resources import PROGRAM

PACKAGE = f"{PROGRAM}.features"
FEATURES = Path(__file__).resolve().parent.parent / "features"


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
