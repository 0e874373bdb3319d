"""`tapedeck check`: the problems of a project, and its parameters."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from app.cli import arguments, console
from app.project import custom_layers
from app.util.formatting import counted, parameters_text

if TYPE_CHECKING:
    from app.builder.diagnostics.problems import Problem
    from app.project.project import Project


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    parser: argparse.ArgumentParser = commands.add_parser(
        "check", help="report the problems of a project"
    )
    arguments.add_project(parser)
    arguments.add(parser, *arguments.MODEL, *arguments.SETTINGS, "--json", "--trust")
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Print problems and parameters; return 1 if there are errors."""
    from app.cli import nets

    project = nets.read(options)
    analysis, problems = nets.analysed(project)
    errors = [problem for problem in problems if problem.severity == "error"]
    if options.json:
        counts = {
            "parameters": analysis.total_parameters,
            "frozen_parameters": analysis.frozen_parameters,
        }
        named, parameter_counts = analysis.graph.nodes, analysis.parameters.items()
        layers = {
            named[node].name: count
            for node, count in parameter_counts
            if count and node in named
        }
        print(
            json.dumps(
                {
                    "problems": [_plain(p, project) for p in problems],
                    **counts,
                    "by_layer": layers,
                }
            )
        )
    else:
        for problem in problems:
            print(f"{problem.severity}: {console.sentence(problem, project)}")
        kind = analysis.output_type()
        summary = parameters_text(
            analysis.total_parameters, analysis.frozen_parameters
        ) + (f", output {kind}" if kind else "")
        nodes = counted(len(analysis.graph.nodes), "node")
        if project.opened is not None:
            nodes = project.opened.interface.model
        if files := custom_layers.waiting(project):
            print(
                f"None of {', '.join(map(str, files))} was run; review it, then pass --trust"
            )
        print(f"{project.name}: {nodes}, {summary}, {counted(len(errors), 'error')}")
    return 1 if errors else 0


def _plain(problem: Problem, project: Project) -> dict[str, Any]:
    """Return a problem as JSON, with its cures in the order in which they are offered."""
    name = console.name_of(problem, project)
    return {
        "code": problem.code,
        "where": name,
        "sentence": console.sentence(problem, project),
        "severity": problem.severity,
        "node": name if problem.node else None,
        "message": problem.message,
        "reason": problem.reason,
        "torch": problem.torch_message,
        "cures": [cure.label for cure in problem.cures],
    }
