"""Typing in the text of the Code tab: a statement under way, what it would do, and the edit that it becomes."""

from __future__ import annotations

import ast
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from app.builder.catalog.catalog import Catalog
from app.builder.code_editing.edits import Edited, edited
from app.builder.code_editing.lines import Statement, statement_at, value_at, why_not
from app.builder.code_editing.values import CannotEdit
from app.builder.edits.blocks import Whole
from app.source.generated import Source
from app.views.code.hint import CodeHint
from app.views.code.typing_keys import TypingEdit

UNFINISHED = "Finish the red line first: Enter applies it, Esc reverts it"


class CodeTyping(QObject):
    """Lets a person type in `edit`. `sheet` is the sheet in front, which the project is edited through.

    One statement at a time differs from the generated text. Enter, or leaving it, makes it an edit of the drawing; what
    cannot be one stays as it was typed, red and with the reason, until Esc takes it back or it is mended.
    """

    ended = Signal()  # no statement is under way any more

    def __init__(self, edit: TypingEdit, sheet: Any, catalog: Catalog, parent: QObject | None = None) -> None:
        super().__init__(parent or edit)
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
        self._soon.timeout.connect(self._look_where_it_is)

    @property
    def under_way(self) -> bool:
        """Whether a statement differs from the generated text."""
        return self._statement is not None

    def set_source(self, source: Source | None) -> None:
        """The text that is shown was generated anew."""
        self._source = source

    # --- What the text asks before a key changes it

    def may_type(self, first: int, last: int) -> bool:
        """Whether the person may type over the lines (1-based); says why not."""
        if self._source is None:
            return False
        if first != last:
            self.hint.say("One line at a time can be edited", first)
            return False
        if self._statement is not None:
            if self._statement.first <= first <= self._statement.last:
                return True
            if not self.finish():
                self.hint.say(UNFINISHED, first)
                return False
        statement = statement_at(self._source.text, first)
        reason = why_not(statement, self._source.text, first)
        if reason:
            self.hint.say(reason, first)
        return not reason

    def value_span(self, line: int, column: int) -> tuple[int, int] | None:
        """The columns of the value at a place, in letters as Qt counts them."""
        text = self._edit.line_text(line)
        statement = statement_at(self._source.text, line) if self._source is not None else None
        if statement is None or self.under_way or why_not(statement, self._source.text if self._source else "", line):
            return None
        part = value_at(statement, line, _bytes_before(text, column))
        if part is None or part.lineno != line or part.end_lineno != line:
            return None
        start = part.col_offset
        if isinstance(part, ast.Attribute):  # the name alone, not whose it is
            start = (part.end_col_offset or 0) - len(part.attr.encode())
        return _letters_before(text, start), _letters_before(text, part.end_col_offset or 0)

    # --- Under way

    def _typed(self, line: int) -> None:
        """A letter has changed on a line."""
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
            done = edited(project, self._catalog, self._source, statement.first, self._edit.lines_text(statement))
        except CannotEdit as error:
            self._refused = True
            self._edit.mark_refused(*self._place(error.at, statement))
            self.hint.refuse(str(error), line)
            return None
        self._refused = False
        self._edit.mark_refused(0, 0, 0)
        if done is None:
            self.hint.hide()
        else:
            self.hint.say(f"Enter: {done.words[0].lower()}{done.words[1:]}   ·   Esc: cancel", line)
        return done

    def _place(self, at: ast.AST | None, statement: Statement) -> tuple[int, int, int]:
        """The line and the columns of a part of what was typed; all of the line where it has none."""
        number = getattr(at, "lineno", 0)
        line = statement.first + number - 1 if number else self._edit.caret_line()
        line = min(max(line, statement.first), statement.last)
        text = self._edit.line_text(line)
        start, end = getattr(at, "col_offset", None), getattr(at, "end_col_offset", None)
        if start is None or getattr(at, "end_lineno", number) != number:
            return line, len(text) - len(text.lstrip()), len(text)
        first = _letters_before(text, start)
        return line, first, max(first + 1, _letters_before(text, end)) if end is not None else len(text)

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
        """Take back what was typed."""
        self._statement, self._refused = None, False
        self._edit.mark_refused(0, 0, 0)
        self.hint.hide()
        self._edit.take_back()
        self.ended.emit()

    def _caret_moved(self) -> None:
        if not self._edit.hasFocus():
            return
        self._soon.start()

    def _look_where_it_is(self) -> None:
        """Leaving a statement finishes it."""
        line, statement = self._edit.caret_line(), self._statement
        if statement is None:
            if not self.hint.is_for(line):
                self.hint.hide()
        elif not statement.first <= line <= statement.last:
            self.finish()


def _bytes_before(text: str, column: int) -> int:
    """The place of a letter, counted in UTF-16 as Qt does, in bytes of UTF-8 as `ast` does."""
    return len(text.encode("utf-16-le", "surrogatepass")[: 2 * column].decode("utf-16-le", "ignore").encode())


def _letters_before(text: str, place: int) -> int:
    """The other way round."""
    return len(text.encode("utf-8", "surrogatepass")[:place].decode("utf-8", "ignore").encode("utf-16-le")) // 2
