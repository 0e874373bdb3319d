"""Python syntax highlighting: the text is lexed once per change, and painting reads the cached spans."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from msgspec import Struct
from pygments.lexers.python import PythonLexer
from PySide6.QtGui import QFont, QSyntaxHighlighter, QTextCharFormat, QTextDocument

from app.views.ui.theme import current, manager, mix

# Kinds of token (pygments' names, the most exact first) and the colour that each is read in.
_ROLES: tuple[tuple[str, str], ...] = (
    ("Comment", "comment"),
    ("Literal.String.Doc", "comment"),
    ("Literal.String", "string"),
    ("Literal.Number", "number"),
    ("Keyword.Constant", "number"),
    ("Keyword.Namespace", "keyword"),
    ("Keyword", "keyword"),
    ("Operator.Word", "keyword"),
    ("Name.Class", "name"),
    ("Name.Function", "name"),
    ("Name.Decorator", "name"),
    ("Name.Builtin.Pseudo", "pseudo"),
    ("Name.Builtin", "builtin"),
)


class HighlightSpan(Struct, frozen=True):
    """Part of a line: start, length (in UTF-16 units, as Qt counts) and role."""

    start: int
    length: int
    role: str


def spans(text: str) -> tuple[tuple[HighlightSpan, ...], ...]:
    """Return the highlighted spans of each line of a Python text."""
    lines: list[list[HighlightSpan]] = [[]]
    column = 0
    for kind, piece in _tokens(text):
        role = _role(kind)
        for i, fragment in enumerate(piece.split("\n")):
            if i:
                lines.append([])
                column = 0
            length = len(fragment.encode("utf-16-le")) // 2
            if role and fragment.strip():
                lines[-1].append(HighlightSpan(column, length, role))
            column += length
    return tuple(map(tuple, lines))


class Lexed(Struct, frozen=True):
    """A text by lines and their spans."""

    lines: tuple[str, ...] = ("",)
    spans: tuple[tuple[HighlightSpan, ...], ...] = ((),)


def lexed(text: str, before: Lexed | None = None) -> Lexed:
    """Lex a text. With the result `before`, only lines between the equal start and end are lexed again.

    That is valid only if no string in them spans several lines; otherwise the whole text is lexed.
    """
    lines = tuple(text.split("\n"))
    if before is None:
        return Lexed(lines, spans(text))
    head, tail = equal_ends(before.lines, lines)
    middle = "\n".join(lines[head : len(lines) - tail])
    gone = "\n".join(before.lines[head : len(before.lines) - tail])
    quotes = sum(line.count('"""') for line in lines[:head])
    if quotes % 2 or '"""' in middle + gone or "'''" in text:
        return Lexed(lines, spans(text))
    between = spans(middle) if len(lines) > head + tail else ()
    return Lexed(
        lines,
        (*before.spans[:head], *between, *before.spans[len(before.spans) - tail :]),
    )


def equal_ends(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[int, int]:
    """Count the equal lines at the start and, of the others, at the end.

    >>> equal_ends(("a", "b", "c"), ("a", "x", "y", "c")), equal_ends(("a", "a"), ("a",))
    ((1, 1), (1, 0))
    """
    least = min(len(old), len(new))
    head = next((i for i in range(least) if old[i] != new[i]), least)
    tail = next(
        (i for i in range(least - head) if old[-1 - i] != new[-1 - i]), least - head
    )
    return head, tail


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for kind, piece in _lexer().get_tokens(text):
        yield ".".join(kind), piece


@cache
def _lexer() -> Any:

    return PythonLexer(stripnl=False, ensurenl=False)


@cache
def _role(kind: str) -> str | None:
    return next(
        (
            role
            for prefix, role in _ROLES
            if kind == prefix or kind.startswith(prefix + ".")
        ),
        None,
    )


def _formats() -> dict[str, QTextCharFormat]:
    theme = current()
    colors = {
        "comment": theme.text3,
        "string": theme.run,
        "number": theme.accent,
        "keyword": theme.categories["seq"],
        "name": theme.text,
        "pseudo": mix(theme.text2, theme.categories["seq"], 0.5),
        "builtin": theme.categories["norm"],
    }
    formats = {}
    for role, color in colors.items():
        form = QTextCharFormat()
        form.setForeground(color)
        if role == "name":
            form.setFontWeight(QFont.Weight.DemiBold)
        formats[role] = form
    return formats


class PythonColors(QSyntaxHighlighter):
    """Highlights a document by the spans given to `set_lexed`."""

    def __init__(self, document: QTextDocument) -> None:
        super().__init__(document)
        self._lexed = Lexed()
        self._formats = _formats()
        manager().changed.connect(self._theme_changed)

    def set_lexed(self, answer: Lexed) -> None:
        """Set the spans before the text of the document: Qt then requests the lines that changed."""
        self._lexed = answer

    def highlightBlock(self, text: str) -> None:
        number = self.currentBlock().blockNumber()
        if number < len(self._lexed.spans):
            for span in self._lexed.spans[number]:
                self.setFormat(span.start, span.length, self._formats[span.role])

    def _theme_changed(self) -> None:
        self._formats = _formats()
        self.rehighlight()
