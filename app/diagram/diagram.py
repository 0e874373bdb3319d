"""A neutral picture of any graph: boxes, arrows and groups.

The owner of a graph (the builder, autograd) converts it to a `Drawing`; layout, painter and Graphviz know only that.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from app.util.errors import CodedError
from app.util.frozen import FrozenMap

Shape = Literal["op", "leaf", "folded", "call"]
Direction = Literal["LR", "RL", "TB", "BT"]
Mark = Literal["", "added", "removed", "moved", "changed"]


class DrawingError(CodedError, ValueError):
    """A drawing whose parts are inconsistent; the message names the part."""


class Chip(Struct, frozen=True):
    """A small label inside a box. `kind` is "held" (memory kept for backward), "parameter", "buffer" or "input"."""

    text: str
    kind: str = "held"


class Box(Struct, frozen=True):
    """One node. `group` is the id of its group. A "call" has its subtitle and lines below its title.

    `under` is the id of a box under which this one hangs (a parameter under its operation) instead of a position in the
    row. `link` is the node on the canvas that it represents, if any. `tags` are texts for a tag at its lower edge, from
    the longest to the shortest, of which the first that fits is shown: the layout leaves no room for them, so they come
    and go without moving anything. `mark` says how it differs in a picture of two graphs, in colour; its texts say it
    too. `paths` lead to the modules that it stands for; `heat` is the place of its number on the picture's scale.
    """

    id: str
    title: str
    subtitle: str = ""
    lines: tuple[str, ...] = ()
    category: str = "io"
    shape: Shape = "op"
    group: str | None = None
    chips: tuple[Chip, ...] = ()
    under: str | None = None
    link: str | None = None
    tags: tuple[str, ...] = ()
    mark: Mark = ""
    paths: tuple[str, ...] = ()
    heat: float | None = None


class Arrow(Struct, frozen=True):
    """From box to box. `kind` is "gradient" or "wire"; `count` is the number of edges it represents."""

    source: str
    target: str
    label: str = ""
    kind: str = "wire"
    count: int = 1


class Group(Struct, frozen=True):
    """A named frame around boxes. `caption` is right-aligned in its title (a subtotal), the first of `tags` that fits
    is left of it; see `Box`."""

    id: str
    title: str
    category: str = "io"
    parent: str | None = None
    caption: str = ""
    link: str | None = None
    tags: tuple[str, ...] = ()
    mark: Mark = ""
    paths: tuple[str, ...] = ()
    heat: float | None = None


class Scale(Struct, frozen=True):
    """What the colours of a picture stand for, with the texts of the lowest and the highest number."""

    caption: str
    low: str
    high: str


class Frame(Struct, frozen=True):
    """A titled frame that the owner put around boxes, by id, where they are arranged by `places`."""

    title: str
    members: frozenset[str]
    category: str = ""


class Drawing(Struct, frozen=True):
    """`direction` is that of the arrows: "LR" for data, "RL" for gradients, whose layers keep their forward order.

    `places` are the corners of boxes, if their owner arranged them; then `frames` are around some. `scale` is the
    legend of the boxes that have a `heat`.

    Raises `DrawingError` for duplicate ids and dangling references.
    """

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...] = ()
    groups: tuple[Group, ...] = ()
    direction: Direction = "LR"
    title: str = ""
    places: FrozenMap[str, tuple[float, float]] = FrozenMap()
    frames: tuple[Frame, ...] = ()
    scale: Scale | None = None

    def __post_init__(self) -> None:
        boxes = {box.id for box in self.boxes}
        groups = {group.id for group in self.groups}
        if len(boxes) < len(self.boxes) or len(groups) < len(self.groups):
            raise DrawingError(
                "two boxes or two groups of the drawing have the same id"
            )
        for box in self.boxes:
            if box.group is not None and box.group not in groups:
                raise DrawingError(
                    f"the box {box.id} is in the group {box.group}, which does not exist"
                )
            if box.under is not None and box.under not in boxes:
                raise DrawingError(
                    f"the box {box.id} is a child of {box.under}, which does not exist"
                )
        for arrow in self.arrows:
            if arrow.source not in boxes or arrow.target not in boxes:
                raise DrawingError(
                    f"the arrow {arrow.source} -> {arrow.target} leads to a box that does not exist"
                )
        _check_nesting(self.groups)


def _check_nesting(groups: tuple[Group, ...]) -> None:
    parents = {group.id: group.parent for group in groups}
    for group in groups:
        visited, above = {group.id}, group.parent
        while above is not None:
            if above not in parents:
                raise DrawingError(
                    f"the group {group.id} is in {above}, which does not exist"
                )
            if above in visited:
                raise DrawingError(f"the group {group.id} contains itself")
            visited.add(above)
            above = parents[above]
