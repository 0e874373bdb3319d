"""Measure the parts of a drawing once into faces that only need painting.

A face knows its size and the positions of its texts, so that layout can ask for sizes and painting does no text work.
Pictures for paper have their own, in `views.export.printing.faces`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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

from app.diagram.diagram import Arrow, Box, Drawing, Group
from app.diagram.layout import HEADER, PAD, Sizes
from app.observe.figures import NONFINITE
from app.views.autograd.graph.playback_paint import (
    Played,
    paint_edited,
    paint_freed,
    paint_next,
    paint_progress,
    paint_tick,
)
from app.views.ui import icons
from app.views.ui.graphview.small_names import (
    LEGIBLE,
    SMALLEST,
    line_height,
    paint_names,
)
from app.views.ui.theme import ROLES, Theme, faded, mix, scene_font

OP_HEIGHT, CHIP_ROW, CHIP_HEIGHT = 26.0, 22.0, 16.0
LEAF_HEIGHT, FOLDED_LINE, ROW = 34.0, 17.0, 14.0
INSET = 10.0
MARKS = {
    "added": "run",
    "removed": "error",
    "moved": "accent",
    "changed": "warn",
}  # tokens of what differs
MARKED = 0.12  # share of its colour in what is marked
SIDE = 2.0  # pixels of the screen left free beside a small name
TAG_OVERHANG = 8.0  # by which the text of a tag may be wider than its box
BAR = 6.0  # at the lower edge of a closed group, for its progress


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
def _width(text: str, role: str) -> float:
    return _metrics(role)[0].horizontalAdvance(text)


class Text:
    """A line of text with its place in a face. `color` is a token."""

    __slots__ = (
        "text",
        "x",
        "middle",
        "color",
        "width",
        "struck",
        "_font",
        "_static",
        "_height",
    )

    def __init__(
        self, text: str, role: str, x: float, middle: float, color: str = "text"
    ) -> None:
        self.text, self.x, self.middle, self.color = text, x, middle, color
        self._font = _picture_font(role)
        self.width = _width(text, role)
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


class BoxFace:
    """A backward operation, a leaf or a folded group. `width` and `height` are in pixels."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.texts: list[Text] = []
        self.chips: list[tuple[QRectF, str, Text]] = []
        self.width = self.height = 0.0
        {
            "op": self._op,
            "leaf": self._leaf,
            "folded": self._folded,
            "call": self._call,
        }[box.shape]()

    def _op(self) -> None:
        title = Text(self.box.title, "label", INSET, OP_HEIGHT / 2)
        self.texts.append(title)
        right = title.x + title.width
        if self.box.subtitle:  # the variable's name in a snippet
            name = Text(
                self.box.subtitle, "section", right + 8, OP_HEIGHT / 2, "accent"
            )
            self.texts.append(name)
            right = name.x + name.width
        row = self._chip_row(OP_HEIGHT - 1)
        self.width = round(max(right + INSET, row))
        self.height = OP_HEIGHT + (CHIP_ROW if self.chips else 0.0)

    def _chip_row(self, top: float) -> float:
        """Place the chips in a row; return its width."""
        x = 8.0
        for chip in self.box.chips:
            color = {"held": "text", "more": "text3"}.get(chip.kind, "text2")
            text = Text(chip.text, "axis", x + 5, top + CHIP_HEIGHT / 2, color)
            width = text.width + 10
            self.chips.append((QRectF(x, top, width, CHIP_HEIGHT), chip.kind, text))
            x += width + 4
        return x + 4

    def _call(self) -> None:
        title = Text(self.box.title, "section", INSET, OP_HEIGHT / 2)
        captions = [
            (self.box.subtitle, "text2"),
            *((line, "text3") for line in self.box.lines),
        ]
        below = [
            Text(text, "axis", INSET, OP_HEIGHT - 2 + ROW * (row + 0.5), color)
            for row, (text, color) in enumerate(word for word in captions if word[0])
        ]
        self.texts += [title, *below]
        self.width = round(max(text.width for text in self.texts) + 2 * INSET)
        self.height = OP_HEIGHT + (ROW * len(below) + 4 if below else 0.0)

    def _leaf(self) -> None:
        name = Text(self.box.title, "section", 0, 11)
        kind = Text(self.box.subtitle, "axis", 0, 24, "text2")
        self.width = round(max(name.width, kind.width) + 2 * INSET)
        self.height = LEAF_HEIGHT
        for text in (name, kind):
            text.x = (self.width - text.width) / 2
        self.texts += [name, kind]

    def _folded(self) -> None:
        count, *rest = self.box.lines or ("",)
        title = Text(self.box.title, "section", 42, HEADER / 2)
        number = Text(count, "axis", 0, HEADER / 2, "text3")
        every = count.split(" ")[0]
        room = (
            max(number.width, _width(f"{every} of {every} run", "axis"))
            if count
            else 0.0
        )
        lines = [(self.box.subtitle, "label", "text2")] if self.box.subtitle else []
        lines += [(" · ".join(rest), "axis", "text3")] if rest else []
        body = [
            Text(text, role, INSET, HEADER + 5 + FOLDED_LINE * (row + 0.5), color)
            for row, (text, role, color) in enumerate(lines)
        ]
        self.width = round(
            max(
                [
                    title.x + title.width + 20 + room + 8,
                    *(t.width + 2 * INSET for t in body),
                ]
            )
        )
        self.height = HEADER + (FOLDED_LINE * len(body) + 9 if body else 4)
        number.x = self.width - number.width - 8
        self.texts += [title, number, *body]

    def paint(
        self,
        painter: QPainter,
        theme: Theme,
        state: ItemState = PLAIN,
        *,
        zoom: float = 1.0,
        played: Played | None = None,
    ) -> None:
        """Paint with the top left corner at the painter's origin, with texts that can be read at a zoom."""
        box = self.box
        area = QRectF(0.5, 0.5, self.width - 1, self.height - 1)
        radius = {"op": 5.0, "leaf": 9.0, "folded": 6.0, "call": 5.0}[box.shape]
        raised_error = box.category == "error"
        line = (
            theme.error
            if raised_error
            else theme.line3
            if state.hovered or box.shape == "leaf"
            else theme.line2
        )
        painter.setPen(QPen(line, 1))
        ground = (
            theme.hover
            if state.hovered
            else theme.panel
            if box.shape == "leaf"
            else theme.raised
        )
        ground = theme.errorBg if raised_error else ground
        if box.mark:
            line = theme.color(MARKS[box.mark])
            ground = mix(ground, line, MARKED)
            painter.setPen(_mark_pen(line, box.mark))
        painter.setBrush(theme.backBg if played is not None and played.next else ground)
        painter.drawRoundedRect(area, radius, radius)
        if box.shape == "call":
            painter.setPen(
                QPen(line if box.mark else theme.categories[box.category], 3)
            )
            painter.drawLine(QPointF(1.5, 5), QPointF(1.5, self.height - 5))
        if box.shape == "folded":
            _header(
                painter,
                theme,
                box.category,
                area,
                radius,
                "chevron-right" if zoom >= LEGIBLE else "",
                state.hovered,
            )
        tag = _fitting(box.tags, self.width + TAG_OVERHANG)
        if zoom >= LEGIBLE:
            self._paint_texts(painter, theme, played)
        else:
            self._paint_names(painter, theme, played, zoom)
            tag = tag if tag is not None and NONFINITE in tag.text else None
        if played is not None:
            self._paint_played(painter, theme, area, radius, played)
        paint_rings(painter, area, radius, theme, state)
        if tag is not None:
            tag.x, tag.middle = (self.width - tag.width) / 2, self.height + 2
            _tag(painter, tag, theme)

    def _paint_texts(
        self, painter: QPainter, theme: Theme, played: Played | None
    ) -> None:
        for index, (rect, kind, text) in enumerate(self.chips):
            if played is not None and index in played.freed:
                text.paint(painter, theme.text3)
                paint_freed(painter, rect, theme)
                continue
            _chip(painter, rect, kind, theme)
            text.paint(painter, theme.color(text.color))
        for text in self._texts(played):
            text.paint(painter, theme.color(text.color))

    def _paint_names(
        self, painter: QPainter, theme: Theme, played: Played | None, zoom: float
    ) -> None:
        """Write the name as large as it can be read, and below it the lines that have room."""
        box = self.box
        count = played.text if played is not None and box.shape == "folded" else ""
        below = (count, box.subtitle, *([] if count else box.lines))
        names = [
            (short_name(box), theme.text),
            *((text, theme.text2) for text in below if text),
        ]
        side, row_height = SIDE / zoom, line_height(zoom)
        room = QRectF(side, 1, self.width - 2 * side, self.height - 2)
        if (
            box.shape == "folded"
            and names[1:]
            and row_height <= min(HEADER, self.height - HEADER - BAR)
        ):
            paint_names(painter, QRectF(side, 0, room.width(), HEADER), names[:1], zoom)
            room, names = (
                QRectF(side, HEADER, room.width(), self.height - HEADER - BAR),
                names[1:],
            )
        paint_names(painter, room, names, zoom)

    def _texts(self, played: Played | None) -> list[Text]:
        """Return the current texts: a closed group counts what ran."""
        if played is None or self.box.shape != "folded":
            return self.texts
        progress = Text(played.text, "axis", 0, HEADER / 2, "text3")
        progress.x = self.width - progress.width - 8
        return [self.texts[0], progress, *self.texts[2:]]

    def _paint_played(
        self,
        painter: QPainter,
        theme: Theme,
        area: QRectF,
        radius: float,
        played: Played,
    ) -> None:
        if self.box.shape == "folded":
            paint_progress(painter, self.width, self.height, played, theme)
        if played.next:
            paint_next(painter, area, radius, theme)
        if played.finished:
            paint_tick(painter, theme, self.width)
        if played.edited:
            paint_edited(painter, theme)


