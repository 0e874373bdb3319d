"""Imports for the late pages, after the window has started: by a worker, and those of Qt in steps by the window.

What the worker loads may not import PySide6, not even pyqtgraph: PySide creates its classes on first use, and doing so
in two threads at once crashes the program.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from time import perf_counter
from types import ModuleType
from typing import Any

SLICE = 0.005  # seconds of importing in one turn of the event loop
QT = ("QtCore", "QtGui", "QtWidgets")  # of which pyqtgraph copies every name
MODULES = """
    numpy graphviz multiprocessing xml.etree.ElementTree
    app.builder.dimensions.dimensions app.builder.shapes.input_sizes
    app.builder.code_editing.edits app.data.description app.training.monitoring.gradient_health
    app.training.monitoring.gradient_verdict app.training.evaluation.result app.training.evaluation.trying
    app.training.monitoring.looks app.training.monitoring.memory_report app.runs.compare
    app.autograd.pictures.diagram app.autograd.pictures.search
    app.autograd.snippets.snippet app.autograd.pictures.replay_html app.graphviz_export app.engine.snippet_process
    app.data.downloads.download app.engine.dispatch
    app.builder.catalog.ops app.engine.requests.layer app.engine.requests.choices app.engine.requests.data
    app.engine.requests.evaluation app.engine.requests.measure app.engine.requests.autograd.playback
    app.engine.requests.autograd.findings app.engine.requests.export
    app.telemetry.ring app.autograd.place app.autograd.node_notes app.observe.picture app.export.certify.certificate
    importlib.resources multiprocessing.connection statistics pydoc profile cProfile
"""


def load() -> None:
    """Import the modules, and create the lexer of the Code tab, which is slow the first time."""
    for name in MODULES.split():
        import_module(name)
    from pygments.lexers.python import PythonLexer

    list(PythonLexer().get_tokens(""))


def charts_in_steps() -> Iterator[None]:
    """Import pyqtgraph on the thread of the window, a few milliseconds a step: in one go it takes a quarter second."""
    began = perf_counter()
    for _ in _charts():
        if perf_counter() - began > SLICE:
            yield
            began = perf_counter()


def _charts() -> Iterator[None]:
    for part in QT:
        module = import_module(f"PySide6.{part}")
        for name in dir(module):
            getattr(module, name, None)  # PySide makes the class
            yield
    for part in ("QtSvg", "QtTest", "QtOpenGLWidgets"):
        import_module(f"PySide6.{part}")
        yield
    yield from import_in_steps("pyqtgraph")


def import_in_steps(name: str) -> Iterator[None]:
    """Import a top-level package, one of its top-level statements a step. Raises ImportError.

    Reading a name of the package before the last step executes the remaining ones first.
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
            sys.modules.pop(
                spec.name, None
            )  # as Python does with a module that cannot be imported
            raise
        finally:
            executing = False

    def wanted(name: str) -> Any:
        if (
            not executing
        ):  # else a module of the package looks whether a name is there yet
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
        exec(
            compile(ast.Module([statement], []), file, "exec", dont_inherit=True),
            vars(module),
        )
        yield statement
    vars(module).pop("__getattr__", None)
