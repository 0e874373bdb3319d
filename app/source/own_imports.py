"""Import of the user's own modules: the very text that was reviewed is compiled, and no other file of theirs runs.

Bytecode of the user's folders is neither read nor written. What is installed, the standard library and this program are
imported as ever. It uses the standard library alone, since other interpreters import it too.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import (
    ExtensionFileLoader,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from importlib.metadata import Distribution, DistributionFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

INSTALLED = frozenset(
    {"site-packages", "dist-packages"}
)  # folders of installed packages
_PROGRAM = Path(__file__).resolve().parents[1]
_PYTHON = tuple(
    dict.fromkeys(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
)


class NotReviewedError(ImportError):
    """A file of the user's own that nobody reviewed; the message names it and the cure."""


def permit(
    folders: Sequence[str], texts: Mapping[str, str], compiled: Mapping[str, str]
) -> None:
    """Let these files be imported, with `folders` first on Python's path: `texts` by their paths without links, and
    `compiled` modules by path with the hash of their bytes.

    Modules of earlier texts, or of the same names in other folders, are imported again.
    """
    finder = _finder()
    finder.forget_changed(texts, folders)
    finder.folders.update(map(os.path.realpath, folders))
    finder.texts.update(texts)
    finder.compiled.update(compiled)
    sys.path[:] = [*folders, *(entry for entry in sys.path if entry not in folders)]
    PathFinder.invalidate_caches()


def run_as(name: str, path: str) -> ModuleType:
    """Run a permitted file as the module `name`, after the packages that the name is in; return the module."""
    finder = _finder()
    package = name.rpartition(".")[0]
    if package:
        import_module(package)
    real = os.path.realpath(path)
    spec = spec_from_file_location(
        name, path, loader=_ReviewedLoader(name, path, finder.texts[real], finder.ran)
    )
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def guard() -> None:
    """Let nothing of the current folder be imported that is not permitted."""
    _finder()


def _finder() -> OwnFinder:
    for number, finder in enumerate(sys.meta_path):
        if isinstance(finder, OwnFinder):
            return finder
        if finder is PathFinder:
            user_finder = OwnFinder()
            sys.meta_path[number] = user_finder
            return user_finder
    raise ImportError("Python's finder of modules on sys.path is not installed")


class OwnFinder(MetaPathFinder):
    """Takes the place of PathFinder. A file of the user's own that is not permitted never hides an installed module."""

    def __init__(self) -> None:
        self.folders: set[str] = set()
        self.texts: dict[str, str] = {}
        self.compiled: dict[str, str] = {}
        self.ran: dict[
            str, tuple[str, str]
        ] = {}  # by module: the path and the text that it ran with
        here = os.path.realpath(os.getcwd())
        entries = [os.path.realpath(entry) for entry in sys.path if entry]
        self._environment = [
            str(_PROGRAM.parent),
            *(entry for entry in entries if entry != here),
        ]

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or not self._is_own(spec.origin):
            return spec
        real = os.path.realpath(spec.origin)
        loader: Loader
        if real in self.texts:
            loader = _ReviewedLoader(fullname, spec.origin, self.texts[real], self.ran)
        elif real in self.compiled:
            loader = _CompiledLoader(fullname, spec.origin, self.compiled[real])
        elif (installed := self._installed(fullname, path)) is not None:
            return installed
        else:
            loader = _RefusingLoader(spec.origin)
        return spec_from_file_location(
            fullname,
            spec.origin,
            loader=loader,
            submodule_search_locations=spec.submodule_search_locations,
        )

    @staticmethod
    def find_distributions(
        context: DistributionFinder.Context | None = None,
    ) -> Iterable[Distribution]:
        """Find installed packages by name, for `importlib.metadata`, as the finder does whose place this takes."""
        return PathFinder.find_distributions(context or DistributionFinder.Context())

    @staticmethod
    def invalidate_caches() -> None:
        PathFinder.invalidate_caches()

    def forget_changed(self, texts: Mapping[str, str], folders: Sequence[str]) -> None:
        """Drop the modules of these folders if one has another text now, and those of other folders, which may have
        the same names."""
        inside = tuple(map(os.path.realpath, folders))
        pairs = [
            (path, folder)
            for path in texts
            for folder in inside
            if _within(path, folder)
        ]
        tops = {
            os.path.relpath(path, folder).split(os.sep)[0].removesuffix(".py")
            for path, folder in pairs
        }
        changed = any(texts.get(path, text) != text for path, text in self.ran.values())
        for name, (path, _) in tuple(self.ran.items()):
            here = any(_within(path, folder) for folder in inside)
            if changed if here else name.partition(".")[0] in tops:
                sys.modules.pop(name, None)
                del self.ran[name]

    def _is_own(self, origin: str) -> bool:
        file = os.path.realpath(os.path.dirname(origin))
        if INSTALLED.intersection(Path(origin).parts) or _within(file, str(_PROGRAM)):
            return False
        if any(_within(file, folder) for folder in self.folders):
            return True
        return not any(
            _within(file, folder) for folder in (*_PYTHON, *self._environment)
        )

    def _installed(
        self, fullname: str, path: Sequence[str] | None
    ) -> ModuleSpec | None:
        """Find a module without the user's folders."""
        entries = [
            entry
            for entry in (sys.path if path is None else path)
            if not self._is_own(os.path.join(entry, "x"))
        ]
        return PathFinder.find_spec(fullname, entries) if entries else None


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


class _ReviewedLoader(SourceFileLoader):
    """Compiles the text that was reviewed, whatever the file contains by now."""

    def __init__(
        self, fullname: str, path: str, text: str, ran: dict[str, tuple[str, str]]
    ) -> None:
        super().__init__(fullname, path)
        self._text, self._ran = text, ran

    def get_code(self, fullname: str) -> CodeType:
        self._ran[fullname] = os.path.realpath(self.path), self._text
        code: CodeType = compile(self._text, self.path, "exec", dont_inherit=True)
        return code

    def get_source(self, fullname: str) -> str:
        return self._text


class _CompiledLoader(ExtensionFileLoader):
    """Loads the bytes that were trusted: where memory can be loaded from, what the file contains by now does not
    matter."""

    def __init__(self, fullname: str, path: str, sha256: str) -> None:
        super().__init__(fullname, path)
        self._sha256 = sha256

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        data = Path(self.path).read_bytes()
        if hashlib.sha256(data).hexdigest() != self._sha256:
            raise NotReviewedError(
                f"{self.path} has changed since it was trusted, so none of its code was run"
            )
        if hasattr(os, "memfd_create"):
            memory = os.memfd_create(self.name)
            with open(memory, "wb", closefd=False) as copy:
                copy.write(data)
            self.path = f"/proc/self/fd/{memory}"
            spec.origin = self.path
        module: ModuleType = super().create_module(spec)
        return module


class _RefusingLoader(Loader):
    def __init__(self, path: str) -> None:
        self._path = path

    def exec_module(self, module: ModuleType) -> None:
        file = Path(self._path)
        message = f"{self._path} is your own code that was not reviewed, so none of it was run. "
        if file.suffix == ".py":
            message += f"Name it in a file that is reviewed, by `import {file.stem}`, and save it as UTF-8"
        else:
            message += "Put its source, a .py file, beside the model, or install it as a package"
        raise NotReviewedError(message, name=module.__name__, path=self._path)
