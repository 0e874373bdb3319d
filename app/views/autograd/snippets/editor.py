"""Code editor of a snippet: line numbers, syntax colours, and marks on lines of the graph and of an error."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent, QTextCursor, QTextFormat
from PySide6.QtWidgets import QTextEdit, QWidget

from app.views.code.code_edit import CodeEdit
from app.views.code.highlighting import lexed
from app.views.ui import theme

INDENT = 4
_KEY = Qt.Key
_ENTER = (_KEY.Key_Return, _KEY.Key_Enter)


class SnippetEdit(CodeEdit):
    """`run_wanted()` comes with Ctrl+Enter, `left()` with Esc: Tab indents here."""

    run_wanted = Signal()
    left = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._error_line = 0
        self.setReadOnly(False)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextEditorInteraction)
        self.setUndoRedoEnabled(True)
        self.setTabChangesFocus(False)
        self.setTabStopDistance(INDENT * self.fontMetrics().horizontalAdvance(" "))
        self.setCursorWidth(2)
        self.setAccessibleName("PyTorch snippet")
        self.setAccessibleDescription("Ctrl+Enter runs it, Tab indents, Esc moves to the buttons")
        self.setPlaceholderText("x = torch.randn(3, requires_grad=True)\ny = x.exp().sum()")
        self.document().contentsChange.connect(self._changed)

    def text(self) -> str:
        return self.toPlainText()

    def set_text(self, text: str, undo: bool = True) -> None:
        """Replace the whole text; with `undo` as an undoable edit."""
        if not undo:
            self.setPlainText(text.rstrip("\n"))
            return
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.insertText(text.rstrip("\n"))
        self.moveCursor(QTextCursor.MoveOperation.Start)

    def mark_error(self, line: int | None) -> None:
        """Mark the line (1-based) of an error and scroll to it; None removes the mark."""
        self._error_line = line or 0
        self._mark()
        if line:
            self.reveal([line])

    def _mark(self) -> None:
        super()._mark()
        line = getattr(self, "_error_line", 0)  # the mark of the theme comes before there is one
        block = self.document().findBlockByNumber(line - 1)
        if not line or not block.isValid():
            return
        colors = theme.current()
        mark = QTextEdit.ExtraSelection()
        mark.cursor = QTextCursor(block)
        mark.format.setBackground(colors.errorBg)
        mark.format.setProperty(QTextFormat.Property.FullWidthSelection, True)
        words = QTextEdit.ExtraSelection()
        words.cursor = QTextCursor(block)
        indent = len(block.text()) - len(block.text().lstrip())
        words.cursor.setPosition(block.position() + indent)
        words.cursor.movePosition(QTextCursor.MoveOperation.EndOfBlock, QTextCursor.MoveMode.KeepAnchor)
        words.format.setUnderlineColor(colors.error)
        words.format.setUnderlineStyle(words.format.UnderlineStyle.WaveUnderline)
        self.setExtraSelections([*self.extraSelections(), mark, words])

    def _changed(self, _place: int, removed: int, added: int) -> None:
        text = self.toPlainText()
        if self._quiet or text == self._text or removed == added == 0:
            return  # colours alone have changed
        self._text, self.lexed = text, lexed(text)
        self._colors.set_lexed(self.lexed)
        self._quiet = True
        self._colors.rehighlight()
        self._quiet = False
        if self._error_line:
            self.mark_error(None)

    # --- Keys

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent) and _runs(event):
            event.accept()  # before the window's own Ctrl+Enter
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, cursor = event.key(), self.textCursor()
        if _runs(event):
            self.run_wanted.emit()
        elif key == _KEY.Key_Escape:
            self.left.emit()
        elif key in _ENTER:
            self._break_line()
        elif key == _KEY.Key_Backtab:
            self._indent(-1)
        elif key == _KEY.Key_Tab:
            if cursor.hasSelection():
                self._indent(1)
            else:
                cursor.insertText(" " * (INDENT - cursor.positionInBlock() % INDENT))
        elif key == _KEY.Key_Backspace and not cursor.hasSelection() and self._before_caret().isspace():
            steps = (cursor.positionInBlock() - 1) % INDENT + 1
            for _ in range(steps):
                cursor.deletePreviousChar()
        else:
            super().keyPressEvent(event)

    def _before_caret(self) -> str:
        cursor = self.textCursor()
        return cursor.block().text()[: cursor.positionInBlock()]

    def _break_line(self) -> None:
        """Insert a line break with the previous line's indentation, deeper after a colon."""
        before = self._before_caret()
        indent = len(before) - len(before.lstrip())
        if before.rstrip().endswith(":"):
            indent += INDENT
        self.textCursor().insertText("\n" + " " * indent)
        self.ensureCursorVisible()

    def _indent(self, way: int) -> None:
        """Move the lines of the selection, or that of the caret, by one step."""
        cursor = self.textCursor()
        first, last = (self.document().findBlock(place).blockNumber()
                       for place in (cursor.selectionStart(), cursor.selectionEnd()))  # fmt: skip
        cursor.beginEditBlock()
        for number in range(first, last + 1):
            block = self.document().findBlockByNumber(number)
            line = QTextCursor(block)
            if way > 0 and block.text().strip():
                line.insertText(" " * INDENT)
            elif way < 0:
                margin = len(block.text()) - len(block.text().lstrip())
                for _ in range(min(INDENT, margin)):
                    line.deleteChar()
        cursor.endEditBlock()


def _runs(event: QKeyEvent) -> bool:
    return event.key() in _ENTER and bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
