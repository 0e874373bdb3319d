"""The parts of a drawing: boxes and open groups, measured once so that painting does no text work.

A part knows its size and the positions of its texts before it has a place, so that layout can ask for sizes. Pictures
for paper have their own, in `views.pictures.printing.faces`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from msgspec.structs import replace
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QPen

from app.diagram.diagram import Arrow, Box, Drawing, Group
from app.diagram.layout import HEADER, Layout, Rect, Sizes
from app.observe.figures import NONFINITE
from app.views.autograd.graph.faces import (
    HEAT,
    MARKED,
    MARKS,
    PLAIN,
    ItemState,
    Text,
    fitting_tag,
    mark_pen,
    paint_chip,
    paint_header,
    paint_heat,
    paint_rings,
    paint_tag,
    tag_color,
    text_width,
)
from app.views.autograd.graph.playback_paint import (
    FADED,
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
from app.views.ui.graphview.spatial import RectIndex
from app.views.ui.graphview.sprites import Hashed
from app.views.ui.theme import Theme, current, mix

OP_HEIGHT, CHIP_ROW, CHIP_HEIGHT = 26.0, 22.0, 16.0
LEAF_HEIGHT, FOLDED_LINE, ROW = 34.0, 17.0, 14.0
INSET = 10.0
SIDE = 2.0  # pixels of the screen left free beside a small name
TAG_OVERHANG = 8.0  # by which the text of a tag may be wider than its box
BAR = 6.0  # at the lower edge of a closed group, for its progress
RADIUS = {"op": 5.0, "leaf": 9.0, "folded": 6.0, "call": 5.0}
EDITED = "The incoming gradient was edited"
RING = 4.0  # around a box
TAG = 12.0  # that the tag of a box reaches over its edges
DIMMED = 0.22  # opacity off the highlighted path
NOWHERE = Rect(0.0, 0.0, 0.0, 0.0)

P = TypeVar("P", bound="Part")
# ("box", id), ("group", id), ("arrow", number) or ("label", number)
Place = tuple[str, Any]


class Part:
    """A box or an open group: something with a place that can be hovered, selected and linked."""

    def __init__(self, value: Box | Group) -> None:
        self.key, self.link = value.id, value.link
        self.place = NOWHERE
        self._state = PLAIN
        self._played: Played | None = None
        self._looks_like: Hashed | None = None

    @property
    def corner(self) -> QPointF:
        return QPointF(self.place.x, self.place.y)

    @property
    def extent(self) -> QRectF:
        """All that is painted of it, on the scene."""
        return QRectF(*self.place).adjusted(-RING, -RING, RING, RING)

    def opacity(self) -> float:
        """Return the opacity: parts off the highlighted path, and those that have run, are dimmed."""
        if self._state.dimmed:
            return DIMMED
        return FADED if self._played is not None and self._played.faded else 1.0

    @property
    def state(self) -> ItemState:
        return self._state

    @property
    def played(self) -> Played | None:
        """The progress of the playback in it."""
        return self._played

    def set_state(self, state: ItemState) -> None:
        self._state, self._looks_like = state, None

    def set_played(self, played: Played | None) -> None:
        """Set the progress of the playback in this part."""
        self._played, self._looks_like = played, None


class BoxPart(Part):
    """A backward operation, a leaf or a folded group. `width` and `height` are in pixels."""

    def __init__(self, box: Box) -> None:
        super().__init__(box)
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
            max(number.width, text_width(f"{every} of {every} run", "axis"))
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

    @property
    def own_extent(self) -> QRectF:
        """All that is painted of it, from its top left corner."""
        out = TAG if self.box.tags else RING
        return QRectF(-out, -RING, self.width + 2 * out, self.height + RING + out)

    @property
    def foldable(self) -> bool:
        return self.box.shape == "folded"

    @property
    def picture(self) -> Hashable:
        """Return the sprite's cache key: boxes that look alike share it."""
        if self._looks_like is None:
            state = self._state
            ringed = state.hovered, state.selected, state.linked
            look = replace(self.box, id="", group=None, under=None, link=None, paths=())
            self._looks_like = Hashed((look, ringed, self._played))
        return self._looks_like

    @property
    def tooltip(self) -> str:
        """Return all its text, for a tooltip."""
        box = self.box
        edited = EDITED if self._played is not None and self._played.edited else ""
        chips = (chip.text for chip in box.chips)
        lines = (box.title, box.subtitle, *box.lines, *chips, *box.tags[:1], edited)
        return "\n".join(filter(None, lines))

    def paint(self, painter: QPainter, zoom: float) -> None:
        """Paint with the top left corner at the painter's origin, with texts that can be read at a zoom."""
        box, theme, state, played = self.box, current(), self._state, self._played
        area = QRectF(0.5, 0.5, self.width - 1, self.height - 1)
        radius, leaf = RADIUS[box.shape], box.shape == "leaf"
        line = theme.line3 if state.hovered or leaf else theme.line2
        ground = theme.panel if leaf else theme.raised
        if state.hovered:
            ground = theme.hover
        if box.category == "error":
            line, ground = theme.error, theme.errorBg
        pen = QPen(line, 1)
        if box.mark:
            line = theme.color(MARKS[box.mark])
            ground, pen = mix(ground, line, MARKED), mark_pen(line, box.mark)
        painter.setPen(pen)
        painter.setBrush(theme.backBg if played is not None and played.next else ground)
        painter.drawRoundedRect(area, radius, radius)
        if box.shape == "call":
            painter.setPen(
                QPen(line if box.mark else theme.categories[box.category], 3)
            )
            painter.drawLine(QPointF(1.5, 5), QPointF(1.5, self.height - 5))
        detail = zoom >= LEGIBLE
        if self.foldable:
            chevron = "chevron-right" if detail else ""
            paint_header(
                painter, theme, box.category, area, radius, chevron, state.hovered
            )
        tag = fitting_tag(box.tags, self.width + TAG_OVERHANG)
        if detail:
            self._paint_texts(painter, theme, played)
        else:
            self._paint_names(painter, theme, played, zoom)
            tag = tag if tag is not None and NONFINITE in tag.text else None
        if played is not None:
            self._paint_played(painter, theme, area, radius, played)
        if box.heat is not None:
            paint_heat(painter, area, radius, box.heat)
        paint_rings(painter, area, radius, theme, state)
        if tag is not None:
            tag.x, tag.middle = (self.width - tag.width) / 2, self.height + 2
            paint_tag(painter, tag, theme)

    def _paint_texts(
        self, painter: QPainter, theme: Theme, played: Played | None
    ) -> None:
        for index, (rect, kind, text) in enumerate(self.chips):
            if played is not None and index in played.freed:
                text.paint(painter, theme.text3)
                paint_freed(painter, rect, theme)
                continue
            paint_chip(painter, rect, kind, theme)
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


