"""Undo and redo in a field act on the project, not on the text of the field."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QKeyEvent, QKeySequence

from app.views.ui.widgets import TextField


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
