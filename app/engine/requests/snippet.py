"""Request: run a snippet in a separate engine."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.autograd.snippets.snippet import Limits, Snippet, SnippetAnswer
from app.engine.protocol import MAIN, Request


class SnippetBegan(Struct, frozen=True):
    """Reported when torch is loaded and the first line is about to run: time and memory count from here."""


class RunSnippet(Request[SnippetAnswer], frozen=True):
    """Run a user's snippet, in an engine started for it. Its progress is SnippetBegan."""

    lane: ClassVar[str] = MAIN
    snippet: Snippet
    limits: Limits
