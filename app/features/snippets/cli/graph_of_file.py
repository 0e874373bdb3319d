"""`tapedeck autograd` for a Python file: a snippet, or a function of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.cli import arguments

GIGABYTES = 4.0


def add(file: Any) -> None:
    """Add the options for files to the parser of `tapedeck autograd`."""
    file.add_argument(
        "--of", metavar="NAME", help="name of the tensor whose graph to show"
    )
    file.add_argument(
        "--memory",
        type=arguments.above_zero,
        default=GIGABYTES,
        help=f"memory limit in GiB ({GIGABYTES:.0f})",
    )


def run(options: argparse.Namespace, file: Path, function: str) -> int:
    """Run a file, or a function of it, and write its graph. Raises CommandError."""
    from app.features.snippets.cli import run_file

    return run_file.of_file(options, file, function)
