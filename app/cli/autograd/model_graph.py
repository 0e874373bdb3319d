"""`tapedeck autograd` for any model: its source, its inputs, and the process in which it runs."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.engine.requests.observe import ModelReport, ModelReported
    from app.sources.spec import SourceSpec


def source_of(options: argparse.Namespace) -> SourceSpec | None:
    """Return the model that SOURCE names; None for a project, a snippet and a function of a file.

    A function of a file is a model where it is called, `FILE.py:make()`, or constructor arguments are given.
    """
    from app.sources.spec import FILES, SourceNameError, parse_source

    if options.project.exists() and options.project.suffix.removeprefix(".") not in FILES:
        return None
    try:
        source = parse_source(str(options.project))
    except SourceNameError:
        return None
    if source.kind != "file" or source.call or options.args != "{}" or _is_class(Path(source.where), source.name):
        return source
    return None


def _is_class(file: Path, name: str) -> bool:
    """Return whether a file defines a class of this name; it is not run."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == name.partition(".")[0] for node in tree.body)


def of_model(options: argparse.Namespace, source: SourceSpec) -> int:
    """Capture a model and write the requested files; return 1 if there are findings."""
    from app import cli
    from app.autograd.errors import CaptureError
    from app.autograd.playback.steps import PassResult
    from app.cli import autograd
    from app.cli.autograd import project_graph
    from app.engine import observe_process
    from app.engine.requests.autograd.playback import Steps
    from app.sources.spec import SourceError

    source = source.as_run
    request = _request(options, source)
    try:
        found: ModelReported
        if source.own_code:
            found = observe_process.answer(request, request.batch.model, options.timeout)
        else:
            from app.engine.tasks import observe as task

            found = task.report(request)
    except (CaptureError, SourceError, ValueError, OSError) as error:
        words = project_graph.rephrased_error(str(error), request.batch.options)
        raise cli.CommandError(f"{options.project}: {words}".removesuffix("."), 1) from error
    for line in found.lines:
        print(cli.printable(line))
    if found.tape is not None:
        played = PassResult(Steps(found.steps).records) if found.steps is not None else None
        autograd.write(found.tape, options, None, played, found.stopped)
    return int(found.found > 0)


def _request(options: argparse.Namespace, source: SourceSpec) -> ModelReport:
    from app import cli
    from app.cli import autograd
    from app.cli.autograd import project_graph
    from app.engine.requests.import_model import ImportRequestError, parse_arguments
    from app.engine.requests.observe import ModelCapture, ModelReport, Observe
    from app.sources.spec import SourceError, parse_input
    from app.util.frozen import FrozenMap

    given = [f"--{name.replace('_', '-')}" for name in ("random", "batch", "start_weights", "data", "of")
             if getattr(options, name)]  # fmt: skip
    if given:
        raise cli.CommandError(f"{', '.join(given)}: not for a model; --input describes what it is called with")
    if not options.timeout > 0:
        raise cli.CommandError("--timeout must be a number of seconds above 0")
    chosen = project_graph.capture_options(options)
    try:
        arguments = FrozenMap(parse_arguments(options.args))
        inputs = tuple(map(parse_input, options.input))
    except (SourceError, ImportRequestError) as error:
        raise cli.CommandError(str(error)) from error
    if source.own_code and not (options.trust or is_trusted(source)):
        raise cli.CommandError(f"{source.where or source} was not run; review it, then pass --trust", 1)
    model = Observe(source, arguments, inputs, str(Path.cwd()) if source.own_code else "")
    batch = ModelCapture(model, not options.eval, chosen, options.seed)
    return ModelReport(batch, options.out is not None, autograd.plays(options), options.findings, options.gradcheck)


def is_trusted(source: SourceSpec) -> bool:
    """Return whether the file that runs first was trusted in the window."""
    from app.source import layer_files
    from app.source.trust import TrustStore, default_file
    from app.sources.finding import file_of

    file = file_of(source, str(Path.cwd()))
    try:
        text = file.read_text("utf-8") if file is not None else None
    except (OSError, UnicodeDecodeError):
        return False
    return text is not None and TrustStore(default_file()).is_trusted(layer_files.digest(text))
