"""The build hook of the wheel: puts the program and its resources inside `tapedeck`, as `tapedeck._program`.

A person's own package `app` works then. `make wheel` builds it; an editable install needs none of this.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAM = "tapedeck._program"
_IMPORTS = re.compile(r"^(\s*(?:from|import) )app\b", re.MULTILINE)


def rewritten(text: str, rooms: str) -> str:
    """Return Python with the program's modules under their other name, in imports and in strings.

    >>> rewritten('from app import cli\\nENTRY = "app.engine.server app.style()"', "cli|engine")
    'from tapedeck._program import cli\\nENTRY = "tapedeck._program.engine.server app.style()"'
    """
    text = _IMPORTS.sub(rf"\g<1>{PROGRAM}", text)
    return re.sub(rf"(?<![\w.])app\.(?=(?:{rooms})\b)", f"{PROGRAM}.", text)


def write_program(source: Path, target: Path) -> None:
    """Copy the package `source` to `target` with its modules renamed."""
    rooms = "|".join(
        sorted({path.stem for path in source.iterdir() if path.suffix in ("", ".py") and path.stem[0] != "_"})
    )
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    for path in target.rglob("*.py"):
        path.write_text(rewritten(path.read_text("utf-8"), rooms), "utf-8")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the program to a wheel."""
        if version == "editable":
            return
        root = Path(self.root)
        made = root / "build" / "program"
        shutil.rmtree(made, ignore_errors=True)
        write_program(root / "app", made)
        build_data["force_include"][str(made)] = "tapedeck/_program"
        build_data["force_include"][str(root / "resources")] = "tapedeck/_program/_resources"
