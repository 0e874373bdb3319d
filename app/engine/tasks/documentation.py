"""Handlers of `app.engine.requests.documentation`."""

from __future__ import annotations

from app.builder.catalog.catalog import Documentation
from app.builder.catalog.introspect import documentation
from app.engine.requests.documentation import ReadDocumentation, Summaries
from app.engine.server import Context, handles
from app.util.frozen import FrozenMap


@handles(ReadDocumentation)
def document(request: ReadDocumentation, _context: Context) -> Documentation:
    return documentation(request.key)


@handles(Summaries)
def summaries(request: Summaries, _context: Context) -> FrozenMap[str, str]:
    return FrozenMap({key: documentation(key).summary for key in request.keys})
