"""Output of a snippet: stdout, then its error."""

from __future__ import annotations

from PySide6.QtGui import QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QWidget

from app.views.ui import theme


class SnippetOutput(QPlainTextEdit):
    """Printed text, followed by the error."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setReadOnly(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(theme.font("formula"))
        self.setTabChangesFocus(True)
        self.setUndoRedoEnabled(False)
        self.setStyleSheet("QPlainTextEdit { border: none; border-radius: 0; }")
        self.setAccessibleName("Output of the snippet")
        self.setPlaceholderText("What the snippet prints")
        self.setMinimumHeight(48)
        self.document().setDocumentMargin(8)
        self._words = ("", "")
        self._outdated = False
        theme.manager().changed.connect(self._theme_changed)

    def _theme_changed(self) -> None:
        self.show_output(*self._words, outdated=self._outdated)

    def show_output(
        self, printed: str, error: str = "", outdated: bool = False
    ) -> None:
        """Show a text, and an error in its colour behind it; its end is in sight.

        An `outdated` error is that of a line that is another by now.
        """
        self._words, self._outdated = (printed, error), outdated
        self.setCurrentCharFormat(
            QTextCharFormat()
        )  # else it is in the colour of the last error
        self.setPlainText(printed)
        if error:
            form = QTextCharFormat()
            form.setForeground(
                theme.current().text3 if outdated else theme.current().error
            )
            cursor = QTextCursor(self.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            gap = "" if not printed or printed.endswith("\n") else "\n"
            cursor.insertText(gap + error.rstrip("\n"), form)
        self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())