class GroupPart(Part):
    """The frame of an open group, whose size is the layout's; its header folds it."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.group = group
        self.title = Text(group.title, "section", 42, HEADER / 2)
        self.caption = Text(group.caption, "axis", 0, HEADER / 2, "text3")
        self.least_width = (
            self.title.x + self.title.width + 14 + max(self.caption.width, 12) + 8
        )

    @property
    def tooltip(self) -> str:
        """Return the text of its header, for a tooltip."""
        group = self.group
        return "\n".join(filter(None, (group.title, group.caption, *group.tags[:1])))

    def in_header(self, at: QPointF) -> bool:
        """Return whether a point of the scene is in the header."""
        place = self.place
        return 0 <= at.y() - place.y <= HEADER and 0 <= at.x() - place.x <= place.width

    def on_chevron(self, at: QPointF) -> bool:
        return self.in_header(at) and at.x() - self.place.x <= 20

    def paint(self, painter: QPainter, zoom: float) -> None:
        """Paint with the top left corner at the painter's origin, with texts that can be read at a zoom."""
        theme, width, mark = current(), self.place.width, self.group.mark
        area = QRectF(0.5, 0.5, width - 1, self.place.height - 1)
        painter.setPen(
            mark_pen(theme.color(MARKS[mark]), mark) if mark else QPen(theme.line2, 1)
        )
        painter.setBrush(theme.frame)
        painter.drawRoundedRect(area, 6, 6)
        detail = zoom >= LEGIBLE
        chevron, hovered = "chevron-down" if detail else "", self._state.hovered
        paint_header(painter, theme, self.group.category, area, 6.0, chevron, hovered)
        if self.group.heat is not None:
            head = QRectF(area.x(), area.y(), area.width(), HEADER + HEAT - 1)
            paint_heat(painter, head, 0.0, self.group.heat)
        over = self._played is not None and self._played.finished
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
        paint_rings(painter, area, 6.0, theme, self._state)

    def _paint_texts(
        self, painter: QPainter, theme: Theme, width: float, over: bool
    ) -> None:
        self.caption.x = width - self.caption.width - 8
        for text in (self.title,) if over else (self.title, self.caption):
            text.paint(painter, theme.color(text.color))
        tag = fitting_tag(
            self.group.tags,
            self.caption.x - self.title.x - self.title.width - 2 * INSET,
        )
        if tag is not None:
            tag.x, tag.middle = self.caption.x - INSET - tag.width, HEADER / 2
            tag.paint(painter, tag_color(tag, theme))
        if over:
            icons.draw(painter, "check", theme.run, width - 20, 4.5, 13)


