"""Narrow boxes for small paper: class and parameters in two lines, the size of an output in its box or left out."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as with_values

from app.diagram.diagram import Box, Drawing

WIDE = 12  # letters of a subtitle that is left in one line


def narrowed(drawing: Drawing) -> Drawing:
    """Return the drawing with narrow boxes; labels stay on wires where those of one box differ."""
    labels: dict[str, set[str]] = {}
    for arrow in drawing.arrows:
        labels.setdefault(arrow.source, set()).add(arrow.label)
    moved = {box: next(iter(each)) for box, each in labels.items() if len(each) == 1 and each != {""}}
    boxes = tuple(_narrow(box, moved.get(box.id, "")) for box in drawing.boxes)
    arrows = tuple(
        with_values(arrow, label="") if arrow.source in moved and arrow.count == 1 else arrow
        for arrow in drawing.arrows
    )
    return replace(drawing, boxes=boxes, arrows=arrows)


def bare(drawing: Drawing) -> Drawing:
    """Return the drawing with narrow boxes and without the sizes of values."""
    arrows = tuple(with_values(arrow, label="") for arrow in drawing.arrows)
    return replace(drawing, boxes=tuple(_narrow(box, "") for box in drawing.boxes), arrows=arrows)


def _narrow(box: Box, output: str) -> Box:
    first, _, rest = box.subtitle.partition(" ")
    subtitle, more = (first, (rest,)) if rest and len(box.subtitle) > WIDE else (box.subtitle, ())
    said = output and output not in (box.subtitle, *box.lines)
    return with_values(box, subtitle=subtitle, lines=(*more, *box.lines, *((f"→ {output}",) if said else ())))
