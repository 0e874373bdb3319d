"""What torch says of an op, as a value; `app.builder.catalog.introspect` reads it off torch."""

from __future__ import annotations

from dataclasses import dataclass

from app.util.frozen import FrozenMap


@dataclass(frozen=True)
class Documentation:
    """What the installed torch says of an op: the first sentence, the whole text, a sentence or two an argument."""

    summary: str
    text: str
    arguments: FrozenMap[str, str]
