"""`tapedeck doctor`: what is installed, and what is missing."""

from __future__ import annotations

import argparse
from typing import Any

from app.cli import doctor


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor", help="report what is installed and what is missing"
    )
    parser.set_defaults(command=lambda _options: doctor.print_report(), anywhere=True)
    return parser
