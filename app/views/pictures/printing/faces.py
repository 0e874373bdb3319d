"""Boxes, groups and labels of a drawing as marks on white paper, measured once for the layout."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache

from msgspec.structs import replace
from PySide6.QtGui import QFont, QFontMetricsF

from app.diagram.diagram import Arrow, Box, Drawing, Group, Scale
from app.diagram.layout import HEADER, Rect, Sizes
from app.views.pictures.printing.paper import BODY, TITLE, Anchor, Frame, Mark, Words
from app.views.ui.theme import font, heat

INSET, ROW, TOP = 8.0, 13.0, 16.0
CHIP = 15.0
HEAT = 4.0  # height of a strip of the ramp
STEPS = 32  # of the ramp in the legend
TEXT, TEXT2, LINE = "#16191D", "#3A4049", "#7C8592"
BACK, WIRE = "#A84A05", "#5F6773"
WHITE = "#FFFFFF"

# Lines and soft fills of the categories for a white page.
INK = {
    "io": ("#667080", "#F0F2F4"),
    "conv": ("#5157D6", "#F0F1FC"),
    "linear": ("#08806F", "#E8F4F2"),
    "act": ("#5C7D0B", "#F1F5E6"),
    "norm": ("#0F7FB3", "#E9F4F9"),
    "shape": ("#8A6A1F", "#F6F2E8"),
    "drop": ("#8B6464", "#F5F0F0"),
    "merge": ("#BC3F85", "#FAEEF4"),
    "seq": ("#8647C8", "#F4EFFA"),
    "block": ("#8A5F38", "#F6F1ED"),
    "loss": ("#C4473C", "#FBEFEE"),
    "error": ("#B42318", "#FDE3E0"),
}
MARKS = {
    "added": "#0C7541",
    "removed": "#C42B26",
    "moved": "#0B66D0",
    "changed": "#8A6200",
}


@cache
def paper_font(size: int, bold: bool) -> QFont:
    """Return a font of the interface in whole pixels, the same in every format."""
    result = font("section" if bold else "axis")
    result.setPixelSize(size)
    return result


@cache
def _metrics(size: int, bold: bool) -> QFontMetricsF:
    return QFontMetricsF(paper_font(size, bold))


@lru_cache(maxsize=8192)
def width_of(text: str, size: int = BODY, bold: bool = False) -> float:
    """Return the width of a text in pixels."""
    return _metrics(size, bold).horizontalAdvance(text)


def text_mark(
    text: str,
    x: float,
    y: float,
    size: int = BODY,
    bold: bool = False,
    color: str = TEXT,
    anchor: Anchor = "start",
) -> Words:
    """Return a text that knows its width."""
    return Words(text, x, y, size, bold, color, anchor, width_of(text, size, bold))


def _lines(box: Box) -> list[str]:
    """Return the lines below a title, and the longest of the tags."""
    return [line for line in (box.subtitle, *box.lines, *box.tags[:1]) if line]


def box_size(box: Box) -> tuple[float, float]:
    """Return the size of a box."""
    wide = [width_of(box.title, TITLE, True), *map(width_of, _lines(box))]
    chips = sum(width_of(chip.text) + 14 for chip in box.chips) - 4
    width = max([*wide, chips if box.chips else 0.0]) + 2 * INSET
    return float(round(width)), TOP + ROW * len(_lines(box)) + (
        CHIP + 4 if box.chips else 0.0
    ) + 6


def sizes_of(drawing: Drawing) -> Sizes:
    """Measure boxes, headers and labels."""
    tagged = {box.id: box_size(box) for box in drawing.boxes if box.tags}
    sizes = Sizes.measured(drawing, box_size, _header_width, label_width)
    return replace(sizes, boxes={**sizes.boxes, **tagged})


def label_width(arrow: Arrow) -> float:
    return width_of(label_of(arrow)) + 12


def label_of(arrow: Arrow) -> str:
    """Return the label of an arrow."""
    return (
        f"{arrow.label} ×{arrow.count}"
        if arrow.label and arrow.count > 1
        else arrow.label
    )


def _header_width(group: Group) -> float:
    return (
        width_of(group.title, TITLE, True) + width_of(_caption(group)) + 2 * INSET + 14
    )


def _caption(group: Group) -> str:
    return " · ".join(filter(None, (group.caption, *group.tags[:1])))


def box_marks(box: Box, rect: Rect) -> Iterator[Mark]:
    """Yield the marks of a box."""
    line, fill = INK.get(box.category, INK["io"])
    radius = 8.0 if box.shape == "leaf" else 3.0
    ground = (
        fill if box.shape in ("folded", "leaf") or box.category == "error" else WHITE
    )
    edge = MARKS.get(
        box.mark, line if box.shape == "folded" or box.category == "error" else LINE
    )
    yield Frame(
        rect.x,
        rect.y,
        rect.width,
        rect.height,
        radius,
        ground,
        edge,
        1.6 if box.mark else 0.9,
        box.mark == "removed",
    )
    if box.shape in ("op", "call"):
        yield Frame(rect.x, rect.y + 2.5, 3.0, rect.height - 5, 0.0, line)
    if box.heat is not None:
        yield heat_mark(box.heat, rect.x, rect.bottom - HEAT, rect.width)
    middle, left = rect.x + rect.width / 2, rect.x + INSET
    anchor: Anchor = "middle" if box.shape == "leaf" else "start"
    x = middle if box.shape == "leaf" else left
    y = rect.y + TOP - 1
    yield text_mark(box.title, x, y, TITLE, True, TEXT, anchor)
    for text in _lines(box):
        y += ROW
        yield text_mark(text, x, y, BODY, False, TEXT2, anchor)
    if box.chips:
        yield from _chips(box, left, y + 6)


def _chips(box: Box, x: float, y: float) -> Iterator[Mark]:
    for chip in box.chips:
        width = width_of(chip.text) + 10
        filled = chip.kind == "held"
        if chip.kind != "more":
            yield Frame(
                x,
                y,
                width,
                CHIP,
                3,
                "#E3EEFB" if filled else "",
                "#0B66D0" if filled else LINE,
                0.7,
            )
        yield text_mark(chip.text, x + 5, y + 11, BODY, False, TEXT2)
        x += width + 4


def group_marks(group: Group, rect: Rect) -> Iterator[Mark]:
    """Yield the frame of an open group and its title."""
    line, fill = INK.get(group.category, INK["io"])
    edge = MARKS.get(group.mark, line)
    dashed = group.mark == "removed"
    yield Frame(
        rect.x,
        rect.y,
        rect.width,
        rect.height,
        5,
        fill,
        edge,
        1.6 if group.mark else 0.8,
        dashed,
    )
    y = rect.y + HEADER / 2 + 5
    yield text_mark(group.title, rect.x + INSET, y, TITLE, True)
    if caption := _caption(group):
        yield text_mark(caption, rect.right - INSET, y, BODY, False, TEXT2, "end")
    if group.heat is not None:
        yield heat_mark(group.heat, rect.x, rect.y + HEADER - 1, rect.width)


def heat_mark(place: float, x: float, y: float, width: float) -> Frame:
    """Return a strip in the colour of a place on the ramp, from 0 to 1."""
    return Frame(x, y, width, HEAT, 0.0, heat(place).name())


def scale_marks(scale: Scale, x: float, y: float) -> Iterator[Mark]:
    """Yield the legend of the colours, with its top left corner at a point."""
    base = y + TITLE
    low_at = x + width_of(scale.caption, BODY, True) + INSET
    ramp = low_at + width_of(scale.low) + INSET
    yield text_mark(scale.caption, x, base, BODY, True, TEXT2)
    yield text_mark(scale.low, low_at, base, BODY, False, TEXT2)
    for number in range(STEPS):
        yield heat_mark(
            number / (STEPS - 1), ramp + number * HEAT, base - HEAT, HEAT + 0.2
        )
    yield text_mark(scale.high, ramp + STEPS * HEAT + INSET, base, BODY, False, TEXT2)


def frame_marks(title: str, category: str, rect: Rect) -> Iterator[Mark]:
    """Yield a frame of the canvas, with its title."""
    line, fill = INK.get(category, (LINE, "#F7F8F9"))
    yield Frame(rect.x, rect.y, rect.width, rect.height, 5, fill, line, 0.8, True)
    yield text_mark(
        title.partition("\n")[0], rect.x + INSET, rect.y + 14, TITLE, True, TEXT2
    )


def label_marks(arrow: Arrow, x: float, y: float) -> Iterator[Mark]:
    """Yield the label of an arrow with its middle at a point, and the ground that keeps it legible."""
    text = label_of(arrow)
    width = width_of(text) + 6
    yield Frame(x - width / 2, y - 6.5, width, 13, 2, WHITE)
    yield text_mark(
        text,
        x,
        y + 3.5,
        BODY,
        False,
        BACK if arrow.kind == "gradient" else TEXT2,
        "middle",
    )
