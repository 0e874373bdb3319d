"""Input, output and working state of the layered layout."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Literal, NamedTuple

from msgspec import Struct

Point = tuple[float, float]

# A vertex aligns with its heaviest neighbours only; bends of long links (1) are lighter than boxes (2).
BEND = 1


class Rect(NamedTuple):
    """`x` and `y` are the top left corner, in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def center(self) -> Point:
        return self.x + self.width / 2, self.y + self.height / 2


class Vertex(NamedTuple):
    """A box with its size. `pin` fixes it to the first or last layer; neighbours ignore one of `weight` 0.

    `line` is the offset from its top that is aligned to the grid, if any. Boxes of one `frame` stay in one row.
    """

    width: float
    height: float
    pin: Literal["", "first", "last"] = ""
    weight: int = 2
    line: float = 0.0
    frame: str = ""


class Link(NamedTuple):
    """A link from the right side of `tail` to the left side of `head`; `tail_dy` and `head_dy` are offsets from their
    tops.

    `below` routes it below the boxes it passes if either side has the same crossings.
    """

    tail: int
    head: int
    tail_dy: float
    head_dy: float
    label_width: float = 0.0
    below: bool = False


class Spacing(Struct, frozen=True):
    """Distances in pixels; `label_height` is that of a link's label.

    A gutter with more than `crowd` links shows no labels and uses narrower tracks. `edge` is a margin for links along
    the upper or lower edge of a band; `frame` replaces `band` next to a band that has a frame, `fold` in a skip layout.
    Columns start and lines of boxes lie at multiples of `grid`; 0 for none.
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


class Rows(Struct, frozen=True):
    """Limits of rows: a row is at most `limit` wide, or `widest` times that to keep a frame together.

    `folds` allows the skip layout: the decoder of a U-Net next to its encoder.
    """

    limit: float
    widest: float = 1.0
    folds: bool = False


class Placed(Struct):
    """Top left corners, routes of links and centres of their labels; all within `width` x `height`.

    A label is None where too many links run in parallel to assign it.
    """

    corners: list[Point]
    routes: list[list[Point]]
    labels: list[Point | None]
    width: float
    height: float


class Chain(Struct):
    """A link's items within one band; `leaves` and `enters` mean that the link continues in another band."""

    link: int
    items: list[int]
    band: int
    leaves: bool = False
    enters: bool = False


class State(Struct):
    """Working data: items are vertices (first) and bends; `rows[layer]` lists a layer's items from top to bottom.

    `arms[band]` is the first layer of the decoder side in a skip layout, `frames[layer]` the frame of a layer; both are
    empty without such. `routed` means that links are routed through the rows; `chain` that each vertex links to the
    next one alone. `tick` is called for each band.
    """

    vertices: list[Vertex]
    links: list[Link]
    spacing: Spacing
    layer: list[int]
    routed: bool
    is_chain: bool
    tick: Callable[[], object] = lambda: None
    band_of_layer: list[int] = []
    arms: list[int] = []
    frames: list[str] = []
    bands: list[tuple[int, int]] = []
    rows: list[list[int]] = []
    heights: list[float] = []
    weights: list[int] = []
    chains: list[Chain] = []
    before: dict[int, list[tuple[int, float]]] = {}
    after: dict[int, list[tuple[int, float]]] = {}
    y: list[float] = []
    left: list[float] = []
    right: list[float] = []


def snapped_up(value: float, grid: float) -> float:
    """Round up to a multiple of the grid; 0 is no grid.

    A value less than 0.37 above a multiple is rounded down: rounding and averaging leave boxes of one line that far
    apart.
    """
    return ceil((value - 0.37) / grid) * grid if grid else value
