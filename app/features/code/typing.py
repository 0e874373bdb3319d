"""Editing in the Code tab: the statement being typed, its effect, and the edit of the graph that it becomes."""

from __future__ import annotations

import ast
from typing import Any, Protocol

from PySide6.QtCore import QEvent, QMimeData, QObject, QPoint, QRect, Qt, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QFocusEvent,
    QInputMethodEvent,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QTextCursor,
)
from PySide6.QtWidgets import QLabel, QMenu, QPlainTextEdit, QTextEdit

from app.builder.catalog.catalog import Catalog
from app.builder.edits.blocks import Whole
from app.features.code.editing.edits import Edited, edited
from app.features.code.editing.lines import Statement, statement_at, value_at, why_not
from app.features.code.editing.values import CodeEditError
from app.source.generated import Source
from app.views.fields.line_edits import leaves_to_window
from app.views.ui import theme
from app.views.ui.code_edit import CodeEdit
from app.views.ui.highlighting import lexed

# --- The editor of the Code tab with editing: each key that changes text is checked first

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


# --- A message below the cursor in the Code tab: the effect of a value, or why it is refused

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


NO_LINE = "Lines are written for the layers on the canvas: add one there with Tab, or paste lines of PyTorch code"
UNFINISHED = "Finish the red line first: Enter applies it, Esc reverts it"


class CodeTyping(QObject):
    """Makes `edit` editable. `sheet` is the open graph, through which the project is edited.

    At most one statement differs from the generated text. Enter, or leaving it, turns it into an edit of the graph; an
    invalid one stays as typed, red and with the reason, until it is corrected or Esc reverts it.
    """

    ended = Signal()  # the statement being typed is finished or reverted

    def __init__(
        self,
        edit: TypingEdit,
        sheet: Any,
        catalog: Catalog,
    ) -> None:
        super().__init__(edit)
        self._edit, self._sheet, self._catalog = edit, sheet, catalog
        self._source: Source | None = None
        self._statement: Statement | None = None
        self._refused = False
        self.hint = CodeHint(edit)
        edit.set_typing(self)
        edit.typed.connect(self._typed)
        edit.left.connect(lambda: self.finish())
        edit.cursorPositionChanged.connect(self._caret_moved)
        self._soon = QTimer(self, singleShot=True, interval=0)
        self._soon.timeout.connect(self._on_caret_moved)

    @property
    def under_way(self) -> bool:
        """Return whether a statement differs from the generated text."""
        return self._statement is not None

    def set_source(self, source: Source | None) -> None:
        """Set the source that the text was generated from."""
        self._source = source

    # --- Queries of the editor before a key changes the text

    def may_type(self, first: int, last: int) -> bool:
        """Return whether the lines (1-based) can be edited; show why not."""
        if self._source is None:
            return False
        if first != last:
            self.hint.show_hint("One line at a time can be edited", first)
            return False
        if self._statement is not None:
            if self._statement.first <= first <= self._statement.last:
                return True
            if not self.finish():
                self.hint.show_hint(UNFINISHED, first)
                return False
        statement = statement_at(self._source.text, first)
        reason = why_not(statement, self._source.text, first)
        if reason:
            self.hint.show_hint(reason, first)
        return not reason

    def explain_lines(self, line: int) -> None:
        """Say why there is no new line, and where a layer is added."""
        self.hint.show_hint(NO_LINE, line)

    def value_span(self, line: int, column: int) -> tuple[int, int] | None:
        """Return the columns of the value at a position, in UTF-16 units as Qt counts."""
        text = self._edit.line_text(line)
        statement = (
            statement_at(self._source.text, line) if self._source is not None else None
        )
        if (
            statement is None
            or self.under_way
            or why_not(statement, self._source.text if self._source else "", line)
        ):
            return None
        node = value_at(statement, line, _bytes_before(text, column))
        if node is None or node.lineno != line or node.end_lineno != line:
            return None
        start = node.col_offset
        if isinstance(node, ast.Attribute):  # compare the attribute's name alone
            start = (node.end_col_offset or 0) - len(node.attr.encode())
        return _letters_before(text, start), _letters_before(
            text, node.end_col_offset or 0
        )

    # --- While editing

    def _typed(self, line: int) -> None:
        """Note a change on a line."""
        if self._statement is None and self._source is not None:
            self._statement = statement_at(self._source.text, line)
        self._judge()

    def _judge(self) -> Edited[Any] | None:
        """Say what Enter would do; mark what cannot be."""
        statement = self._statement
        if statement is None or self._source is None:
            return None
        project: Whole = self._sheet.whole.project
        line = self._edit.caret_line()
        try:
            done = edited(
                project,
                self._catalog,
                self._source,
                statement.first,
                self._edit.lines_text(statement),
            )
        except CodeEditError as error:
            self._refused = True
            self._edit.mark_refused(*self._span_of(error.at, statement))
            self.hint.refuse(str(error), line)
            return None
        self._refused = False
        self._edit.mark_refused(0, 0, 0)
        if done is None:
            self.hint.hide()
        else:
            self.hint.show_hint(
                f"Enter: {done.words[0].lower()}{done.words[1:]}   ·   Esc: cancel",
                line,
            )
        return done

    def _span_of(
        self, at: ast.AST | None, statement: Statement
    ) -> tuple[int, int, int]:
        """Return line and columns of a part of the statement; the whole line if it has no position."""
        number = getattr(at, "lineno", 0)
        line = statement.first + number - 1 if number else self._edit.caret_line()
        line = min(max(line, statement.first), statement.last)
        text = self._edit.line_text(line)
        start, end = (
            getattr(at, "col_offset", None),
            getattr(at, "end_col_offset", None),
        )
        if start is None or getattr(at, "end_lineno", number) != number:
            return line, len(text) - len(text.lstrip()), len(text)
        first = _letters_before(text, start)
        return (
            line,
            first,
            max(first + 1, _letters_before(text, end))
            if end is not None
            else len(text),
        )

    def finish(self) -> bool:
        """Make the statement an edit of the drawing; False if it cannot be one, and then it stays as it is."""
        if self._statement is None:
            return True
        done = self._judge()
        if self._refused:
            return False
        if done is None:
            self.give_up()
            return True
        self._statement = None
        self.hint.hide()
        self._edit.keep_typed()
        self._sheet.apply(done.words, done.project)
        self.ended.emit()
        return True

    def give_up(self) -> None:
        """Revert the typed statement."""
        self._statement, self._refused = None, False
        self._edit.mark_refused(0, 0, 0)
        self.hint.hide()
        self._edit.take_back()
        self.ended.emit()

    def _caret_moved(self) -> None:
        if not self._edit.hasFocus():
            return
        self._soon.start()

    def _on_caret_moved(self) -> None:
        """Finish a statement when the caret leaves it."""
        line, statement = self._edit.caret_line(), self._statement
        if statement is None:
            if not self.hint.is_for(line):
                self.hint.hide()
        elif not statement.first <= line <= statement.last:
            self.finish()


def _bytes_before(text: str, column: int) -> int:
    """Convert a column in UTF-16 units (Qt) to bytes of UTF-8 (`ast`)."""
    return len(
        text.encode("utf-16-le", "surrogatepass")[: 2 * column]
        .decode("utf-16-le", "ignore")
        .encode()
    )


def _letters_before(text: str, offset: int) -> int:
    """Convert bytes of UTF-8 (`ast`) to a column in UTF-16 units (Qt)."""
    return (
        len(
            text.encode("utf-8", "surrogatepass")[:offset]
            .decode("utf-8", "ignore")
            .encode("utf-16-le")
        )
        // 2
    )
