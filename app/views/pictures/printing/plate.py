"""Lay a drawing out for paper: as arranged on the canvas with the canvas's wires, or in rows of the paper's width."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainterPath, QTextLayout, QTextOption

from app.diagram.diagram import Arrow, Box, Drawing
from app.diagram.layout import KnownPlaces, Layout, Places, Rect, arrange, keep_places
from app.diagram.layout_model import Spacing
from app.views.autograd.graph.arrow_paths import arrow_head, arrow_path
from app.views.pictures.printing.faces import (
    BACK,
    TEXT,
    TEXT2,
    WIRE,
    box_marks,
    frame_marks,
    group_marks,
    label_marks,
    paper_font,
    scale_marks,
    sizes_of,
    text_mark,
)
from app.views.pictures.printing.paper import (
    BODY,
    Choice,
    Mark,
    Paper,
    Path,
    Plate,
    Segment,
    Sheet,
    Words,
    fitting,
    on_paper,
)
from app.views.ui.graphview.detour import led
from app.views.ui.graphview.routes import runs_back
from app.views.ui.graphview.spatial import RectIndex

SCALES = (1.0, 0.875, 0.75)  # of the largest text that are tried for rows
TRIES = 4
LOWER = 0.9  # of the height of wide boxes, from which narrow ones are better
MANY = 400  # boxes of a picture that no page holds: one style and one scale are tried
NARROWEST = 160.0  # pixels of a row
NARROW_GAP = 26.0
THICK = 1.1
RISE = 5.0  # of a label's baseline above its wire
HEADING, LINE_BELOW = (15.0, 1.35), (9.0, 1.8)  # points, and the height of a row
UNDER_HEADING = 14.0  # points
GAP_OVER_SCALE = 12.0  # pixels
_WIDE = 12  # letters of a subtitle that is left in one line


class EmptyDrawingError(ValueError):
    """There is nothing to draw."""


def printed(drawing: Drawing, choice: Choice) -> Sheet:
    """Return the drawing laid out on the paper of a choice, below its heading. Raises EmptyDrawingError."""
    sheet = _laid_out(drawing, choice)
    return _headed(sheet, choice.heading) if choice.heading else sheet


def _headed(sheet: Sheet, heading: tuple[str, ...]) -> Sheet:
    """Return the sheet with lines above it, whose size does not depend on how far the picture was shrunk."""
    room = (sheet.width - 2 * sheet.paper.margin) / sheet.scale
    marks: list[Mark] = []
    y = 0.0
    for number, text in enumerate(heading):
        (points, height), color = (LINE_BELOW, TEXT2) if number else (HEADING, TEXT)
        size = round(points / sheet.scale)
        for row in _rows(text, room, size, bold=not number):
            y += size * height
            middle = sheet.plate.width / 2
            marks.append(text_mark(row, middle, y, size, not number, color, "middle"))
    y += UNDER_HEADING / sheet.scale
    below = (_moved(mark, 0.0, y) for mark in sheet.plate.marks)
    plate = replace(sheet.plate, marks=(*marks, *below), height=sheet.plate.height + y)
    return replace(sheet, plate=plate, height=sheet.height + y * sheet.scale)


def _rows(text: str, width: float, size: int, bold: bool) -> Iterator[str]:
    """Yield a text in rows of at most this width."""
    layout = QTextLayout(text, paper_font(size, bold))
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    layout.setTextOption(option)
    layout.beginLayout()
    while (row := layout.createLine()).isValid():
        row.setLineWidth(width)
        yield text[row.textStart() : row.textStart() + row.textLength()].strip()
    layout.endLayout()


def _laid_out(drawing: Drawing, choice: Choice) -> Sheet:
    """Return the drawing on the paper of a choice, without its heading.

    Where its text would be small, narrow boxes are tried, with the sizes of their outputs, then without them.
    """
    if not drawing.boxes:
        raise EmptyDrawingError("There is nothing to draw yet.")
    paper = choice.paper
    if choice.arranged != "rows" and drawing.places:
        canvas_chosen = choice.arranged == "canvas"
        arrangement = _arrangement(drawing, paper)
        if arrangement is not None and (
            canvas_chosen
            or fitting(arrangement[1].width, arrangement[1].height, paper) * BODY
            >= paper.text[0]
        ):
            sheet = on_paper(
                _as_placed(*arrangement), paper, "canvas", widen=canvas_chosen
            )
            if (
                canvas_chosen or sheet.text >= paper.text[0] - 0.01
            ):  # wires beside the boxes take some of the width
                return sheet
    placed: KnownPlaces = {}
    return _best(
        [
            _in_rows(styled, paper, spacing, placed)
            for styled, spacing in _styles(drawing)
        ]
    )


def _best(sheets: list[Sheet]) -> Sheet:
    """Return the first sheet that fits with readable text, or the second if that is much lower; else the most readable.

    The last leaves sizes out, so it is taken only where the others do not fit.
    """
    good = [sheet for sheet in sheets if sheet.fits_readably]
    if not good:
        return max(
            sheets,
            key=lambda sheet: (sheet.fits, sheet.text if sheet.fits else -sheet.height),
        )
    lower = [
        sheet
        for sheet in sheets[:2]
        if sheet.fits_readably and sheet.height < LOWER * good[0].height
    ]
    return (lower or good)[0]


def _styles(drawing: Drawing) -> Iterator[tuple[Drawing, Spacing]]:
    tight = Spacing(column=NARROW_GAP, bend=12.0, track=9.0)
    yield drawing, Spacing()
    if len(drawing.boxes) <= MANY:
        yield _narrowed(drawing), tight
        yield _bare(drawing), tight


def _arrangement(drawing: Drawing, paper: Paper) -> tuple[Drawing, Places] | None:
    """Return the first style whose text is well readable as its owner arranged it, else the most readable one."""
    best: tuple[Drawing, Places] | None = None
    largest = 0.0
    for styled, _ in _styles(drawing):
        placement = keep_places(styled, sizes_of(styled))
        if placement is None:
            return None
        text = fitting(placement.width, placement.height, paper) * BODY
        if text > largest:
            best, largest = (styled, placement), text
        if text >= paper.text[1]:
            break
    return best


def _in_rows(
    drawing: Drawing, paper: Paper, spacing: Spacing, placed: KnownPlaces
) -> Sheet:
    """Wrap into rows with the largest text at which they fit the paper, else the smallest. `placed` are the groups that
    were placed before, at another scale or for another picture."""
    sizes = sizes_of(drawing)
    if paper.is_slide:
        return on_paper(
            _plate(
                drawing,
                arrange(drawing, sizes, None, spacing, paper.room, known=placed),
            ),
            paper,
            "rows",
        )
    width, height = paper.room
    layout, sheet = None, None
    for share in SCALES if len(drawing.boxes) <= MANY else SCALES[-1:]:
        scale = max(paper.text[0], paper.text[2] * share) / BODY
        limit = most = width / scale
        before = math.inf
        for _ in range(TRIES):  # wires beside the rows take some of the width
            layout = arrange(drawing, sizes, limit, spacing, known=placed)
            if layout.width <= most or limit < NARROWEST or layout.width >= before:
                break
            before = layout.width
            limit = max(limit - (layout.width - most) - 1, NARROWEST - 1)
        assert layout is not None
        sheet = on_paper(_plate(drawing, layout), paper, "rows", least=scale)
        if layout.width <= most and layout.height * scale <= height:
            break
    assert sheet is not None
    return sheet


def _plate(drawing: Drawing, layout: Layout) -> Plate:
    """Return the marks of a layout."""
    marks: list[Mark] = []
    for group in drawing.groups:
        if group.id in layout.groups:
            marks += group_marks(group, layout.groups[group.id])
    for arrow, points in zip(drawing.arrows, layout.routes, strict=True):
        marks += _arrow(arrow, arrow_path(points))
    for box in drawing.boxes:
        marks += box_marks(box, layout.boxes[box.id])
    for arrow, at in zip(drawing.arrows, layout.labels, strict=True):
        if at is not None and arrow.label:
            marks += label_marks(arrow, *at)
    return _cropped(marks, drawing)


def _as_placed(drawing: Drawing, placement: Places) -> Plate:
    """Return the marks of the owner's arrangement, with wires as the canvas leads them."""
    marks: list[Mark] = []
    framed = zip(
        (frame for frame in drawing.frames if frame.members & placement.boxes.keys()),
        placement.frames,
        strict=True,
    )
    for frame, rect in sorted(framed, key=lambda pair: -pair[1].width * pair[1].height):
        marks += frame_marks(frame.title, frame.category, rect)
    late: list[Mark] = []
    for arrow, way in _wires(drawing, placement):
        marks += _arrow(arrow, way.path)
        text = (
            arrow.label if arrow.count == 1 else f"{arrow.label} ×{arrow.count}".strip()
        )
        label = text_mark(
            text, way.label[0], way.label[1], color=TEXT2, anchor="middle"
        )
        if text and label.width + 4 <= way.run:
            late.append(label)
    for box in drawing.boxes:
        marks += box_marks(box, placement.boxes[box.id])
    return _cropped([*marks, *late], drawing)


