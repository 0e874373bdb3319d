"""What the engine works on."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, NamedTuple

from app.util.late_dataclass import dataclass

Point = tuple[float, float]

# What a vertex aligns with: its heaviest neighbours alone. Bends of long links (1) give way to boxes (2).
BEND = 1


class Vertex(NamedTuple):
    """A box of this size. `pin` puts it before or behind all others; `weight` 0 means that others ignore it."""

    width: float
    height: float
    pin: Literal["", "first", "last"] = ""
    weight: int = 2


class Link(NamedTuple):
    """From the right side of `tail` to the left side of `head`, `tail_dy` and `head_dy` below their tops."""

    tail: int
    head: int
    tail_dy: float
    head_dy: float
    label_width: float = 0.0


@dataclass(frozen=True)
class Spacing:
    """Distances in pixels; `label_height` is that of a link's label.

    More than `crowd` links in one gutter go without labels and closer together.
    """

    column: float = 44.0
    box: float = 26.0
    bend: float = 16.0
    band: float = 34.0
    track: float = 12.0
    crowd: int = 4
    label_margin: float = 28.0
    label_height: float = 20.0


@dataclass
class Placed:
    """Top left corners, the links' points and the middle of their labels; all within `width` x `height`.

    A label is None where too many links run side by side to tell whose it is.
    """

    corners: list[Point]
    routes: list[list[Point]]
    labels: list[Point | None]
    width: float
    height: float


@dataclass
class Chain:
    """A link's items within one band; `leaves` and `enters` say that it goes on in another band."""

    link: int
    items: list[int]
    band: int
    leaves: bool = False
    enters: bool = False


@dataclass
class State:
    """Working data: items are vertices (first) and bends, `rows[layer]` holds a layer's items from top to bottom."""

    vertices: list[Vertex]
    links: list[Link]
    spacing: Spacing
    layer: list[int]
    band_of_layer: list[int] = field(default_factory=list)
    bands: list[tuple[int, int]] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    heights: list[float] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)
    before: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    after: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    y: list[float] = field(default_factory=list)
    left: list[float] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
