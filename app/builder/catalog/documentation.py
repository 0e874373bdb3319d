"""Documentation of an op as a value; `app.builder.catalog.introspect` reads it from torch."""

from __future__ import annotations

from msgspec import Struct

from app.util.frozen import FrozenMap


class Documentation(Struct, frozen=True):
    """Documentation of an op in the installed torch: first sentence, full text, and a sentence or two per argument."""

    summary: str
    text: str
    arguments: FrozenMap[str, str]
