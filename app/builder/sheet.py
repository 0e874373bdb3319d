"""The sheet that a canvas edits: a graph, node positions, comments and bends of wires.

A project is one such sheet, and so is every block; edits take either. `unfolded` are the instances of blocks that are
shown expanded in place.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from app.builder.graph import Edge, Graph
from app.util.frozen import FrozenMap

Point = tuple[float, float]
Positions = FrozenMap[str, Point]
# Points that a wire is led through, from its source to its target.
Bends = FrozenMap[Edge, tuple[Point, ...]]

FRAME, COMMENT = "frame", "comment"
KINDS = (FRAME, COMMENT)


class Comment(Struct, frozen=True):
    """Text on the canvas. A frame is drawn behind the nodes in it and moves them along.

    `color` is a category of the palette, "" for the plain one; `x`, `y` is the top left corner.
    """

    text: str
    x: float
    y: float
    width: float
    height: float
    kind: str = COMMENT
    color: str = ""


Comments = FrozenMap[str, Comment]


class Sheet(Protocol):
    """The part of a project, or of a block, that edits on a canvas change."""

    @property
    def graph(self) -> Graph: ...

    @property
    def positions(self) -> Positions: ...

    @property
    def comments(self) -> Comments: ...

    @property
    def bends(self) -> Bends: ...

    @property
    def unfolded(self) -> frozenset[str]: ...


S = TypeVar("S", bound=Sheet)


def changed(sheet: S, **parts: Any) -> S:
    """Replace parts of a sheet, dropping the bends of deleted wires and the unfolded state of deleted nodes."""
    after = cast(
        S,
        replace(
            cast(Any, sheet),
            **{
                name: new_value
                for name, new_value in parts.items()
                if new_value is not None
            },
        ),
    )
    if after.unfolded and not after.unfolded <= after.graph.nodes.keys():
        after = cast(
            S,
            replace(
                cast(Any, after), unfolded=after.unfolded & after.graph.nodes.keys()
            ),
        )
    if not after.bends or after.graph is sheet.graph:
        return after
    wires = set(after.graph.edges)
    remaining_bends = FrozenMap(
        {edge: points for edge, points in after.bends.items() if edge in wires}
    )
    return (
        after
        if len(remaining_bends) == len(after.bends)
        else cast(S, replace(cast(Any, after), bends=remaining_bends))
    )
