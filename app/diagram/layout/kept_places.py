"""Places of a drawing that its owner arranged: the arrangement stays, the gaps shrink to what labels and wires need.

Boxes of one column or one row stay aligned. Each direction is a longest path over pairs of boxes that would meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from app.diagram.diagram import Drawing
from app.diagram.layout.arrange import Sizes
from app.diagram.layout.model import Point
from app.diagram.layout.tree_layout import Rect

MOST = 1200  # boxes; all pairs of them are compared
GAP, ROW_GAP, WIRE = (
    26.0,
    24.0,
    16.0,
)  # between columns, between rows, and for wires that run back between two rows
FRAME_SIDE, FRAME_TOP = (
    10.0,
    22.0,
)  # padding between a frame and its nodes, and around it
TURNS = 42.0  # between columns, where wires that run back leave and arrive
COLUMN, LEVEL = 12.0, 20.0  # parts nearer than this are in one column, or in one row
BESIDE = 60.0  # parts that are nearer than this in y would meet in x
STEP = 8.0  # between two columns, or rows, that have nothing beside or above each other


class Places(Struct, frozen=True):
    """Rectangles by id, and the size of all; `frames` are those of the drawing that hold a box, in its order."""

    boxes: Mapping[str, Rect]
    width: float
    height: float
    frames: tuple[Rect, ...] = ()


def keep_places(drawing: Drawing, sizes: Sizes) -> Places | None:
    """Place boxes as `drawing.places` has them; None if one has no place, if there are groups or very many boxes."""
    if (
        drawing.groups
        or len(drawing.boxes) > MOST
        or any(box.id not in drawing.places for box in drawing.boxes)
    ):
        return None
    corners = _corners(drawing, sizes)
    boxes = {key: Rect(x, y, *sizes.boxes[key]) for key, (x, y) in corners.items()}
    frames = _frames(drawing, boxes)
    every = [*boxes.values(), *frames]
    width = max(rect.right for rect in every) - min(rect.x for rect in every)
    height = max(rect.bottom for rect in every) - min(rect.y for rect in every)
    return Places(boxes, width, height, tuple(frames))


def _frames(drawing: Drawing, rects: Mapping[str, Rect]) -> list[Rect]:
    """Return the rectangles of the frames: around their members, and around the frames that are in them."""
    found: dict[int, Rect] = {}
    for number in sorted(
        range(len(drawing.frames)),
        key=lambda number: len(drawing.frames[number].members),
    ):
        members = drawing.frames[number].members
        inner = [rects[id] for id in members if id in rects]
        inner += [
            rect
            for other, rect in found.items()
            if drawing.frames[other].members <= members
        ]
        if inner:
            left, top = (
                min(one.x for one in inner) - FRAME_SIDE,
                min(one.y for one in inner) - FRAME_TOP,
            )
            right, bottom = (
                max(one.right for one in inner) + FRAME_SIDE,
                max(one.bottom for one in inner) + FRAME_SIDE,
            )
            found[number] = Rect(left, top, right - left, bottom - top)
    return [found[number] for number in sorted(found)]


def _corners(drawing: Drawing, sizes: Sizes) -> dict[str, Point]:
    """Return the corners of the boxes, from (0, 0)."""
    parts, places, size = [box.id for box in drawing.boxes], drawing.places, sizes.boxes
    wires: dict[tuple[str, str], str] = {}
    for arrow in drawing.arrows:
        if arrow.source != arrow.target:
            wires.setdefault((arrow.source, arrow.target), arrow.label)
    around = {
        part: frozenset(
            number
            for number, frame in enumerate(drawing.frames)
            if part in frame.members
        )
        for part in parts
    }
    columns = _classes(parts, {part: places[part][0] for part in parts}, COLUMN)
    rows = _classes(parts, {part: places[part][1] for part in parts}, LEVEL)

    back = [(a, b) for a, b in wires if places[b][0] < places[a][0] + 2 * COLUMN]
    leave, arrive = {a for a, _ in back}, {b for _, b in back}

    def beside(a: str, b: str) -> float | None:
        if abs(places[a][1] - places[b][1]) >= BESIDE:
            return None
        label = wires.get((a, b), wires.get((b, a)))
        least = TURNS if a in leave and b in arrive else GAP
        room = least if not label else max(least, sizes.labels.get(label, 0.0) + 22)
        return size[a][0] + room + FRAME_SIDE * len(around[a] ^ around[b])

    x = _spread(columns, beside)
    crowded = {a for (a, b) in wires if x[b] < x[a] + size[a][0]} | {
        b for (a, b) in wires if x[b] < x[a] + size[a][0]
    }

    def below(a: str, b: str) -> float | None:
        if x[a] >= x[b] + size[b][0] + GAP / 2 or x[b] >= x[a] + size[a][0] + GAP / 2:
            return None
        more = WIRE if a in crowded or b in crowded else 0.0
        return (
            (size[a][1] + size[b][1]) / 2
            + ROW_GAP
            + more
            + FRAME_TOP * len(around[a] ^ around[b])
        )

    middle = _spread(rows, below)
    corners = {part: (x[part], middle[part] - size[part][1] / 2) for part in parts}
    left, top = (
        min(at[0] for at in corners.values()),
        min(at[1] for at in corners.values()),
    )
    return {part: (at[0] - left, at[1] - top) for part, at in corners.items()}


def _classes(
    parts: Sequence[str], values: Mapping[str, float], near: float
) -> list[list[str]]:
    """Group the parts whose values are nearly the first one's, in order."""
    found: list[list[str]] = []
    for part in sorted(parts, key=lambda part: values[part]):
        if found and values[part] - values[found[-1][0]] < near:
            found[-1].append(part)
        else:
            found.append([part])
    return found


def _spread(
    classes: list[list[str]], apart: Callable[[str, str], float | None]
) -> dict[str, float]:
    """Return the least position of each class at which all pairs are as far apart as they have to be."""
    at: dict[str, float] = {}
    last = 0.0
    for number, each in enumerate(classes):
        place = last + STEP if number else 0.0
        for part in each:
            for before in at:
                least = apart(before, part)
                if least is not None:
                    place = max(place, at[before] + least)
        for part in each:
            at[part] = place
        last = place
    return at