class _Way(NamedTuple):
    """A wire's path, and where its label goes on its level part of length `run`."""

    path: QPainterPath
    label: tuple[float, float]
    run: float


def _wires(drawing: Drawing, placement: Places) -> Iterator[tuple[Arrow, _Way]]:
    """Lead the wires around all other boxes, those that run back last."""
    near: RectIndex[str] = RectIndex()
    for key, rect in placement.boxes.items():
        near.put(key, QRectF(*rect))
    lanes: RectIndex[int] = RectIndex()

    def lanes_in(area: QRectF) -> list[QRectF]:
        return [lanes[key] for key in lanes.inside(area)]

    ends = [
        (_side(placement.boxes[a.source], 1), _side(placement.boxes[a.target], 0))
        for a in drawing.arrows
    ]
    order = sorted(range(len(ends)), key=lambda number: runs_back(*ends[number]))
    for number in order:
        arrow = drawing.arrows[number]
        own = (arrow.source, arrow.target)
        source, target = near[arrow.source], near[arrow.target]
        way = led(*ends[number], source, target, near, own, lanes_in)
        if not way.lane.isEmpty():
            lanes.put(number, way.lane)
        label = (way.label.x(), _level(way.path, way.label) - RISE)
        yield arrow, _Way(way.path, label, way.run)


