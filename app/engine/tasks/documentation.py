"""Handlers of `app.engine.requests.documentation`."""

from __future__ import annotations

from app.builder.catalog.documentation import Documentation
from app.builder.catalog.introspect import documentation
from app.engine.requests.documentation import Document, Summaries
from app.engine.server import Context, handles
from app.util.frozen import FrozenMap


@handles(Document)
def document(request: Document, _context: Context) -> Documentation:
    return documentation(request.key)


@handles(Summaries)
def summaries(request: Summaries, _context: Context) -> FrozenMap[str, str]:
    return FrozenMap({key: documentation(key).summary for key in request.keys})
