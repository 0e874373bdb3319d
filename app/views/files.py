"""Opening and saving projects: dialogs, recent files, and errors. A large file is read on a worker thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEventLoop, QMimeData, QObject, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QFileDialog, QWidget

from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.layout import with_places
from app.project import file, picture_file
from app.project.document import Document
from app.project.file import ChangedOnDiskError, ProjectFileError
from app.project.project import Project
from app.util import leftovers, regular_files
from app.util.resources import path as resource_path
from app.views.settings import Settings
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.base import Dialog
from app.views.ui.dialogs.message import DialogAnswer, ask_unsaved
from app.views.ui.task import BackgroundTask
from app.views.ui.widgets.focus import take_typed
from app.views.ui.widgets.painting import label

if TYPE_CHECKING:
    from app.views.notifier import Notifier
    from app.views.run.run_guard import RunGuard

FILTER = "Tapedeck project (*.tape)"
OLD_FORMAT = "The file had an older format; this version saved it in the current one."
OPENED = "Tapedeck projects and pictures of them (*.tape *.png *.svg)"
SMALL = 64 * 1024  # bytes of a file that is read at once
PATIENCE = 300  # milliseconds before the dialog comes


class FileMenu(QObject):
    """The actions of the File menu. `refused(title, reason)` reports failures; nothing is lost then.

    `settle(path)` asks about a file that changed on disk and returns whether the open project was saved.
    `may_replace(path, asked)` returns whether another file may be overwritten; `asked` if the user confirmed already.
    `not_saved(title, reason)` reports a save that failed in place of `refused`.
    """

    refused = Signal(str, str)
    saved = Signal(object)

    def __init__(
        self,
        document: Document,
        settings: Settings,
        runs: RunGuard,
        notifier: Notifier,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._document, self._settings, self._runs, self._window = (
            document,
            settings,
            runs,
            window,
        )
        self._settle: Callable[[Path], bool] | None = None
        self._may_replace: Callable[[Path, bool], bool] = lambda _path, _asked: True
        self._not_saved: Callable[[str, str], None] = notifier.refuse
        self.refused.connect(notifier.refuse)
        self.saved.connect(
            lambda path: notifier.say(f"Saved {path.name}", str(path.parent))
        )
        document.backed_up.connect(
            lambda copy: notifier.say(
                f"The original is kept as {copy.name}", OLD_FORMAT
            )
        )
        document.replaced.connect(lambda _project: notifier.withdraw())

    def ask_through(
        self,
        settle: Callable[[Path], bool],
        may_replace: Callable[[Path, bool], bool],
        not_saved: Callable[[str, str], None],
    ) -> None:
        """Set the functions that ask the user: see the class."""
        self._settle, self._may_replace = settle, may_replace
        self._not_saved = not_saved

    def new(self) -> None:
        if self.may_leave():
            self._document.new()

    def choose(self) -> None:
        """Show the file dialog and open the chosen project."""
        if not self._may_discard():
            return
        near = self._document.path or next(iter(self._settings.recent_files), None)
        start = near.parent if near is not None and near.parent.is_dir() else Path.cwd()
        name, _ = QFileDialog.getOpenFileName(
            self._window, "Open a project", str(start), OPENED
        )
        if name:
            self.open(Path(name))

    def open_asking(self, path: Path) -> None:
        """Open a file after asking about unsaved changes."""
        if self._may_discard():
            self.open(path)

    def open(self, path: Path) -> bool:
        """Open a file, once a run under way may end and has; False, with a word, if it cannot be opened.

        Then the open project stays, and so does the run.
        """
        try:
            answer = read(path, self._window)
        except ProjectFileError as error:
            self.refused.emit(
                f"{path.name} cannot be opened",
                str(error).removeprefix(f"{path.name}: "),
            )
            return False
        except OSError as error:
            self._settings.forget_recent(path)
            self.refused.emit(
                f"{path.name} cannot be opened", f"{error.strerror or error}: {path}"
            )
            return False
        if answer is None or not self._runs.may_end():
            return False
        if picture_file.is_picture(path):
            self._document.new(
                answer[0]
            )  # without a file: saving must not write over the picture
        else:
            self._document.take(path, *answer)
        self._settings.add_recent(path)
        leftovers.sweep_aside(
            path.parent
        )  # temporary files of a program that was killed while saving
        return True

    def open_example(self, name: str) -> None:
        """Open a copy of a bundled example, without a file, so that saving does not change the example."""
        self.open_copy(resource_path("examples", name))

    def open_copy(self, path: Path) -> None:
        """Open the project of a file without the file; unsaved work is asked about before."""
        if self.may_leave():
            self._document.open(path)
            self._document.new(self._document.project)

    def save(self) -> bool:
        """Save to the project's file, or ask for one. Returns False if it was not saved."""
        path = self._document.path
        return (
            self.save_to(path)
            if path and not self._document.read_only
            else self.save_as()
        )

    def save_as(self) -> bool:
        folder = (
            self._document.path.parent
            if self._document.path
            else self._settings.export_folder
        )
        suggested = folder / f"{self._document.title or 'untitled'}.tape"
        name, _ = QFileDialog.getSaveFileName(
            self._window, "Save the project", str(suggested), FILTER
        )
        if not name:
            return False
        path = Path(name)
        full_path = path if path.suffix else path.with_suffix(".tape")
        return self._may_replace(full_path, full_path == path) and self.save_to(
            full_path
        )

    def save_to(self, path: Path) -> bool:
        try:
            self._document.save(path)
        except ProjectFileError as error:
            if isinstance(error, ChangedOnDiskError) and self._settle is not None:
                return self._settle(path)
            self._not_saved(f"{path.name} was not saved", str(error))
            return False
        except OSError as error:
            reason = f"{error.strerror or error}: {path}. Choose another place."
            self._not_saved(f"{path.name} was not saved", reason)
            return False
        self._settings.add_recent(path)
        self.saved.emit(path)
        return True

    def may_leave(self, quits: bool = False) -> bool:
        """Ask about unsaved changes and a run under way, and wait for its end; return False if the user cancels.

        `quits` if the window is to close; else another project is to be opened.
        """
        return self._may_discard() and self._runs.may_end(quits)

    def _may_discard(self) -> bool:
        """Ask about unsaved changes, pending text of a field included: it would become an edit of the next project."""
        take_typed(self._window)
        if not self._document.dirty:
            return True

        path = self._document.path
        answer = ask_unsaved(self._window, path.name if path else self._document.title)
        return (
            self.save()
            if answer is DialogAnswer.SAVE
            else answer is DialogAnswer.DISCARD
        )


