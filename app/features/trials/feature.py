"""Trials before a run in the window: commands of the Run menu that start none, and links to them in the form."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from PySide6.QtCore import QObject, Qt

from app.data.own_files import cache
from app.features.trials.dialogs import DryRunDialog, FindRateDialog
from app.features.trials.values import DryRun, TryOnSyntheticData
from app.preflight import preflight
from app.training.events import Failed
from app.training.job import Job
from app.views.feature import Action, Feature
from app.views.run.failures import show_failure
from app.views.run.run_control import CANNOT_START
from app.views.training.form.settings_form import TrainingForm
from app.views.ui.background import WorkerFailure
from app.views.workspace import Workspace

# --- Trials before a run: learning rate finder, dry run on synthetic data, and overfitting one batch

UNDER_WAY = "A run is in progress. Stop it first: both would compete for CPU and memory"


class TrialControl(QObject):
    """Commands of the Run menu that start no run."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self._trying = False
        workspace.run_control.blocked_changed.connect(self._settle)
        workspace.session.stateChanged.connect(self._settle)

    def _settle(self, _state: str) -> None:
        """Withdraw a refusal whose reason is gone."""
        notifier, blocked = (
            self._workspace.notifier,
            self._workspace.run_control.blocked,
        )
        if not self._workspace.session.active and notifier.reason == f"{UNDER_WAY}.":
            notifier.withdraw()
        elif notifier.title == CANNOT_START:
            notifier.refuse(CANNOT_START, blocked) if blocked else notifier.withdraw()

    def _job(self, action: str) -> Job | None:
        """Return the job that a run would start with; None, with a message, if it cannot start."""
        workspace = self._workspace
        blocked = workspace.run_control.blocked
        if workspace.session.active:
            blocked = UNDER_WAY
        if blocked or workspace.live.analysis is None:
            workspace.notifier.refuse(f"{action} has to wait", f"{blocked}.")
            return None
        return preflight.job(
            workspace.document.project,
            workspace.live.analysis,
            str(workspace.settings.data_folder),
        )

    def find_rate(self) -> FindRateDialog | None:
        """Open the learning rate finder."""
        job = self._job("The learning rate finder")
        if job is None:
            return None
        dialog = FindRateDialog(job, self._workspace.engine, self._workspace.window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.chosen.connect(self.use_rate)
        dialog.open()
        return dialog

    def use_rate(self, rate: float) -> None:
        """Set the optimizer's learning rate, as one undo step."""
        document = self._workspace.document
        training = document.project.training
        choice = replace(
            training.optimizer, params=training.optimizer.params.set("lr", rate)
        )
        training = replace(training, optimizer=choice)
        document.apply(
            f"Set lr to {rate:g}", replace(document.project, training=training)
        )

    def dry_run(self) -> None:
        """Run two steps and a validation batch on synthetic data in the engine."""
        job = self._job("The dry run")
        if job is None or self._trying:
            return
        self._workspace.notifier.say("Dry run", "Two steps on synthetic data…")
        self._trying = True
        request = TryOnSyntheticData(job, cache.fact(job.data))
        self._workspace.engine.ask(
            "dry run", request, on_answer=self._ended, on_error=self._ended
        )

    def _ended(self, answer: DryRun | Failed | WorkerFailure) -> None:
        self._trying = False
        workspace = self._workspace
        workspace.notifier.clear()
        if isinstance(answer, WorkerFailure):
            workspace.notifier.show_details(
                "The dry run failed", answer.message, answer.traceback
            )
        elif isinstance(answer, Failed):
            show_failure(workspace, answer, "The dry run failed")
        else:
            dialog = DryRunDialog(answer, workspace.window)
            dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            dialog.open()

    def overfit(self) -> None:
        """Toggle overfitting one batch in the next run."""
        document = self._workspace.document
        training = document.project.training
        on = not training.one_batch
        change = "Overfit one batch" if on else "Train on all batches"
        document.apply(
            change, replace(document.project, training=replace(training, one_batch=on))
        )
        note = (
            "The next run trains on one batch only: its loss should fall close to 0."
            if on
            else ""
        )
        self._workspace.notifier.say(
            change, note or "The next run trains on all training samples."
        )


class TrialsFeature(Feature):
    follows = True  # its links stand in the form, which does

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.trials = TrialControl(workspace)

    def actions(self) -> Iterable[Action]:
        trials = self.trials
        return (
            Action(
                "find-rate",
                "&Find a learning rate…",
                trials.find_rate,
                menu="run.rate",
            ),
            Action(
                "dry-run",
                "Dr&y run on synthetic data",
                trials.dry_run,
                "Shift+F5",
                menu="run.trials",
            ),
            Action(
                "overfit",
                "Overfit &one batch",
                trials.overfit,
                menu="run.trials",
            ),
        )

    def finish(self) -> None:
        self.workspace.pages.make("training")
        form = self.workspace.pages.widget("training")
        assert isinstance(form, TrainingForm)
        form.add_link(form.run, "Dry run on synthetic data", self.trials.dry_run)
        form.add_link(form.optimizer, "Find a learning rate…", self.trials.find_rate)
