"""`tapedeck import`: a model that is there already becomes a project."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

WORDS = """
SOURCE is torchvision:resnet18, file.py:Class or file.py:make_model(). A file of your own runs only with --trust, in a
process of its own.
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("import", help="make a project of a model that is there already", description=WORDS)
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the project, a .tape file")
    parser.add_argument("--args", default="{}", help='arguments of the constructor as JSON: {"num_classes": 10}')
    parser.add_argument("--input", action="append", default=[], metavar="1x3x32x32[:int64]", help="what forward takes")
    parser.add_argument("--keep-weights", action="store_true", help="write its weights beside the project")
    parser.add_argument("--pretrained", action="store_true", help="with torchvision's weights, if they are on the disk")
    parser.add_argument("--trust", action="store_true", help="run the file that the model is in")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that a file of yours may take (120)")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Import and say what came of it."""
    from app import cli, model_import, own_layers, project_file
    from app.builder.analysis import analyse
    from app.export.weights import WeightsError, save_safetensors

    out: Path = options.out
    weights = out.with_suffix(".safetensors") if options.keep_weights else None
    try:
        source = model_import.parse_source(options.source)
        arguments = model_import.parse_arguments(options.args)
        inputs = tuple(map(model_import.parse_input, options.input))
        if source.file and not options.trust:
            raise cli.Refused(f"{source.file} was not run; look at it, then give --trust", 1)
        if source.file:
            project = model_import.import_file(source, arguments, inputs, weights, options.timeout)
        else:
            project, state = model_import.import_source(source, arguments, inputs, options.pretrained)
            if weights is not None:
                save_safetensors(state, weights)
        project_file.write(project, out)
    except model_import.ImportFailed as error:
        raise cli.Refused(str(error), 1) from error
    except (WeightsError, OSError) as error:
        raise cli.Refused(str(error)) from error
    analysis = analyse(project.graph, own_layers.ops_of(project))
    nodes = len(project.graph.nodes) + sum(len(block.graph.nodes) for block in project.blocks.values())
    print(f"{out}: {nodes} nodes, {len(project.blocks)} blocks, {analysis.total_parameters:,} parameters, "
          f"{analysis.source.text.count(chr(10))} lines of code")  # fmt: skip
    if weights is not None:
        print(weights)
    for problem in analysis.errors:
        print(f"error: {problem.message}. {problem.reason}")
    return 1 if analysis.errors else 0
