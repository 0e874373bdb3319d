"""How a node looks. Texts and paths are made here once; painting only puts them down."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from math import isfinite, log10

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QImage,
    QPainter,
    QPainterPath,
    QPen,
    QPixmap,
)

from app.views.canvas.items import geometry
from app.views.canvas.items.faces import Face, Pin
from app.views.canvas.items.geometry import (
    BADGE_PAD,
    DETAIL_BASE,
    HEADER,
    ICON,
    INSET,
    LINE_BASE,
    NAME_BASE,
    NAME_LEFT,
    Shape,
    beside_name,
)
from app.views.ui import icons, theme
from app.views.ui.graphview import small_names
from app.views.ui.graphview.small_names import LEGIBLE
from app.views.ui.theme import Theme
from app.views.ui.widgets.painting import TextLine, elided

RADIUS = 6.0
CARDS = (
    (8.0, 10.0),
    (4.0, 5.0),
)  # of a block: how far each peeks out above, and how far it is set in
GROUND = 0.35  # how far the ground of an unfolded block is from the canvas to a node's
DOT, RING = 4.0, 6.0

TEXTS = 1024  # that stay laid out

FITS, REFUSES = "fits", "refuses"


class NodeLook:
    """A node's face made ready to paint in the theme in force."""

    def __init__(
        self, face: Face, shape: Shape, strip_words: str = "", counted: bool = False
    ) -> None:
        self.face, self.shape = face, shape
        self._sign = face.state if face.state in ("error", "warning") else _sign(face)
        room = shape.width - INSET - beside_name(face) - NAME_LEFT
        self._name = _line_of(face.name, "node", room)
        self._framed = face.inside is not None
        beside = NAME_LEFT + self._name.width + INSET if self._framed else INSET
        self._line = _line_of(
            face.line,
            "label",
            shape.width - beside - (beside_name(face) if self._framed else INSET),
        )
        self._detail = _line_of(
            strip_words or face.detail, "caption", shape.width - 2 * INSET
        )
        self._count = _line_of(face.count if counted and strip_words else "", "caption")
        self._badge = _line_of(face.badge, "caption")
        now = theme.current()
        categorised = face.category in now.categories
        self._category = now.categories[face.category if categorised else "block"]
        self._header = theme.header_fill(face.category if categorised else "block")
        self._icon = (
            "help"
            if face.state == "unknown"
            else face.category
            if categorised
            else "block"
        )
        self._icon_color = (
            "text3" if face.state == "unknown" or face.muted else self._category
        )
        if face.muted:
            self._category, self._header = now.line3, now.raised
        elif face.frozen:
            self._header = theme.mix(self._header, now.raised, 0.5)

    def paint(
        self, painter: QPainter, *, hovered: bool, selected: bool, zoom: float = 1.0
    ) -> None:
        """Paint the node without its ports, at the origin, with texts that can be read at a zoom."""
        now = theme.current()
        paths = _paths(self.shape.width, self.shape.height)
        painter.setPen(Qt.PenStyle.NoPen)
        if self._framed:
            painter.fillPath(
                paths.body,
                theme.mix(now.canvas, now.hover if hovered else now.raised, GROUND),
            )
        else:
            if self.face.block:
                self._cards(painter, now)
            painter.fillPath(paths.body, now.hover if hovered else now.raised)
        painter.fillPath(paths.header, self._header)
        painter.fillPath(paths.strip, self._category)
        if self.face.frozen:
            painter.save()
            painter.setClipPath(paths.header)
            painter.strokePath(paths.hatch, QPen(now.line2, 1))
            painter.restore()
        if self.face.muted and not self._framed:
            middle = self.shape.height / 2
            painter.strokePath(_line(self.shape.width, middle), QPen(now.line3, 1.5))
        self._outline(painter, now, paths, hovered=hovered, selected=selected)
        if zoom >= LEGIBLE:
            self._texts(painter, now)
        else:
            self._label(painter, now, zoom)

    def _cards(self, painter: QPainter, now: Theme) -> None:
        """Paint two cards behind a block, which show that it has contents."""
        for up, inset in CARDS:
            card = _round(
                QRectF(
                    inset + 0.5, 0.5 - up, self.shape.width - 2 * inset - 1, up + HEADER
                ),
                RADIUS - 1,
            )
            painter.fillPath(card, now.raised)
            painter.strokePath(card, QPen(now.line2, 1))

    def _outline(
        self,
        painter: QPainter,
        now: Theme,
        paths: _Paths,
        *,
        hovered: bool,
        selected: bool,
    ) -> None:
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if self.face.state == "error":
            pen = QPen(now.error, 1.5)
        elif selected:
            pen = QPen(now.accent, 1)
        else:
            pen = QPen(now.line3 if hovered else now.line2, 1)
            if self.face.state == "unknown" or self.face.muted:
                pen.setDashPattern([4, 3])
        painter.strokePath(paths.border, pen)
        if selected:
            painter.strokePath(paths.selection, QPen(now.accent, 2))

    def _label(self, painter: QPainter, now: Theme, zoom: float) -> None:
        """Write the name as large as it can be read, and below it the kind if there is room; no details."""
        left = 2.0 / zoom + 1.0
        room = self.shape.width - 2 * left
        name = (
            f"{self.face.name} {self.face.badge}" if self.face.badge else self.face.name
        )
        side = 9.0 / zoom
        # The outline tells the state, too: of a name that would be cut for it the sign is left out.
        if self._sign and small_names.fits(name, room - side, zoom):
            color = (
                icons.default_color(self._sign)
                if self._sign == self.face.state
                else "text2"
            )
            icons.draw(
                painter,
                self._sign,
                color,
                self.shape.width - side - left,
                3 + 1 / zoom,
                side,
            )
            room -= side
        kind = "" if self._framed else self.face.line.partition(" ")[0]
        names: list[small_names.Name] = [
            (name, now.text3 if self.face.muted else now.text)
        ]
        if kind:
            names.append((kind, now.text2))
        height = HEADER if self._framed else self.shape.height - 3
        body = self.shape.height - HEADER
        if len(names) > 1 and min(HEADER - 3, body) >= small_names.line_height(
            zoom
        ):  # each in its part of the node
            small_names.paint_names(
                painter, QRectF(left, 3, room, HEADER - 3), names[:1], zoom
            )
            small_names.paint_names(
                painter, QRectF(left, HEADER, room, body), names[1:], zoom
            )
            return
        small_names.paint_names(painter, QRectF(left, 3, room, height), names, zoom)

    def _texts(self, painter: QPainter, now: Theme) -> None:
        icons.draw(
            painter, self._icon, self._icon_color, ICON.x(), ICON.y(), ICON.width()
        )
        ink = now.text3 if self.face.muted else now.text
        self._name.draw(painter, NAME_LEFT, _top(self._name, "node", NAME_BASE), ink)
        if self._sign:
            color = (
                icons.default_color(self._sign)
                if self._sign == self.face.state
                else "text2"
            )
            icons.draw(painter, self._sign, color, self.shape.width - 23, 8, 14)
        self._beside_name(painter, ink)
        if self._framed:
            left = NAME_LEFT + self._name.width + INSET
            self._line.draw(
                painter, left, _top(self._line, "label", NAME_BASE), now.text2
            )
            return
        self._line.draw(painter, INSET, _top(self._line, "label", LINE_BASE), now.text2)
        if self._detail.text:
            self._detail.draw(
                painter, INSET, _top(self._detail, "caption", DETAIL_BASE), now.text3
            )
        if (
            self._count.text
            and self._detail.width + self._count.width
            < self.shape.width - 2 * INSET - 6
        ):
            left = self.shape.width - INSET - self._count.width
            self._count.draw(
                painter, left, _top(self._count, "caption", DETAIL_BASE), now.text3
            )

    def _beside_name(self, painter: QPainter, ink: QColor) -> None:
        """Paint the repetition count and the block sign right of the name."""
        right = self.shape.width - INSET + 3 - (20.0 if self.face.signed else 0.0)
        if self.face.block:
            icons.draw(
                painter,
                "chevron-down" if self._framed else "chevron-right",
                "text2",
                right - 11,
                9.5,
                11,
            )
            right -= 14
        if self.face.badge:
            width = self._badge.width + 2 * BADGE_PAD
            area = QRectF(right - width, 8, width, 15)
            painter.fillPath(_round(area, 7.5), theme.pill_fill(self.face.category))
            self._badge.draw_in(painter, area.left() + BADGE_PAD, area, ink)

    def paint_strip(self, painter: QPainter, cells: QPixmap) -> None:
        """Paint the gradient strip along the lower edge."""
        top = self.shape.height - self.shape.strip
        rect = QRectF(1, top, self.shape.width - 2, self.shape.strip - 1)
        painter.save()
        painter.setClipPath(_paths(self.shape.width, self.shape.height).inner)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, False)
        painter.drawPixmap(rect, cells, QRectF(cells.rect()))
        painter.restore()

    def paint_pictures(self, painter: QPainter, pictures: Sequence[QImage]) -> None:
        """Paint square pictures along the lower edge: one, or as many as there is room for in two rows."""
        gap = 3.0
        whole, room = self.shape.strip - INSET, self.shape.width - 2 * INSET
        rows = min(len(pictures), 2)
        side = (whole - gap * (rows - 1)) / rows
        across = max(1, int((room + gap) // (side + gap)))
        top = self.shape.height - self.shape.strip + gap
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.setPen(theme.current().line2)
        for number, picture in enumerate(pictures[: rows * across]):
            row, column = divmod(number, across)
            left = INSET + column * (side + gap)
            rect = QRectF(left, top + row * (side + gap), side, side)
            painter.drawImage(rect, picture)
            painter.drawRect(rect)
        painter.restore()


def paint_ports(
    painter: QPainter,
    look: NodeLook,
    selected: bool,
    marks: dict[tuple[bool, int], str],
) -> None:
    """Paint the ports of a node. `marks` says by (is an output, number) which ones a wire being drawn fits or not."""
    now = theme.current()
    for is_output, pins in ((False, look.face.inputs), (True, look.face.outputs)):
        for number, pin in enumerate(pins):
            port_point = (
                look.shape.output(number) if is_output else look.shape.input(number)
            )
            mark = marks.get((is_output, number))
            color = (
                now.accent
                if selected and pin.wired
                else now.wireIdle
                if pin.idle
                else now.wire
            )
            color = now.error if pin.error else color
            if mark is not None:
                color = now.run if mark == FITS else now.error
            paint_port(
                painter, port_point, pin, color, now.canvas, ring=mark is not None
            )


def paint_port(
    painter: QPainter,
    point: QPointF,
    pin: Pin,
    color: QColor,
    ground: QColor,
    ring: bool = False,
) -> None:
    """Paint one port: a circle, a diamond or a square; hollow if it has no wire."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(ground)
    painter.drawPath(_port(pin.kind, True).translated(point))
    if ring:
        painter.setBrush(ground)
        painter.setPen(QPen(color, 1.75))
        painter.drawEllipse(point, 8, 8)
    if pin.wired or ring:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color)
    else:
        painter.setPen(QPen(color, 1.5))
        painter.setBrush(ground)
    painter.drawPath(_port(pin.kind, False).translated(point))


@lru_cache(maxsize=16)
def _port(kind: str, ground: bool) -> QPainterPath:
    """Return the outline of a port at the origin; the background is 2 px larger all round."""
    path = QPainterPath()
    more = RING - DOT if ground else 0.0
    if kind == "number":
        reach = 4.5 + more * 1.3
        for i, (x, y) in enumerate(((0, -reach), (reach, 0), (0, reach), (-reach, 0))):
            if i:
                path.lineTo(x, y)
            else:
                path.moveTo(x, y)
        path.closeSubpath()
    elif kind == "tuple":
        side = 3.5 + more
        path.addRoundedRect(QRectF(-side, -side, 2 * side, 2 * side), 1.5, 1.5)
    else:
        path.addEllipse(QPointF(0, 0), DOT + more, DOT + more)
    return path


def _sign(face: Face) -> str:
    """Return the icon right of the name, for a state that the user set."""
    return (
        "mute"
        if face.muted
        else "snowflake"
        if face.frozen
        else "link"
        if face.shared
        else ""
    )


@lru_cache(maxsize=512)
def _line(width: float, middle: float) -> QPainterPath:
    """Return the path of the straight wire through a muted node."""
    path = QPainterPath(QPointF(0, middle))
    path.lineTo(width, middle)
    return path


class _Paths:
    """The outlines of a node of one size."""

    def __init__(self, width: float, height: float) -> None:
        rect = QRectF(0, 0, width, height)
        self.body = _round(rect, RADIUS)
        self.inner = _round(rect.adjusted(1, 1, -1, -1), RADIUS - 1)
        self.header = _round_top(rect, HEADER)
        self.strip = self.header & _box(QRectF(0, 0, width, 3))
        self.hatch = QPainterPath()
        for x in range(0, int(width + HEADER), 9):
            self.hatch.moveTo(x, 3)
            self.hatch.lineTo(x - HEADER, HEADER + 3)
        self.border = _round(rect.adjusted(0.5, 0.5, -0.5, -0.5), RADIUS - 0.5)
        self.selection = _round(rect.adjusted(-1.5, -1.5, 1.5, 1.5), RADIUS + 1.5)


@lru_cache(maxsize=2048)
def _paths(width: float, height: float) -> _Paths:
    return _Paths(width, height)


def _round(rect: QRectF, radius: float) -> QPainterPath:
    path = QPainterPath()
    path.addRoundedRect(rect, radius, radius)
    return path


def _box(rect: QRectF) -> QPainterPath:
    path = QPainterPath()
    path.addRect(rect)
    return path


def _round_top(rect: QRectF, height: float) -> QPainterPath:
    return _round(rect, RADIUS) & _box(
        QRectF(rect.left(), rect.top(), rect.width(), height)
    )


def _top(line: TextLine, role: str, baseline: float) -> float:
    return baseline - _ascent(role)


@lru_cache(maxsize=16)
def _ascent(role: str) -> float:

    return QFontMetricsF(theme.scene_font(role)).ascent()


@lru_cache(maxsize=TEXTS)
def _line_of(text: str, role: str, width: float | None = None) -> TextLine:
    """Return a text laid out, in a width if there is one: most of a node that an edit changes are as before."""
    return (
        TextLine(text, role, scene=True)
        if width is None
        else elided(text, role, width, scene=True)
    )


def forget_fonts() -> None:
    """Clear cached metrics after a change of fonts."""
    _ascent.cache_clear()
    _line_of.cache_clear()
    small_names.forget_fonts()
    geometry.forget_fonts()


def paint_note(painter: QPainter, area: QRectF, text: str, color: str) -> None:
    """Paint a frame of a sheet inside an unfolded block."""
    now = theme.current()
    painter.setPen(QPen(now.categories.get(color, now.line3), 1))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(area, RADIUS, RADIUS)
    line = elided(
        text.partition("\n")[0], "caption", max(area.width() - 2 * INSET, 0), scene=True
    )
    line.draw(painter, area.left() + INSET, area.top() + 6, now.text3)


def heat_cells(norms: list[float | None], low: float, high: float) -> QPixmap:
    """Render the gradient strip, a pixel per cell, oldest left, on a log scale from `low` to `high`; None is a gap."""

    now, ramp = theme.current(), theme.heat_table()
    hole, error = now.sunken.rgba(), now.error.rgba()
    span = log10(high / low) if high > low > 0 else 1.0

    def color(norm: float | None) -> int:
        if norm is None:
            return hole
        if not isfinite(norm):
            return error
        at = log10(max(norm, 1e-30) / low) / span if low > 0 else 0.0
        red, green, blue = ramp[round(min(max(at, 0.0), 1.0) * 255)]
        return 0xFF000000 | red << 16 | green << 8 | blue

    # In one call: each call into Qt may release the interpreter lock to a run and wait for it again.
    cells = array("I", map(color, norms or [None]))
    return QPixmap.fromImage(
        QImage(
            cells.tobytes(), len(cells), 1, 4 * len(cells), QImage.Format.Format_ARGB32
        )
    )
