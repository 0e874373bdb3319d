"""A line of text that is elided where its panel is narrow: it never makes the panel wider."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel

from app.views.ui.theme import font

LEAST = 40  # px


class FittingLabel(QLabel):
    """Shows its text whole where there is room, else elided in the middle, or at the right, with the whole text as
    tooltip."""

    def __init__(
        self,
        text: str,
        role: str,
        tone: str = "",
        tip: str = "",
        *,
        at_right: bool = False,
    ) -> None:
        super().__init__(text)
        self._whole, self._tip, self._short = text, tip or text, ""
        self._mode = (
            Qt.TextElideMode.ElideRight if at_right else Qt.TextElideMode.ElideMiddle
        )
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setFont(font(role))
        self.setToolTip(self._tip)
        self.setAccessibleName(text)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        if tone:
            self.setProperty("tone", tone)

    def set_whole(self, text: str, tip: str = "", short: str = "") -> None:
        """Show another text, or its short form where there is no room for it."""
        self._whole, self._short = text, short
        self.setToolTip(tip or text)
        self.setAccessibleName(text)
        self.updateGeometry()
        self._fit()

    def _width(self) -> int:
        return self.fontMetrics().horizontalAdvance(self._whole) + 2

    def sizeHint(self) -> QSize:
        return QSize(self._width(), super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        return QSize(min(LEAST, self._width()), super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        fits = not self._short or self._width() <= self.width()
        shown = self._whole if fits else self._short
        self.setText(self.fontMetrics().elidedText(shown, self._mode, self.width()))
