"""A search field with a magnifier at the left and its shortcut at the right; Esc clears it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QAction, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractItemView, QLineEdit, QSizePolicy

from app.views.ui import icons
from app.views.ui.theme import current, grown
from app.views.ui.widgets.painting import TextLine, box

HEIGHT = 28


class SearchField(QLineEdit):
    """A field for searching. `textChanged` is its signal; Esc clears, and when empty is left to others."""

    def __init__(self, placeholder: str = "Search", hint: str = "") -> None:
        super().__init__()
        self._led: tuple[QAbstractItemView, int, Callable[[], object]] | None = None
        self.setPlaceholderText(placeholder)
        self.setAccessibleName(placeholder)
        self.setFixedHeight(grown(HEIGHT, "label"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._clear = QAction(icons.icon("close", "text3"), "Clear", self)
        self._clear.triggered.connect(self.clear)
        self.textChanged.connect(self._fit)
        self.set_hint(hint)

    def lead(
        self, rows: QAbstractItemView, page: int, choose: Callable[[], object]
    ) -> None:
        """Have the arrows and the page keys go through the rows of a list, `page` at once, and Enter `choose`."""
        self._led = (rows, page, choose)

    def _leads(self, key: int) -> bool:
        """Do in the list what a key does there; return whether it does anything."""
        if self._led is None:
            return False
        rows, page, choose = self._led
        steps: dict[int, int] = {
            Qt.Key.Key_Down: 1,
            Qt.Key.Key_Up: -1,
            Qt.Key.Key_PageDown: page,
            Qt.Key.Key_PageUp: -page,
        }
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            choose()
            return True
        if key in steps:
            last = rows.model().rowCount() - 1
            row = min(max(rows.currentIndex().row() + steps[key], 0), last)
            rows.setCurrentIndex(rows.model().index(row, 0))
        return key in steps

    def set_hint(self, hint: str) -> None:
        """Show the shortcut of the field while it is empty."""
        self._hint = TextLine(hint, "axis")
        self._fit()

    def hint(self) -> str:
        return self._hint.text

    def _fit(self) -> None:
        has_text = bool(self.text())
        if has_text and self._clear not in self.actions():
            self.addAction(self._clear, QLineEdit.ActionPosition.TrailingPosition)
        elif not has_text:
            self.removeAction(self._clear)
        right = 0 if has_text or not self._hint.text else int(self._hint.width) + 16
        self.setTextMargins(20, 0, right, 0)
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self._leads(event.key()):
            return
        if event.key() == Qt.Key.Key_Escape:
            if self.text():
                self.clear()
            else:
                event.ignore()
            return
        super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        theme = current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        icons.draw(
            painter,
            "search",
            "text3" if self.isEnabled() else "text4",
            8,
            (self.height() - 14) / 2,
            14,
        )
        if self._hint.text and not self.text():
            width = self._hint.width + 10
            area = QRectF(self.width() - width - 6, (self.height() - 16) / 2, width, 16)
            box(painter, area, 3, theme.raised, theme.line2)
            self._hint.draw_in(painter, area.left() + 5, area, theme.text3)
        painter.end()
