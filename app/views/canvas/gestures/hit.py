"""Hit testing on the scene."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF

from app.builder.graph import Edge
from app.util.late_dataclass import dataclass
from app.views.canvas.items.faces import Pin
from app.views.canvas.items.geometry import PORT_REACH
from app.views.ui.graphview.small_names import SIMPLE

if TYPE_CHECKING:
    from app.views.canvas.scene import CanvasScene


@dataclass(frozen=True)
class Hit:
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


def hit_in(scene: CanvasScene, point: QPointF, zoom: float) -> Hit:
    """Return the target at a point: ports before nodes before wires."""
    reach = max(PORT_REACH, min(PORT_REACH / zoom, 18.0))
    near = QRectF(point.x() - reach, point.y() - reach, 2 * reach, 2 * reach)
    found = [scene.nodes[node] for node in scene.index.inside(near)]
    under = sorted(found, key=lambda item: item.level, reverse=True)
    for item in under:
        port = item.port_at(point, reach)
        if port is not None:
            return Hit(item.node, port[2], port[0])
    for item in under:
        if item.body.contains(point):
            way, folds = item.within(point)
            return Hit(item.node, inside=way, folds=folds and zoom >= SIMPLE)
    bend = scene.bends.bend_at(point, zoom)
    if bend is not None:
        return Hit(wire=bend[0], bend=bend[1])
    wire = scene.wiring.wire_at(point)
    if wire is not None:
        return Hit(wire=wire)
    note = scene.notes.note_at(point, zoom)
    return Hit(note=note[0], grip=note[1]) if note is not None else NOTHING
