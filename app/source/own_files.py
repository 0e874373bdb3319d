"""The user's own Python files that a model runs: its file, the packages that file is in, and what they import of each
other. Files are read and parsed; nothing is imported."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Iterator
from functools import cached_property, lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.source import layer_files, own_imports
from app.source.own_imports import INSTALLED
from app.util import regular_files

LARGEST = 1 << 20  # bytes of a file that can be reviewed
MOST = 300  # files of one model
# What can import a file whose name is in no import statement: the files beside are reviewed too.
_BY_NAME = frozenset(
    "__import__ import_module iter_modules walk_packages spec_from_file_location SourceFileLoader run_path run_module"
    " load_module".split()
)
_FOLDERS_UP = 3  # above a file that changes sys.path


class OwnFile(Struct, frozen=True):
    """One file, by its path without links. `text` is what runs of it, None for a compiled module, and `sha256` the hash
    of the text, or of the bytes."""

    path: str
    sha256: str
    text: str | None = None

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def reviewed_text(self) -> str:
        """The text that a person reviews: of a compiled module its hash."""
        if self.text is None:
            return f"# Compiled code, which cannot be shown.\n# SHA-256 {self.sha256}\n"
        return self.text


class OwnFiles(Struct, frozen=True, dict=True):
    """Every file that may run for a model, the one that defines it first."""

    files: tuple[OwnFile, ...]
    roots: tuple[str, ...]

    @property
    def entry(self) -> OwnFile:
        return self.files[0]

    @property
    def others(self) -> str:
        """The files beside the first, by their paths from its folder; "" without any."""
        folder = os.path.dirname(self.entry.path)
        return ", ".join(os.path.relpath(file.path, folder) for file in self.files[1:])

    @cached_property
    def digest(self) -> str:
        """The version of the code: the hash of the text of a single file, else of all names and contents."""
        if len(self.files) == 1:
            return self.entry.sha256
        return _hash(
            sorted(
                (os.path.relpath(file.path, self.roots[0]), file.sha256)
                for file in self.files
            )
        )

    @cached_property
    def key(self) -> str:
        """The hash by which they are trusted: of the places and the contents of all of them."""
        return _hash(
            [self.entry.path, sorted((file.path, file.sha256) for file in self.files)]
        )

    def is_version(self, sha256: str) -> bool:
        """Return whether they are as when `digest` was this; of older projects it is the hash of the first alone."""
        return sha256 in (self.digest, self.entry.sha256)

    def permit(self) -> None:
        """Let them be imported in this process as they were read, with their folders first on Python's path."""
        own_imports.permit(**self.permission())

    def permission(self) -> dict[str, Any]:
        """Return the arguments of `own_imports.permit`, for JSON too."""
        texts = {file.path: file.text for file in self.files if file.text is not None}
        compiled = {file.path: file.sha256 for file in self.files if file.text is None}
        return {"folders": list(self.roots), "texts": texts, "compiled": compiled}


def read(path: Path, module: str, folder: str = "") -> OwnFiles | None:
    """Read the file that is imported as `module`, and all that it may import of its own folder and of `folder`; None if
    it is unreadable. Of an installed package it is the file alone."""
    entry = _read(path)
    if entry is None or entry.text is None:
        return None
    roots = tuple(
        dict.fromkeys((str(top_of(Path(entry.path), module)), *filter(None, [folder])))
    )
    if INSTALLED.intersection(path.parts):
        return OwnFiles((entry,), roots)
    return OwnFiles(_Reader(entry, module, roots).files(), roots)


def _hash(facts: list[Any]) -> str:
    return hashlib.sha256(
        json.dumps(facts).encode("utf-8", "surrogatepass")
    ).hexdigest()


def top_of(path: Path, module: str) -> Path:
    """Return the folder from which a file is imported as `module`.

    >>> top_of(Path("/a/pk/net.py"), "pk.net").as_posix(), top_of(Path("/a/pk/__init__.py"), "pk").as_posix()
    ('/a', '/a')
    """
    is_package = path.stem == "__init__" and module.rpartition(".")[2] != "__init__"
    return path.parents[module.count(".") + is_package]


def _read(path: Path) -> OwnFile | None:
    try:
        if regular_files.check(path) > LARGEST:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    real = os.path.realpath(path)
    if path.suffix != ".py":
        return OwnFile(real, hashlib.sha256(data).hexdigest())
    text = layer_files.decoded(data)
    return None if text is None else OwnFile(real, layer_files.digest(text), text)


