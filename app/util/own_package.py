"""The name of this program's package: `app` in a checkout; a wheel keeps it inside `tapedeck`, under another name."""

from __future__ import annotations

from pathlib import Path

PROGRAM = __name__.rpartition(".util.")[0]
TOP = PROGRAM.partition(".")[0]  # the importable package that it lies in
PATH_ENTRY = Path(__file__).resolve().parents[__name__.count(".")]  # the folder of that package, for PYTHONPATH
