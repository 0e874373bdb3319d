"""`tapedeck open`: the window on any model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.cli import arguments, startup

WORDS = """
SOURCE is what `tapedeck draw` takes, or a project: NET.tape, or a .png or .svg that Tapedeck exported with the project
in it. The window opens; a model runs once in a separate process, and what it called is shown. Your own files run once
you have reviewed them in the window, or at once with --trust; when one that the model imports changes, you are asked
again.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "open", help="open the window on any model", description=WORDS
    )
    arguments.add_source(parser)
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Open the window; invalid arguments are refused before."""
    from app.cli import models, nets
    from app.engine.requests import observe
    from app.project import picture_file

    file = Path(options.source)
    if file.suffix == ".tape" or picture_file.is_picture(file):
        nets.read(argparse.Namespace(project=file, trust=False))
        return startup.window(str(file))
    model = models.asked_model(options, options.source)
    observe.request_of(model)  # refuses what cannot be parsed before the window opens
    return startup.window(None, model)
