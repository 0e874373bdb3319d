"""Imports for the late pages, after the window has started: by a worker, and those of Qt in steps by the window.

What the worker loads may not import PySide6, not even pyqtgraph: PySide creates its classes on first use, and doing so
in two threads at once crashes the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from time import perf_counter

from app.util.import_in_steps import import_in_steps

SLICE = 0.005  # seconds of importing in one turn of the event loop
QT = ("QtCore", "QtGui", "QtWidgets")  # of which pyqtgraph copies every name
MODULES = """
    numpy graphviz multiprocessing xml.etree.ElementTree
    app.builder.dimensions.dimensions app.builder.shapes.input_sizes app.builder.search
    app.builder.code_editing.edits app.data.description app.training.monitoring.gradient_health
    app.training.monitoring.gradient_verdict app.training.evaluation.result app.training.evaluation.trying
    app.training.monitoring.looks app.training.monitoring.memory_report app.runs.compare
    app.autograd.pictures.diagram app.autograd.pictures.search
    app.autograd.snippets.snippet app.autograd.pictures.replay_html app.graphviz_export app.engine.snippet_process
    app.data.downloads.download app.engine.dispatch
    app.builder.catalog.ops app.engine.requests.layer app.engine.requests.choices app.engine.requests.data
    app.engine.requests.evaluation app.engine.requests.measure app.engine.requests.playback
    app.engine.requests.findings app.engine.requests.gradcheck app.engine.requests.export app.telemetry.ring
    app.autograd.place app.autograd.node_notes app.observe.picture app.export.certify.certificate
    importlib.resources colorama multiprocessing.connection statistics pydoc profile cProfile
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
