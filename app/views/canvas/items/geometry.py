"""Where everything is: sizes of nodes, places of ports, the grid. How it looks is the painter's; wires are `routes`."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QFontMetricsF

from app.builder.arrange import GRID, Size
from app.views.canvas.items.faces import Face
from app.views.ui.theme import scene_font

NARROWEST, WIDEST = 76.0, 160.0
WIDEST_NAMED = 220.0  # where its name needs it
TALL, SHORT, STRIP = 72.0, 50.0, 8.0
PICTURES = 58.0  # height of a strip of pictures
HEADER = 27.0
INSET = 11.0
ICON = QRectF(8, 8, 14, 14)
NAME_LEFT = 28.0
NAME_BASE, LINE_BASE, DETAIL_BASE = 19.5, 43.5, 61.0
BADGE_PAD = 5.0
PORT_SPREAD, PORT_CLOSEST, PORT_MARGIN = 20.0, 14.0, 8.0
PORT_REACH = 10.0  # how far from a port a press still means it
OUTLINE = 9.0  # painted round a node: ports, selection, the running ring, the ring of a port that fits


class Shape(Struct, frozen=True):
    """A node's size and the y of its ports from its top. `base` is the height without the `strip` below, `line` the y
    of the ports if that is not the middle."""

    width: float
    base: float
    strip: float
    inputs: tuple[float, ...]
    outputs: tuple[float, ...]
    line: float | None = None

    @property
    def height(self) -> float:
        return self.base + self.strip

    @property
    def anchor(self) -> float:
        """Return the y of the port line, by which nodes are aligned."""
        return self.base / 2 if self.line is None else self.line

    @property
    def rect(self) -> QRectF:
        return QRectF(0, 0, self.width, self.height)

    @property
    def size(self) -> Size:
        return Size(self.width, self.height, self.anchor)

    def input(self, number: int) -> QPointF:
        return QPointF(0, self.inputs[number])

    def output(self, number: int) -> QPointF:
        return QPointF(self.width, self.outputs[number])


def beside_name(face: Face) -> float:
    """Return the width of icon, count and block sign right of the name."""
    badge = (
        text_width(face.badge, "caption") + 2 * BADGE_PAD + 4.0 if face.badge else 0.0
    )
    return badge + (20.0 if face.signed else 0.0) + (14.0 if face.block else 0.0)


def fold_area(face: Face, shape: Shape) -> QRectF:
    """Return the area that unfolds or folds a block on press, from its top left corner; empty for other nodes."""
    if not face.block:
        return QRectF()
    right = shape.width - INSET + 3 - (20.0 if face.signed else 0.0)
    return QRectF(right - 16, 4, 20, 20)


@lru_cache(maxsize=8192)
def text_width(text: str, role: str) -> float:
    """Return the width of a text in the font of a role."""
    return QFontMetricsF(scene_font(role)).horizontalAdvance(text)


def forget_fonts() -> None:
    """Clear cached widths after a change of fonts."""
    text_width.cache_clear()


def snapped(point: QPointF, anchor: float) -> QPointF:
    """Return the top left corner nearest to `point` with left edge and port line on the grid."""
    return QPointF(
        round(point.x() / GRID) * GRID,
        round((point.y() + anchor) / GRID) * GRID - anchor,
    )
