"""Opening and saving projects: what asks, what is remembered, and what is said when it fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QMimeData, QObject, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app.project.document import Document
from app.project.file import ChangedOnDisk, ProjectFileError
from app.util import leftovers
from app.util.resources import path as resource_path
from app.views.files import reading
from app.views.settings import Settings

FILTER = "Tapedeck project (*.tape)"


class Files(QObject):
    """The File menu. `refused(title, reason)` and `not_saved` tell what could not be done; nothing is lost then.

    `settle(path)` asks what becomes of a file that somebody changed, and says whether the open project was saved;
    `may_replace(path, asked)` whether another file may be written over, about which the system's dialog may have asked.
    """

    refused = Signal(str, str)
    not_saved = Signal(str, str)
    saved = Signal(object)

    def __init__(self, document: Document, settings: Settings, window: QWidget) -> None:
        super().__init__(window)
        self._document, self._settings, self._window = document, settings, window
        self.settle: Callable[[Path], bool] = lambda _path: False
        self.may_replace: Callable[[Path, bool], bool] = lambda _path, _asked: True

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
            read = reading.read(path, self._window)
        except ProjectFileError as error:
            self.refused.emit(f"{path.name} cannot be opened", str(error).removeprefix(f"{path.name}: "))
            return False
        except OSError as error:
            self._settings.forget_recent(path)
            self.refused.emit(f"{path.name} cannot be opened", f"{error.strerror or error}: {path}")
            return False
        if read is None:
            return False
        self._document.take(path, *read)
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
        return self.save_to(path) if path and not self._document.read_only else self.save_as()

    def save_as(self) -> bool:
        folder = self._document.path.parent if self._document.path else self._settings.export_folder
        suggested = folder / f"{self._document.project.name or 'untitled'}.tape"
        name, _ = QFileDialog.getSaveFileName(self._window, "Save the project", str(suggested), FILTER)
        if not name:
            return False
        path = Path(name)
        whole = path if path.suffix else path.with_suffix(".tape")
        return self.may_replace(whole, whole == path) and self.save_to(whole)

    def save_to(self, path: Path) -> bool:
        try:
            self._document.save(path)
        except ChangedOnDisk:
            return self.settle(path)
        except ProjectFileError as error:
            self.not_saved.emit(f"{path.name} was not saved", str(error))
            return False
        except OSError as error:
            words = f"{error.strerror or error}: {path}. Choose another place."
            self.not_saved.emit(f"{path.name} was not saved", words)
            return False
        self._settings.add_recent(path)
        self.saved.emit(path)
        return True

    def may_leave(self) -> bool:
        """Ask what becomes of unsaved changes; False if the person would rather stay."""
        if not self._document.dirty:
            return True
        from app.views.ui.dialogs.message import DialogAnswer, ask_unsaved

        path = self._document.path
        answer = ask_unsaved(self._window, path.name if path else self._document.project.name)
        return self.save() if answer is DialogAnswer.SAVE else answer is DialogAnswer.DISCARD


def project_in(data: QMimeData) -> Path | None:
    """The project file that is being dragged over the window, if it is one."""
    urls = data.urls()
    path = Path(urls[0].toLocalFile()) if len(urls) == 1 and urls[0].isLocalFile() else None
    return path if path is not None and path.suffix == ".tape" else None
