"""Request: run files of custom layers."""

from __future__ import annotations

from typing import ClassVar

from app.engine.protocol import Request
from app.source.layer_files import LayerFile
from app.util.frozen import FrozenMap


class RunLayerFiles(Request[FrozenMap[str, str]], frozen=True):
    """Run trusted files, each in a separate trial process first unless it passed before.

    Returns by SHA-256 why a file fails, "" if it runs.
    """

    lane: ClassVar[str] = "layers"
    files: tuple[LayerFile, ...]
