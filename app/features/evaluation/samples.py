"""Samples of an evaluation as tiles: image or table row, with true and predicted class."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QWidget

from app.training.evaluation.result import Shown
from app.views.run.picture_grid import image_of
from app.views.ui import theme
from app.views.ui.widgets.painting import TipAt, start

SIDE, GAP, LINE, PAD = 66, 10, 15, 12  # at the designed text size
WIDEST = 120  # px of a tile, at most
ROW = 46


class _Tiles(TipAt, QWidget):
    opened = Signal(int)  # a sample's number

    def __init__(self) -> None:
        super().__init__()
        self.samples: tuple[Shown, ...] = ()
        self._images: list[QImage | None] = []
        self._current = -1
        self._side, self._line, self._row, self._lines = SIDE, LINE, ROW, 2
        self._in_two = False
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.manager().changed.connect(self._measure)

    def set_samples(self, samples: tuple[Shown, ...]) -> None:
        self.samples = samples
        self._images = [
            image_of(sample.picture) if sample.picture is not None else None
            for sample in samples
        ]
        self._current = -1
        self._measure()

    def _measure(self) -> None:
        """Make tiles as wide as their captions, at the text size in force."""
        metrics, scale = QFontMetricsF(theme.font("axis")), theme.manager().scale
        lines = [_lines_of(sample) for sample in self.samples]
        self._in_two = False
        self._in_two = self._widest_title() > WIDEST * scale
        widths = [
            metrics.horizontalAdvance(line) for caption in lines for line in caption
        ]
        widest = max(self._widest_title(), *widths, 0.0)
        # Below a picture.
        self._lines = 1 + self._in_two + max(map(len, lines), default=1)
        self._side = round(min(max(SIDE, widest + 1), WIDEST * scale))
        self._line, self._row = round(LINE * scale), round(ROW * scale)
        self._fit()
        self.update()

    def _titles_of(self, sample: Shown) -> list[str]:
        """Return the title of a picture, in a line, or the true class and the predicted one in a line each."""
        true, arrow, called = sample.title.partition(" → ")
        return [true, arrow.lstrip() + called] if self._in_two else [sample.title]

    def _widest_title(self) -> float:
        metrics = QFontMetricsF(theme.font("label"))
        lines = (line for sample in self.samples for line in self._titles_of(sample))
        return max(map(metrics.horizontalAdvance, lines), default=0.0)

    @property
    def _pictured(self) -> bool:
        return any(image is not None for image in self._images)

    @property
    def _across(self) -> int:
        return (
            max((self.width() - 2 * PAD + GAP) // (self._side + GAP), 1)
            if self._pictured
            else 1
        )

    def _box(self, index: int) -> QRectF:
        """Return the area of a tile with its text."""
        if not self._pictured:
            return QRectF(
                PAD, PAD / 2 + index * self._row, self.width() - 2 * PAD, self._row - 4
            )
        row, column = divmod(index, self._across)
        height = self._side + self._lines * self._line + GAP
        return QRectF(
            PAD + column * (self._side + GAP),
            PAD / 2 + row * height,
            self._side,
            height - GAP + 2,
        )

    def _fit(self) -> None:
        last = self._box(len(self.samples) - 1).bottom() + PAD if self.samples else 1
        self.setFixedHeight(round(last))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()

    def _tile_at(self, position: QPointF) -> int:
        return next(
            (
                index
                for index in range(len(self.samples))
                if self._box(index).contains(position)
            ),
            -1,
        )

    def tip_at(self, at: QPoint) -> str:
        index = self._tile_at(at.toPointF())
        return self.samples[index].tip if index >= 0 else ""

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._current = self._tile_at(event.position())
        self.update()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        index = self._tile_at(event.position())
        if index >= 0:
            self.opened.emit(self.samples[index].number)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {
            Qt.Key.Key_Left: -1,
            Qt.Key.Key_Right: 1,
            Qt.Key.Key_Up: -self._across,
            Qt.Key.Key_Down: self._across,
        }
        if event.key() in steps and self.samples:
            index = max(self._current, 0) + (
                steps[Qt.Key(event.key())] if self._current >= 0 else 0
            )
            self._current = min(max(index, 0), len(self.samples) - 1)
            self.update()
        elif (
            event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._current >= 0
        ):
            self.opened.emit(self.samples[self._current].number)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, look = start(self), theme.current()
        for index, (sample, image) in enumerate(
            zip(self.samples, self._images, strict=True)
        ):
            box = self._box(index)
            if box.intersects(QRectF(event.rect())):
                if index == self._current:
                    painter.setPen(look.accent)
                    painter.setBrush(look.accentBg)
                    painter.drawRoundedRect(box.adjusted(-3, -3, 3, 1), 4, 4)
                self._paint_tile(painter, look, box, sample, image)
        painter.end()

    def _paint_tile(
        self,
        painter: QPainter,
        look: theme.Theme,
        box: QRectF,
        sample: Shown,
        image: QImage | None,
    ) -> None:
        tone = look.error if sample.right is False else look.text
        text_box = QRectF(box)
        if image is not None:
            painter.setRenderHint(
                QPainter.RenderHint.SmoothPixmapTransform,
                max(image.width(), image.height()) > self._side,
            )
            scale = self._side / max(image.width(), image.height())
            width, height = image.width() * scale, image.height() * scale
            frame = QRectF(
                box.left() + (self._side - width) / 2,
                box.top() + (self._side - height) / 2,
                width,
                height,
            )
            painter.drawImage(frame, image)
            text_box = QRectF(
                box.left(), box.top() + self._side + 2, box.width(), self._line
            )
            titles = ((line, "label", tone) for line in self._titles_of(sample) if line)
            others = ((line, "axis", look.text3) for line in _lines_of(sample))
            for line, role, color in (*titles, *others):
                _write(painter, line, role, color, text_box)
                text_box.translate(0, self._line)
            return
        first = QRectF(
            text_box.left(), text_box.top() + 2, text_box.width() * 0.62, self._line + 3
        )
        last = QRectF(
            first.right(), first.top(), text_box.width() - first.width(), self._line + 3
        )
        _write(painter, sample.title, "label", tone, first)
        _write(painter, sample.detail, "caption", look.text3, last, right=True)
        _write(
            painter,
            sample.text,
            "formula",
            look.text2,
            QRectF(text_box.left(), first.bottom(), text_box.width(), self._line + 3),
        )


def _lines_of(sample: Shown) -> list[str]:
    """Return the lines below the title of a picture: probability and loss, so that pictures stay narrow."""
    return sample.detail.split(", ")


def _write(
    painter: QPainter,
    text: str,
    role: str,
    color: QColor,
    box: QRectF,
    right: bool = False,
) -> None:
    painter.setFont(theme.font(role))
    painter.setPen(color)
    text = QFontMetricsF(painter.font()).elidedText(
        text, Qt.TextElideMode.ElideRight, box.width()
    )
    side = Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
    painter.drawText(
        box, side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine, text
    )


class SampleTiles(QScrollArea):
    """`opened(number)` comes when a sample is to be tried: a double click, or Enter."""

    opened = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.tiles = _Tiles()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWidget(self.tiles)
        self.setMinimumWidth(180)
        self.tiles.setAccessibleName("Samples")
        self.tiles.opened.connect(self.opened)

    @property
    def samples(self) -> tuple[Shown, ...]:
        return self.tiles.samples

    def set_samples(self, samples: tuple[Shown, ...]) -> None:
        self.tiles.set_samples(samples)
        self.verticalScrollBar().setValue(0)

    def sizeHint(self) -> QSize:
        return QSize(420, 280)
