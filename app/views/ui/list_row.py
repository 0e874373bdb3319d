"""A row of a list of problems or findings, which the arrows leave and Enter or a click follows."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.views.ui import theme
from app.views.ui.widgets.focus import WORKPLACE
from app.views.ui.widgets.painting import box, start


class ListRow(QWidget):
    """Its ground, its focus and its keys. `followed` comes at a click, Enter or Space, `left` (-1 up, 1 down) at an
    arrow."""

    followed = Signal()
    left = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._marked = False
        self.setProperty(WORKPLACE, True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)

    def set_marked(self, marked: bool) -> None:
        """Show that its item is selected or current."""
        self._marked = marked
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.setFocus(Qt.FocusReason.MouseFocusReason)
            self.followed.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.followed.emit()
        elif event.key() in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            self.left.emit(-1 if event.key() == Qt.Key.Key_Up else 1)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = theme.current()
        painter = start(self)
        if self._marked or self.underMouse():
            painter.fillRect(
                self.rect(),
                colors.raised if self._marked and colors.dark else colors.hover,
            )
        painter.fillRect(0, self.height() - 1, self.width(), 1, colors.line)
        if self._marked and (line := colors.outline(colors.line3)) is not None:
            box(painter, QRectF(self.rect()).adjusted(0, 0, -1, -2), 4, line=line)
        if self.hasFocus():
            box(
                painter,
                QRectF(self.rect()).adjusted(1, 1, -1, -2),
                4,
                line=colors.accent,
                width=1.5,
            )
        painter.end()
