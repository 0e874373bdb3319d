"""What a picture on paper consists of: rectangles, paths and words, in pixels of the layout, y downwards. Qt-free."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct

TITLE, BODY = (
    12,
    10,
)  # pixel sizes of the two texts; the smaller one decides how far a picture may shrink

Anchor = Literal["start", "middle", "end"]


class Frame(NamedTuple):
    """A rectangle, "" for no fill or no line."""

    x: float
    y: float
    width: float
    height: float
    radius: float = 0.0
    fill: str = ""
    line: str = ""
    thick: float = 1.0
    dashed: bool = False


class Segment(NamedTuple):
    """A piece of a path: "M" and "L" have one point, "C" two handles and its end."""

    kind: Literal["M", "L", "C"]
    points: tuple[tuple[float, float], ...]


class Path(NamedTuple):
    """A line, or an area if it has a fill, which closes it."""

    segments: tuple[Segment, ...]
    line: str = ""
    fill: str = ""
    thick: float = 1.0


class Words(NamedTuple):
    """A line of text; `x` is its start, middle or end, `y` its baseline, `width` as it was measured."""

    text: str
    x: float
    y: float
    size: int = BODY
    bold: bool = False
    color: str = "#16191D"
    anchor: Anchor = "start"
    width: float = 0.0

    @property
    def left(self) -> float:
        return (
            self.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor] * self.width
        )


Mark = Frame | Path | Words


class Plate(Struct, frozen=True):
    """A laid out picture: `marks` in the order in which they are painted, within `width` x `height`."""

    marks: tuple[Mark, ...]
    width: float
    height: float
    title: str = ""
