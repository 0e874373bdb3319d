"""Code editor of a snippet: line numbers, syntax colours, and marks on lines of the graph and of an error."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent, QTextCursor, QTextFormat
from PySide6.QtWidgets import QTextEdit

from app.views.ui import theme
from app.views.ui.code_edit import CodeEdit
from app.views.ui.highlighting import lexed

INDENT = 4
LAST_OF_BLOCK = {"return", "raise", "pass", "break", "continue"}
_KEY = Qt.Key
_ENTER = (_KEY.Key_Return, _KEY.Key_Enter)


class SnippetEdit(CodeEdit):
    """`run_wanted()` comes with Ctrl+Enter, `left()` with Esc: Tab indents here."""

    run_wanted = Signal()
    left = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._error: QTextCursor | None = (
            None  # at the beginning of its line, and moves with it
        )
        self._error_text = ""
        self._typed = (
            -1,
            -1,
        )  # the revision of the text and the place of the caret after the last typed character
        self.setReadOnly(False)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextEditorInteraction)
        self.setUndoRedoEnabled(True)
        self.setTabChangesFocus(False)
        self.setTabStopDistance(INDENT * self.fontMetrics().horizontalAdvance(" "))
        self.setCursorWidth(2)
        self.setAccessibleName("PyTorch snippet")
        self.setAccessibleDescription(
            "Ctrl+Enter runs it, Tab indents, Esc moves to the buttons"
        )
        self.setPlaceholderText(
            "x = torch.randn(3, requires_grad=True)\ny = x.exp().sum()"
        )
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
        block = self.document().findBlockByNumber(line - 1 if line else -1)
        self._error = QTextCursor(block) if block.isValid() else None
        self._error_text = block.text()
        self._mark()
        if line:
            self.reveal([line])

    @property
    def error_line(self) -> int:
        """The line (1-based) that is marked as that of an error, 0 for none."""
        return self._error.blockNumber() + 1 if self._error is not None else 0

    def _mark(self) -> None:
        super()._mark()
        if (
            error := getattr(self, "_error", None)
        ) is None:  # the mark of the theme comes before there is one
            return
        block = error.block()
        colors = theme.current()
        mark = QTextEdit.ExtraSelection()
        mark.cursor = QTextCursor(block)
        mark.format.setBackground(colors.errorBg)
        mark.format.setProperty(QTextFormat.Property.FullWidthSelection, True)
        underline = QTextEdit.ExtraSelection()
        underline.cursor = QTextCursor(block)
        indent = len(block.text()) - len(block.text().lstrip())
        underline.cursor.setPosition(block.position() + indent)
        underline.cursor.movePosition(
            QTextCursor.MoveOperation.EndOfBlock, QTextCursor.MoveMode.KeepAnchor
        )
        underline.format.setUnderlineColor(colors.error)
        underline.format.setUnderlineStyle(
            underline.format.UnderlineStyle.WaveUnderline
        )
        self.setExtraSelections([*self.extraSelections(), mark, underline])

    def _changed(self, _place: int, removed: int, added: int) -> None:
        text = self.toPlainText()
        if self._quiet or text == self._text or removed == added == 0:
            return  # colours alone have changed
        self._text, self.lexed = text, lexed(text)
        self._colors.set_lexed(self.lexed)
        self._quiet = True
        self._colors.rehighlight()
        self._quiet = False
        if self._error is not None:
            self._follow_error()

    def _follow_error(self) -> None:
        """Keep the mark of an error at its line while others are edited, and remove it once that line is another."""
        if self._error is not None and self._error.block().text() == self._error_text:
            self._mark()
        else:
            self.mark_error(None)

    # --- Keys

    def event(self, event: QEvent) -> bool:
        if (
            event.type() == QEvent.Type.ShortcutOverride
            and isinstance(event, QKeyEvent)
            and _runs(event)
        ):
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
        elif (
            key == _KEY.Key_Backspace
            and not cursor.hasSelection()
            and self._before_caret().isspace()
        ):
            steps = (cursor.positionInBlock() - 1) % INDENT + 1
            for _ in range(steps):
                cursor.deletePreviousChar()
        elif event.text().isprintable() and event.text() and not cursor.hasSelection():
            self._type(event)
        else:
            super().keyPressEvent(event)

    def _type(self, event: QKeyEvent) -> None:
        """Type a character as part of the word before it: Qt would undo all that is typed in a line at once."""
        before = self._before_caret()[-1:]
        begins = _in_word(event.text()) and not _in_word(before)
        cursor = self.textCursor()
        if begins or self._typed != (self.document().revision(), cursor.position()):
            cursor.beginEditBlock()
        else:
            cursor.joinPreviousEditBlock()
        super().keyPressEvent(event)
        cursor.endEditBlock()
        self._typed = self.document().revision(), self.textCursor().position()

    def _before_caret(self) -> str:
        cursor = self.textCursor()
        return cursor.block().text()[: cursor.positionInBlock()]

    def _break_line(self) -> None:
        """Insert a line break, indented as the line before; deeper after a colon, less after `return`."""
        before = self._before_caret()
        indent = len(before) - len(before.lstrip())
        if before.rstrip().endswith(":"):
            indent += INDENT
        elif LAST_OF_BLOCK.intersection(before.split()[:1]):
            indent = max(indent - INDENT, 0)
        self.textCursor().insertText("\n" + " " * indent)
        self.horizontalScrollBar().setValue(0)
        self.ensureCursorVisible()

    def _indent(self, way: int) -> None:
        """Move the lines of the selection, or that of the caret, by one step."""
        cursor = self.textCursor()
        first, last = (
            self.document().findBlock(position).blockNumber()
            for position in (cursor.selectionStart(), cursor.selectionEnd())
        )
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
    return event.key() in _ENTER and bool(
        event.modifiers() & Qt.KeyboardModifier.ControlModifier
    )


def _in_word(text: str) -> bool:
    """Return whether a character is part of a word; a name with dots is one word."""
    return text.isalnum() or text in ("_", ".")