class Parts(Mapping[str, P], Generic[P]):
    """Parts by key; one that is asked for and not there yet is made. `made` are those that are, `rects` the places of
    all. `dress` is called with each once it has its place."""

    def __init__(self, values: Iterable[Any], kind: Callable[[Any], P]) -> None:
        self._values, self._kind = {value.id: value for value in values}, kind
        self.rects: Mapping[str, Rect] = {}
        self.made: dict[str, P] = {}
        self.dress: Callable[[P], object] = lambda _part: None

    def measured(self, key: str) -> P:
        """Return a part, which may have no place yet."""
        part = self.made.get(key)
        if part is None:
            part = self.made[key] = self._kind(self._values[key])
            if key in self.rects:
                self._put(part)
        return part

    def put(self, rects: Mapping[str, Rect]) -> None:
        """Give all parts their places."""
        self.rects = rects
        for key, part in [*self.made.items()]:
            if key in rects:
                self._put(part)
            else:
                del self.made[key]

    def _put(self, part: P) -> None:
        part.place = self.rects[part.key]
        self.dress(part)

    def __getitem__(self, key: str) -> P:
        if key not in self.rects:
            raise KeyError(key)
        return self.measured(key)

    def __contains__(self, key: object) -> bool:
        return key in self.rects

    def __iter__(self) -> Iterator[str]:
        return iter(self.rects)

    def __len__(self) -> int:
        return len(self.rects)


class DrawnParts:
    """All parts of a drawing, and their sizes for layout; usable on any thread."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        self.boxes: Parts[BoxPart] = Parts(drawing.boxes, BoxPart)
        self.groups: Parts[GroupPart] = Parts(drawing.groups, GroupPart)

    def sizes(self) -> Sizes:
        """Measure all parts for layout."""

        def box_size(box: Box) -> tuple[float, float]:
            part = self.boxes.measured(box.id)
            return part.width, part.height

        return Sizes.measured(
            self.drawing,
            box_size,
            lambda group: self.groups.measured(group.id).least_width,
            lambda arrow: text_width(label_of(arrow), "axis") + 16,
        )

    def put(self, layout: Layout) -> None:
        """Give all parts their places."""
        self.boxes.put(layout.boxes)
        self.groups.put(layout.groups)


def short_name(box: Box) -> str:
    """Return the name of a box for where there is little room: "Relu" of ReluBackward0, "weight" in the group conv1."""
    if box.shape == "op":
        return re.sub(r"(?<=.)Backward\d*$", "", box.title)
    return (
        box.title.rpartition(".")[2]
        if box.shape == "leaf" and box.group is not None
        else box.title
    )


def label_of(arrow: Arrow) -> str:
    """Return the label of an arrow."""
    return (
        f"{arrow.label}  ×{arrow.count}"
        if arrow.label and arrow.count > 1
        else arrow.label
    )


def places(drawing: Drawing, layout: Layout) -> RectIndex[Place]:
    """Index the positions of all parts of a drawing."""
    index: RectIndex[Place] = RectIndex()
    for kind, rects in (("box", layout.boxes), ("group", layout.groups)):
        for key, rect in rects.items():
            index.put((kind, key), QRectF(*rect))
    for number, route in enumerate(layout.routes):
        xs, ys = [x for x, _ in route], [y for _, y in route]
        left, top = min(xs), min(ys)
        index.put(
            ("arrow", number),
            QRectF(left - 8, top - 8, max(xs) - left + 16, max(ys) - top + 16),
        )
    for number, at in enumerate(layout.labels):
        if at is not None and drawing.arrows[number].label:
            index.put(("label", number), QRectF(at[0] - 60, at[1] - 10, 120, 20))
    return index
