"""What lies under a point of the scene."""

from __future__ import annotations

from msgspec import Struct

from app.builder.graph import Edge
from app.views.canvas.items.faces import Pin


class Hit(Struct, frozen=True):
    """The target at a point of the scene: a port of a node, a node, a wire, one of its bends, a note, or nothing.

    `grip` names the edges of a note that are dragged, by the letters l, r, t, b. `inside` is the path to a node in an
    unfolded block; `folds` means that a press unfolds or folds the block at the end of that path.
    """

    node: str | None = None
    pin: Pin | None = None
    is_output: bool = False
    wire: Edge | None = None
    bend: int | None = None
    note: str | None = None
    grip: str = ""
    inside: tuple[str, ...] = ()
    folds: bool = False


NOTHING = Hit()
