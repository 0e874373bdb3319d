"""Places of a drawing that its owner arranged: the arrangement stays, the gaps shrink to what labels and wires need.

Boxes of one column or one row stay aligned. Each direction is a longest path over pairs of boxes that would meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from app.diagram.arrange import Sizes
from app.diagram.diagram import Drawing
from app.diagram.layout_model import Point, Rect

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
    frames: dict[int, Rect] = {}
    for number in sorted(
        range(len(drawing.frames)),
        key=lambda number: len(drawing.frames[number].members),
    ):
        members = drawing.frames[number].members
        inner = [rects[id] for id in members if id in rects]
        inner += [
            rect
            for other, rect in frames.items()
            if drawing.frames[other].members <= members
        ]
        if inner:
            left, top = (
                min(rect.x for rect in inner) - FRAME_SIDE,
                min(rect.y for rect in inner) - FRAME_TOP,
            )
            right, bottom = (
                max(rect.right for rect in inner) + FRAME_SIDE,
                max(rect.bottom for rect in inner) + FRAME_SIDE,
            )
            frames[number] = Rect(left, top, right - left, bottom - top)
    return [frames[number] for number in sorted(frames)]


def _corners(drawing: Drawing, sizes: Sizes) -> dict[str, Point]:
    """Return the corners of the boxes, from (0, 0)."""
    parts, positions, size = (
        [box.id for box in drawing.boxes],
        drawing.places,
        sizes.boxes,
    )
    wires: dict[tuple[str, str], str] = {}
    for arrow in drawing.arrows:
        if arrow.source != arrow.target:
            wires.setdefault((arrow.source, arrow.target), arrow.label)
    around = {
        box_id: frozenset(
            number
            for number, frame in enumerate(drawing.frames)
            if box_id in frame.members
        )
        for box_id in parts
    }
    columns = _classes(
        parts, {box_id: positions[box_id][0] for box_id in parts}, COLUMN
    )
    rows = _classes(parts, {box_id: positions[box_id][1] for box_id in parts}, LEVEL)

    back = [(a, b) for a, b in wires if positions[b][0] < positions[a][0] + 2 * COLUMN]
    leave, arrive = {a for a, _ in back}, {b for _, b in back}

    def beside(a: str, b: str) -> float | None:
        if abs(positions[a][1] - positions[b][1]) >= BESIDE:
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
    corners = {
        box_id: (x[box_id], middle[box_id] - size[box_id][1] / 2) for box_id in parts
    }
    left, top = (
        min(at[0] for at in corners.values()),
        min(at[1] for at in corners.values()),
    )
    return {box_id: (at[0] - left, at[1] - top) for box_id, at in corners.items()}


def _classes(
    parts: Sequence[str], values: Mapping[str, float], near: float
) -> list[list[str]]:
    """Group the parts whose values are nearly the first one's, in order."""
    classes: list[list[str]] = []
    for box_id in sorted(parts, key=lambda name: values[name]):
        if classes and values[box_id] - values[classes[-1][0]] < near:
            classes[-1].append(box_id)
        else:
            classes.append([box_id])
    return classes


def _spread(
    classes: list[list[str]], apart: Callable[[str, str], float | None]
) -> dict[str, float]:
    """Return the least position of each class at which all pairs are as far apart as they have to be."""
    at: dict[str, float] = {}
    last = 0.0
    for number, members in enumerate(classes):
        coordinate = last + STEP if number else 0.0
        for member in members:
            for before in at:
                least = apart(before, member)
                if least is not None:
                    coordinate = max(coordinate, at[before] + least)
        for member in members:
            at[member] = coordinate
        last = coordinate
    return at
