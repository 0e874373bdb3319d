"""What parts of a drawing are painted of: texts, headers, chips, tags, rings."""

from __future__ import annotations

from functools import cache, lru_cache

from msgspec import Struct
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetricsF,
    QPainter,
    QPainterPath,
    QPen,
    QStaticText,
)

from app.diagram.layout import HEADER
from app.observe.figures import NONFINITE
from app.views.ui import icons
from app.views.ui.theme import ROLES, Theme, current, faded, heat, mix, scene_font

MARKS = {
    "added": "run",
    "removed": "error",
    "moved": "accent",
    "changed": "warn",
}  # tokens of what differs
HEAT = 4.0  # height of a strip of the heat ramp
MARKED = 0.12  # share of its colour in what is marked


@cache
def _picture_font(role: str) -> QFont:
    """Return the role's font in whole pixels."""
    result = scene_font(role)
    result.setPixelSize(round(ROLES[role][0]))
    return result


@cache
def _metrics(role: str) -> tuple[QFontMetricsF, float]:
    """Return the metrics of a role's font, and its height."""
    metrics = QFontMetricsF(_picture_font(role))
    return metrics, metrics.height()


@lru_cache(maxsize=4096)
def text_width(text: str, role: str) -> float:
    return _metrics(role)[0].horizontalAdvance(text)


class Text:
    """A line of text with its place in a face. `color` is a token."""

    __slots__ = (
        "text",
        "x",
        "middle",
        "color",
        "width",
        "_font",
        "_static",
        "_height",
    )

    def __init__(
        self, text: str, role: str, x: float, middle: float, color: str = "text"
    ) -> None:
        self.text, self.x, self.middle, self.color = text, x, middle, color
        self._font = _picture_font(role)
        self.width = text_width(text, role)
        self._height = _metrics(role)[1]
        self._static: QStaticText | None = None

    def paint(self, painter: QPainter, color: QColor) -> None:
        painter.setFont(self._font)
        painter.setPen(color)
        top = self.middle - self._height / 2
        if self._static is None:
            self._static = QStaticText(self.text)
            self._static.setTextFormat(Qt.TextFormat.PlainText)
            self._static.prepare(font=self._font)
        painter.drawStaticText(QPointF(self.x, top), self._static)


class ItemState(Struct, frozen=True):
    """The current state of a box or a group."""

    hovered: bool = False
    selected: bool = False
    linked: bool = False
    dimmed: bool = False


PLAIN = ItemState()


def paint_label(painter: QPainter, text: Text, color: QColor | None) -> None:
    """Paint a label centred at the origin; `color` overrides that of frame and text."""
    theme, width = current(), text.width + 14
    painter.setPen(QPen(color or theme.line2, 1))
    painter.setBrush(theme.canvas)
    painter.drawRoundedRect(QRectF(-width / 2, -8.5, width, 17), 8.5, 8.5)
    text.x, text.middle = -text.width / 2, 0.0
    text.paint(painter, color or theme.text2)


def fitting_tag(tags: tuple[str, ...], room: float) -> Text | None:
    """Return the first text that fits; None where none does."""
    return next(
        (Text(text, "axis", 0, 0) for text in tags if text_width(text, "axis") <= room),
        None,
    )


def tag_color(tag: Text, theme: Theme) -> QColor:
    return theme.error if NONFINITE in tag.text else theme.text2


def paint_tag(painter: QPainter, tag: Text, theme: Theme) -> None:
    color = tag_color(tag, theme)
    painter.setPen(QPen(theme.line3 if color == theme.text2 else color, 1))
    painter.setBrush(theme.panel)
    painter.drawRoundedRect(QRectF(tag.x - 4, tag.middle - 7, tag.width + 8, 14), 4, 4)
    tag.paint(painter, color)


def paint_heat(painter: QPainter, area: QRectF, radius: float, place: float) -> None:
    """Paint a strip along the lower edge in the colour of a place on the ramp, from 0 to 1."""
    shape, strip = QPainterPath(), QPainterPath()
    shape.addRoundedRect(area, radius, radius)
    strip.addRect(QRectF(area.x(), area.bottom() - HEAT, area.width(), HEAT))
    painter.fillPath(shape.intersected(strip), heat(place))


def mark_pen(color: QColor, mark: str) -> QPen:
    """Return the pen around what differs; what is gone has a dashed line."""
    return QPen(
        color, 1.5, Qt.PenStyle.DashLine if mark == "removed" else Qt.PenStyle.SolidLine
    )


def paint_header(
    painter: QPainter,
    theme: Theme,
    category: str,
    area: QRectF,
    radius: float,
    chevron: str,
    hovered: bool,
) -> None:
    """Paint the coloured header with chevron and category icon."""
    shape = QPainterPath()
    shape.addRoundedRect(area, radius, radius)
    strip = QPainterPath()
    strip.addRect(QRectF(area.x(), area.y(), area.width(), HEADER))
    painter.setPen(QPen(theme.line2, 1))
    painter.setBrush(
        mix(
            theme.raised,
            theme.categories[category],
            theme.header + (0.08 if hovered else 0.0),
        )
    )
    painter.drawPath(shape.intersected(strip))
    if chevron:
        icons.draw(painter, chevron, theme.text if hovered else theme.text3, 6, 5.5, 11)
        icons.draw(painter, category, theme.categories[category], 22, 4.5, 13)


def paint_chip(painter: QPainter, rect: QRectF, kind: str, theme: Theme) -> None:
    """Held for backward: the first series' colour; other tensors (parameters, inputs, buffers) plain; "more" bare."""
    if kind == "more":
        return
    saved = kind == "held"
    painter.setPen(QPen(faded(theme.series[0], 0.55) if saved else theme.line3, 1))
    painter.setBrush(faded(theme.series[0], 0.20) if saved else Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 3, 3)


def paint_rings(
    painter: QPainter, area: QRectF, radius: float, theme: Theme, state: ItemState
) -> None:
    """Paint the outline of a selected part, thinner if its layer is selected elsewhere."""
    if not (state.selected or state.linked):
        return
    width = 2.0 if state.selected else 1.5
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(theme.accent, width))
    out = 1.5 + width / 2
    painter.drawRoundedRect(
        area.adjusted(-out, -out, out, out), radius + out, radius + out
    )
