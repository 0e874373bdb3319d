"""Paint the state of a playback on the graph: what ran, what runs next, what was freed, and the norms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from app.util.formatting import figure
from app.views.ui import icons
from app.views.ui.theme import Theme, mix

if TYPE_CHECKING:
    from app.views.autograd.graph.scene import TapeScene

FADED = 0.62  # opacity of what has run
COMING = 0.38  # share of the colour of arrows that nothing has come over
LEAST_NORM, MOST_WIDTH, DASHED_BELOW = 1.2, 8.0, 1e-4


class Played(Struct, frozen=True):
    """Progress of a box or group: `ran` of its `count` nodes have run; `next` contains the next one. `freed` are the
    indices of chips whose memory was freed. `edited` if a gradient that arrives in it was edited, `over` if nothing is
    left to run anywhere."""

    ran: int = 0
    count: int = 1
    next: bool = False
    freed: frozenset[int] = frozenset()
    edited: bool = False
    over: bool = False

    @property
    def finished(self) -> bool:
        return self.ran == self.count

    @property
    def faded(self) -> bool:
        """Whether it steps back behind what is still to run."""
        return self.finished and not self.over

    @property
    def text(self) -> str:
        return f"{self.ran} of {self.count} run"


class EdgeFlow(Struct, frozen=True):
    """The gradient over an arrow: its norm, if known; `reached` if it has been computed, `edited` if what arrives at
    its end is not what left.

    `words` are the tooltip. A `concealed` one is to be predicted: the arrow looks as if nothing were known.
    """

    norm: float | None = None
    reached: bool = False
    words: str = ""
    edited: bool = False
    concealed: bool = False

    @property
    def label(self) -> str:
        """The norm as it is written on the arrow."""
        return (
            "?"
            if self.concealed
            else ""
            if self.norm is None
            else f"{figure(self.norm)} edited"
            if self.edited
            else figure(self.norm)
        )

    @property
    def width(self) -> float:
        return width_of(self.norm) if self.norm is not None else LEAST_NORM

    @property
    def dashed(self) -> bool:
        return self.norm is not None and self.norm < DASHED_BELOW

    def color(self, theme: Theme) -> QColor:
        if self.norm is not None and not math.isfinite(self.norm):
            return theme.error
        return theme.back if self.reached else mix(theme.canvas, theme.back, COMING)


def width_of(norm: float) -> float:
    """Return the width of an arrow for a gradient norm, in px: 1.6 for 0.001, 6.6 for 1."""
    if not math.isfinite(norm):
        return 3.0
    if norm < DASHED_BELOW:
        return 1.0
    return min(max(1.6 + 5 * (math.log10(norm) + 3) / 3, LEAST_NORM), MOST_WIDTH)


class PlayedParts:
    """The states of a scene's boxes, groups and arrows in a backward pass that is played."""

    def __init__(self, scene: TapeScene) -> None:
        self._scene = scene
        self.forget()

    def forget(self) -> None:
        """Another drawing."""
        self.boxes: dict[str, Played] = {}
        self.flows: dict[int, EdgeFlow] = {}
        # Boxes that have run, and the key of the next one, for the overview.
        self._ran: dict[str, QRectF] = {}
        self._next = ""

    def show(self, boxes: Mapping[str, Played], flows: Mapping[int, EdgeFlow]) -> None:
        """Change these; the rest stays."""
        self.boxes.update(boxes)
        self.flows.update(flows)
        drawn_boxes, frames = self._scene.boxes.made, self._scene.groups.made
        for key, played in boxes.items():
            box_or_group = drawn_boxes.get(key) or frames.get(key)
            if box_or_group is not None:
                box_or_group.set_played(played)
                self._scene.touch(box_or_group)
            self._note(key, played)
        if flows:
            self._scene.touch(None, flows)
        self._tell_marks()

    def end(self) -> None:
        """End the playback."""
        numbers = list(self.flows)
        self.forget()
        for box_or_group in (
            *self._scene.boxes.made.values(),
            *self._scene.groups.made.values(),
        ):
            box_or_group.set_played(None)
        self._scene.touch(None, numbers)
        self._scene.touch()
        self._tell_marks()

    def _tell_marks(self) -> None:
        after = self._scene.layout_.boxes.get(self._next)
        self._scene.set_ran(
            list(self._ran.values()), QRectF(*after) if after is not None else None
        )

    def _note(self, key: str, played: Played) -> None:
        """Update only what changes: a graph can have very many boxes."""
        rect = self._scene.layout_.boxes.get(key)
        if rect is not None and played.faded:
            if key not in self._ran:
                self._ran[key] = QRectF(*rect)
        else:
            self._ran.pop(key, None)
        if played.next:
            self._next = key
        elif key == self._next:
            self._next = ""


# -- painting ---------------------------------------------------------------------------------------------------------


def paint_tick(painter: QPainter, theme: Theme, right: float) -> None:
    """Paint a badge on the upper right corner of a finished part."""
    painter.setPen(QPen(theme.line2, 1))
    painter.setBrush(theme.canvas)
    painter.drawEllipse(QPointF(right - 3, 3), 6, 6)
    icons.draw(painter, "check", theme.run, right - 7.5, -1.5, 9)


def paint_edited(painter: QPainter, theme: Theme) -> None:
    """Paint a badge on the upper left corner of a part at which a gradient was edited."""
    painter.setPen(QPen(theme.canvas, 1))
    painter.setBrush(theme.warn)
    painter.drawPolygon(
        [QPointF(3, -4), QPointF(10, 3), QPointF(3, 10), QPointF(-4, 3)]
    )


def paint_freed(painter: QPainter, rect: QRectF, theme: Theme) -> None:
    """Paint the dashed frame of a chip whose memory was freed; the caller strikes the text through."""
    pen = QPen(theme.line3, 1, Qt.PenStyle.CustomDashLine)
    pen.setDashPattern([2, 2])
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 3, 3)
    painter.setPen(QPen(theme.text3, 1))
    painter.drawLine(
        QPointF(rect.left() + 4, rect.center().y()),
        QPointF(rect.right() - 4, rect.center().y()),
    )


def paint_progress(
    painter: QPainter, width: float, height: float, played: Played, theme: Theme
) -> None:
    """Paint the progress of a closed group as a bar along its lower edge."""
    bar = QRectF(8, height - 5, width - 16, 3)
    painter.fillRect(bar, theme.line2)
    bar.setWidth(bar.width() * played.ran / max(played.count, 1))
    painter.fillRect(bar, theme.back)


def paint_next(painter: QPainter, area: QRectF, radius: float, theme: Theme) -> None:
    """Paint the outline of the next node."""
    painter.setPen(QPen(theme.back, 2))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(area, radius, radius)


def paint_far(
    painter: QPainter, theme: Theme, ran: Iterable[QRectF], after: QRectF | None
) -> None:
    """From afar: a veil over what ran, and an outline that stays visible however small the box is."""
    veil = QColor(theme.canvas)
    veil.setAlphaF(0.62)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(veil)
    painter.drawRects(list(ran))
    if after is not None:
        pen = QPen(theme.back, 3)
        pen.setCosmetic(True)
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(after)
