"""Places of a drawing that its owner arranged: the arrangement stays, the gaps shrink to what labels and wires need.

Boxes of one column or one row stay aligned. Each direction is a longest path over pairs of boxes that would meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.diagram.diagram import Drawing
from app.diagram.layout.arrange import HEADER, PAD, Sizes
from app.diagram.layout.model import Point
from app.diagram.layout.tree_layout import Rect
from app.util.late_dataclass import dataclass

MOST = 1200  # parts of a group; all pairs of them are compared
GAP, ROW_GAP, WIRE = 26.0, 24.0, 16.0  # between columns, between rows, and for wires that run back between two rows
FRAME_SIDE, FRAME_TOP = 10.0, 22.0  # between a frame and what is in it, or around it
TURNS = 42.0  # between columns, where wires that run back leave and arrive
COLUMN, LEVEL = 12.0, 20.0  # parts nearer than this are in one column, or in one row
BESIDE = 60.0  # parts that are nearer than this in y would meet in x
STEP = 8.0  # between two columns, or rows, that have nothing beside or above each other


@dataclass(frozen=True)
class Places:
    """Rectangles by id, all within `width` x `height`; `frames` are those of the drawing, in its order."""

    boxes: Mapping[str, Rect]
    groups: Mapping[str, Rect]
    width: float
    height: float
    frames: tuple[Rect, ...] = ()


def keep_places(drawing: Drawing, sizes: Sizes) -> Places | None:
    """Place boxes and groups as `drawing.places` has them; None if one has no place, or there are very many."""
    members: dict[str | None, list[str]] = {None: []}
    size: dict[str, Point] = {}
    for box in drawing.boxes:
        members.setdefault(box.group, []).append(f"box {box.id}")
        size[f"box {box.id}"] = sizes.boxes[box.id]
    for group in drawing.groups:
        members.setdefault(group.parent, []).append(f"group {group.id}")
    if any(len(each) > MOST for each in members.values()):
        return None
    places = {f"{kind} {id}": at for id, at in drawing.places.items() for kind in ("box", "group")}
    if any(name not in places for each in members.values() for name in each):
        return None
    wires = _wires_by_group(drawing)
    inside: dict[str | None, dict[str, Point]] = {}
    deepest = sorted(drawing.groups, key=lambda group: -_depth(drawing, group.id))
    for key in [*(group.id for group in deepest), None]:
        parts = members.get(key, [])
        frames = [frozenset(f"{kind} {id}" for id in frame.members for kind in ("box", "group"))
                  for frame in drawing.frames if key is None]  # fmt: skip
        inside[key], width, height = _placed(parts, places, size, wires.get(key, {}), sizes, frames)
        if key is not None:
            wide = max(width + 2 * PAD, sizes.headers.get(key, 0.0))
            size[f"group {key}"] = (wide, height + HEADER + 2 * PAD)
    return _absolute(drawing, members, inside, size)


def _absolute(
    drawing: Drawing, members: Mapping[str | None, list[str]], inside: Mapping[str | None, Mapping[str, Point]],
    size: Mapping[str, Point],
) -> Places:  # fmt: skip
    boxes: dict[str, Rect] = {}
    groups: dict[str, Rect] = {}
    todo: list[tuple[str | None, float, float]] = [(None, 0.0, 0.0)]
    while todo:
        key, left, top = todo.pop()
        for name in members.get(key, ()):
            (x, y), (width, height) = inside[key][name], size[name]
            rect = Rect(left + x, top + y, width, height)
            kind, _, id = name.partition(" ")
            if kind == "box":
                boxes[id] = rect
            else:
                groups[id] = rect
                todo.append((id, rect.x + PAD, rect.y + HEADER + PAD))
    every = [*boxes.values(), *groups.values()]
    frames = _frames(drawing, boxes | groups)
    every += frames
    return Places(boxes, groups, max(rect.right for rect in every), max(rect.bottom for rect in every), tuple(frames))


def _frames(drawing: Drawing, rects: Mapping[str, Rect]) -> list[Rect]:
    """Return the rectangles of the frames: around their members, and around the frames that are in them."""
    found: dict[int, Rect] = {}
    for number in sorted(range(len(drawing.frames)), key=lambda number: len(drawing.frames[number].members)):
        members = drawing.frames[number].members
        inner = [rects[id] for id in members if id in rects]
        inner += [rect for other, rect in found.items() if drawing.frames[other].members <= members]
        if inner:
            left, top = min(one.x for one in inner) - FRAME_SIDE, min(one.y for one in inner) - FRAME_TOP
            right, bottom = max(one.right for one in inner) + FRAME_SIDE, max(one.bottom for one in inner) + FRAME_SIDE
            found[number] = Rect(left, top, right - left, bottom - top)
    return [found[number] for number in sorted(found)]


def _depth(drawing: Drawing, group: str | None) -> int:
    parents = {each.id: each.parent for each in drawing.groups}
    depth = 0
    while group is not None:
        group, depth = parents[group], depth + 1
    return depth


def _wires_by_group(drawing: Drawing) -> dict[str | None, dict[tuple[str, str], str]]:
    """Return the label of the wire between two parts of a group: where both of its ends are, or the groups around."""
    parents = {group.id: group.parent for group in drawing.groups}
    around = {box.id: box.group for box in drawing.boxes}

    def chain(box: str) -> list[tuple[str | None, str]]:
        """Return the groups around a box, the nearest first, each with its part that holds the box."""
        found, name, group = [], f"box {box}", around[box]
        while True:
            found.append((group, name))
            if group is None:
                return found
            name, group = f"group {group}", parents[group]

    wires: dict[str | None, dict[tuple[str, str], str]] = {}
    for arrow in drawing.arrows:
        one, other = chain(arrow.source), dict(chain(arrow.target))
        shared, source = next((group, part) for group, part in one if group in other)
        if source != other[shared]:
            wires.setdefault(shared, {}).setdefault((source, other[shared]), arrow.label)
    return wires


def _placed(
    parts: Sequence[str], places: Mapping[str, Point], size: Mapping[str, Point],
    wires: Mapping[tuple[str, str], str], sizes: Sizes, frames: Sequence[frozenset[str]],
) -> tuple[dict[str, Point], float, float]:  # fmt: skip
    """Return the corners of the parts, from (0, 0), and the size of all."""
    around = {part: frozenset(number for number, frame in enumerate(frames) if part in frame) for part in parts}
    if not parts:
        return {}, 0.0, 0.0
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
    crowded = {a for (a, b) in wires if x[b] < x[a] + size[a][0]} | {b for (a, b) in wires if x[b] < x[a] + size[a][0]}

    def below(a: str, b: str) -> float | None:
        if x[a] >= x[b] + size[b][0] + GAP / 2 or x[b] >= x[a] + size[a][0] + GAP / 2:
            return None
        more = WIRE if a in crowded or b in crowded else 0.0
        return (size[a][1] + size[b][1]) / 2 + ROW_GAP + more + FRAME_TOP * len(around[a] ^ around[b])

    middle = _spread(rows, below)
    corners = {part: (x[part], middle[part] - size[part][1] / 2) for part in parts}
    left, top = min(at[0] for at in corners.values()), min(at[1] for at in corners.values())
    corners = {part: (at[0] - left, at[1] - top) for part, at in corners.items()}
    right = max(at[0] + size[part][0] for part, at in corners.items())
    bottom = max(at[1] + size[part][1] for part, at in corners.items())
    return corners, right, bottom


def _classes(parts: Sequence[str], values: Mapping[str, float], near: float) -> list[list[str]]:
    """Group the parts whose values are nearly the first one's, in order."""
    found: list[list[str]] = []
    for part in sorted(parts, key=lambda part: values[part]):
        if found and values[part] - values[found[-1][0]] < near:
            found[-1].append(part)
        else:
            found.append([part])
    return found


def _spread(classes: list[list[str]], apart: Callable[[str, str], float | None]) -> dict[str, float]:
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