def project_in(data: QMimeData) -> Path | None:
    """Return the path of the project file, or of the picture, dragged over the window, or None."""
    urls = data.urls()
    path = (
        Path(urls[0].toLocalFile())
        if len(urls) == 1 and urls[0].isLocalFile()
        else None
    )
    supported = path is not None and (
        path.suffix == ".tape" or picture_file.is_picture(path)
    )
    return path if supported else None


# --- Reading


class ReadingDialog(Dialog):
    """Shown while a large file is read. Cancel abandons it."""

    def __init__(self, name: str, parent: QWidget) -> None:
        super().__init__(f"Opening {name}", parent)
        self.body.addWidget(
            label(
                "Large file: reading and checking the network.",
                "label",
                "text2",
                wrap=True,
            )
        )
        self.add_button("Cancel").clicked.connect(self.reject)


class _Reader(QObject):
    """Waits for a file that a background thread reads."""

    def __init__(self, path: Path, parent: QWidget) -> None:
        super().__init__(parent)
        self._path, self._parent = path, parent
        self._answer: tuple[Project, str] | WorkerFailure | None = None
        self._loop = QEventLoop(self)
        self._dialog: ReadingDialog | None = None
        self._task = BackgroundTask(lambda *_: _prepared(path))
        self._task.ended.connect(self._ended, Qt.ConnectionType.QueuedConnection)

    def wait(self) -> tuple[Project, str] | WorkerFailure | None:
        self._task.begin()
        QTimer.singleShot(PATIENCE, self._loop, self._loop.quit)
        self._loop.exec(QEventLoop.ProcessEventsFlag.ExcludeUserInputEvents)
        if self._answer is None:
            self._dialog = ReadingDialog(self._path.name, self._parent)
            self._dialog.exec()
            self._dialog.deleteLater()
        if self._answer is None:
            self._task.abandon()
        return self._answer

    @Slot(object)
    def _ended(self, answer: tuple[Project, str] | WorkerFailure) -> None:
        self._answer = answer
        self._loop.quit()
        if self._dialog is not None:
            self._dialog.accept()


def read(path: Path, parent: QWidget) -> tuple[Project, str] | None:
    """Read a project and the digest of its file; None if the user cancelled.

    Nodes of large graphs get positions if the file has none. Raises ProjectFileError and OSError.
    """
    if regular_files.check(path) <= SMALL:
        return file.read_with_digest(path)
    reader = _Reader(path, parent)
    answer = reader.wait()
    reader.deleteLater()
    if isinstance(answer, WorkerFailure):
        raise answer.error
    return answer


def _prepared(path: Path) -> tuple[Project, str]:
    """Read a file, and prepare positions and ops of its blocks on a worker, so that the window need not."""
    project, digest = file.read_with_digest(path)
    project = with_places(project)
    with_blocks(catalog(), project.blocks)
    return project, digest
