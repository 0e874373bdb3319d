"""An inline prompt for a name."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QWidget

from app.views.fields.line_edits import leaves_to_window
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Button
from app.views.ui.widgets.painting import label, set_property, show_or_hide


class NamePrompt(QWidget):
    """A field with a name to begin with, and the button that takes it. Enter takes it, Esc and leaving close it."""

    closed = Signal()

    def __init__(
        self,
        name: str,
        title: str,
        take: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._take = take
        self.line = QLineEdit(name)
        self.line.setFont(theme.font("code"))
        self.line.setFixedHeight(24)
        self.line.setMinimumWidth(44)
        self.line.setAccessibleName(title)
        self.line.installEventFilter(self)
        self.button = Button(title, "primary")
        self.button.setFixedHeight(24)
        self.problem = label("", "caption", "error", wrap=True)
        self.problem.hide()
        row = hbox((self.line, 1), self.button, spacing=6)
        vbox(row, self.problem, on=self, margins=(0, 0, 0, 4), spacing=3)
        self.line.textEdited.connect(lambda _: self._show_problem(""))
        self.button.clicked.connect(self.submit)

    def start(self) -> None:
        """Put the caret into the name, all of it selected."""
        self.show()
        self.line.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.line.selectAll()

    def submit(self) -> None:
        """Submit the name; if it is refused, show why and stay open."""
        try:
            self._take(self.line.text().strip())
        except ValueError as error:
            self._show_problem(str(error))
        else:
            self.closed.emit()

    def _show_problem(self, message: str) -> None:
        set_property(self.line, "invalid", bool(message))
        self.line.setAccessibleDescription(message)
        show_or_hide(self.problem, message)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        return leaves_to_window(event, watched) or super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.submit()
        elif event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        else:
            super().keyPressEvent(event)
