"""The build hook of the wheel: puts the program and its resources inside `tapedeck`, as `tapedeck._program`.

A person's own package `app` works then. `make wheel` builds it; an editable install needs none of this.
"""

from __future__ import annotations

import shutil
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _names(root: Path) -> Any:
    """Return the module that renames the program's modules: the package is not importable where a wheel is built."""
    spec = spec_from_file_location("program", root / "tapedeck" / "program.py")
    assert spec is not None and spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def write_program(source: Path, target: Path) -> None:
    """Copy the package `source` to `target` with its modules renamed."""
    names = _names(source.parent)
    rooms = names.rooms(source)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    for path in target.rglob("*.py"):
        path.write_text(names.rewritten(path.read_text("utf-8"), rooms), "utf-8")


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
        resources = "tapedeck/_program/_resources"
        build_data["force_include"][str(root / "resources")] = resources
        manual = root / "build" / "manual"
        if manual.is_dir():  # `make wheel` makes it first
            build_data["force_include"][str(manual)] = f"{resources}/manual"
