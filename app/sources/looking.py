"""Graphs of files that are drawn without being run."""

from __future__ import annotations

from pathlib import Path

from app.observe.observation import Observation
from app.sources import onnx_file, pt2_file
from app.sources.spec import SourceSpec


def look_at(source: SourceSpec, folder: str = "") -> Observation:
    """Return the graph of a file, found from `folder`. Raises SourceError."""
    reader = pt2_file if source.kind == "pt2" else onnx_file
    return reader.read(Path(folder, source.where))