class GroupFace:
    """The frame of an open group; its size is the layout's."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.title = Text(group.title, "section", 42, HEADER / 2)
        self.caption = Text(group.caption, "axis", 0, HEADER / 2, "text3")
        self.least_width = (
            self.title.x + self.title.width + 14 + max(self.caption.width, 12) + 8
        )

    def paint(
        self,
        painter: QPainter,
        theme: Theme,
        size: tuple[float, float],
        state: ItemState = PLAIN,
        *,
        zoom: float = 1.0,
        played: Played | None = None,
    ) -> None:
        """Paint with the top left corner at the painter's origin, with texts that can be read at a zoom."""
        width, height = size
        area = QRectF(0.5, 0.5, width - 1, height - 1)
        mark = self.group.mark
        painter.setPen(
            _mark_pen(theme.color(MARKS[mark]), mark) if mark else QPen(theme.line2, 1)
        )
        painter.setBrush(theme.frame)
        painter.drawRoundedRect(area, 6, 6)
        detail = zoom >= LEGIBLE
        _header(
            painter,
            theme,
            self.group.category,
            area,
            6.0,
            "chevron-down" if detail else "",
            state.hovered,
        )
        over = played is not None and played.finished
        if detail:
            self._paint_texts(painter, theme, width, over)
        else:
            side, tick = SIDE / zoom, (SMALLEST + SIDE) / zoom if over else 0.0
            room = QRectF(side, 0, width - 2 * side - tick, HEADER)
            paint_names(painter, room, [(self.group.title, theme.text)], zoom)
            if over:
                icons.draw(
                    painter, "check", theme.run, room.right() + side, 1, SMALLEST / zoom
                )
        paint_rings(painter, area, 6.0, theme, state)

    def _paint_texts(
        self, painter: QPainter, theme: Theme, width: float, over: bool
    ) -> None:
        self.caption.x = width - self.caption.width - 8
        for text in (self.title,) if over else (self.title, self.caption):
            text.paint(painter, theme.color(text.color))
        tag = _fitting(
            self.group.tags,
            self.caption.x - self.title.x - self.title.width - 2 * INSET,
        )
        if tag is not None:
            tag.x, tag.middle = self.caption.x - INSET - tag.width, HEADER / 2
            tag.paint(painter, _tag_color(tag, theme))
        if over:
            icons.draw(painter, "check", theme.run, width - 20, 4.5, 13)


