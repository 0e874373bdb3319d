"""A grid of small images of numbers, each with a caption."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QImage, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.util import formatting
from app.views.ui import theme
from app.views.ui.widgets.painting import start

GAP, CAPTION = 6, 15
LEAST, MOST = 14, 72  # sides of a picture, px


def image_of(pixels: np.ndarray) -> QImage:
    """Return bytes (H, W, 3), or (H, W, 4) with opacity, as an image with memory of its own."""
    contiguous = np.ascontiguousarray(pixels)
    height, width, channels = contiguous.shape
    kinds = {3: QImage.Format.Format_RGB888, 4: QImage.Format.Format_RGBA8888}
    return QImage(
        contiguous.data, width, height, channels * width, kinds[channels]
    ).copy()


def heat_colors(shares: np.ndarray) -> np.ndarray:
    """Return the colours (..., 3) of shares of 1 in the heat ramp, as bytes; NaN has its lowest."""
    table = np.array(theme.heat_table(), dtype=np.uint8)
    finite = np.nan_to_num(shares, nan=0.0, posinf=1.0, neginf=0.0)
    return table[np.clip(finite * 255, 0, 255).astype(np.uint8)]


class PictureGrid(QWidget):
    """Pictures of numbers (n, h, w), in the ramp from the lowest of all to the highest, or as (n, h, w, 3) bytes.

    Not a number is left empty. All are made small enough to be seen at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._images: list[QImage] = []
        self._captions: tuple[str, ...] = ()
        self._shape = (1, 1)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    @property
    def count(self) -> int:
        return len(self._images)

    @property
    def captions(self) -> tuple[str, ...]:
        return self._captions

    def show_numbers(self, pictures: np.ndarray) -> None:
        """Show numbers (n, h, w) in the heat ramp, all by one scale."""
        finite = pictures[np.isfinite(pictures)]
        low, high = (
            (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        )
        span = high - low or 1.0
        with np.errstate(invalid="ignore"):
            colors = heat_colors((pictures - low) / span)
        colors[np.isnan(pictures)] = theme.channels(theme.current().panel)[:3]
        self.show_colors(colors)

    def show_colors(self, pictures: np.ndarray, captions: Sequence[str] = ()) -> None:
        """Show pictures (n, h, w, 3) of bytes."""
        self._images = [image_of(picture) for picture in pictures]
        self._shape = pictures.shape[1:3] if len(pictures) else (1, 1)
        self._captions = tuple(captions)
        self.setAccessibleName(
            formatting.counted(len(self._images), "picture")
            + (f": {', '.join(captions)}" if captions else "")
        )
        self.updateGeometry()
        self.update()

    def clear(self) -> None:
        self.show_colors(np.empty((0, 1, 1, 3), dtype=np.uint8))

    def _cell(self, width: float, height: float) -> tuple[float, float, int]:
        """Return width and height of an image, and how many fit side by side."""
        tall, wide = self._shape
        caption = CAPTION if self._captions else 0
        ratio = tall / wide
        side = MOST if wide <= 4 * tall else width - 2
        while True:
            across = max(1, int((width + GAP) // (side + GAP)))
            lines = -(-len(self._images) // across)
            if side <= LEAST or lines * (side * ratio + caption + GAP) <= height:
                return side, side * ratio, across
            side -= 2

    def sizeHint(self) -> QSize:
        return QSize(260, 160)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._images:
            return
        painter = start(self)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, False)
        painter.setFont(theme.font("caption"))
        painter.setPen(theme.current().text2)
        metrics = QFontMetricsF(painter.font())
        wide, tall, across = self._cell(self.width(), self.height())
        line = tall + GAP + (CAPTION if self._captions else 0)
        for number, image in enumerate(self._images):
            left, top = number % across * (wide + GAP), number // across * line
            painter.drawImage(QRectF(left, top, wide, tall), image)
            if number < len(self._captions):
                text = metrics.elidedText(
                    self._captions[number], Qt.TextElideMode.ElideRight, wide + GAP
                )
                painter.drawText(
                    QRectF(left, top + tall, wide + GAP, CAPTION),
                    Qt.AlignmentFlag.AlignVCenter,
                    text,
                )
        painter.end()
