"""The editor of the Code tab: read-only text with line numbers and markers on the lines of nodes."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextBlock,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)
from PySide6.QtWidgets import QPlainTextEdit, QTextEdit, QWidget

from app.views.ui import theme
from app.views.ui.highlighting import Lexed, PythonColors, equal_ends, lexed

MARGIN = 8


class CodeEdit(QPlainTextEdit):
    """Read-only text with line numbers and markers on the lines of nodes.

    `line_chosen(line)` is emitted when the user moves the cursor to a line (1-based) by mouse or keys.
    """

    line_chosen = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setReadOnly(True)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse
            | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setFrameShape(QPlainTextEdit.Shape.NoFrame)
        self.setFont(theme.font("code"))
        self.setTabChangesFocus(True)
        self.setStyleSheet("QPlainTextEdit { border: none; border-radius: 0; }")
        self.setAccessibleName("Source code of the network")
        self.document().setDocumentMargin(MARGIN)
        self.setUndoRedoEnabled(False)
        self._text = ""
        self.lexed = Lexed()
        self._colors = PythonColors(self.document())
        self._selected: frozenset[int] = frozenset()
        self._hovered: frozenset[int] = frozenset()
        self._found: list[QTextCursor] = []
        self._quiet = False
        self._gutter = _Gutter(self)
        self.blockCountChanged.connect(self._fit_gutter)
        self.updateRequest.connect(self._scroll_gutter)
        self.cursorPositionChanged.connect(self._caret_moved)
        theme.manager().changed.connect(self._mark)
        self._fit_gutter()

    def show_text(self, text: str) -> None:
        """Show another text. Only the lines that differ are touched, so place, caret and colours of the rest stay."""
        if text == self._text:
            return
        before, after = self.lexed, lexed(text, self.lexed)
        head, tail = equal_ends(before.lines, after.lines)
        restyled = (
            before.spans[len(before.spans) - tail :]
            != after.spans[len(after.spans) - tail :]
        )
        down, right = (
            self.verticalScrollBar().value(),
            self.horizontalScrollBar().value(),
        )
        self._text, self.lexed = text, after
        self._colors.set_lexed(after)
        self._quiet = True
        if restyled or head + tail == 0:
            self.setPlainText(text)
        else:
            self._put_lines(
                head,
                len(before.lines) - tail,
                after.lines[head : len(after.lines) - tail],
            )
        self._quiet = False
        self.verticalScrollBar().setValue(down)
        self.horizontalScrollBar().setValue(right)

    def _put_lines(self, first: int, end: int, lines: tuple[str, ...]) -> None:
        """Put `lines` in the place of the lines from `first` up to `end`; at least one other line stays."""
        document = self.document()
        cursor = QTextCursor(document)
        cursor.beginEditBlock()
        if (
            first > 0
        ):  # from the end of the line before, so that the break goes with the lines
            cursor.setPosition(_line_end(document, first - 1))
            cursor.setPosition(
                _line_end(document, end - 1) if end else 0,
                QTextCursor.MoveMode.KeepAnchor,
            )
            cursor.insertText("".join("\n" + line for line in lines))
        else:
            cursor.setPosition(
                document.findBlockByNumber(end).position(),
                QTextCursor.MoveMode.KeepAnchor,
            )
            cursor.insertText("".join(line + "\n" for line in lines))
        cursor.endEditBlock()

    def mark(self, selected: Iterable[int], hovered: Iterable[int]) -> None:
        """Mark the lines (1-based) of the selected nodes, and those of the one under the pointer."""
        self._selected, self._hovered = frozenset(selected), frozenset(hovered)
        self._mark()

    def mark_found(self, matches: list[QTextCursor]) -> None:
        """Mark the places that a search found."""
        self._found = matches
        self._mark()

    def reveal(self, lines: Iterable[int]) -> None:
        """Scroll to the first of `lines`, unless one of them is visible."""
        numbers = sorted(lines)
        if not numbers or any(self._in_sight(number) for number in numbers):
            return
        room = self.viewport().height() // max(self.fontMetrics().lineSpacing(), 1)
        self.verticalScrollBar().setValue(max(0, numbers[0] - 1 - room // 3))

    def _in_sight(self, line: int) -> bool:
        block = self.document().findBlockByNumber(line - 1)
        box = self.blockBoundingGeometry(block).translated(self.contentOffset())
        return (
            block.isValid()
            and box.top() >= 0
            and box.bottom() <= self.viewport().height()
        )

    def _mark(self) -> None:
        colors = theme.current()
        marks = [
            self._line_mark(line, colors.hover)
            for line in self._hovered - self._selected
        ]
        marks += [self._line_mark(line, colors.accentBg) for line in self._selected]
        for cursor in self._found:
            mark = QTextEdit.ExtraSelection()
            mark.cursor = cursor
            mark.format.setBackground(colors.warnBg)
            mark.format.setForeground(colors.warn)
            marks.append(mark)
        self.setExtraSelections(marks)
        self._gutter.update()

    def _line_mark(self, line: int, color: QColor) -> QTextEdit.ExtraSelection:
        mark = QTextEdit.ExtraSelection()
        mark.cursor = QTextCursor(self.document().findBlockByNumber(line - 1))
        mark.format.setBackground(color)
        mark.format.setProperty(QTextFormat.Property.FullWidthSelection, True)
        return mark

    def _caret_moved(self) -> None:
        if (
            self.textCursor().atBlockStart()
        ):  # Qt scrolls no further than to the caret, which is behind the margin
            self.horizontalScrollBar().setValue(0)
        if not self._quiet and self.hasFocus() and not self.textCursor().hasSelection():
            self.line_chosen.emit(self.textCursor().blockNumber() + 1)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        # A click on the current line does not move the cursor.
        if (
            event.button() == Qt.MouseButton.LeftButton
            and not self.textCursor().hasSelection()
        ):
            self.line_chosen.emit(
                self.cursorForPosition(event.position().toPoint()).blockNumber() + 1
            )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_gutter()

    def _fit_gutter(self) -> None:
        self.setViewportMargins(self._gutter.sizeHint().width(), 0, 0, 0)
        self._place_gutter()

    def _place_gutter(self) -> None:
        box, high = (
            self.contentsRect(),
            self.viewport().height(),
        )  # not beside a scroll bar below the text
        # It covers the margin of the text as well, so that the mark of a line goes through.
        self._gutter.setGeometry(
            QRect(box.left(), box.top(), self._gutter.sizeHint().width() + MARGIN, high)
        )

    def _scroll_gutter(self, rect: QRect, dy: int) -> None:
        if dy:
            self._gutter.scroll(0, dy)
        else:
            self._gutter.update(0, rect.y(), self._gutter.width(), rect.height())

    def lines_in(self, rect: QRect) -> list[tuple[int, QRectF]]:
        """Return the lines (1-based) that intersect `rect`, each with its rectangle, for the gutter."""
        lines = []
        block: QTextBlock = self.firstVisibleBlock()
        while block.isValid():
            box = self.blockBoundingGeometry(block).translated(self.contentOffset())
            if box.top() > rect.bottom():
                break
            if box.bottom() >= rect.top():
                # The last line's box holds the margin of the document too.
                text = QRectF(
                    box.left(),
                    box.top(),
                    box.width(),
                    block.layout().boundingRect().height(),
                )
                lines.append((block.blockNumber() + 1, text))
            block = block.next()
        return lines

    def is_selected_line(self, line: int) -> bool:
        return line in self._selected


def _line_end(document: QTextDocument, line: int) -> int:
    """Return the position after the last character of a line (0-based)."""
    block = document.findBlockByNumber(line)
    return block.position() + block.length() - 1


class _Gutter(QWidget):
    """Line numbers, with a bar next to selected lines, so that they are not marked by colour alone."""

    def __init__(self, edit: CodeEdit) -> None:
        super().__init__(edit)
        self._edit = edit
        self.setFont(theme.font("formula"))

    def sizeHint(self) -> QSize:
        digits = max(3, len(str(self._edit.blockCount())))
        return QSize(self.fontMetrics().horizontalAdvance("9") * digits + 24, 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = theme.current()
        painter = QPainter(self)
        painter.fillRect(event.rect(), colors.sunken)
        for line, box in self._edit.lines_in(event.rect()):
            selected = self._edit.is_selected_line(line)
            row = QRectF(0, box.top(), self.width(), box.height())
            if selected:
                painter.fillRect(row, colors.accentBg)
                painter.fillRect(QRectF(0, box.top(), 3, box.height()), colors.accent)
            painter.setPen(colors.text if selected else colors.text3)
            flags = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(row.adjusted(0, 0, -12 - MARGIN, 0), flags, str(line))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        cursor = self._edit.cursorForPosition(QPoint(1, event.position().toPoint().y()))
        self._edit.setFocus(Qt.FocusReason.MouseFocusReason)
        self._edit.setTextCursor(cursor)
        self._edit.line_chosen.emit(cursor.blockNumber() + 1)
