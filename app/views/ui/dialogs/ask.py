"""A small overlay with one text field. Enter submits, Esc cancels."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QPoint, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPaintEvent
from PySide6.QtWidgets import QFrame, QLineEdit, QWidget

from app.views.ui.layouts import vbox
from app.views.ui.present import present
from app.views.ui.theme import current
from app.views.ui.widgets.painting import announce, box, label, show_or_hide, start

WIDTH = 280


class PromptBox(QFrame):
    """A prompt. The text goes to a function that acts on it or returns why not; in that case the box stays open."""

    closed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._answer: Callable[[str], str] = lambda _text: ""
        self._came_from: QWidget | None = None
        self.title = label("", "section", wrap=True)
        self.field = QLineEdit()
        self.field.setMaxLength(200)
        self.field.setFixedHeight(26)
        self.hint = label("", "caption", "text3", wrap=True)
        self.refusal = label("", "caption", "error", wrap=True)
        vbox(
            self.title,
            self.field,
            self.hint,
            self.refusal,
            on=self,
            margins=(12, 10, 12, 10),
            spacing=6,
        )
        self.setFixedWidth(WIDTH)
        self.field.installEventFilter(self)
        self.field.textEdited.connect(lambda _text: self._show_refusal(""))
        self.hide()

    def open_at(
        self,
        spot: QPoint,
        title: str,
        text: str,
        hint: str,
        answer: Callable[[str], str],
    ) -> None:
        """Open the prompt at a point of the parent. `answer` returns "" on success, else the reason for refusing."""
        self._answer, self._came_from = answer, self.window().focusWidget()
        self.title.setText(title)
        self.field.setAccessibleName(title)
        self.hint.setText(hint)
        self.field.setText(text)
        self._show_refusal("")
        area = present(self.parentWidget()).rect().adjusted(8, 8, -8, -8)
        left = max(area.left(), min(spot.x(), area.right() - self.width()))
        top = max(area.top(), min(spot.y(), area.bottom() - self.height()))
        self.move(left, top)
        self.show()
        self.raise_()
        self.field.setFocus(Qt.FocusReason.PopupFocusReason)
        self.field.selectAll()

    def close_box(self) -> None:
        """Close the prompt without an answer."""
        if not self.isHidden():
            back, self._came_from = self._came_from, None
            self.hide()
            if back is not None:
                back.setFocus(Qt.FocusReason.OtherFocusReason)
            self.closed.emit()

    def _finish(self) -> None:
        refusal = self._answer(self.field.text().strip())
        if refusal:
            self._show_refusal(refusal)
        else:
            self.close_box()

    def _show_refusal(self, refusal: str) -> None:
        show_or_hide(self.refusal, refusal)
        self.hint.setVisible(bool(self.hint.text()) and not refusal)
        self.setFixedHeight(present(self.layout()).totalHeightForWidth(WIDTH))
        if refusal:
            announce(self, refusal)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.field:
            if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
                if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                    self._finish()
                    return True
                if event.key() == Qt.Key.Key_Escape:
                    self.close_box()
                    return True
            elif event.type() == QEvent.Type.FocusOut and self.isActiveWindow():
                self._came_from = (
                    None  # the user clicked elsewhere: do not take the focus back
                )
                self.close_box()
        return super().eventFilter(watched, event)

    def paintEvent(self, event: QPaintEvent) -> None:
        now = current()
        painter = start(self)
        box(painter, QRectF(self.rect()), 7, now.panel, now.line3)
        painter.end()
