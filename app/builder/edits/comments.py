"""Comments and frames: pure edits of a sheet's `comments`, in canvas pixels.

A frame moves its contents along: the nodes whose centre it covers, and the comments and frames that it encloses. Where
an edit or a layout moves nodes, frames and comments go along with them (`carried`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import astuple, replace

from app.builder.arrange import DEFAULT, Size
from app.builder.edits import edits
from app.builder.edits.edits import P
from app.builder.sheet import COMMENT, FRAME, Comment, Comments, Point, Positions, Sheet
from app.util.frozen import FrozenMap

PAD = 28.0  # between a frame and the nodes in it
TITLE_ROOM = 32.0  # the same at its top, for the title
LEAST_WIDTH, LEAST_HEIGHT = 64.0, 32.0

Sizes = Mapping[str, Size]


class Area(Struct, frozen=True):
    """An area by its sides."""

    left: float
    top: float
    right: float
    bottom: float

    def holds(self, other: Area) -> bool:
        return (
            self.left <= other.left
            and self.top <= other.top
            and self.right >= other.right
            and self.bottom >= other.bottom
        )

    def touches(self, other: Area) -> bool:
        return (
            self.left <= other.right
            and other.left <= self.right
            and self.top <= other.bottom
            and other.top <= self.bottom
        )

    @property
    def middle(self) -> Point:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


def rect_of(note: Comment) -> Area:
    """Return the area of a comment or frame."""
    return Area(note.x, note.y, note.x + note.width, note.y + note.height)


def node_rect(positions: Positions, sizes: Sizes, node: str) -> Area:
    """Return the area of a node that has a position."""
    x, y = positions[node]
    size = sizes.get(node, DEFAULT)
    return Area(x, y, x + size.width, y + size.height)


def fresh_id(comments: Comments) -> str:
    """Return an unused id of the form `c7`."""
    number = len(comments) + 1
    while f"c{number}" in comments:
        number += 1
    return f"c{number}"


# --- Making and changing ----------------------------------------------------------------------------------------


def add(sheet: P, note: Comment) -> tuple[P, str]:
    """Put a comment or frame on the sheet; returns its id too."""
    new = fresh_id(sheet.comments)
    return _with(sheet, sheet.comments.set(new, note)), new


def frame(
    sheet: P, nodes: Iterable[str], sizes: Sizes, text: str, notes: Iterable[str] = ()
) -> tuple[P, str]:
    """Put a frame round nodes and notes, of which there is one at least; returns its id too."""
    area = _round_about(sheet, nodes, notes, sizes)
    return add(sheet, _at(Comment(text, 0.0, 0.0, 0.0, 0.0, FRAME), area))


def fit(sheet: P, notes: Iterable[str], sizes: Sizes) -> P:
    """Shrink frames to their contents; an empty one stays unchanged."""
    comments = sheet.comments
    for note in notes:
        nodes, inner = inside(sheet.comments, sheet.positions, sizes, note)
        if comments[note].kind == FRAME and (nodes or inner):
            area = _round_about(sheet, nodes, inner, sizes)
            comments = comments.set(note, _at(comments[note], area))
    return _with(sheet, comments)


def write(sheet: P, note: str, text: str, height: float = 0.0) -> P:
    """Give a note another text; it becomes `height` high at least."""
    old = sheet.comments[note]
    return _with(
        sheet,
        sheet.comments.set(
            note, replace(old, text=text, height=max(old.height, height))
        ),
    )


def tint(sheet: P, notes: Iterable[str], color: str) -> P:
    """Give notes the colour of a category, "" for the plain one."""
    return _with(
        sheet,
        sheet.comments.update(
            {n: replace(sheet.comments[n], color=color) for n in notes}
        ),
    )


def resize(sheet: P, note: str, area: Area) -> P:
    """Give a note another area; it keeps a least width and height."""
    width, height = (
        max(area.right - area.left, LEAST_WIDTH),
        max(area.bottom - area.top, LEAST_HEIGHT),
    )
    resized = replace(
        sheet.comments[note], x=area.left, y=area.top, width=width, height=height
    )
    return _with(sheet, sheet.comments.set(note, resized))


def remove(sheet: P, notes: Iterable[str]) -> P:
    """Remove notes, but not the contents of frames."""
    return _with(sheet, sheet.comments.without(*notes))


def shift(
    sheet: P, nodes: Iterable[str], notes: Iterable[str], dx: float, dy: float
) -> P:
    """Move nodes and notes together; bends of wires among the nodes go along."""
    moved = {note: sheet.comments[note] for note in notes if note in sheet.comments}
    comments = {
        key: replace(note, x=note.x + dx, y=note.y + dy) for key, note in moved.items()
    }
    return _with(edits.move(sheet, nodes, dx, dy), sheet.comments.update(comments))


# --- Contents of a frame ----------------------------------------------------------------------------------------


def inside(
    comments: Comments, positions: Positions, sizes: Sizes, note: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nodes and notes inside a frame; none for a comment. Of two equal frames the later is inside the
    earlier."""
    this = comments[note]
    if this.kind != FRAME:
        return (), ()
    area = rect_of(this)
    nodes = _covered(this, _middles(positions, sizes))
    order = list(comments)
    notes = tuple(
        other
        for other, value in comments.items()
        if other != note
        and area.holds(rect_of(value))
        and (rect_of(value) != area or order.index(other) > order.index(note))
    )
    return nodes, notes


def taken_along(
    sheet: Sheet, notes: Iterable[str], sizes: Sizes
) -> tuple[frozenset[str], frozenset[str]]:
    """Return all nodes and notes that move with some notes, themselves included."""
    nodes: set[str] = set()
    note_ids = set(notes)
    for note in tuple(note_ids):
        inner_nodes, inner = inside(sheet.comments, sheet.positions, sizes, note)
        nodes.update(inner_nodes)
        note_ids.update(inner)
    return frozenset(nodes), frozenset(note_ids)