class BoxFaces(dict[str, BoxFace]):
    """Faces by the ids of their boxes, each made when it is asked for."""

    def __init__(self, boxes: Iterable[Box]) -> None:
        super().__init__()
        self._boxes = {box.id: box for box in boxes}

    def __missing__(self, key: str) -> BoxFace:
        face = self[key] = BoxFace(self._boxes[key])
        return face

    def sizes(self) -> dict[str, tuple[float, float]]:
        """Width and height of all boxes; those that read alike are measured once."""
        sizes_by_look: dict[tuple[object, ...], tuple[float, float]] = {}
        sizes = {}
        for key, box in self._boxes.items():
            look = (box.shape, box.title, box.subtitle, box.lines, box.chips)
            size = sizes_by_look.get(look)
            if size is None:
                face = self[key]
                size = sizes_by_look[look] = face.width, face.height
            sizes[key] = size
        return sizes


def short_name(box: Box) -> str:
    """Return the name of a box for where there is little room: "Relu" of ReluBackward0, "weight" in the group conv1."""
    if box.shape == "op":
        return re.sub(r"(?<=.)Backward\d*$", "", box.title)
    return (
        box.title.rpartition(".")[2]
        if box.shape == "leaf" and box.group is not None
        else box.title
    )


def measure(
    drawing: Drawing,
) -> tuple[BoxFaces, dict[str, GroupFace], dict[str, Text], Sizes]:
    """Create the faces of all boxes, groups and arrow labels, and measure them for layout."""
    boxes = BoxFaces(drawing.boxes)
    groups = {group.id: GroupFace(group) for group in drawing.groups}
    labels = {
        text: Text(text, "axis", 0, 0, "text2")
        for text in {label_of(arrow) for arrow in drawing.arrows}
        if text
    }
    sizes = Sizes(
        boxes.sizes(),
        {key: max(face.least_width, 4 * PAD) for key, face in groups.items()},
        {
            arrow.label: labels[label_of(arrow)].width + 16
            for arrow in drawing.arrows
            if arrow.label
        },
    )
    return boxes, groups, labels, sizes


