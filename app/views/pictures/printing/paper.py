"""What a picture on paper consists of, in pixels of the layout with y downwards, and the sizes of papers. Qt-free."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct

TITLE, BODY = (
    12,
    10,
)  # pixel sizes of the two texts; the smaller one decides how far a picture may shrink
POINT = 72 / 2.54  # of a centimetre
COLUMN_TEXT, PAGE_TEXT, SLIDE_TEXT = (
    (6.0, 6.0, 8.0),
    (6.0, 6.0, 8.0),
    (6.0, 9.0, 14.0),
)  # points, see `Paper.text`
SLIDE_DPI, PAPER_DPI = 144, 300

Purpose = Literal["column", "page", "slide"]
Arranged = Literal["canvas", "rows", "dot"]
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


class Paper(Struct, frozen=True):
    """A format: `width` and `height` in points; a slide has that very height, others at most that unless it takes
    more."""

    purpose: Purpose
    words: str
    width: float
    height: float
    margin: float
    text: tuple[
        float, float, float
    ]  # points of the smallest text: at least, well readable, at most
    dpi: int

    @property
    def is_slide(self) -> bool:
        return self.purpose == "slide"

    @property
    def room(self) -> tuple[float, float]:
        return self.width - 2 * self.margin, self.height - 2 * self.margin


PAPERS: dict[str, Paper] = {
    paper.purpose: paper
    for paper in (
        Paper(
            "column",
            "A column, 8.5 cm wide",
            8.5 * POINT,
            22 * POINT,
            1.0,
            COLUMN_TEXT,
            PAPER_DPI,
        ),
        Paper(
            "page",
            "A page, 17 cm wide",
            17 * POINT,
            25 * POINT,
            1.0,
            PAGE_TEXT,
            PAPER_DPI,
        ),
        Paper("slide", "A slide, 16:9", 960.0, 540.0, 28.0, SLIDE_TEXT, SLIDE_DPI),
    )
}


class Choice(Struct, frozen=True):
    """What a picture is for, and how its boxes are placed: None for the canvas if its text is readable then, else in
    rows; "dot" leaves layout and size to Graphviz. A `heading` are lines above it, the first of them large."""

    purpose: Purpose = "page"
    arranged: Arranged | None = None
    heading: tuple[str, ...] = ()

    @property
    def paper(self) -> Paper:
        return PAPERS[self.purpose]


class Sheet(Struct, frozen=True):
    """A plate on its paper: points per pixel, the corner of the plate and the size of the paper, in points."""

    plate: Plate
    paper: Paper
    scale: float
    x: float
    y: float
    width: float
    height: float
    arranged: Arranged = "rows"

    @property
    def text(self) -> float:
        """Return the size of the smallest text in points."""
        return self.scale * BODY

    @property
    def fits(self) -> bool:
        """Return whether it is no wider and no higher than its paper."""
        return (
            self.width <= self.paper.width + 0.5
            and self.height <= self.paper.height + 0.5
        )

    @property
    def fits_readably(self) -> bool:
        """Return whether it fits its paper with text that is well readable."""
        return self.fits and self.text >= self.paper.text[1] - 0.01

    @property
    def note(self) -> str:
        """Format the size, and what does not fit the paper: `8.5 x 11.2 cm, text from 6.4 pt`."""
        description = f"{self.width / POINT:.1f} × {self.height / POINT:.1f} cm, text from {self.text:.1f} pt"
        if self.width > self.paper.width + 0.5:
            description += "; it does not fit the width with readable text"
        elif self.text < self.paper.text[0] - 0.05:
            description += ", which is small: fold some parts"
        elif self.height > self.paper.height + 0.5:
            description += "; higher than a page: fold some parts"
        return description


def fitting(width: float, height: float, paper: Paper) -> float:
    """Return the largest scale at which a picture fits, within the largest text of the paper."""
    wide, high = paper.room
    scale = min(wide / max(width, 1.0), paper.text[2] / BODY)
    return min(scale, high / max(height, 1.0)) if paper.is_slide else scale


def on_paper(
    plate: Plate,
    paper: Paper,
    arranged: Arranged,
    widen: bool = False,
    least: float = 0.0,
) -> Sheet:
    """Put a plate on paper, in its middle; with `widen` the paper gets wider, rather than the text too small.

    With a scale `least` it is enlarged beyond that only as far as it is no higher than the paper.
    """
    scale = fitting(plate.width, plate.height, paper)
    if least and not paper.is_slide:
        scale = min(scale, max(least, paper.room[1] / plate.height))
    if widen and not paper.is_slide:
        scale = max(scale, paper.text[0] / BODY)
    wide, high = plate.width * scale, plate.height * scale
    width = max(paper.width, wide + 2 * paper.margin)
    height = paper.height if paper.is_slide else high + 2 * paper.margin
    y = (height - high) / 2 if paper.is_slide else paper.margin
    return Sheet(plate, paper, scale, (width - wide) / 2, y, width, height, arranged)
