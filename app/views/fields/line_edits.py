"""Small fields that commit when they lose the focus or at Enter."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QPlainTextEdit

from app.views.ui import theme
from app.views.ui.widgets import TextField
from app.views.ui.widgets.focus import go_back


class NameLine(TextField):
    """A name, committed as a whole: `named(str)` at Enter or when the field loses the focus. Esc restores the old one.

    `check` raises ValueError with the message for the user; `refused(str)` carries it, "" once corrected.
    """

    named = Signal(str)
    refused = Signal(str)

    def __init__(
        self,
        name: str,
        accessible: str,
        check: Callable[[str], None],
    ) -> None:
        super().__init__(name, lambda text: self._checked(text), str)
        self._check, self._plain = check, name
        self.setFont(theme.font("code"))
        self.setAccessibleName(accessible)
        self.installEventFilter(self)
        self.textEdited.connect(lambda _: self.refused.emit(self.invalid() or ""))

    def _checked(self, text: str) -> str:
        text = text.strip()
        if hasattr(self, "_check") and text != self._plain:
            self._check(text)
        return text

    def set_value(self, value: str) -> None:
        self._plain = value
        super().set_value(value)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        return leaves_to_window(event, watched) or super().eventFilter(watched, event)

    def _give(self) -> None:
        """Emit the new name; refused text is dropped."""
        if self.invalid() is None and self.value() != self._plain:
            name, self._plain = self.value(), self.value()
            self.named.emit(name)
        elif self.invalid() is not None:
            super().set_value(self._plain)
        self.refused.emit("")

    def focusOutEvent(self, event: QFocusEvent) -> None:
        if event.reason() != Qt.FocusReason.PopupFocusReason:
            self.commit()
            self._give()
        super().focusOutEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if (
            event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
            and self.invalid() is None
        ):
            self.commit()
            self._give()
            if not go_back(self):
                self.selectAll()
        elif event.key() == Qt.Key.Key_Escape:
            self.discard()
            super().set_value(self._plain)
            self.refused.emit("")
            if not go_back(self):
                self.clearFocus()
        else:
            super().keyPressEvent(event)


LONGEST = 10_000  # characters of a line: layout of 500,000 takes a minute
TOO_LONG = (
    f"Lines of more than {LONGEST:,} characters are cut off here, so these notes cannot be edited. "
    "The file has the full text."
)


class NotesField(QPlainTextEdit):
    """A multi-line note. Undo is the project's; `visit` counts visits, each of which is one undo step."""

    def __init__(self, placeholder: str, accessible: str = "Notes") -> None:
        super().__init__()
        self.setFont(theme.font("body"))  # else it would have the text size of before
        self.visit = 0
        self._long = ""  # the project's value if it is shown truncated
        self.setUndoRedoEnabled(False)
        self.setTabChangesFocus(True)
        self.setPlaceholderText(placeholder)
        self.setAccessibleName(accessible)
        self.setMinimumHeight(110)
        self.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.FocusIn:
            self.visit += 1
        return leaves_to_window(event, watched) or super().eventFilter(watched, event)

    def show_text(self, text: str) -> None:
        """Show the project's text without emitting a signal."""
        if text == (self._long or self.toPlainText()):
            return
        lines = text.split("\n")
        self._long = text if any(len(line) > LONGEST for line in lines) else ""
        if self._long:
            shown = "\n".join(line[:LONGEST] for line in lines)
            text = f"{shown}\n\n[{TOO_LONG}]"
        self.setReadOnly(bool(self._long))
        if self.toPlainText() != text:
            self.blockSignals(True)
            self.setPlainText(text)
            self.blockSignals(False)


def leaves_to_window(event: QEvent, field: QObject | None = None) -> bool:
    """Ignore a shortcut override of undo or redo, so that the window handles it; return True if it was one.

    Text that is being typed in `field` is committed first: it is what undo takes back.
    """
    if event.type() != QEvent.Type.ShortcutOverride or not isinstance(event, QKeyEvent):
        return False
    if event.matches(QKeySequence.StandardKey.Undo) or event.matches(
        QKeySequence.StandardKey.Redo
    ):
        if isinstance(field, TextField):
            field.commit()
        event.ignore()
        return True
    return False
