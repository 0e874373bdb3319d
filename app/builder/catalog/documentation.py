"""Documentation of an op as a value; `app.builder.catalog.introspect` reads it from torch."""

from __future__ import annotations

from app.util.frozen import FrozenMap
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class Documentation:
    """Documentation of an op in the installed torch: first sentence, full text, and a sentence or two per argument."""

    summary: str
    text: str
    arguments: FrozenMap[str, str]
