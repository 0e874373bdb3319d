"""Imports for the late pages, by a worker after the window has started.

What it loads may not import PySide6: PySide creates its classes on first use, and doing so in two threads at once
crashes the program.
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
    app.builder.catalog.ops app.engine.requests.layer app.engine.requests.choices app.engine.requests.data
    app.engine.requests.evaluation app.engine.requests.measure app.engine.requests.playback
    app.engine.requests.findings app.engine.requests.gradcheck app.engine.requests.export app.telemetry.ring
    app.autograd.place app.autograd.node_notes app.observe.picture app.export.certify.certificate
    importlib.resources multiprocessing.connection statistics pydoc profile cProfile
"""


def load() -> None:
    """Import the modules, and create the lexer of the Code tab, which is slow the first time."""
    for name in MODULES.split():
        import_module(name)
    from pygments.lexers.python import PythonLexer

    list(PythonLexer().get_tokens(""))
