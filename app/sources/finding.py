"""Find the file that contains a source's code, without importing or running anything."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from app.source import own_files
from app.source.own_files import OwnFiles
from app.sources.spec import SourceSpec, parse_example


def file_of(source: SourceSpec, folder: str = "") -> Path | None:
    """Return the file that runs first for a source of the user's own; None if there is none to be found."""
    if source.kind == "file":
        path = Path(folder, source.where).resolve()
        return path if path.is_file() else None
    if source.kind != "module":
        return None
    where: list[str] | None = [folder, *sys.path] if folder else None
    spec = None
    parts = source.where.split(".")
    for number in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: number + 1]), where)
        if spec is None:
            return None
        where = (
            [*spec.submodule_search_locations]
            if spec.submodule_search_locations is not None
            else []
        )
    return Path(spec.origin) if spec is not None and spec.origin else None


def code_of(
    source: SourceSpec, folder: str = "", example: str = ""
) -> tuple[OwnFiles, ...]:
    """Read the user's own files that run for a model, and those for a function that gives its inputs."""
    file_sets = [files_of(source, folder)]
    spec = parse_example(example) if example else None
    if spec is not None and spec.function:
        path = Path(folder, spec.file).resolve()
        file_sets.append(own_files.read(path, package_of(path)[1]))
    return tuple(files for files in file_sets if files is not None)


def package_of(path: Path) -> tuple[Path, str]:
    """Return the folder that a file's package is in, or that it is in itself, and the name it is imported by there.

    The folder of a file with relative imports is a package without an `__init__.py` too, as it is for Python.
    """
    path = path.resolve()
    names, top = [path.stem], path.parent
    while (top / "__init__.py").is_file():
        names.insert(0, top.name)
        top = top.parent
    for _ in range(relative_level(path) + 1 - len(names)):
        if not top.name.isidentifier():
            break
        names.insert(0, top.name)
        top = top.parent
    return top, ".".join(names)


def relative_level(path: Path) -> int:
    """Return how many folders up the relative imports of a file reach, 1 for `from . import x`; 0 without any."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return 0
    return max(
        (node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)),
        default=0,
    )


def files_of(source: SourceSpec, folder: str = "") -> OwnFiles | None:
    """Read the user's own files that may run for a source, as they are now; None without a readable one."""
    file = file_of(source, folder) if source.own_code else None
    if file is None:
        return None
    return own_files.read(
        file, package_of(file)[1] if source.kind == "file" else source.where, folder
    )


def digest_of(source: SourceSpec, folder: str = "") -> str:
    """Return the version of the user's own files of a source, as they are now; "" without any."""
    files = files_of(source, folder)
    return files.digest if files is not None else ""


def shadowing(folder: Path, names: Iterable[str]) -> str:
    """Say which of these top-level modules are taken from a folder, before installed packages of the same names; "" if
    none is."""
    elsewhere = [
        entry for entry in sys.path if Path(entry or ".").resolve() != folder.resolve()
    ]
    sentences = []
    for name in sorted(set(names)):
        here, installed = (
            PathFinder.find_spec(name, [str(folder)]),
            PathFinder.find_spec(name, elsewhere),
        )
        if (
            here is not None
            and here.origin
            and installed is not None
            and installed.origin
        ):
            sentences.append(
                f"{name} is the one in {folder}, which Python imports before the package in {_home(installed)}"
            )
    return "; ".join(sentences) + "." if sentences else ""


def _home(spec: ModuleSpec) -> Path:
    path = Path(spec.origin or "")
    return path.parent.parent if path.stem == "__init__" else path.parent
