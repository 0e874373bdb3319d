"""A field of a dialog below its title, with a line for its error, and line edits for code."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QLineEdit, QWidget

from app.sources.spec import SourceError
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets.painting import label, set_property, show_or_hide


class FormField(QWidget):
    """A form field below its title, with a line for its error."""

    def __init__(
        self, title: str, field: QWidget, words: str = "", beside: QWidget | None = None
    ) -> None:
        super().__init__()
        self.field = field
        field.setAccessibleName(title)
        self._words = words
        self.note = label(words, "caption", "text3", wrap=True)
        row = hbox((field, 1), spacing=8)
        if beside is not None:
            row.addWidget(beside)
        vbox(
            label(title, "label", "text2"),
            row,
            self.note,
            on=self,
            margins=0,
            spacing=3,
        )
        self.complain("")

    def complain(self, message: str, tone: str = "error") -> None:
        """Show an error below the field; "" clears it."""
        set_property(self.field, "invalid", bool(message) and tone == "error")
        set_property(self.note, "tone", tone if message else "text3")
        show_or_hide(self.note, message or self._words)
        self.field.setAccessibleDescription(message or self._words)

    def fits(self, check: Callable[[], object]) -> bool:
        """Return whether a check of the field's value passes; else show its error, with the focus."""
        try:
            check()
        except SourceError as error:
            self.complain(f"{str(error).removesuffix('.')}.")
            self.field.setFocus()
            return False
        return True


def code_field(placeholder: str) -> QLineEdit:
    """Return a line edit for code."""
    field = QLineEdit()
    field.setFont(theme.font("code"))
    field.setPlaceholderText(placeholder)
    field.setMinimumHeight(26)
    return field
