"""Graphviz's `dot`, by which DOT text is read back where it is installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz's dot is not installed")


def render(dot: str, form: str) -> bytes:
    """Return what `dot` makes of a text."""
    done = subprocess.run(["dot", f"-T{form}"], input=dot.encode(), capture_output=True, check=True, timeout=120)
    return done.stdout