class _Reader:
    """Follows the imports of an entry, from the folders that it is imported from."""

    def __init__(self, entry: OwnFile, module: str, roots: tuple[str, ...]) -> None:
        self._roots = list(dict.fromkeys((*map(Path, roots), Path(entry.path).parent)))
        self._found = {entry.path: entry}
        self._waiting = [(entry, module)]

    def files(self) -> tuple[OwnFile, ...]:
        """Return the entry and every file that it leads to."""
        _, module = self._waiting[0]
        self._follow(module)
        while self._waiting:
            file, name = self._waiting.pop()
            if file.text is not None:
                self._follow_imports(file, name)
        return tuple(self._found.values())

    def _follow_imports(self, file: OwnFile, name: str) -> None:
        assert file.text is not None
        package = (
            name if Path(file.path).stem == "__init__" else name.rpartition(".")[0]
        )
        written = _imports(file.text)
        if written.moves_path:
            self._widen(Path(file.path))
        for level, dotted in sorted(written.names):
            self._follow(_absolute(dotted, level, package))
        if written.by_name:
            self._add_folder(Path(file.path).parent, package)

    def _follow(self, dotted: str) -> None:
        """Add the files of a module and of the packages that it is in; of `pk.*` every module of the package."""
        for root in self._roots if dotted else ():
            folder, name = root, ""
            for word in dotted.split("."):
                if word == "*":
                    self._add_modules(folder, name)
                    break
                folder, name = folder / word, f"{name}.{word}".removeprefix(".")
                file = next(_candidates(folder), None)
                if file is not None:
                    self._add(file, name)
                if not folder.is_dir():
                    break

    def _add(self, path: Path, name: str) -> None:
        if len(self._found) >= MOST or os.path.realpath(path) in self._found:
            return
        file = _read(path)
        if file is not None:
            self._found[file.path] = file
            self._waiting.append((file, name))

    def _add_folder(self, folder: Path, package: str) -> None:
        """Add the modules of a folder and of those below it, which are imported by names that are computed."""
        for at, folders, _ in os.walk(folder):
            folders[:] = sorted(
                name
                for name in folders
                if name.isidentifier()
                and name not in INSTALLED
                and not Path(at, name, "pyvenv.cfg").exists()
            )
            self._add_modules(
                Path(at),
                ".".join(filter(None, (package, *Path(at).relative_to(folder).parts))),
            )

    def _add_modules(self, folder: Path, package: str) -> None:
        for file in sorted(folder.glob("*.py")):
            stem = file.stem if file.stem != "__init__" else ""
            self._add(file, ".".join(filter(None, (package, stem))))

    def _widen(self, file: Path) -> None:
        """Look for imports near a file that changes sys.path, too."""
        near = [file.parents[n] for n in range(min(_FOLDERS_UP, len(file.parents)))]
        try:
            near += sorted(
                folder
                for folder in file.parent.iterdir()
                if folder.is_dir() and folder.name.isidentifier()
            )
        except OSError:
            pass
        new = [
            folder
            for folder in near
            if folder not in self._roots and len(self._roots) < MOST
        ]
        self._roots += new


def _candidates(module: Path) -> Iterator[Path]:
    """Yield the files that Python may run for a module, in its order of preference."""
    for package in (
        module / f"__init__{ending}" for ending in (*EXTENSION_SUFFIXES, ".py")
    ):
        if package.is_file():
            yield package
    for file in (
        module.with_name(f"{module.name}{ending}")
        for ending in (*EXTENSION_SUFFIXES, ".py")
    ):
        if file.is_file():
            yield file


def _absolute(dotted: str, level: int, package: str) -> str:
    """
    >>> _absolute("parts", 1, "pk"), _absolute("", 2, "pk.inner"), _absolute("torch.nn", 0, "pk")
    ('pk.parts', 'pk', 'torch.nn')
    """
    if not level:
        return dotted
    base = package.split(".")[: len(package.split(".")) - level + 1]
    return ".".join(filter(None, (*base, dotted)))


class _Imports(Struct, frozen=True):
    """What a text imports: a level and a dotted name each; whether it imports by computed names, or uses sys.path."""

    names: frozenset[tuple[int, str]]
    by_name: bool = False
    moves_path: bool = False


@lru_cache(maxsize=512)
def _imports(text: str) -> _Imports:
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Imports(frozenset())
    names, used = set[tuple[int, str]](), set[str]()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names.add((node.level, base))
            names.update(
                (node.level, f"{base}.{alias.name}".strip(".")) for alias in node.names
            )
        elif isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
    imported = {name.rpartition(".")[2] for _, name in names}
    return _Imports(
        frozenset(names),
        bool(_BY_NAME & (used | imported)),
        "path" in used and "sys" in used | imported,
    )
