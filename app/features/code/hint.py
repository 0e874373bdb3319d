"""A message below the cursor in the Code tab: the effect of a value, or why it is refused."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QColor, QTextCursor
from PySide6.QtWidgets import QLabel, QPlainTextEdit

from app.views.ui import theme

_GAP = 2


def _opaque_over(below: QColor, colour: QColor) -> QColor:
    """Return an opaque colour: a translucent one blended over `below`."""
    return theme.mix(
        below, QColor(colour.red(), colour.green(), colour.blue()), colour.alphaF()
    )


class CodeHint(QLabel):
    """A hint over the text, below a line, that scrolls with it."""

    def __init__(self, edit: QPlainTextEdit) -> None:
        super().__init__(edit.viewport())
        self._edit = edit
        self._line = 0
        self._bad = False
        self.setFont(theme.font("caption"))
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.setMargin(6)
        theme.manager().changed.connect(self._paint)
        edit.updateRequest.connect(self._scrolled)
        edit.horizontalScrollBar().valueChanged.connect(self._move_to_line)
        self.hide()

    def show_hint(self, message: str, line: int) -> None:
        """Show a message under a line (1-based)."""
        self._show(message, line, bad=False)

    def refuse(self, message: str, line: int) -> None:
        """Show why the typed text is refused."""
        self._show(message, line, bad=True)

    def is_for(self, line: int) -> bool:
        return self._line == line

    def _show(self, message: str, line: int, bad: bool) -> None:
        self._line, self._bad = line, bad
        self.setText(message)
        self.setAccessibleName(message)
        self._edit.setAccessibleDescription(message)
        self._paint()
        self._move_to_line()
        self.show()
        self.raise_()

    def _paint(self) -> None:
        colors = theme.current()
        text, back, edge = (
            (colors.error, colors.errorBg, colors.error)
            if self._bad
            else (colors.text2, colors.raised, colors.line3)
        )
        # It covers text, so the colour must be opaque.
        solid = _opaque_over(colors.raised, back) if self._bad else back
        self.setStyleSheet(
            f"QLabel {{ color: {text.name()}; background: {solid.name()}; border: 1px solid {edge.name()};"
            " border-radius: 4px; }"
        )

    def _scrolled(self, _rect: QRect, dy: int) -> None:
        if dy:
            self._move_to_line()

    def _move_to_line(self) -> None:
        block = self._edit.document().findBlockByNumber(self._line - 1)
        if not block.isValid():
            self.hide()
            return
        caret = QTextCursor(block)
        text = block.text()
        caret.setPosition(block.position() + len(text) - len(text.lstrip()))
        box = self._edit.cursorRect(caret)
        room = self._edit.viewport().width() - max(box.left(), 0) - 12
        self.setFixedWidth(min(max(room, 240), self._natural()))
        self.adjustSize()
        below = box.bottom() + _GAP
        if below + self.height() > self._edit.viewport().height():
            below = box.top() - self.height() - _GAP
        self.move(QPoint(max(box.left(), 4), below))

    def _natural(self) -> int:
        return self.fontMetrics().horizontalAdvance(self.text()) + 2 * self.margin() + 6
