"""What a snippet printed, and the colour that an error has alone."""

from __future__ import annotations

from PySide6.QtGui import QTextCursor

from app.features.snippets.page import SnippetOutput
from app.views.ui import theme


def test_what_is_printed_behind_a_failing_snippet_is_not_red(qtbot, qapp) -> None:
    theme.apply(qapp, "dark")
    output = SnippetOutput()
    qtbot.addWidget(output)
    output.show_output("first\n", "ValueError: no")
    output.moveCursor(QTextCursor.MoveOperation.End)
    output.show_output("second\n")
    cursor = QTextCursor(output.document())
    cursor.movePosition(QTextCursor.MoveOperation.Right)
    assert cursor.charFormat().foreground().color() != theme.current().error
    assert output.toPlainText() == "second\n"
