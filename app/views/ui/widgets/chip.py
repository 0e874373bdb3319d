"""A rounded label of a shape, such as N×32×26×26."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.views.ui.theme import Theme, current
from app.views.ui.widgets.painting import TextLine, at_least, start

HEIGHT = 18
# state: fill, line, text
STATES = {
    "normal": ("panel", "line2", "text2"),
    "accent": ("accentBg", "accent", "text"),
    "error": ("errorBg", "error", "error"),
    "back": ("backBg", "back", "back"),
    "assumed": ("panel", "line3", "text3"),
}


class ShapeChip(QWidget):
    """A shape label, 18 px high. `assumed` has a dashed border: the shape was declared, not computed."""

    def __init__(self, text: str, state: str = "normal") -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set(text, state)

    def set(self, text: str, state: str = "normal") -> None:
        """Set the text and the state.

        Raises:
            KeyError: there is no such state.
        """
        self._colors, self._state = STATES[state], state
        self._line = TextLine(text, "shape")
        self.setAccessibleName(
            text if state in ("normal", "accent", "back") else f"{text}, {state}"
        )
        self.updateGeometry()
        self.update()

    def text(self) -> str:
        return self._line.text

    def state(self) -> str:
        return self._state

    def sizeHint(self) -> QSize:
        return at_least(self._line.width + 16, HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme: Theme = current()
        fill, line, text = (theme.color(c) for c in self._colors)
        painter = start(self)
        pen = QPen(line, 1)
        if self._state == "assumed":
            pen.setStyle(Qt.PenStyle.CustomDashLine)
            pen.setDashPattern([3, 3])
        painter.setPen(pen)
        painter.setBrush(fill)
        area = QRectF(
            0.5, (self.height() - HEIGHT) / 2 + 0.5, self.width() - 1, HEIGHT - 1
        )
        painter.drawRoundedRect(area, 8.5, 8.5)
        self._line.draw_in(painter, (self.width() - self._line.width) / 2, area, text)
        painter.end()
