"""The command `tapedeck`: the program beside this package in a checkout, inside it in a wheel."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run the program; return its exit code."""
    inside = (Path(__file__).parent / "_program").is_dir()
    return int(import_module("tapedeck._program.main" if inside else "app.main").main())


if __name__ == "__main__":
    sys.exit(main())
