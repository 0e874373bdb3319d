"""Search field for nodes of the tape: by name, layer, parameter or saved tensor."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.autograd.pictures.search import find
from app.autograd.tape import Tape
from app.views.ui.widgets.find_bar import FindBar


class TapeFinder(FindBar):
    """Search field. `found(node)` emits the id of the backward node to show."""

    found = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        self._tape: Tape | None = None
        self._places: tuple[int, ...] = ()
        self._at = -1
        super().__init__(
            "Find a node by name, layer, parameter or saved tensor", parent
        )

    def set_tape(self, tape: Tape | None) -> None:
        """Search another tape from now on; the shown matches stay."""
        self._tape = tape
        if tape is None:
            self.hide()
        self._search()

    def _search(self) -> None:
        query = "" if self.isHidden() else self.field.text()
        self._places, self._at = (
            (() if self._tape is None else find(self._tape, query)),
            -1,
        )
        self.show_count(-1, 0)
        if self._places:
            self.count.setText(f"{len(self._places):,} found")

    def search(self) -> None:
        self._search()
        self.go_to_match(1)

    def go_to_match(self, step: int) -> None:
        if self._places:
            self._at = (self._at + step) % len(self._places)
            self.show_count(self._at, len(self._places))
            self.found.emit(self._places[self._at])
