"""Import a package statement by statement, so that an event loop can turn in between.

A package such as pyqtgraph imports a hundred modules of its own. On the thread of a window that is one pause; and it is
no work for another thread, since Qt's classes are made on one alone.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


def import_in_steps(name: str) -> Iterator[None]:
    """Import a top-level package, one of its top-level statements a step. Raises ImportError.

    Whoever asks the package for a name before the last step has the remaining ones executed first.
    """
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    source = getattr(spec.loader, "get_source", lambda _name: None)(name)
    if source is None:  # installed without its text
        __import__(name)
        return
    yield from _steps(spec, source)


def _steps(spec: ModuleSpec, source: str) -> Iterator[None]:
    module = module_from_spec(spec)
    rest = _statements(module, source, spec.origin or spec.name)
    executing = False

    def go_on() -> bool:
        nonlocal executing
        executing = True
        try:
            return next(rest, None) is not None
        except BaseException:
            sys.modules.pop(spec.name, None)  # as Python does with a module that cannot be imported
            raise
        finally:
            executing = False

    def wanted(name: str) -> Any:
        if not executing:  # else a module of the package looks whether a name is there yet
            while go_on():
                pass
            if name in vars(module):
                return vars(module)[name]
        raise AttributeError(f"module {spec.name!r} has no attribute {name!r}")

    vars(module)["__getattr__"] = wanted
    sys.modules[spec.name] = module
    while go_on():
        yield


def _statements(module: ModuleType, source: str, file: str) -> Iterator[ast.stmt]:
    """Execute a statement each; at the end the module is as if it had been imported in the usual way."""
    for statement in ast.parse(source, file).body:
        exec(compile(ast.Module([statement], []), file, "exec", dont_inherit=True), vars(module))
        yield statement
    vars(module).pop("__getattr__", None)
