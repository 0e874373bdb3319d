"""A section of the Training tab whose header, while folded, lists the values that differ from the defaults."""

from __future__ import annotations

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from app.views.ui.widgets import Section
from app.views.ui.widgets.painting import TextLine, elided

AROUND = 68  # chevron, margins and the room between title and summary, px


class FoldingSection(Section):
    """`acted` requests to reset the section to the defaults."""

    def __init__(
        self, title: str, parent: QWidget | None = None, *, opened: bool = False
    ) -> None:
        super().__init__(title, parent=parent, opened=opened)
        self._summary, self._differs = "", False
        self._caption.setMinimumWidth(
            1
        )  # it is cut, and so it must not hold the panel open
        self.toggled.connect(self._fit)

    @property
    def summary(self) -> str:
        return self._summary

    @property
    def differs(self) -> bool:
        """Return whether any value differs from the default."""
        return self._differs

    def set_summary(self, text: str, differs: bool) -> None:
        """Set the text of the folded header, and whether there is anything to reset."""
        if (text, differs) != (self._summary, self._differs):
            self._summary, self._differs = text, differs
            self._header.setAccessibleDescription(text)
            self._fit()

    def _fit(self) -> None:
        self.set_action("Reset" if self.is_open() and self._differs else "", quiet=True)
        room = self.width() - TextLine(self.title(), "section").width - AROUND
        self.set_caption(
            ""
            if self.is_open() or room < 20
            else elided(self._summary, "caption", room).text,
            "text2" if self._differs else "text3",
        )
        self._caption.setToolTip(self._summary)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()
