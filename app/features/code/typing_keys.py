"""The editor of the Code tab with editing: each key that changes text is checked first."""

from __future__ import annotations

from typing import Protocol

from PySide6.QtCore import QEvent, QMimeData, Qt, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QFocusEvent,
    QInputMethodEvent,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QTextCursor,
)
from PySide6.QtWidgets import QMenu, QTextEdit

from app.features.code.editing.lines import Statement
from app.views.fields.line_edits import leaves_to_window
from app.views.ui import theme
from app.views.ui.code_edit import CodeEdit
from app.views.ui.highlighting import lexed

_KEY = Qt.Key
_ENTER = (_KEY.Key_Return, _KEY.Key_Enter)


class Typing(Protocol):
    """Decides what may be typed, and applies it."""

    @property
    def under_way(self) -> bool: ...

    def may_type(self, first: int, last: int) -> bool: ...

    def value_span(self, line: int, column: int) -> tuple[int, int] | None: ...

    def finish(self) -> bool: ...

    def give_up(self) -> None: ...

    def explain_lines(self, line: int) -> None: ...


class TypingEdit(CodeEdit):
    """An editor that becomes editable once a `Typing` is set; read-only until then.

    `typed(line)` is emitted when text of a line changed, `left()` when the focus leaves. Lines are never split or
    joined, so that each stays linked to its node.
    """

    typed = Signal(int)
    left = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._typing: Typing | None = None
        self._refused: tuple[int, int, int] = (0, 0, 0)
        self._seen = ""
        self.document().contentsChange.connect(self._changed)

    def set_typing(self, typing: Typing) -> None:
        self._typing = typing
        self.setReadOnly(False)
        self.setAcceptDrops(False)
        self.setCursorWidth(2)

    # --- Queries

    def caret_line(self) -> int:
        return self.textCursor().blockNumber() + 1

    def line_text(self, line: int) -> str:
        return self.document().findBlockByNumber(line - 1).text()

    def lines_text(self, statement: Statement) -> str:
        """Return the current lines of a statement."""
        return "\n".join(
            map(self.line_text, range(statement.first, statement.last + 1))
        )

    # --- Changes

    def keep_typed(self) -> None:
        """Adopt the current text as the reference for `take_back`."""
        self._text = self.toPlainText()
        self.lexed = lexed(self._text, self.lexed)

    def take_back(self) -> None:
        """Restore the text from before the user typed."""
        text, cursor = self._text, self.textCursor()
        line, column = cursor.blockNumber(), cursor.positionInBlock()
        self.keep_typed()
        self.show_text(text)
        self._put_caret(line, column)

    def show_text(self, text: str) -> None:
        """Show a text; the cursor keeps its line and column."""
        cursor = self.textCursor()
        line, column, at_end = (
            cursor.blockNumber(),
            cursor.positionInBlock(),
            cursor.atEnd(),
        )
        lines = self.document().blockCount()
        super().show_text(text)
        self._seen = self.toPlainText()
        if (
            not self.isReadOnly()
            and not cursor.hasSelection()
            and self.document().blockCount() == lines
            and not at_end
        ):
            self._put_caret(line, column)

    def _put_caret(self, line: int, column: int) -> None:
        block = self.document().findBlockByNumber(line)
        if not block.isValid():
            return
        cursor = self.textCursor()
        cursor.setPosition(block.position() + min(column, block.length() - 1))
        self._quiet = True
        self.setTextCursor(cursor)
        self._quiet = False

    def mark_refused(self, line: int, start: int, end: int) -> None:
        """Underline letters of a line as what cannot be; line 0 takes the mark away."""
        if self._refused != (line, start, end):
            self._refused = (line, start, end)
            self._mark()

    def _mark(self) -> None:
        super()._mark()
        line, start, end = getattr(self, "_refused", (0, 0, 0))
        block = self.document().findBlockByNumber(line - 1)
        if not line or not block.isValid():
            return
        colors = theme.current()
        mark = QTextEdit.ExtraSelection()
        cursor = QTextCursor(block)
        cursor.setPosition(block.position() + min(start, block.length() - 1))
        cursor.setPosition(
            block.position() + min(end, block.length() - 1),
            QTextCursor.MoveMode.KeepAnchor,
        )
        mark.cursor = cursor
        mark.format.setBackground(colors.errorBg)
        mark.format.setForeground(colors.error)
        mark.format.setUnderlineColor(colors.error)
        mark.format.setUnderlineStyle(mark.format.UnderlineStyle.WaveUnderline)
        self.setExtraSelections([*self.extraSelections(), mark])

    def _changed(self, _place: int, removed: int, added: int) -> None:
        if self._quiet or self._typing is None or removed == added == 0:
            return
        text, line = self.toPlainText(), self.caret_line()
        if text == self._seen or self.document().blockCount() != len(self.lexed.lines):
            return  # colours alone have changed
        self._seen = text
        self._colors.set_lexed(lexed(text, self.lexed))
        self._quiet = True
        self._colors.rehighlightBlock(self.document().findBlockByNumber(line - 1))
        self._quiet = False
        self.typed.emit(line)

    # --- Keys

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ShortcutOverride and self._takes_back(event):
            event.accept()
            return True
        if leaves_to_window(event):  # undo is that of the drawing
            return False
        return super().event(event)

    def _takes_back(self, event: QEvent) -> bool:
        """Return whether a key undoes typing, and no edit of the network yet."""
        undo = isinstance(event, QKeyEvent) and event.matches(
            QKeySequence.StandardKey.Undo
        )
        return undo and self._typing is not None and self._typing.under_way

    def keyPressEvent(self, event: QKeyEvent) -> None:
        typing = self._typing
        if typing is None:
            super().keyPressEvent(event)
        elif event.key() in _ENTER:
            if typing.under_way:
                typing.finish()
            elif not self.select_value():
                typing.explain_lines(self.textCursor().blockNumber() + 1)
        elif (
            self._takes_back(event)
            or event.key() == _KEY.Key_Escape
            and typing.under_way
        ):
            typing.give_up()
        elif event.key() == _KEY.Key_F2:
            self.select_value()
        elif not self._changes(event) or self._allowed(event):
            super().keyPressEvent(event)

    def _changes(self, event: QKeyEvent) -> bool:
        """Return whether a key would change the text."""
        keys = QKeySequence.StandardKey
        if any(
            event.matches(key)
            for key in (keys.Copy, keys.SelectAll, keys.Paste, keys.Undo, keys.Redo)
        ):
            return False  # pasting is checked in insertFromMimeData
        if event.key() in (_KEY.Key_Backspace, _KEY.Key_Delete) or event.matches(
            keys.Cut
        ):
            return True
        kills = (
            keys.DeleteEndOfWord,
            keys.DeleteStartOfWord,
            keys.DeleteEndOfLine,
            keys.DeleteCompleteLine,
        )
        text = event.text()
        return any(event.matches(key) for key in kills) or bool(
            text and (text.isprintable() or text == "\t")
        )

    def _allowed(self, event: QKeyEvent) -> bool:
        cursor = self.textCursor()
        block = cursor.block()
        if not cursor.hasSelection():
            back = event.key() == _KEY.Key_Backspace
            margin = len(block.text()) - len(block.text().lstrip())
            if back and cursor.positionInBlock() <= margin:
                return False
            if event.key() == _KEY.Key_Delete and cursor.atBlockEnd():
                return False
        return self._may_type()

    def _may_type(self) -> bool:
        cursor = self.textCursor()
        ends = [
            self.document().findBlock(position).blockNumber() + 1
            for position in (cursor.selectionStart(), cursor.selectionEnd())
        ]
        return self._typing is not None and self._typing.may_type(*ends)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Paste as a single line, where editing is allowed."""
        text = " ".join(source.text().split())
        if text and self._may_type():
            self.textCursor().insertText(text)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        if not (event.commitString() or event.preeditString()) or self._may_type():
            super().inputMethodEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if event.reason() != Qt.FocusReason.PopupFocusReason:
            self.left.emit()

    # --- The pointer

    def select_value(self) -> bool:
        """Select the value at the cursor, so that typing replaces it; return whether there is one."""
        cursor = self.textCursor()
        return self._select_value_at(cursor.blockNumber() + 1, cursor.positionInBlock())

    def _select_value_at(self, line: int, column: int) -> bool:
        span = (
            self._typing.value_span(line, column) if self._typing is not None else None
        )
        if span is None:
            if self._typing is not None and not self._typing.under_way:
                self._typing.may_type(
                    line, line
                )  # explains why nothing can be typed there
            return False
        block = self.document().findBlockByNumber(line - 1)
        cursor = QTextCursor(block)
        cursor.setPosition(block.position() + span[0])
        cursor.setPosition(block.position() + span[1], QTextCursor.MoveMode.KeepAnchor)
        self.setTextCursor(cursor)
        return True

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        cursor = self.cursorForPosition(event.position().toPoint())
        if not self._select_value_at(
            cursor.blockNumber() + 1, cursor.positionInBlock()
        ):
            super().mouseDoubleClickEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        copy = menu.addAction("Copy", self.copy)
        copy.setEnabled(self.textCursor().hasSelection())
        paste = menu.addAction("Paste", self.paste)
        paste.setEnabled(self._typing is not None and self.canPaste())
        menu.addAction("Select all", self.selectAll)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(event.globalPos())
