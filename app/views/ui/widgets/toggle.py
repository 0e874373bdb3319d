"""A switch, 30 x 16, for True and False."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from app.views.ui.theme import current
from app.views.ui.widgets.painting import KeyboardFocus, TextLine, at_least, box, start

WIDTH, HEIGHT = 30, 16


class Toggle(KeyboardFocus, QAbstractButton):
    """A switch with an optional text. `edited` is emitted for changes by the user, `toggled` for every change."""

    edited = Signal(object)

    def __init__(
        self, text: str = "", parent: QWidget | None = None, *, value: bool = False
    ) -> None:
        super().__init__(parent)
        self.setCheckable(True)
        self.setChecked(value)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._invalid: str | None = None
        self._line = TextLine("", "label")
        self.clicked.connect(lambda checked: self.edited.emit(checked))
        self.set_text(text)

    def set_text(self, text: str) -> None:
        """Set the text at the right, such as `64 values`."""
        self.setText(text)
        self._line = TextLine(text, "label")
        self.updateGeometry()
        self.update()

    def value(self) -> bool:
        return self.isChecked()

    def set_value(self, value: bool) -> None:
        self.setChecked(bool(value))

    def set_invalid(self, message: str | None) -> None:
        """Mark the value as invalid; None removes the mark."""
        self._invalid = message
        self.setToolTip(message or "")
        self.setAccessibleDescription(message or "")
        self.update()

    def sizeHint(self) -> QSize:
        text = 8 + self._line.width if self._line.text else 0
        return at_least(WIDTH + text, max(HEIGHT + 2, self._line.height))

    def hitButton(self, position: QPoint) -> bool:
        return self.rect().contains(position)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        top = (self.height() - HEIGHT) / 2
        track = QRectF(0, top, WIDTH, HEIGHT)
        on = self.isChecked()
        fill = (
            theme.pressed
            if not self.isEnabled()
            else theme.accentFill
            if on
            else theme.line3
        )
        box(
            painter,
            track,
            HEIGHT / 2,
            fill,
            theme.error if self._invalid else None,
            1.5,
        )
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.onFill if self.isEnabled() else theme.text4)
        painter.drawEllipse(
            QPointF(track.right() - 8 if on else track.left() + 8, track.center().y()),
            6,
            6,
        )
        if self._line.text:
            color = theme.text2 if self.isEnabled() else theme.text4
            self._line.draw_in(painter, WIDTH + 8, QRectF(self.rect()), color)
        self.paint_ring(painter, track, HEIGHT / 2, theme.panel)
        painter.end()
