"""The heat ramp with its bounds printed beside it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QImage, QPaintEvent, QPixmap, qRgb
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.views.ui.theme import current, heat_table
from app.views.ui.widgets.painting import TextLine, at_least, start

_RAMPS: dict[bool, QPixmap] = {}


def _ramp(vertical: bool) -> QPixmap:
    """Return the colour ramp, 256 px long and 1 px thick: low at left, or at the bottom."""
    if vertical not in _RAMPS:
        image = QImage(
            1 if vertical else 256, 256 if vertical else 1, QImage.Format.Format_RGB32
        )
        for i, (red, green, blue) in enumerate(heat_table()):
            image.setPixel(
                0 if vertical else i, 255 - i if vertical else 0, qRgb(red, green, blue)
            )
        _RAMPS[vertical] = QPixmap.fromImage(image)
    return _RAMPS[vertical]


class HeatBar(QWidget):
    """A legend: caption, low bound, ramp, high bound; or vertical, with texts at right from low to high.

    Args:
        bounds: At least two texts, low to high.
    """

    LENGTH = 130

    def __init__(
        self,
        bounds: Sequence[str] = ("0", "1"),
        caption: str = "",
        parent: QWidget | None = None,
        *,
        vertical: bool = False,
    ) -> None:
        super().__init__(parent)
        self._vertical = vertical
        fixed, free = QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding
        self.setSizePolicy(fixed, free if vertical else fixed)
        self.set(bounds, caption)

    def set(self, bounds: Sequence[str], caption: str = "") -> None:
        """Print other bounds.

        Raises:
            ValueError: there are fewer than two.
        """
        if len(bounds) < 2:
            raise ValueError("a ramp has at least two bounds")
        self._caption = TextLine(caption, "caption")
        self._bounds = [
            TextLine(text, "caption" if not self._vertical else "axis")
            for text in bounds
        ]
        self.setAccessibleName(f"{caption} {bounds[0]} to {bounds[-1]}".strip())
        self.updateGeometry()
        self.update()

    def bounds(self) -> tuple[str, ...]:
        return tuple(line.text for line in self._bounds)

    def sizeHint(self) -> QSize:
        if self._vertical:
            return at_least(10 + 6 + max(b.width for b in self._bounds), 120)
        caption = self._caption.width + 8 if self._caption.text else 0
        return at_least(
            caption + self._bounds[0].width + self._bounds[-1].width + 16 + self.LENGTH,
            18,
        )

    def minimumSizeHint(self) -> QSize:
        return (
            self.sizeHint()
            if not self._vertical
            else QSize(self.sizeHint().width(), 40)
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        area = QRectF(self.rect())
        if self._vertical:
            height = self._bounds[0].height
            ramp = QRectF(0, height / 2, 10, self.height() - height)
            painter.drawPixmap(ramp.toRect(), _ramp(True))
            for i, line in enumerate(self._bounds):
                y = (
                    ramp.bottom()
                    - ramp.height() * i / (len(self._bounds) - 1)
                    - height / 2
                )
                line.draw(painter, 16, y, theme.text3)
        else:
            x = 0.0
            if self._caption.text:
                self._caption.draw_in(painter, x, area, theme.text3)
                x += self._caption.width + 8
            low, high = self._bounds[0], self._bounds[-1]
            low.draw_in(painter, x, area, theme.text2)
            x += low.width + 8
            painter.drawPixmap(
                QRectF(x, area.center().y() - 4, self.LENGTH, 8).toRect(), _ramp(False)
            )
            high.draw_in(painter, x + self.LENGTH + 8, area, theme.text2)
        painter.end()
