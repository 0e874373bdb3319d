"""Opening and saving projects: what asks, what is remembered, and what is said when it fails."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app import leftovers
from app.document import Document
from app.project_file import ProjectFileError
from app.resources import path as resource_path
from app.settings import Settings

FILTER = "Tapedeck project (*.tape)"


class Files(QObject):
    """The File menu. `refused(title, reason)` tells what could not be done; nothing is lost then."""

    refused = Signal(str, str)
    saved = Signal(object)

    def __init__(self, document: Document, settings: Settings, window: QWidget) -> None:
        super().__init__(window)
        self._document, self._settings, self._window = document, settings, window

    def new(self) -> None:
        if self.may_leave():
            self._document.new()

    def choose(self) -> None:
        """Ask for a file and open it."""
        if not self.may_leave():
            return
        start = self._document.path or resource_path("examples")
        name, _ = QFileDialog.getOpenFileName(self._window, "Open a project", str(start), FILTER)
        if name:
            self.open(Path(name))

    def open_asking(self, path: Path) -> None:
        """Open a file after asking what becomes of unsaved work."""
        if self.may_leave():
            self.open(path)

    def open(self, path: Path) -> bool:
        """Open a file; False, with a word, if it cannot be, and then the open project stays."""
        try:
            self._document.open(path)
        except ProjectFileError as error:
            self.refused.emit(f"{path.name} cannot be opened", str(error))
            return False
        except OSError as error:
            self._settings.forget_recent(path)
            self.refused.emit(f"{path.name} cannot be opened", f"{error.strerror or error}: {path}")
            return False
        self._settings.add_recent(path)
        leftovers.sweep_aside(path.parent)  # what a program that was killed while it saved has left
        return True

    def open_example(self, name: str) -> None:
        """A copy of a bundled example, without a file, so that saving does not change the example."""
        if not self.may_leave():
            return
        path = resource_path("examples", name)
        self._document.open(path)
        self._document.new(self._document.project)

    def save(self) -> bool:
        """Save where it came from, or ask. False if it was not saved."""
        path = self._document.path
        return self.save_to(path) if path else self.save_as()

    def save_as(self) -> bool:
        folder = self._document.path.parent if self._document.path else self._settings.export_folder
        suggested = folder / f"{self._document.project.name or 'untitled'}.tape"
        name, _ = QFileDialog.getSaveFileName(self._window, "Save the project", str(suggested), FILTER)
        if not name:
            return False
        path = Path(name)
        return self.save_to(path if path.suffix else path.with_suffix(".tape"))

    def save_to(self, path: Path) -> bool:
        try:
            self._document.save(path)
        except ProjectFileError as error:
            self.refused.emit(f"{path.name} was not saved", str(error))
            return False
        except OSError as error:
            self.refused.emit(f"{path.name} was not saved", f"{error.strerror or error}: {path}. Choose another place.")
            return False
        self._settings.add_recent(path)
        self.saved.emit(path)
        return True

    def may_leave(self) -> bool:
        """Ask what becomes of unsaved changes; False if the person would rather stay."""
        if not self._document.dirty:
            return True
        from app.views.dialogs.message import Answer, ask_unsaved

        answer = ask_unsaved(self._window, self._document.project.name)
        return self.save() if answer is Answer.SAVE else answer is Answer.DISCARD
