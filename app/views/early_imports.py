"""Imports for the late pages that need no Qt, run by a worker after the window has started.

Nothing here may import PySide6, not even pyqtgraph: PySide creates its classes on first use, and doing so in two
threads at once crashes the program.
"""

from __future__ import annotations

from importlib import import_module

MODULES = """
    numpy graphviz multiprocessing xml.etree.ElementTree
    app.builder.dimensions.dimensions app.builder.shapes.input_sizes app.builder.search
    app.builder.code_editing.edits app.data.description app.training.monitoring.gradient_health
    app.training.monitoring.gradient_verdict app.training.evaluation.result app.training.evaluation.trying
    app.training.monitoring.looks app.training.monitoring.memory_report app.runs.compare
    app.autograd.pictures.diagram app.autograd.pictures.search
    app.autograd.snippets.snippet app.autograd.pictures.replay_html app.graphviz_export app.engine.snippet_process
    app.data.downloads.download app.engine.dispatch
"""


def load() -> None:
    """Import the modules, and create the lexer of the Code tab, which is slow the first time."""
    for name in MODULES.split():
        import_module(name)
    from pygments.lexers.python import PythonLexer

    list(PythonLexer().get_tokens(""))
