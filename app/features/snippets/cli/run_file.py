"""Run a Python file for `tapedeck autograd`, and write the graph of what it computes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from app.cli import console, models
from app.cli.autograd import graph_output, project_graph
from app.features.snippets import process
from app.features.snippets.values import Limits, Snippet
from app.source import layer_files, own_files
from app.source.trust import TrustStore, default_file
from app.sources.spec import parse_input
from app.util import regular_files

if TYPE_CHECKING:
    from app.features.snippets.values import SnippetAnswer, TensorGraph


def of_file(options: argparse.Namespace, file: Path, function: str) -> int:
    """Run a file in a separate process; its output goes to stderr."""
    project_graph.refuse_options(options)
    if options.checks and not function:
        raise console.CommandError(
            f"--{next(iter(options.checks))} needs a network or a function: pass FILE.py:FUNCTION"
        )
    text = _trusted(options, file)
    inputs = tuple(
        (spec.shape, spec.dtype or "float32")
        for spec in map(parse_input, options.input)
    )
    folder, plays = str(file.resolve().parent), graph_output.plays(options)
    snippet = Snippet(
        text,
        file.name,
        function,
        inputs,
        folder,
        plays,
        options.findings,
        options.checks,
    )
    answer = process.run(
        snippet, Limits(options.timeout, int(options.memory * (1 << 30)))
    )
    sys.stderr.write(answer.output)
    graph = _selected_graph(answer, options.of)
    if graph is not None and options.out is not None:
        graph_output.write(
            graph.tape,
            options,
            _playback_json(answer, graph),
            graph.played,
            graph.stopped,
        )
    for line in answer.report_lines:
        print(console.printable(line))
    looked = options.out is None and answer.report_lines
    if (
        answer.error is not None
        or answer.ended != "done"
        or (graph is None and not looked)
    ):
        raise console.CommandError(
            f"{options.project}: {_no_graph_reason(answer, options.of)}", 1
        )
    return int(answer.found > 0)


def _trusted(options: argparse.Namespace, file: Path) -> str:
    """Return the text of a file that is trusted with what it imports from its folder."""
    try:
        regular_files.check(file)
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise console.CommandError(f"{file}: {reason}") from error
    files = own_files.read(file, file.stem)
    shown = TrustStore(default_file()).entry(
        layer_files.digest(text)
    )  # in the window, where it runs without others
    alone = (
        files is not None
        and len(files.files) == 1
        and shown is not None
        and shown.path == str(file.absolute())
    )
    models.admit_files(files, str(file), options.trust or alone)
    return text


def _selected_graph(answer: SnippetAnswer, name: str | None) -> TensorGraph | None:
    return answer.graph if name is None else answer.graph_of(name)


def _no_graph_reason(answer: SnippetAnswer, name: str | None) -> str:
    """Explain in one line why there is no graph."""
    if answer.error is not None:
        return answer.error.sentence(answer.error.message)
    if answer.words:
        return answer.words
    names = ", ".join(graph.name for graph in answer.graphs)
    return f"no tensor called {name} has a graph; there are {names}"


def _playback_json(answer: SnippetAnswer, graph: TensorGraph) -> dict[str, Any]:
    """Return the additional entries of a JSON file."""
    return {
        "of": graph.name,
        "freed_at": graph.freed_at,
        "tensors": to_builtins(answer.tensors),
    }
