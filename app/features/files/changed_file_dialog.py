"""The dialog for a project file that changed on disk: what differs, and which version to keep."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from msgspec import Struct
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.features.files.project_difference import differences, lines
from app.project import file
from app.project.file import ProjectFileError
from app.project.project import Project
from app.views.trust_dialog import DiffEdit
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.base import Dialog
from app.views.ui.task import BackgroundTask
from app.views.ui.widgets.painting import label

LEGEND = "+ only in the file, - only here, ~ differs: here → in the file. Reload can be undone."
MOST = 400  # lines that are shown


class OnDisk(Struct, frozen=True):
    """The current file of an open project. `digest` is "" if it is gone, None if it cannot be read at all.

    `project` is None if the file is not a readable project, and `problem` says why. `same`: it equals the open project.
    """

    digest: str | None
    project: Project | None = None
    problem: str = ""
    same: bool = False


def read_on_disk(
    path: Path, opened: Project, previous_digest: str | None = None
) -> OnDisk:
    """Read the current file, unless its digest is still `previous_digest`. For a worker thread."""
    digest: str | None = None
    try:
        digest = file.digest(path)
        if digest in ("", previous_digest):
            return OnDisk(digest)
        project, digest = file.read_with_digest(path)
    except ProjectFileError as error:
        return OnDisk(digest, problem=str(error))
    except OSError as error:
        return OnDisk(None, problem=f"{path}: {error.strerror or error}")
    return OnDisk(digest, project, same=file.dumps(project) == file.dumps(opened))


class VersionChoice(Enum):
    """What to do about the two versions."""

    KEEP = "keep"
    RELOAD = "reload"
    OVERWRITE = "overwrite"
    SAVE_AS = "save as"


class ChangedFileDialog(Dialog):
    """Shows how the file differs from the open project; `choice` is the answer, `on_disk` the version compared.

    Esc changes neither.
    """

    def __init__(
        self, path: Path, opened: Project, parent: QWidget | None = None
    ) -> None:
        super().__init__(f"{path.name} was changed on the disk", parent, icon="warning")
        self.setWindowTitle("Tapedeck")
        self.setMinimumSize(560, 380)
        self.resize(640, 460)
        self.choice = VersionChoice.KEEP
        self.on_disk: OnDisk | None = None
        self._opened = opened
        self.words = label("Reading the file…", "body", "text2", wrap=True)
        self.changes = DiffEdit(())
        self.changes.setAccessibleName("What differs")
        self.legend = label(LEGEND, "label", "text3", wrap=True)
        self.body.addWidget(self.words)
        self.body.addWidget(self.changes, 1)
        self.body.addWidget(self.legend)
        self.overwrite_button = self.add_button("Overwrite the file", left=True)
        self.keep_button = self.add_button("Keep mine")
        self.keep_button.setToolTip(
            "Keep the open project. The file is unchanged until you save."
        )
        self.save_as_button = self.add_button("Save as…")
        self.reload_button = self.add_button("Reload", "primary")
        buttons = (
            (self.overwrite_button, VersionChoice.OVERWRITE),
            (self.keep_button, VersionChoice.KEEP),
            (self.save_as_button, VersionChoice.SAVE_AS),
            (self.reload_button, VersionChoice.RELOAD),
        )
        for button, choice in buttons:
            button.clicked.connect(lambda _=False, choice=choice: self._choose(choice))
        self.reload_button.setEnabled(False)
        self.overwrite_button.setEnabled(False)
        self.keep_button.setFocus()  # nothing is given up by Enter alone
        self._task = BackgroundTask(lambda *_: _compared(path, opened))
        self._task.ended.connect(self._read, Qt.ConnectionType.QueuedConnection)
        self.finished.connect(self._task.abandon)
        self._task.begin()

    def _read(self, answer: tuple[OnDisk, tuple[str, ...]] | WorkerFailure) -> None:
        if isinstance(answer, WorkerFailure):
            self.words.setText(f"The file cannot be read: {answer.message}.")
            return
        self.on_disk, difference_lines = answer
        self.reload_button.setEnabled(self.on_disk.project is not None)
        self.overwrite_button.setEnabled(True)
        self.changes.set_lines(difference_lines)
        self.changes.setVisible(bool(difference_lines))
        self.legend.setVisible(bool(difference_lines))
        self.words.setText(_summary(self.on_disk, bool(difference_lines)))

    def _choose(self, choice: VersionChoice) -> None:
        self.choice = choice
        self.accept()


def _summary(on_disk: OnDisk, differs: bool) -> str:
    if on_disk.digest == "":
        return (
            "The file was moved or deleted. The open project can be saved there again."
        )
    if on_disk.project is None:
        return f"The changed file cannot be opened: {on_disk.problem}"
    if not differs:
        return "It contains the same project with other formatting."
    return "Another window or program saved the file. Differences between the open project and the file:"


def _compared(path: Path, opened: Project) -> tuple[OnDisk, tuple[str, ...]]:
    """Read the file and list the differences; runs on a worker."""
    now = read_on_disk(path, opened)
    if now.project is None:
        return now, ()
    difference_lines = lines(differences(opened, now.project))
    more = (
        (f"  and {len(difference_lines) - MOST:,} more",)
        if len(difference_lines) > MOST
        else ()
    )
    return now, (*difference_lines[:MOST], *more)
