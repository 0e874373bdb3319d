"""What a point of the scene means."""

from __future__ import annotations

from dataclasses import dataclass

from app.builder.graph import Edge
from app.views.canvas.faces import Pin


@dataclass(frozen=True)
class Hit:
    """What a point of the scene means: a port of a node, a node, a wire, its bend of a number, a note, or nothing.

    `grip` says which edges of a note are taken hold of, by the letters l, r, t, b. `inside` is the way to a node in a
    block that is unfolded; `folds` says that a press folds or unfolds the block, the one at the end of that way.
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
