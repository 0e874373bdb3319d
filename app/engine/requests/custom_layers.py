"""Request: run files of custom layers."""

from __future__ import annotations

from typing import ClassVar

from app.engine.protocol import Request
from app.source.layer_files import LayerFile
from app.util.frozen import FrozenMap
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class RunLayerFiles(Request[FrozenMap[str, str]]):
    """Run trusted files, each in a process of its own first if it was not tried yet.

    Answers by SHA-256 why a file does not run to its end, "" where it does.
    """

    lane: ClassVar[str] = "layers"
    files: tuple[LayerFile, ...]
