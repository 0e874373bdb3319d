"""The tape counter: two reels, the numbers of the run, one segment per epoch, and a message at the right.

Neither its numbers nor its message change its width: what is beside it stays where it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.views.ui import icons
from app.views.ui.theme import Theme, current, manager, mix
from app.views.ui.widgets.painting import TextLine, at_least, box, elided, start

HEIGHT = 38
REEL = 12.0  # radius of a reel, px
HUB = 3.6
FIELDS = 74  # where the figures begin, px
EDGE = 14  # left of the figures without the reels, and right of the message
GAP = 26  # between two figures, px
LEAST_GAP = 10  # where room is short
ICON_ROOM = 20 + LEAST_GAP  # of the message's icon, and the gap before it
TURN_A_BATCH = 1 / 8  # of a full turn
SEGMENT_LEAST = 5.0  # narrower epochs are drawn as one bar, px


class _Figure:
    """A caption and a value; the part of the value after a slash is dimmed."""

    def __init__(self, caption: str, value: str) -> None:
        self.caption = TextLine(caption, "caption")
        head, slash, tail = value.partition("/")
        self.value = value
        self.head = TextLine(head, "counter")
        self.tail = TextLine(slash + tail, "counter")

    @property
    def width(self) -> float:
        return max(self.caption.width, self.head.width + self.tail.width)


class Counter(QWidget):
    """The tape counter of the training deck, 38 px high, in `sunken`.

    A message about an error leads there: a click on it emits `followed`. Where there is no room for all figures, the
    reels go first, as the segments show the progress too; then the figures with a caption of `spare`, in that order,
    then the last ones. The tool tip has the figures that went.
    """

    followed = Signal()
    fits_text = True

    def __init__(
        self, parent: QWidget | None = None, spare: Sequence[str] = ()
    ) -> None:
        super().__init__(parent)
        self._spare = spare
        self.setFixedHeight(self._high)
        manager().scaled.connect(self._rescale)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Tape counter")
        self.setMouseTracking(True)
        self._figures: tuple[_Figure, ...] = ()
        self._widths: list[
            float
        ] = []  # a column never shrinks while its caption stays, so figures do not dance
        self._done, self._epochs = 0.0, 0
        self._segments: list[QRectF] = []
        self._shape = QPainterPath()  # of all segments
        self._color = "text4"
        self._text, self._icon, self._tone = "", "", "text2"
        self._message = TextLine("", "message")
        self._gap = float(GAP)
        self._fitting: list[int] = []  # the places of figures that have room
        self._has_reels = True
        self._note = ""
        self._reserved = 0.0  # for a message
        self._angle = 0.0  # turns
        self._turned_at = 0.0  # seconds, monotonic

    @property
    def _high(self) -> int:
        """The height at the text size in force."""
        return round(HEIGHT * manager().scale)

    @property
    def _reels(self) -> QRect:
        return QRect(8, round(self._high / 2) - 13, 56, 26)

    def _rescale(self, _share: float) -> None:
        self.setFixedHeight(self._high)
        self._widths = [figure.width for figure in self._figures]
        self._cut()
        self._fit()
        self.updateGeometry()

    def set_fields(self, fields: Iterable[tuple[str, str]]) -> None:
        """Set the numbers as (caption, value) pairs, such as ("Epoch", "3/10")."""
        fields = tuple(fields)
        same = [c for c, _ in fields] == [f.caption.text for f in self._figures]
        if same and [v for _, v in fields] == [f.value for f in self._figures]:
            return
        old = self._widths if same else [0.0] * len(fields)
        figures = {(f.caption.text, f.value): f for f in self._figures}
        self._figures = tuple(figures.get(field) or _Figure(*field) for field in fields)
        widths = [max(f.width, w) for f, w in zip(self._figures, old, strict=True)]
        if widths != self._widths or not same:
            self._widths = widths
            self._fit()
        self.setAccessibleDescription(_listed(fields))
        self._update_tip()
        self.update()

    def fields(self) -> tuple[tuple[str, str], ...]:
        return tuple((f.caption.text, f.value) for f in self._figures)

    def set_progress(self, done: float, epochs: int) -> None:
        """Set the progress of the run: `done` of `epochs`, in epochs and fractions of them."""
        done = min(max(done, 0.0), float(epochs))
        if (done, epochs) == (self._done, self._epochs):
            return
        recut = epochs != self._epochs
        self._done, self._epochs = done, epochs
        if recut:
            self._cut()
        self.update()

    def set_color(self, color: str) -> None:
        """Set the tape's colour: `run` forward, `back` while the backward pass is replayed, `text4` when idle."""
        if color != self._color:
            self._color = color
            self.update()

    def reserve(self, texts: Iterable[str]) -> None:
        """Keep room for the widest of these messages, so that no figure moves when one comes or goes."""
        self._reserved = max(
            (TextLine(text, "message").width for text in texts), default=0.0
        )
        self._fit()

    def set_message(self, text: str, icon: str = "", color: str = "text2") -> None:
        """Show a message at the right, such as `Fix 1 error to run`; an empty text removes it."""
        if (text, icon, color) == (self._text, self._icon, self._tone):
            return
        self._text, self._icon, self._tone = text, icon, color
        self._fit()
        self.update()

    def set_note(self, text: str) -> None:
        """Set a sentence of the tool tip."""
        self._note = text
        self._update_tip()

    def _update_tip(self) -> None:
        left_out = [
            field
            for index, field in enumerate(self.fields())
            if index not in self._fitting
        ]
        lines = self._text, _listed(left_out), self._note
        self.setToolTip("\n".join(filter(None, lines)))

    def message(self) -> str:
        return self._text

    @property
    def leads(self) -> bool:
        """Whether the message can be followed."""
        return bool(self._text) and self._icon == "error"

    def message_rect(self) -> QRect:
        """Return the area of the message with its icon."""
        width = int(self._message.width) + 28
        return QRect(self.width() - EDGE - width, 0, width + EDGE, self._high - 6)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self._over_link(event):
            self.followed.emit()
        else:
            super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        over = self._over_link(event)
        self.setCursor(
            Qt.CursorShape.PointingHandCursor if over else Qt.CursorShape.ArrowCursor
        )

    def _over_link(self, event: QMouseEvent) -> bool:
        return self.leads and self.message_rect().contains(event.position().toPoint())

    def turn(self, batches: int) -> None:
        """Rotate the reels by a number of batches, at most once a second; not at all with reduced motion."""
        now = time.monotonic()
        elapsed = min(now - self._turned_at, 1.0)
        self._turned_at = now
        if batches > 0 and not manager().reduced_motion:
            self._angle = (self._angle + min(batches * TURN_A_BATCH, elapsed)) % 1.0
            if self._has_reels:
                self.update(self._reels)

    def angle(self) -> float:
        """Return the rotation of the reels, in turns, 0 to 1."""
        return self._angle

    # where it is

    def _fit(self) -> None:
        """Give the message what the figures leave, which stand closer where it would be cut, and go where it still
        would be."""
        full = TextLine(self._text, "message")
        message_width = max(full.width, self._reserved)
        captions = [figure.caption.text for figure in self._figures]
        fitting = list(range(len(self._widths)))
        had_reels, all_gaps = self._has_reels, LEAST_GAP * max(len(fitting) - 1, 0)
        self._has_reels = (
            FIELDS + sum(self._widths) + all_gaps + ICON_ROOM + EDGE <= self.width()
        )
        if had_reels != self._has_reels:
            self._cut()
        while True:
            gaps = max(len(fitting) - 1, 0)
            room = (
                self.width()
                - self._figures_at
                - sum(self._widths[index] for index in fitting)
                - EDGE
            )
            room -= (
                ICON_ROOM
                if self._icon or (self._reserved and self._has_reels)
                else 8
                if self._text
                else 0
            )
            self._gap = (
                min(max((room - message_width) / gaps, LEAST_GAP), GAP)
                if gaps
                else float(GAP)
            )
            room -= self._gap * gaps
            if room >= full.width or len(fitting) <= 2:
                break
            spare = [
                index
                for caption in self._spare
                for index in fitting
                if captions[index] == caption
            ]
            fitting.remove(spare[0] if spare else fitting[-1])
        self._fitting = fitting
        self._message = (
            full if full.width <= room else elided(self._text, "message", room)
        )
        self._update_tip()

    @property
    def _figures_at(self) -> int:
        """Where the figures begin, px."""
        return FIELDS if self._has_reels else EDGE

    def _cut(self) -> None:
        """Lay out one segment per epoch, or a single bar when there are too many."""
        left = self._figures_at
        room = self.width() - left - EDGE
        gap = 2.0
        count = self._epochs
        if count < 1 or room <= 0:
            self._segments = []
            return
        width = (room - gap * (count - 1)) / count
        if width < SEGMENT_LEAST:
            self._segments = [QRectF(left, self._high - 6, room, 3)]
        else:
            self._segments = [
                QRectF(left + i * (width + gap), self._high - 6, width, 3)
                for i in range(count)
            ]
        self._shape = QPainterPath()
        for segment in self._segments:
            self._shape.addRoundedRect(segment, 1, 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._cut()
        self._fit()

    def sizeHint(self) -> QSize:
        return at_least(330, self._high)

    def minimumSizeHint(self) -> QSize:
        return at_least(200, self._high)

    # how it looks

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        box(painter, QRectF(self.rect()), 7, theme.sunken, theme.line)
        tape = theme.color(self._color)
        share = self._done / self._epochs if self._epochs else 0.0
        if self._has_reels:
            self._paint_reel(
                painter, theme, QPointF(8 + REEL, self._high / 2), 1.0 - share, tape
            )
            self._paint_reel(
                painter, theme, QPointF(8 + 3 * REEL + 6, self._high / 2), share, tape
            )
        if not self._has_reels or not self._reels.contains(event.rect()):
            self._paint_figures(painter, theme)
            self._paint_segments(painter, theme, tape)
        painter.end()

    def _paint_reel(
        self,
        painter: QPainter,
        theme: Theme,
        center: QPointF,
        share: float,
        tape: QColor,
    ) -> None:
        """Paint a reel with `share` of the tape on it: the area of the tape grows, not its radius."""
        painter.setPen(QPen(theme.line2, 1))
        painter.setBrush(theme.raised)
        painter.drawEllipse(center, REEL - 0.5, REEL - 0.5)
        inner, outer = HUB + 1.6, REEL - 2
        radius = math.sqrt(inner**2 + share * (outer**2 - inner**2))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(mix(theme.raised, tape, 0.72))
        painter.drawEllipse(center, radius, radius)
        painter.setBrush(theme.sunken)
        painter.drawEllipse(center, HUB + 0.4, HUB + 0.4)
        painter.setPen(
            QPen(
                theme.text2 if self._color != "text4" else theme.text3,
                1.3,
                c=Qt.PenCapStyle.RoundCap,
            )
        )
        for spoke in range(3):
            turn = (self._angle + spoke / 3) * 2 * math.pi
            way = QPointF(math.cos(turn), math.sin(turn))
            painter.drawLine(center + way * 1.2, center + way * (HUB - 0.4))

    def _paint_figures(self, painter: QPainter, theme: Theme) -> None:
        x = float(self._figures_at)
        rest, below = self._color == "text4", round(14 * manager().scale)
        for index in self._fitting:
            figure, width = self._figures[index], self._widths[index]
            figure.caption.draw(painter, x, 2, theme.text3)
            figure.head.draw(painter, x, below, theme.text2 if rest else theme.text)
            figure.tail.draw(painter, x + figure.head.width, below, theme.text3)
            x += width + self._gap
        if self._text:
            color = theme.color(self._tone)
            left = self.width() - EDGE - self._message.width
            area = QRectF(0, 0, self.width(), self._high - 6)
            self._message.draw_in(painter, left, area, color)
            if self._icon:
                icons.draw(
                    painter,
                    self._icon,
                    self._tone,
                    left - 20,
                    area.center().y() - 7,
                    14,
                )

    def _paint_segments(self, painter: QPainter, theme: Theme, tape: QColor) -> None:
        """Paint all segments as one shape, and again in colour as far as the run has come."""
        if not self._segments:
            return
        count = len(self._segments)
        done = self._done / self._epochs if count == 1 else min(self._done, count)
        painter.fillPath(self._shape, theme.line2)
        if done > 0:
            last = self._segments[min(int(done), count - 1)]
            right = last.x() + max(
                last.width() * min(done - int(done) if done < count else 1.0, 1.0), 1.0
            )
            painter.setClipRect(QRectF(0, last.y(), right, last.height()))
            painter.fillPath(self._shape, tape)
            painter.setClipping(False)


def _listed(fields: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{caption} {value}" for caption, value in fields)
