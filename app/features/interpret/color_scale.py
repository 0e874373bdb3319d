"""A scale of colours with the numbers at its ends."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QImage, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.features.interpret.attributions import signed_image
from app.features.interpret.head_grid import heat_image
from app.util.language import tr
from app.views.ui import theme
from app.views.ui.widgets.painting import TextLine, at_least, start

BAR, LEAST, HIGH, GAP = 120, 40, 10, 6


class ColorScale(QWidget):
    """The ramp of weights from 0, or that of signed values about 0, between the words for its ends."""

    def __init__(self, signed: bool = False) -> None:
        super().__init__()
        self._signed = signed
        self.ends = ("", "")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.manager().changed.connect(self.update)

    def set_ends(self, low: str, high: str) -> None:
        """Set the words at both ends; "" for no scale."""
        self.ends = (low, high)
        self.setVisible(bool(high))
        self.setAccessibleName(tr("Colours from {low} to {high}", low=low, high=high))
        self.updateGeometry()
        self.update()

    def _end_labels(self) -> list[TextLine]:
        return [TextLine(text, "caption") for text in self.ends]

    def _size(self, bar: int) -> QSize:
        low, high = self._end_labels()
        return at_least(low.width + bar + 2 * GAP + high.width, max(low.height, 16))

    def sizeHint(self) -> QSize:
        return self._size(BAR)

    def minimumSizeHint(self) -> QSize:
        return self._size(LEAST)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, look = start(self), theme.current()
        low, high = self._end_labels()
        room = self.width() - low.width - high.width - 2 * GAP - 1
        bar = QRectF(
            low.width + GAP,
            (self.height() - HIGH) / 2,
            min(max(room, LEAST), BAR),
            HIGH,
        )
        low.draw_in(painter, 0, QRectF(0, 0, low.width, self.height()), look.text3)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.drawImage(bar, self._ramp())
        painter.setPen(look.line2)
        painter.drawRect(bar)
        high.draw_in(
            painter,
            bar.right() + GAP,
            QRectF(0, 0, high.width, self.height()),
            look.text3,
        )
        painter.end()

    def _ramp(self) -> QImage:
        if self._signed:
            return signed_image(np.linspace(-1, 1, 255)[None], True)
        return heat_image(np.linspace(0, 1, 256)[None])
