"""A list of lines that is too long for a sentence, to be read and copied."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from app.views.ui import theme
from app.views.ui.dialogs.base import Dialog


class ListingDialog(Dialog):
    """Shows lines of text below a title."""

    def __init__(
        self, title: str, lines: Sequence[str], parent: QWidget | None = None
    ) -> None:
        super().__init__(title, parent)
        self.setWindowTitle("Tapedeck")
        self.lines = QPlainTextEdit("\n".join(lines))
        self.lines.setReadOnly(True)
        self.lines.setFont(theme.font("formula"))
        self.lines.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.lines.setAccessibleName(title)
        self.body.addWidget(self.lines, 1)
        copy = self.add_button("Copy", left=True)
        copy.clicked.connect(
            lambda: QGuiApplication.clipboard().setText(self.lines.toPlainText())
        )
        self.add_button("Close", "primary", default=True).clicked.connect(self.accept)
        self.resize(620, 420)
