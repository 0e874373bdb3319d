"""Names of nodes in a zoomed-out graph: as large on the screen as they can be read, without details."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter

from app.views.ui import theme
from app.views.ui.widgets.painting import TextLine, elided

SIMPLE = 0.35  # under this zoom a large graph is painted simply, by an `Overview`
SIMPLE_FEW = 0.15  # and one of few nodes, whose names are written as long as there is room for some letters
FEW = 200  # nodes
SMALLEST = 9.0  # pixels on the screen of a name; where the drawing is smaller, names and kinds fill the nodes
LEGIBLE = (
    SMALLEST / theme.ROLES["node"][0]
)  # under this zoom only names and kinds are written
SQUEEZED = 0.75  # how narrow letters become, to fit a name into its node
LOWERED = 0.7  # how much lower, too, before a name is cut
TIGHT = 0.8  # height of a line of a small name, of that of its font

TEXTS = 1024  # that stay laid out

Name = tuple[str, QColor]


def simple_below(nodes: int) -> float:
    """Return the zoom under which a graph of `nodes` nodes is painted simply, without names."""
    return SIMPLE_FEW if nodes <= FEW else SIMPLE


def fits(name: str, width: float, zoom: float) -> bool:
    """Return whether a name can be written in a width of the scene without lower letters."""
    return _line_of(name).width * LEGIBLE / zoom * SQUEEZED <= width


def line_height(zoom: float) -> float:
    """Return the height of a line of a small name, in the scene."""
    return TIGHT * _line_of("").height * LEGIBLE / zoom


def paint_names(
    painter: QPainter, area: QRectF, names: Sequence[Name], zoom: float
) -> None:
    """Write the first name, and of the others below it those that have room, in the middle of an area of the scene."""
    scale = LEGIBLE / zoom  # of a text, so that it has `SMALLEST` pixels on the screen
    row_height = line_height(zoom)
    shown = names[: max(int(area.height() / row_height), 1)]
    top = area.top() + max((area.height() - row_height * len(shown)) / 2, 0.0)
    for text, ink in shown:
        _squeezed(
            painter,
            text,
            ink,
            QRectF(area.left(), top, area.width(), row_height),
            scale,
        )
        top += row_height


def _squeezed(
    painter: QPainter, text: str, ink: QColor, area: QRectF, scale: float
) -> None:
    """Write a text in the middle of an area: in narrower letters, then smaller ones, cut where that does not do."""
    line = _line_of(text, round(max(area.width(), 0.0) / scale / (SQUEEZED * LOWERED)))
    wide = min(1.0, area.width() / (line.width * scale)) if line.width else 1.0
    high = min(1.0, wide / SQUEEZED)
    painter.save()
    painter.translate(
        area.left() + max((area.width() - line.width * scale * wide) / 2, 0.0),
        area.center().y(),
    )
    painter.scale(scale * wide, scale * high)
    line.draw(painter, 0, -line.height / 2, ink)
    painter.restore()


@lru_cache(maxsize=TEXTS)
def _line_of(text: str, width: float | None = None) -> TextLine:
    return (
        TextLine(text, "node", scene=True)
        if width is None
        else elided(text, "node", width, scene=True)
    )


def forget_fonts() -> None:
    """Clear the laid-out names after a change of fonts."""
    _line_of.cache_clear()
