"""Buttons: secondary by default, one primary where there is a next step, flat and link for the rest."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QPushButton, QWidget

from app.views import icons
from app.views.theme import current
from app.views.widgets.painting import KeyboardFocus, set_property, start

KINDS = ("secondary", "primary", "flat", "link")


class Button(KeyboardFocus, QPushButton):
    """A button of 26 px, sized to its text.

    Args:
        kind: One of secondary, primary, flat, link.
        icon: The name of an icon, left of the text.

    Raises:
        ValueError: there is no such kind.
    """

    def __init__(self, text: str = "", kind: str = "secondary", icon: str = "", parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.setAutoDefault(False)
        self._icon = icon
        self._kind = ""
        self.set_kind(kind)

    @property
    def kind(self) -> str:
        return self._kind

    def set_kind(self, kind: str) -> None:
        """Turn it into another kind of button."""
        if kind not in KINDS:
            raise ValueError(f"a button is one of {', '.join(KINDS)}, not {kind!r}")
        self._kind = kind
        set_property(self, "kind", kind)
        if self._icon:
            self.setIcon(icons.icon(self._icon, "onFill" if kind == "primary" else "accent" if kind == "link" else None))
            self.setIconSize(QSize(14, 14))

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.shows_ring():
            painter = start(self)
            self.paint_ring(painter, QRectF(self.rect()), 5, current().panel if self._kind == "primary" else None)
            painter.end()


def icon_button(name: str, tip: str, parent: QWidget | None = None) -> Button:
    """A flat square button with an icon alone; `tip` is its tool tip and its name to a screen reader."""
    button = Button("", "flat", name, parent)
    button.setProperty("square", True)
    button.setFixedSize(26, 26)
    button.setIconSize(QSize(16, 16))
    button.setToolTip(tip)
    button.setAccessibleName(tip)
    return button
