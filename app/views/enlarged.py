"""A page that fills the window, and the way back."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QObject, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QDockWidget, QMainWindow

from app.views.ui.present import present


class Enlarged(QObject):
    """Gives one dock, or the centre, the whole window: the others are hidden until Esc or `put_back`.

    `changed(name)` is emitted with the name of the dock, "" when all are as they were.
    """

    changed = Signal(str)

    def __init__(self, window: QMainWindow) -> None:
        super().__init__(window)
        self.name = ""
        self._window = window
        self._docks: dict[str, QDockWidget | None] = {}
        self._before = QByteArray()
        self._escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), window)
        self._escape.setEnabled(False)
        self._escape.activated.connect(self.put_back)
        self._escape.activatedAmbiguously.connect(self.put_back)

    def add(self, name: str, dock: QDockWidget | None) -> None:
        """Take a dock, or the centre, which is in none."""
        self._docks[name] = dock

    def toggle(self, name: str) -> None:
        """Give the window to a dock, or put back what has it."""
        if self.name == name:
            self.put_back()
        else:
            self.enlarge(name)

    def enlarge(self, name: str) -> None:
        """Give the window to a dock."""
        if self.name == name:
            return
        self.put_back()
        self._before = self._window.saveState()
        for other, dock in self._docks.items():
            if dock is not None:
                dock.setVisible(other == name)
        present(self._window.centralWidget()).setVisible(self._docks[name] is None)
        self._turn(name)

    def put_back(self) -> None:
        """Show the other docks again, as they were."""
        if self.name:
            present(self._window.centralWidget()).show()
            self._window.restoreState(self._before)
            self._turn("")

    def _turn(self, name: str) -> None:
        self.name = name
        self._escape.setEnabled(bool(name))
        self.changed.emit(name)
