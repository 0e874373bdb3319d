"""A field over a node's name."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QWidget

from app.views.ui.theme import font


class RenameField(QLineEdit):
    """`renamed(node, name)` on Enter or when the focus goes elsewhere; Esc leaves the name as it was."""

    renamed = Signal(str, str)
    closed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._node = ""
        self._old = ""
        self.setMaxLength(200)
        self.setAccessibleName("Name of the node")
        self.returnPressed.connect(self._finish)
        self.hide()

    def open_over(self, node: str, name: str, area: QRectF) -> None:
        """Begin, over an area of the parent."""
        self._node, self._old = node, name
        self.setFont(font("node"))
        self.setText(name)
        self.selectAll()
        width = max(round(area.width()), 120)
        self.setGeometry(
            round(area.left()), round(area.top()), width, max(round(area.height()), 26)
        )
        self.show()
        self.raise_()
        self.setFocus(Qt.FocusReason.PopupFocusReason)

    def _finish(self) -> None:
        if self.isVisible():
            self.hide()
            if self.text().strip() and self.text().strip() != self._old:
                self.renamed.emit(self._node, self.text().strip())
            self.closed.emit()

    def event(self, event: QEvent) -> bool:
        if (
            event.type() == QEvent.Type.FocusOut
            and self.isVisible()
            and self.isActiveWindow()
        ):
            self._finish()
        elif (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
            and event.key() == Qt.Key.Key_Escape
        ):
            self.hide()
            self.closed.emit()
            return True
        return super().event(event)
