"""Edits of the drawing applied to the run: planned by the engine, shown, then performed by the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt

from app.features.surgery.dialog import SurgeryDialog
from app.features.surgery.fates import function_words
from app.features.surgery.values import PlanSurgery, SurgeryPlan
from app.project.project import Project
from app.training.surgery.values import Outcome
from app.views.ui.deferred_answer import when_done

if TYPE_CHECKING:
    from app.views.run.session import Run
    from app.views.ui.background import WorkerFailure
    from app.views.workspace import Workspace

NOT_NOW = "The edits cannot be applied"
PAUSE_FIRST = "Pause the run first"
NOTHING = (
    "The network on the canvas is the one of the run, so there is nothing to apply. Layers that reach no output are "
    "not part of it."
)


class SurgeryControl(QObject):
    """Plans, shows and applies; `refusal` says why that is not possible."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self._waiting = False  # for the run to pause
        self.dialog: SurgeryDialog | None = None
        workspace.session.stateChanged.connect(self._state_changed)
        workspace.live.analysed.connect(
            lambda _analysis: workspace.notifier.withdraw(NOT_NOW)
        )

    @property
    def refusal(self) -> str:
        """Why edits cannot be applied, "" if they can once the run is paused."""
        workspace, session = self._workspace, self._workspace.session
        run, thread = session.current, session.training_thread
        if (
            run is None
            or thread is None
            or not session.active
            or session.state == "stopping"
        ):
            return "No run is in progress. The next run uses the edited network."
        if session.watched_last:
            return "This run executes elsewhere: its network is constructed by the code that started it."
        if thread.place.processes > 1:
            return "A run on several processes has several copies of the network. Start a run in one process."
        before = workspace.run_control.drawn(run)
        if (
            before is None
            or before.opened is not None
            or workspace.document.project.opened is not None
        ):
            return "An opened model is defined by its own code. Redraw it to edit it during a run."
        if not differ(before, workspace.document.project):
            return NOTHING
        if errors := workspace.live.errors:
            return f"The network has errors: {errors[0].message}. Fix them first."
        return ""

    def open(self) -> None:
        """Plan the surgery and show it; of a run that is not paused, offer to pause it."""
        workspace, session = self._workspace, self._workspace.session
        if self.dialog is not None:
            self.dialog.raise_()
            return
        if not workspace.live.up_to_date and session.active:
            workspace.live.when_checked("surgery", self.open, self._refuse)
            return
        if refusal := self.refusal:
            self._refuse(refusal)
            return
        if session.state != "paused":
            why = "Edits are applied between two steps. The run continues when you resume it."
            workspace.notifier.show(
                "info", PAUSE_FIRST, why, "Pause and continue", self._pause
            )
            return
        run = session.current
        assert run is not None
        self._plan(run, workspace.document.project)

    def _refuse(self, reason: str) -> None:
        self._workspace.notifier.show("info", NOT_NOW, reason)

    def _pause(self) -> None:
        self._workspace.notifier.withdraw(PAUSE_FIRST)
        if self._workspace.session.state == "paused":
            self.open()
            return
        self._waiting = True
        self._workspace.session.pause()

    def _state_changed(self, state: str) -> None:
        if state == "paused" and self._waiting:
            self._waiting = False
            self.open()
        elif not self._workspace.session.active:
            self._waiting = False
            for title in (PAUSE_FIRST, NOT_NOW):
                self._workspace.notifier.withdraw(title)
            if self.dialog is not None:
                self.dialog.reject()

    def _plan(self, run: Run, project: Project) -> None:
        workspace = self._workspace
        before = workspace.run_control.drawn(run)
        assert before is not None
        dialog = self.dialog = SurgeryDialog(
            f"Run {run.display_number}", workspace.window
        )
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.finished.connect(self._closed)
        dialog.applied.connect(lambda: self._apply(dialog, run, project))
        dialog.open()

        def planned(plan: SurgeryPlan) -> None:
            if self.dialog is not dialog:
                return
            if plan.same:
                dialog.reject()
                workspace.notifier.show("info", NOT_NOW, NOTHING)
            else:
                dialog.show_plan(plan)

        def failed(failure: WorkerFailure) -> None:
            if self.dialog is dialog:
                dialog.reject()
                workspace.notifier.refuse(NOT_NOW, failure.message)

        workspace.engine.ask(
            "surgery", PlanSurgery(before, project), on_answer=planned, on_error=failed
        )

    def _closed(self, _result: int) -> None:
        self.dialog = None

    def _apply(self, dialog: SurgeryDialog, run: Run, project: Project) -> None:
        """Ask the run to perform it between two steps."""
        thread, plan = self._workspace.session.training_thread, dialog.plan
        if thread is None or plan is None or not run.active:
            dialog.reject()
            return
        when_done(
            thread.operate(plan.surgery, project),
            self,
            lambda outcome: self._applied(run, project, plan, outcome),
            self._failed,
        )

    def _applied(
        self, run: Run, project: Project, plan: SurgeryPlan, outcome: Outcome
    ) -> None:
        workspace = self._workspace
        if self.dialog is not None:
            self.dialog.accept()
        workspace.run_control.set_drawn(run, project)
        message = (
            f"{plan.surgery.description}. "
            f"{function_words(outcome, 'on a batch of the run')} Resume continues with it."
        )
        workspace.notifier.say(f"Edits applied to Run {run.display_number}", message)
        workspace.session.note(
            f"{plan.surgery.description}. {function_words(outcome, 'on a batch of the run')}"
        )

    def _failed(self, error: BaseException) -> None:
        if self.dialog is not None:
            self.dialog.reject()
        self._workspace.notifier.refuse(
            "The edits were not applied; the run is unchanged", str(error)
        )


def differ(before: Project, after: Project) -> bool:
    """Return whether two projects may have different nets, or groups of parameters."""
    options = [
        (project.training.groups, project.training.recompute)
        for project in (before, after)
    ]
    return (
        before.graph != after.graph
        or before.blocks != after.blocks
        or options[0] != options[1]
    )
