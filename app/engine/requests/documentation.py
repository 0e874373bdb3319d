"""Requests for torch's documentation."""

from __future__ import annotations

from typing import ClassVar

from app.builder.catalog.catalog import Documentation
from app.engine.protocol import Request
from app.util.frozen import FrozenMap


class ReadDocumentation(Request[Documentation], frozen=True):
    """Return torch's documentation of an op of the catalog. Raises KeyError for another."""

    lane: ClassVar[str] = "documentation"
    key: str


class Summaries(Request[FrozenMap[str, str]], frozen=True):
    """Return the summary line of torch's documentation of each op."""

    lane: ClassVar[str] = "documentation"
    keys: tuple[str, ...]
