"""A search bar: a field, the number of matches, next, previous and close."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QLabel, QWidget

from app.views.ui import theme
from app.views.ui.layouts import hbox
from app.views.ui.widgets.button import icon_button
from app.views.ui.widgets.search import SearchField

_WITHIN = Qt.ShortcutContext.WidgetWithChildrenShortcut


class FindBar(QWidget):
    """Enter goes to the next match, Shift+Enter to the previous, Esc closes.

    A subclass implements `search`, `go_to_match` and `end_search`.
    """

    closed = Signal()

    def __init__(self, prompt: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.field = SearchField(prompt)
        self.field.setAccessibleName(prompt)
        self.count = QLabel()
        self.count.setProperty("tone", "text3")
        self.count.setFont(theme.font("caption"))
        back, on = (
            icon_button("chevron-up", "Previous (Shift+Enter)"),
            icon_button("chevron-down", "Next (Enter)"),
        )
        end = icon_button("close", "Close (Esc)")
        hbox(
            (self.field, 1),
            self.count,
            back,
            on,
            end,
            on=self,
            margins=(12, 6, 12, 6),
            spacing=6,
        )
        self.field.textChanged.connect(self.search)
        back.clicked.connect(lambda: self.go_to_match(-1))
        on.clicked.connect(lambda: self.go_to_match(1))
        end.clicked.connect(self.close_bar)
        for keys, slot in (
            (Qt.Key.Key_Return, lambda: self.go_to_match(1)),
            (Qt.Key.Key_Enter, lambda: self.go_to_match(1)),
            (QKeySequence("Shift+Return"), lambda: self.go_to_match(-1)),
            (Qt.Key.Key_Escape, self.close_bar),
        ):
            QShortcut(QKeySequence(keys), self, slot, context=_WITHIN)
        self.hide()

    def open_bar(self, text: str = "") -> None:
        """Show the bar, with initial search text if there is any."""
        self.show()
        if text:
            self.field.setText(text)
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.field.selectAll()
        self.search()

    def close_bar(self) -> None:
        self.hide()
        self.end_search()
        self.closed.emit()

    def search(self) -> None:
        """Find all matches, also again after the text changed."""

    def go_to_match(self, step: int) -> None:
        """Go to the next match, or with −1 to the previous, wrapping around."""

    def end_search(self) -> None:
        """Clear the matches when the bar closes."""

    def show_count(self, at: int, count: int) -> None:
        """Show the number of the current match and of all."""
        none = "none found" if self.field.text() else ""
        self.count.setText(f"{at + 1} of {count}" if count else none)
