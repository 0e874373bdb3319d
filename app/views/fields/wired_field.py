"""Fields whose value comes from a wire: inferred from the input shape, or provided by a node."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent

from app.builder.literals import AUTO
from app.views.fields.editors import LEAST, Editor
from app.views.fields.values import ParamLike, show
from app.views.ui.widgets import TextField

_AUTO = 84  # width of a field for a number that is taken from the input, px


class LinkedField(TextField):
    """Shows a value that comes along the wire. The link, or Enter, cuts it."""

    wire_cut = Signal()

    def __init__(self) -> None:
        super().__init__("", str, show)
        self.set_linked(True)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        over = event.position().x() > self.width() - 22
        self.setCursor(
            Qt.CursorShape.PointingHandCursor if over else Qt.CursorShape.IBeamCursor
        )
        super().mouseMoveEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        if (
            event.button() == Qt.MouseButton.LeftButton
            and event.position().x() > self.width() - 22
        ):
            self.wire_cut.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (
            Qt.Key.Key_Return,
            Qt.Key.Key_Enter,
            Qt.Key.Key_Space,
            Qt.Key.Key_F2,
        ):
            self.wire_cut.emit()
        else:
            super().keyPressEvent(event)


class AutoEditor(Editor):
    """AUTO: the value that the arriving shape gave, read-only, until the link is cut and it becomes a typed one."""

    typed = False

    def __init__(self, param: ParamLike) -> None:
        super().__init__(param, LinkedField())
        self._resolved: Any = AUTO
        self.field.setMouseTracking(True)
        self.field.setMinimumWidth(LEAST)
        self.field.setMaximumWidth(_AUTO)
        self.row.addStretch(0)
        self.field.wire_cut.connect(self._cut)

    def set_value(self, value: Any) -> None:
        self._given = value
        self.set_resolved(self._resolved)

    def set_resolved(self, value: Any) -> None:
        """Set the inferred value for AUTO; AUTO itself without an input."""
        self._resolved = value
        self.field.set_value("auto" if value is AUTO else value)

    def _cut(self) -> None:
        value = self._resolved
        if value is AUTO:  # nothing arrives; begin with the least that can be
            value = int(self.param.minimum or 1)
            value = (
                (value,)
                if self.param.kind == "ints" and not self.param.count
                else value
            )
        self._edited(value)


class WiredEditor(Editor):
    """A parameter that a node gives: which one, until the link is clicked, or Enter cuts the wire."""

    typed = False
    cut = Signal()

    def __init__(self, param: ParamLike) -> None:
        super().__init__(param, LinkedField())
        self.field.setMouseTracking(True)
        self.field.wire_cut.connect(self.cut)

    def show_source(self, name: str) -> None:
        """Show the name of the node that gives the value."""
        self.field.setText(f"from {name}")
        self.field.setCursorPosition(0)