def _level(path: QPainterPath, label: QPointF) -> float:
    """Return the y of a path below the middle of its label."""
    points = (path.pointAtPercent(number / 200) for number in range(201))
    return min(
        points,
        key=lambda point: abs(point.x() - label.x()) + 0.2 * abs(point.y() - label.y()),
    ).y()


def _side(rect: Rect, right: int) -> QPointF:
    return QPointF(rect.x + right * rect.width, rect.y + rect.height / 2)


def _arrow(arrow: Arrow, path: QPainterPath) -> Iterator[Mark]:
    color = BACK if arrow.kind == "gradient" else WIRE
    yield Path(segments(path), line=color, thick=THICK)
    yield Path(segments(arrow_head(path)), fill=color)


def segments(path: QPainterPath) -> tuple[Segment, ...]:
    """Return the pieces of a Qt path."""
    pieces: list[Segment] = []
    number, count = 0, path.elementCount()
    while number < count:
        at = path.elementAt(number)
        if at.isCurveTo():
            three = [path.elementAt(number + step) for step in range(3)]
            pieces.append(Segment("C", tuple((point.x, point.y) for point in three)))
            number += 3
            continue
        pieces.append(Segment("M" if at.isMoveTo() else "L", ((at.x, at.y),)))
        number += 1
    return tuple(pieces)


def _cropped(marks: list[Mark], drawing: Drawing) -> Plate:
    """Put the legend below the marks, and move all so that they are within the plate, which has their size."""
    boxes = [_bounds(mark) for mark in marks]
    if drawing.scale is not None:
        foot = max(box[3] for box in boxes) + GAP_OVER_SCALE
        legend = [*scale_marks(drawing.scale, min(box[0] for box in boxes), foot)]
        marks = [*marks, *legend]
        boxes += map(_bounds, legend)
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[2] for box in boxes), max(box[3] for box in boxes)
    moved = tuple(_moved(mark, 1 - left, 1 - top) for mark in marks)
    return Plate(moved, right - left + 2, bottom - top + 2, drawing.title)


def _bounds(mark: Mark) -> tuple[float, float, float, float]:
    if isinstance(mark, Path):
        xs, ys = zip(
            *(point for segment in mark.segments for point in segment.points),
            strict=True,
        )
        return min(xs), min(ys), max(xs), max(ys)
    if isinstance(mark, Words):
        return mark.left, mark.y - mark.size, mark.left + mark.width, mark.y + 3
    return mark.x, mark.y, mark.x + mark.width, mark.y + mark.height


def _moved(mark: Mark, dx: float, dy: float) -> Mark:
    if isinstance(mark, Path):
        moved = tuple(
            Segment(s.kind, tuple((x + dx, y + dy) for x, y in s.points))
            for s in mark.segments
        )
        return mark._replace(segments=moved)
    return mark._replace(x=mark.x + dx, y=mark.y + dy)


def _narrowed(drawing: Drawing) -> Drawing:
    """Return the drawing with narrow boxes; labels stay on wires where those of one box differ."""
    labels: dict[str, set[str]] = {}
    for arrow in drawing.arrows:
        labels.setdefault(arrow.source, set()).add(arrow.label)
    moved = {
        box: next(iter(texts))
        for box, texts in labels.items()
        if len(texts) == 1 and texts != {""}
    }
    boxes = tuple(_narrow(box, moved.get(box.id, "")) for box in drawing.boxes)
    arrows = tuple(
        replace(arrow, label="")
        if arrow.source in moved and arrow.count == 1
        else arrow
        for arrow in drawing.arrows
    )
    return replace(drawing, boxes=boxes, arrows=arrows)


def _bare(drawing: Drawing) -> Drawing:
    """Return the drawing with narrow boxes and without the sizes of values."""
    arrows = tuple(replace(arrow, label="") for arrow in drawing.arrows)
    return replace(
        drawing, boxes=tuple(_narrow(box, "") for box in drawing.boxes), arrows=arrows
    )


def _narrow(box: Box, output: str) -> Box:
    first, _, rest = box.subtitle.partition(" ")
    subtitle, more = (
        (first, (rest,)) if rest and len(box.subtitle) > _WIDE else (box.subtitle, ())
    )
    shows_output = output and output not in (box.subtitle, *box.lines)
    return replace(
        box,
        subtitle=subtitle,
        lines=(*more, *box.lines, *((f"→ {output}",) if shows_output else ())),
    )
