"""In a field, undo and redo mean the project's, not the letters of that field."""

from __future__ import annotations

from PySide6.QtCore import QEvent
from PySide6.QtGui import QKeyEvent, QKeySequence


def leaves_to_window(event: QEvent) -> bool:
    """For an event filter on a field: True if the event asks who takes Ctrl+Z or Ctrl+Y, which then is the window."""
    if event.type() != QEvent.Type.ShortcutOverride or not isinstance(event, QKeyEvent):
        return False
    if event.matches(QKeySequence.StandardKey.Undo) or event.matches(QKeySequence.StandardKey.Redo):
        event.ignore()
        return True
    return False
