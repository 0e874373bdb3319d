"""Layout of drawings: `arrange` turns a `Drawing` and its boxes' sizes into a `Layout`, `pack` one without arrows."""

from app.diagram.layout.arrange import (
    HEADER,
    PAD,
    KnownPlaces,
    Layout,
    Progress,
    Sizes,
    arrange,
    estimated_sizes,
    no_progress,
)
from app.diagram.layout.kept_places import Places, keep_places
from app.diagram.layout.model import Rect
from app.diagram.layout.packing import pack

__all__ = [
    "HEADER",
    "PAD",
    "KnownPlaces",
    "Layout",
    "Places",
    "Progress",
    "Rect",
    "Sizes",
    "arrange",
    "estimated_sizes",
    "keep_places",
    "no_progress",
    "pack",
]
