"""A message strip: what happened, why, and what to do next."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QWidget

from app.views.ui.layouts import hbox, vbox
from app.views.ui.theme import current
from app.views.ui.widgets.button import Button, icon_button
from app.views.ui.widgets.painting import Glyph, announce, box, label, start

# kind: icon, line, fill
KINDS = {
    "error": ("error", "error", "errorBg"),
    "warning": ("warning", "warn", "warnBg"),
    "info": ("info", "accent", "accentBg"),
}


class Banner(QFrame):
    """A message across a view: error, warning or info, with a reason, actions and a close button.

    `acted` is emitted for the first action only, `chosen(text)` for any.
    """

    acted = Signal()
    chosen = Signal(str)
    closed = Signal()

    def __init__(
        self, kind: str = "info", title: str = "", reason: str = "", action: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._icon = Glyph("info", parent=self)
        self._title = label("", "message", wrap=True)
        self._reason = label("", "caption", "text2", wrap=True)
        self._action = Button()
        self._more: list[Button] = []
        self._closable = True
        self._row = hbox(self._action, spacing=8)
        self._close = icon_button("close", "Close this message")
        words = vbox(self._title, self._reason, spacing=2)
        hbox(
            (self._icon, 0, Qt.AlignmentFlag.AlignVCenter), (words, 1), self._row,
            (self._close, 0, Qt.AlignmentFlag.AlignVCenter), on=self, margins=(13, 8, 8, 8), spacing=12,
        )  # fmt: skip
        self._action.clicked.connect(self.acted)
        self._action.clicked.connect(lambda: self.chosen.emit(self._action.text()))
        self._close.clicked.connect(self.close_message)
        self.set(kind, title, reason, action)

    def set(self, kind: str, title: str, reason: str = "", action: str = "", *more: str) -> None:
        """Show another message; `more` are further actions beside the first.

        Raises:
            KeyError: `kind` is none of error, warning, info.
        """
        icon, color, self._fill = KINDS[kind]
        self._kind, self._color = kind, color
        self._icon.set(icon, color)
        self._title.setText(title)
        self._reason.setText(reason)
        self._reason.setVisible(bool(reason))
        self._action.setText(action)
        self._action.setVisible(bool(action))
        self._offer(more)
        self.setAccessibleName(f"{kind}: {title}")
        self.setAccessibleDescription(reason)
        self.update()

    def _offer(self, texts: tuple[str, ...]) -> None:
        for old in self._more:
            self._row.removeWidget(old)
            old.hide()
            old.deleteLater()
        self._more = [Button(text, parent=self) for text in texts]
        for button in self._more:
            self._row.addWidget(button)
            button.clicked.connect(lambda _=False, button=button: self.chosen.emit(button.text()))
            button.show()

    def set_closable(self, on: bool) -> None:
        """Set whether it can be closed; one that cannot stays until it is hidden."""
        self._close.setVisible(on)
        self._closable = on

    def actions_offered(self) -> tuple[str, ...]:
        """Return the texts of the actions, in order."""
        return tuple(text for text in (self._action.text(), *(one.text() for one in self._more)) if text)

    def button(self, text: str) -> Button:
        """Return the button of an action. Raises KeyError."""
        return {one.text(): one for one in (self._action, *self._more)}[text]

    def kind(self) -> str:
        return self._kind

    def title(self) -> str:
        return self._title.text()

    def reason(self) -> str:
        return self._reason.text()

    def close_message(self) -> None:
        """Hide the banner and emit `closed`."""
        self.hide()
        self.closed.emit()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        announce(self, f"{self._title.text()} {self._reason.text()}".strip())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._closable:
            self.close_message()
        else:
            super().keyPressEvent(event)

    def minimumSizeHint(self) -> QSize:
        return QSize(220, 42)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        box(painter, QRectF(self.rect()), 6, theme.color(self._fill), theme.color(self._color))
        painter.end()
