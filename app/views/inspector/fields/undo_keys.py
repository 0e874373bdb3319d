"""Undo and redo in a field act on the project, not on the text of the field."""

from __future__ import annotations

from PySide6.QtCore import QEvent
from PySide6.QtGui import QKeyEvent, QKeySequence


def leaves_to_window(event: QEvent) -> bool:
    """Ignore a shortcut override of undo or redo, so that the window handles it; return True if it was one."""
    if event.type() != QEvent.Type.ShortcutOverride or not isinstance(event, QKeyEvent):
        return False
    if event.matches(QKeySequence.StandardKey.Undo) or event.matches(QKeySequence.StandardKey.Redo):
        event.ignore()
        return True
    return False