def framed(
    comments: Comments, positions: Positions, sizes: Sizes
) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each frame, by the id of the frame."""
    frames = {key: note for key, note in comments.items() if note.kind == FRAME}
    middles = _middles(positions, sizes) if frames else []
    return {key: _covered(note, middles) for key, note in frames.items()}


def _middles(positions: Positions, sizes: Sizes) -> list[tuple[str, float, float]]:
    """Return the centre of each node, computed once for all frames."""
    centres = []
    for node, (x, y) in positions.items():
        size = sizes.get(node, DEFAULT)
        centres.append((node, x + size.width / 2, y + size.height / 2))
    return centres


def _covered(note: Comment, middles: list[tuple[str, float, float]]) -> tuple[str, ...]:
    left, top, right, bottom = note.x, note.y, note.x + note.width, note.y + note.height
    return tuple(
        node for node, x, y in middles if left <= x <= right and top <= y <= bottom
    )


def touched(comments: Comments, area: Area) -> frozenset[str]:
    """Return the notes that a marquee selects: comments that it touches, and frames that it encloses."""
    return frozenset(
        key
        for key, note in comments.items()
        if (
            area.touches(rect_of(note))
            if note.kind == COMMENT
            else area.holds(rect_of(note))
        )
    )


def _round_about(
    sheet: Sheet, nodes: Iterable[str], notes: Iterable[str], sizes: Sizes
) -> Area:
    """Return the area of a frame about nodes and notes."""
    areas = [
        node_rect(sheet.positions, sizes, node)
        for node in nodes
        if node in sheet.positions
    ]
    areas += [rect_of(sheet.comments[note]) for note in notes]
    if not areas:
        raise ValueError("a frame needs at least one node")
    return _about(_hull(areas))


def _with_room_for(
    area: Area, positions: Positions, nodes: Iterable[str], sizes: Sizes
) -> Area:
    """Return the area of a frame with room for those of these nodes that came into it."""
    there = _middles(FrozenMap({node: positions[node] for node in nodes}), sizes)
    into = _covered(_at(Comment("", 0.0, 0.0, 0.0, 0.0), area), there)
    return _hull([area, *(_about(node_rect(positions, sizes, n)) for n in into)])


def _hull(areas: Iterable[Area]) -> Area:
    lefts, tops, rights, bottoms = zip(*map(astuple, areas), strict=True)
    return Area(min(lefts), min(tops), max(rights), max(bottoms))


def _about(area: Area) -> Area:
    """Return the area of a frame that is fitted to its contents."""
    return Area(
        area.left - PAD, area.top - TITLE_ROOM, area.right + PAD, area.bottom + PAD
    )


def _at(note: Comment, area: Area) -> Comment:
    width, height = area.right - area.left, area.bottom - area.top
    return replace(note, x=area.left, y=area.top, width=width, height=height)


def _with(sheet: P, comments: Comments) -> P:
    return edits.changed(sheet, comments=comments)


# --- Along with nodes -------------------------------------------------------------------------------------------


def moved_along(sheet: P, before: Positions, positions: Positions, sizes: Sizes) -> P:
    """Put the nodes of an edited sheet at `positions`; what belongs to those that make way goes along.

    `before` is where they stood. A node that the edit took from there, without giving it another position, leaves its
    frame. Bends move with both ends of their wire.
    """
    comments = carried(
        sheet.comments,
        before.update(sheet.positions),
        positions,
        sizes,
        sheet.positions.keys(),
    )
    moved = edits.move_nodes(sheet, positions)
    return edits.changed(moved, positions=positions, comments=comments)


def carried(
    comments: Comments,
    before: Positions,
    after: Positions,
    sizes: Sizes,
    framed_nodes: Collection[str] = (),
    fit_frames: bool = False,
) -> Comments:
    """Move notes with their nodes: a frame keeps its room around those in it, or is fitted to them; a comment follows
    the nearest one. Notes of no moved node stay.

    Frames follow those of `framed_nodes`, or all nodes in them where none of these is.
    """
    notes = dict(comments)
    added = after.keys() - framed_nodes if framed_nodes else ()
    for key, nodes in framed(comments, before, sizes).items():
        followed = [node for node in nodes if node in framed_nodes] or nodes
        there = [node for node in followed if node in after]
        if any(after[node] != before[node] for node in there):
            old = _hull(node_rect(before, sizes, node) for node in nodes)
            new = _hull(node_rect(after, sizes, node) for node in there)
            area = _about(old) if fit_frames else rect_of(notes[key])
            moved = Area(
                area.left + new.left - old.left,
                area.top + new.top - old.top,
                area.right + new.right - old.right,
                area.bottom + new.bottom - old.bottom,
            )
            notes[key] = _at(notes[key], _with_room_for(moved, after, added, sizes))
    for key, note in comments.items():
        if note.kind == COMMENT and before:
            middle = rect_of(note).middle
            nearest = min(
                before, key=lambda n: _distance(node_rect(before, sizes, n), middle)
            )
            (x, y), (to_x, to_y) = before[nearest], after.get(nearest, before[nearest])
            notes[key] = replace(note, x=note.x + to_x - x, y=note.y + to_y - y)
    return FrozenMap(notes)


def _distance(area: Area, point: Point) -> float:
    dx = max(area.left - point[0], 0.0, point[0] - area.right)
    dy = max(area.top - point[1], 0.0, point[1] - area.bottom)
    return dx * dx + dy * dy
