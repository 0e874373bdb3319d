"""The program's code in the process of a script, always below `tapedeck._program`: `app` may be a package of the user.

A wheel has it there. In a checkout it is the folder `app` beside this package, whose modules are imported under that
name, rewritten as those of a wheel are.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

NAME = "tapedeck._program"
CHECKOUT = Path(__file__).resolve().parent.parent / "app"
_IMPORTS = re.compile(r"^(\s*(?:from|import) )app\b", re.MULTILINE)


def module(name: str) -> ModuleType:
    """Import a module of the program, such as "engine.server". Raises ImportError."""
    if not (Path(__file__).parent / "_program").is_dir() and not any(
        isinstance(finder, _Finder) for finder in sys.meta_path
    ):
        sys.meta_path.insert(0, _Finder())
    return import_module(f"{NAME}.{name}")


@cache
def rooms(source: Path) -> str:
    """Return a pattern of all module names in the package `source`."""
    return "|".join(
        sorted(
            {
                path.stem
                for path in source.iterdir()
                if path.suffix in ("", ".py") and path.stem[0] != "_"
            }
        )
    )


def rewritten(text: str, rooms: str) -> str:
    """Return Python with the program's modules under their other name, in imports and in strings.

    >>> rewritten('from app import cli\\nENTRY = "app.engine.server app.style()"', "cli|engine")
    'from tapedeck._program import cli\\nENTRY = "tapedeck._program.engine.server app.style()"'
    """
    text = _IMPORTS.sub(rf"\g<1>{NAME}", text)
    return re.sub(rf"(?<![\w.])app\.(?=(?:{rooms})\b)", f"{NAME}.", text)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the program's modules in a checkout."""

    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != NAME and not fullname.startswith(f"{NAME}."):
            return None
        location = CHECKOUT.joinpath(*fullname.split(".")[2:])
        package = location.is_dir()
        file = location / "__init__.py" if package else location.with_suffix(".py")
        if not file.is_file():
            return None
        inside = [str(location)] if package else None
        loader = _Loader(fullname, str(file))
        return importlib.util.spec_from_file_location(
            fullname, file, loader=loader, submodule_search_locations=inside
        )


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """Compile the text again: Python's cached bytecode has the other names."""
        path = self.get_filename(fullname)
        text = rewritten(Path(path).read_text("utf-8"), rooms(CHECKOUT))
        return compile(text, path, "exec", dont_inherit=True)
