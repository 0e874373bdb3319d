"""Layout of drawings: `arrange` turns a `Drawing` and its boxes' sizes into a `Layout`, `pack` one without arrows."""

from __future__ import annotations

from app.diagram.arrange import (
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
from app.diagram.diagram import Drawing
from app.diagram.kept_places import Places, keep_places
from app.diagram.layout_model import Rect

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

GAP = 10.0  # between neighbours, and between rows


def pack(drawing: Drawing, sizes: Sizes, width: float) -> Layout:
    """Place boxes and groups in rows of at most `width` pixels; a wider one takes a whole row. A group stands
    where its first box is listed, and is as large as its contents.

    >>> from app.diagram.diagram import Box
    >>> boxes = tuple(Box(name, name) for name in "abc")
    >>> found = pack(Drawing(boxes), Sizes({name: (40, 20) for name in "abc"}), 100)
    >>> found.boxes["b"], found.boxes["c"], found.width
    (Rect(x=50.0, y=0.0, width=40, height=20), Rect(x=0.0, y=30.0, width=40, height=20), 90.0)
    """
    parents = {group.id: group.parent for group in drawing.groups}
    inside: dict[str | None, list[str]] = {None: []}
    for box in drawing.boxes:
        name, above = box.id, box.group
        while True:
            members = inside.setdefault(above, [])
            members.append(name)
            if above is None or len(members) > 1:
                break
            name, above = above, parents[above]
    placed, extent = _filled(None, width, inside, sizes)
    boxes = {name: rect for name, rect in placed if name not in parents}
    return Layout(
        boxes, {name: rect for name, rect in placed if name in parents}, (), (), *extent
    )


def _filled(
    group: str | None, room: float, inside: dict[str | None, list[str]], sizes: Sizes
) -> tuple[list[tuple[str, Rect]], tuple[float, float]]:
    """Return everything in a group, placed from its inner corner on, and the extent."""
    placed: list[tuple[str, Rect]] = []
    right = x = y = row = 0.0
    for name in inside[group]:
        within: list[tuple[str, Rect]] = []
        if name in inside:
            within, (width, height) = _filled(name, room - 2 * PAD, inside, sizes)
            width, height = (
                max(width + 2 * PAD, sizes.headers.get(name, 0.0)),
                height + HEADER + 2 * PAD,
            )
        else:
            width, height = sizes.boxes[name]
        if x and x + width > room:
            x, y, row = 0.0, y + row + GAP, 0.0
        placed.append((name, Rect(x, y, width, height)))
        dx, dy = x + PAD, y + HEADER + PAD
        placed += [
            (inner_name, Rect(rect.x + dx, rect.y + dy, rect.width, rect.height))
            for inner_name, rect in within
        ]
        x, row = x + width + GAP, max(row, height)
        right = max(right, x - GAP)
    return placed, (right, y + row)
