"""What a package that adds to the program imports of it: `from tapedeck.plugin import Action, Feature, Finding, Page`.

`tapedeck plugin new FOLDER` writes such a package. Its entry points `tapedeck.features` name packages that hold what a
folder of the program's own features holds: `feature.py` for pages and actions, `findings.py` for findings,
`NAME_command.py` for commands, `lessons/NAME/lesson.md`. A name is imported when it is first used; none leads to torch.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

_INSIDE = (Path(__file__).parent / "_program").is_dir()
PROGRAM = "tapedeck._program" if _INSIDE else "app"  # in a wheel, in a checkout
_HOMES = {
    "Action": "views.feature",
    "Feature": "views.feature",
    "Page": "views.feature",
    "SearchEntry": "views.ui.dialogs.search",
    "Finding": "autograd.diagnostics.results",
}
__all__ = ["Action", "Feature", "Finding", "Page", "SearchEntry"]  # noqa: F822


def __getattr__(name: str) -> Any:
    """Import a name of the program when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{PROGRAM}.{_HOMES[name]}"), name)
