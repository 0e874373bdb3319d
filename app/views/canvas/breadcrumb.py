"""Breadcrumb over the canvas: the path from the network into blocks."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from app.views.ui import theme
from app.views.ui.layouts import hbox
from app.views.ui.present import present
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import box, label, show_or_hide, start


class Crumb(Struct, frozen=True):
    """One part of the path: its name, and what a click on it does."""

    text: str
    tip: str
    icon: str = "block"


NETWORK = Crumb("Network", "Back to the network", "network")


class Breadcrumb(QWidget):
    """The path from the network to the sheet in front. `chosen(number)` requests one of its parts."""

    chosen = Signal(int)
    fits_text = True

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._row = hbox(on=self, margins=(4, 1, 4, 1), spacing=2)
        self.buttons: list[Button] = []
        self._strokes: list[QWidget] = []
        self._shown: tuple[tuple[Crumb, ...], str] | None = None
        self.note = label("", "caption", "text3")
        self.set_crumbs((NETWORK,))
        theme.manager().changed.connect(self._remake)

    def set_crumbs(self, crumbs: Sequence[Crumb], note: str = "") -> bool:
        """Show another path; `note` describes the last part. Return whether it was another."""
        if (tuple(crumbs), note) == self._shown:
            return False
        self._shown = (tuple(crumbs), note)
        while self._row.count():
            old = present(self._row.takeAt(0)).widget()
            if old is not None and old is not self.note:
                old.deleteLater()
                old.hide()
        self.buttons, self._strokes = [], []
        for number, crumb in enumerate(crumbs):
            if number:
                self._strokes.append(label("/", "section", "text3"))
                self._put(self._strokes[-1])
            button = Button(crumb.text.replace("&", "&&"), "flat", crumb.icon)
            button.setFixedHeight(theme.grown(22, "button"))
            button.setToolTip(crumb.tip)
            button.setAccessibleName(f"{crumb.text}: {crumb.tip}")
            button.setCheckable(len(crumbs) > 1)
            button.setChecked(number == len(crumbs) - 1)
            button.clicked.connect(lambda _on, number=number: self._choose(number))
            button.setFocusPolicy(
                Qt.FocusPolicy.TabFocus if len(crumbs) > 1 else Qt.FocusPolicy.NoFocus
            )
            self._put(button)
            self.buttons.append(button)
        show_or_hide(self.note, note)
        self.note.setContentsMargins(6, 0, 6, 0)
        self._row.addWidget(self.note)
        self.setAccessibleName(" / ".join(crumb.text for crumb in crumbs))
        self.fit(10_000)
        return True

    def _remake(self) -> None:
        """Make the parts again for another text size."""
        if self._shown is not None and self.height() != theme.grown(22, "button") + 4:
            (crumbs, note), self._shown = self._shown, None
            self.set_crumbs(crumbs, note)

    def _put(self, widget: QWidget) -> None:
        """Append a part to the row, and show it at once, since hidden parts have no size."""
        self._row.addWidget(widget)
        widget.show()

    def _choose(self, number: int) -> None:
        for i, button in enumerate(self.buttons):
            button.setChecked(i == len(self.buttons) - 1)
        self.chosen.emit(number)

    def fit(self, room: int) -> bool:
        """Shrink to the room: hide the note first, then the parts between the network and the last. Return whether
        every part is shown."""
        for widget in (*self.buttons, *self._strokes):
            widget.show()
        self.note.setVisible(bool(self.note.text()))
        between = zip(self.buttons[1:-1], self._strokes, strict=False)
        for parts in ((self.note,), *between):
            if self._width() > room:
                for widget in parts:
                    widget.hide()
        complete = self._width() <= room and not any(
            button.isHidden() for button in self.buttons
        )
        self.setFixedSize(
            min(self._width(), max(room, 80)), theme.grown(22, "button") + 4
        )
        return complete

    def _width(self) -> int:
        self._row.invalidate()
        return self._row.sizeHint().width()

    def paintEvent(self, event: QPaintEvent) -> None:
        now = theme.current()
        painter = start(self)
        box(painter, QRectF(self.rect()), 5, now.panel, now.line2)
        painter.end()