def label_of(arrow: Arrow) -> str:
    """Return the label of an arrow."""
    return (
        f"{arrow.label}  ×{arrow.count}"
        if arrow.label and arrow.count > 1
        else arrow.label
    )


def paint_label(
    painter: QPainter,
    text: Text,
    at: QPointF,
    theme: Theme,
    color: QColor | None = None,
) -> None:
    """Paint a label centred at a point; `color` overrides that of frame and text."""
    width = text.width + 14
    painter.setPen(QPen(color or theme.line2, 1))
    painter.setBrush(theme.canvas)
    painter.drawRoundedRect(
        QRectF(at.x() - width / 2, at.y() - 8.5, width, 17), 8.5, 8.5
    )
    text.x, text.middle = at.x() - text.width / 2, at.y()
    text.paint(painter, color or theme.text2)


def _fitting(tags: tuple[str, ...], room: float) -> Text | None:
    """Return the first text that fits; None where none does."""
    return next(
        (Text(text, "axis", 0, 0) for text in tags if _width(text, "axis") <= room),
        None,
    )


def _tag_color(tag: Text, theme: Theme) -> QColor:
    return theme.error if NONFINITE in tag.text else theme.text2


def _tag(painter: QPainter, tag: Text, theme: Theme) -> None:
    color = _tag_color(tag, theme)
    painter.setPen(QPen(theme.line3 if color == theme.text2 else color, 1))
    painter.setBrush(theme.panel)
    painter.drawRoundedRect(QRectF(tag.x - 4, tag.middle - 7, tag.width + 8, 14), 4, 4)
    tag.paint(painter, color)


def _mark_pen(color: QColor, mark: str) -> QPen:
    """Return the pen around what differs; what is gone has a dashed line."""
    return QPen(
        color, 1.5, Qt.PenStyle.DashLine if mark == "removed" else Qt.PenStyle.SolidLine
    )


def _header(
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


def _chip(painter: QPainter, rect: QRectF, kind: str, theme: Theme) -> None:
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
