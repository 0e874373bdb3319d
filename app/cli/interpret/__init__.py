"""`tapedeck attention`, `attribute` and `patch`: interpret a net on some samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> tuple[argparse.ArgumentParser, ...]:
    """Add the three commands to the parser."""
    from app.cli.interpret import attention, attribute, patch

    return attention.add(commands), attribute.add(commands), patch.add(commands)
