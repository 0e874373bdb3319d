"""Request: run a snippet in a separate engine."""

from __future__ import annotations

from typing import ClassVar

from app.autograd.snippets.snippet import Limits, Snippet, SnippetAnswer
from app.engine.protocol import MAIN, Request
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class SnippetBegan:
    """Reported when torch is loaded and the first line is about to run: time and memory count from here."""


@dataclass(frozen=True)
class RunSnippet(Request[SnippetAnswer]):
    """Run a user's snippet, in an engine started for it. Its progress is SnippetBegan."""

    lane: ClassVar[str] = MAIN
    snippet: Snippet
    limits: Limits
