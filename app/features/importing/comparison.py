"""An imported drawing that is shown while it is compared with its model: its progress and its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QObject, Qt, QTimer

from app.features.importing.process import ImportedModel
from app.features.importing.values import UNCHECKED, ImportModel, remarks
from app.project.project import Project
from app.views.ui.background import WorkerFailure
from app.views.ui.task import BackgroundTask
from app.views.ui.widgets.banner import Banner

if TYPE_CHECKING:
    from app.views.workspace import Workspace

POLL_INTERVAL = 200  # ms between two polls of the progress
STOP, OPEN = "Stop comparing", "Open the corrected network"


class ComparingControl(QObject):
    """Waits for the comparison of the imported project that was opened last.

    Until it has ended, and for good if it is stopped, the project's notes say that the drawing was not checked.
    """

    def __init__(
        self,
        workspace: Workspace,
        show: Callable[[ImportedModel, ImportModel], object],
    ) -> None:
        super().__init__(workspace.window)
        self._workspace, self._show = workspace, show
        self._work: BackgroundTask | None = None
        self._early = self._corrected = Project()
        self._wanted: ImportModel | None = None
        self.banner = Banner(parent=workspace.window)
        workspace.notifier.add_banner(self.banner)
        self.banner.chosen.connect(self._chosen)
        self.banner.closed.connect(self.stop)
        self._timer = QTimer(self, interval=POLL_INTERVAL)
        self._timer.timeout.connect(self._poll_progress)
        workspace.document.replaced.connect(lambda _project: self._forget())

    @property
    def running(self) -> bool:
        return self._work is not None

    def begin(self, drawn: ImportedModel, request: ImportModel) -> None:
        """Wait for what comes of the project that was just opened."""
        assert drawn.rest is not None
        self._early, self._wanted = drawn.project, request
        self._work = BackgroundTask(drawn.rest)
        self._work.ended.connect(self._ended, Qt.ConnectionType.QueuedConnection)
        self._poll_progress()
        self.banner.show()
        self._work.begin()
        self._timer.start()

    def stop(self) -> None:
        """Cancel a running comparison without waiting for its answer."""
        if self.running:
            self._workspace.notifier.say("The comparison was stopped", UNCHECKED)
        self._forget()

    def _forget(self) -> None:
        work, self._work = self._work, None
        self._timer.stop()
        if work is not None:
            work.ended.disconnect(self._ended)
            work.abandon()
        self.banner.hide()

    def _poll_progress(self) -> None:
        if self._work is not None and self._wanted is not None:
            reason = f"{self._work.progress or 'Starting'}. Until it ends, the network counts as not verified."
            title = f"Comparing {self._wanted.name} with its original model"
            self.banner.set("info", title, reason, STOP)

    def _ended(self, answer: Project | WorkerFailure) -> None:
        request, document = self._wanted, self._workspace.document
        assert request is not None
        self._work = None
        self._timer.stop()
        early, name = self._early, request.name
        if isinstance(answer, WorkerFailure):
            message = answer.message.strip() or type(answer.error).__name__
            self._set_notes(None, message)
            self.banner.set(
                "error", f"This network is not verified against {name}", message
            )
        elif _drawing(answer) != _drawing(early):
            message = " ".join(remarks(answer))
            self._corrected = answer
            self._set_notes(None, "The network differs from the original model.")
            self.banner.set("error", f"This network differs from {name}", message, OPEN)
        else:
            more = [
                remark for remark in remarks(answer) if remark not in remarks(early)
            ]
            checked = answer.origin.checked if answer.origin else ""
            self._set_notes(answer, checked)
            self.banner.hide()
            self._workspace.notifier.say(
                f"Compared {name}", " ".join(filter(None, (checked, *more)))
            )
        document.mark_unsaved()

    def _set_notes(self, compared: Project | None, message: str) -> None:
        """Replace the notes in the project and every undo step by the result of the comparison, or `message` if it
        failed."""
        early = self._early

        def revised(project: Project) -> Project:
            if project.origin is None or _drawing(project) != _drawing(early):
                return project
            if compared is None or compared.origin is None:
                return replace(project, notes=project.notes.replace(UNCHECKED, message))
            compared_origin = compared.origin
            origin = replace(
                project.origin,
                checked=compared_origin.checked,
                reference=compared_origin.reference,
                inits=compared_origin.inits,
            )
            unedited = early.notes in project.notes  # False if the user has edited them
            replacement = (
                (early.notes, compared.notes) if unedited else (UNCHECKED, message)
            )
            return replace(
                project, origin=origin, notes=project.notes.replace(*replacement)
            )

        self._workspace.document.revise(revised)

    def _chosen(self, text: str) -> None:
        if text == STOP:
            self.stop()
        elif text == OPEN and self._wanted is not None:
            self._show(ImportedModel(self._corrected), self._wanted)


def _drawing(project: Project) -> str:
    """Return the digest of the imported net."""
    return project.origin.drawing if project.origin else ""
