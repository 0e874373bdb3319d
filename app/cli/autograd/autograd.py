"""`tapedeck autograd`: the graph of a project's network, a function in a Python file, or a snippet."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from app.autograd import checks
from app.cli import console, models
from app.cli.autograd import model_graph, project_graph
from app.util import shelf

if TYPE_CHECKING:
    pass


def run(options: argparse.Namespace) -> int:
    """Capture the graph and write what was requested; return 1 if there are findings."""

    if options.out is None and not options.findings and not options.checks:
        others = ["--findings", *(f"--{name}" for name in checks.names())]
        raise console.CommandError(f"pass --out FILE or one of {', '.join(others)}")
    console.check_graph_output(options)
    if models.is_model(options):
        return model_graph.of_model(options)
    file, _, function = str(options.project).rpartition(":")
    if function.isidentifier() and file.endswith(".py"):
        return _of_file(options, Path(file), function)
    if options.project.suffix == ".py":
        return _of_file(options, options.project, "")
    return project_graph.of_project(options)


def _of_file(options: argparse.Namespace, file: Path, function: str) -> int:
    """Hand a Python file to the feature that runs it."""
    for name in shelf.modules("cli.file_graph"):
        status: int = import_module(name).run(options, file, function)
        return status
    raise console.CommandError(f"{options.project} is neither a project nor a model")
