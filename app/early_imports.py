"""What the pages of the window want and needs no window: imported by a worker while the window stands.

Nothing here may import PySide6, not even pyqtgraph: PySide makes its classes when they are first asked for, and two
threads that ask at once bring the program down.
"""

from __future__ import annotations

from importlib import import_module

MODULES = """
    numpy graphviz ssl urllib.request multiprocessing xml.etree.ElementTree
    app.builder.dimensions app.builder.candidates app.builder.find app.builder.text_edits app.data.words
    app.training.lost app.training.verdict app.training.evaluating app.training.trying app.training.peek
    app.training.memory_report app.runs.compare app.autograd.drawing app.autograd.finding app.autograd.special
    app.autograd.snippets app.autograd.replay_html app.graphviz_export app.snippet_child app.telemetry.gpu
    app.data.download
"""


def load() -> None:
    """Import them, and make the lexer of the Code tab, whose first text takes its making too."""
    for name in MODULES.split():
        import_module(name)
    from pygments.lexers.python import PythonLexer

    list(PythonLexer().get_tokens(""))
