"""What the engine works on."""

from __future__ import annotations

from dataclasses import field
from math import ceil
from typing import Literal, NamedTuple

from app.util.late_dataclass import dataclass

Point = tuple[float, float]

# What a vertex aligns with: its heaviest neighbours alone. Bends of long links (1) give way to boxes (2).
BEND = 1


class Vertex(NamedTuple):
    """A box of this size. `pin` puts it before or behind all others; `weight` 0 means that others ignore it.

    `line` is the height under its top that stands on a grid if there is one. Boxes of one `frame` stay in one row.
    """

    width: float
    height: float
    pin: Literal["", "first", "last"] = ""
    weight: int = 2
    line: float = 0.0
    frame: str = ""


class Link(NamedTuple):
    """From the right side of `tail` to the left side of `head`, `tail_dy` and `head_dy` below their tops.

    One that goes past other boxes does so `below` them or above, where no order has fewer crossings.
    """

    tail: int
    head: int
    tail_dy: float
    head_dy: float
    label_width: float = 0.0
    below: bool = False


@dataclass(frozen=True)
class Spacing:
    """Distances in pixels; `label_height` is that of a link's label.

    More than `crowd` links in one gutter go without labels and closer together. `edge` is kept free about links that
    run along the upper or lower edge of a band, `frame` stands in place of `band` beside a band with a frame in it, and
    `fold` between those of a fold. On a `grid` columns begin and lines of boxes stand at its multiples; 0 is none.
    """

    column: float = 44.0
    box: float = 26.0
    bend: float = 16.0
    band: float = 34.0
    frame: float = 34.0
    fold: float = 34.0
    edge: float = 0.0
    grid: float = 0.0
    track: float = 12.0
    crowd: int = 4
    label_margin: float = 28.0
    label_height: float = 20.0


@dataclass(frozen=True)
class Rows:
    """How wide a row is at most. It may be `widest` times that where it keeps together what belongs together.

    `folds` lets what comes back, as a U-Net does, stand with its way down beside its way up.
    """

    limit: float
    widest: float = 1.0
    folds: bool = False


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
    """Working data: items are vertices (first) and bends, `rows[layer]` holds a layer's items from top to bottom.

    `arms[band]` is the first layer of the way up in a band of a fold, `frames[layer]` the frame that a layer stands in;
    both are empty where there are none. Links are `led` through the rows unless they find their own ways. A `string` is
    one vertex behind the other.
    """

    vertices: list[Vertex]
    links: list[Link]
    spacing: Spacing
    layer: list[int]
    led: bool
    string: bool
    band_of_layer: list[int] = field(default_factory=list)
    arms: list[int] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)
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


def snapped_up(value: float, grid: float) -> float:
    """The next multiple of the grid, or the value itself where there is none.

    What lies over a multiple by less than half a pixel stands on it: so boxes of one line do, that are level but for
    what rounding and averaging leave.
    """
    return ceil((value - 0.37) / grid) * grid if grid else value
