"""Tool tips for texts that have no room: one place for all labels, lists and headings of a window.

Qt passes a request for a tool tip that nobody answers on to the parents, up to the window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import QComboBox, QHeaderView, QLabel, QToolTip, QWidget

ARROW = 34  # px of a combo box taken by its arrow and margins

if TYPE_CHECKING:
    _Widget = QWidget
else:
    _Widget = object


class ShowsCutTexts(_Widget):
    """Mixin of windows: a cut text without a tool tip gets its whole text as one."""

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            pointed = self.childAt(event.pos())
            if pointed is not None and (text := cut_text(pointed, event)):
                QToolTip.showText(event.globalPos(), text, pointed)
                return True
        return super().event(event)


def cut_text(widget: QWidget, event: QHelpEvent) -> str:
    """Return the text at a pointer where it is cut, else ""."""
    if isinstance(widget, QLabel):
        return widget.text() if is_cut(widget) else ""
    if isinstance(widget, QComboBox):
        text_width = widget.fontMetrics().horizontalAdvance(widget.currentText())
        return widget.currentText() if text_width > widget.width() - ARROW else ""
    header = widget.parentWidget()
    if isinstance(header, QHeaderView):
        section = header.logicalIndexAt(widget.mapFromGlobal(event.globalPos()))
        text_width = (
            header.sectionSizeFromContents(section).width() if section >= 0 else 0
        )
        if text_width > header.sectionSize(section):
            return str(header.model().headerData(section, header.orientation()) or "")
    return ""


def is_cut(label: QLabel) -> bool:
    """Return whether a plain text has more lines, or longer ones, than its label has room for."""
    room, text = label.contentsRect(), label.text()
    if not text or not label.pixmap().isNull():
        return False
    if label.wordWrap():
        return label.heightForWidth(label.width()) > label.height()
    return (
        max(map(label.fontMetrics().horizontalAdvance, text.split("\n"))) > room.width()
    )
