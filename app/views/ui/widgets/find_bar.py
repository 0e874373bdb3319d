"""A row for finding: a field, how many places there are, on and back, and an end."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from app.views.ui import theme
from app.views.ui.widgets.button import icon_button
from app.views.ui.widgets.search import SearchField

_WITHIN = Qt.ShortcutContext.WidgetWithChildrenShortcut


class FindBar(QWidget):
    """Enter goes on, Shift+Enter back, Esc ends it. Whoever is searched says what `search`, `go` and `let_go` do."""

    closed = Signal()

    def __init__(self, prompt: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.field = SearchField(prompt)
        self.field.setAccessibleName(prompt)
        self.count = QLabel()
        self.count.setProperty("tone", "text3")
        self.count.setFont(theme.font("caption"))
        back, on = icon_button("chevron-up", "Previous (Shift+Enter)"), icon_button("chevron-down", "Next (Enter)")
        end = icon_button("close", "Close (Esc)")
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 6, 12, 6)
        row.setSpacing(6)
        row.addWidget(self.field, 1)
        row.addWidget(self.count)
        for button in (back, on, end):
            row.addWidget(button)
        self.field.textChanged.connect(self.search)
        back.clicked.connect(lambda: self.go(-1))
        on.clicked.connect(lambda: self.go(1))
        end.clicked.connect(self.close_bar)
        for keys, slot in (
            (Qt.Key.Key_Return, lambda: self.go(1)),
            (Qt.Key.Key_Enter, lambda: self.go(1)),
            (QKeySequence("Shift+Return"), lambda: self.go(-1)),
            (Qt.Key.Key_Escape, self.close_bar),
        ):
            QShortcut(QKeySequence(keys), self, slot, context=_WITHIN)
        self.hide()

    def open_bar(self, words: str = "") -> None:
        """Show the bar, with these words to find if there are any."""
        self.show()
        if words:
            self.field.setText(words)
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.field.selectAll()
        self.search()

    def close_bar(self) -> None:
        self.hide()
        self.let_go()
        self.closed.emit()

    def search(self) -> None:
        """Find every place anew, as after the text changed."""

    def go(self, step: int) -> None:
        """Go to the next place, or with −1 the one before, round and round."""

    def let_go(self) -> None:
        """The search is over."""

    def tell(self, at: int, count: int) -> None:
        """Say which place of how many is shown."""
        none = "none found" if self.field.text() else ""
        self.count.setText(f"{at + 1} of {count}" if count else none)
