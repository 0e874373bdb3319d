"""A path that is shown and can be copied, but not typed: where it has no room, it is elided in the middle."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QLineEdit, QStyle, QStyleOptionFrame, QWidget

CURSOR = 2  # px that a line edit keeps beside its text


class PathLine(QLineEdit):
    """Shows a path, with the whole of it as tool tip; while it has the focus, the text can be scrolled and selected."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setReadOnly(True)

    def set_path(self, path: str) -> None:
        """Show another path."""
        self.setText(path)
        self.setCursorPosition(0)
        self.setToolTip(path)

    def shown(self) -> str:
        """Return the path as it is drawn without the focus."""
        option = QStyleOptionFrame()
        self.initStyleOption(option)
        room = self.style().subElementRect(QStyle.SubElement.SE_LineEditContents, option, self).width() - 2 * CURSOR
        return self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideMiddle, room)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.hasFocus() or (shown := self.shown()) == self.text():
            super().paintEvent(event)
            return
        option = QStyleOptionFrame()
        self.initStyleOption(option)
        style, painter = self.style(), QPainter(self)
        style.drawPrimitive(QStyle.PrimitiveElement.PE_PanelLineEdit, option, painter, self)
        area = style.subElementRect(QStyle.SubElement.SE_LineEditContents, option, self)
        painter.setPen(self.palette().text().color())
        painter.drawText(area.adjusted(CURSOR, 0, -CURSOR, 0), Qt.AlignmentFlag.AlignVCenter, shown)
        painter.end()
