"""Read a project on a worker thread; a large file shows a dialog with Cancel."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEventLoop, QObject, Qt, QTimer, Slot
from PySide6.QtWidgets import QWidget

from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.layout.layout import with_places
from app.project import file
from app.project.project import Project
from app.util import regular_files
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.base import Dialog
from app.views.ui.task import BackgroundTask
from app.views.ui.widgets.painting import label

SMALL = 64 * 1024  # bytes of a file that is read at once
PATIENCE = 300  # milliseconds before the dialog comes


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
