"""Trying before a run: find a learning rate, a dry run on made data, and learning one batch by heart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt

from app.data.own_files import cache
from app.engine.requests.trials import TryOnMadeData
from app.preflight import preflight
from app.training.events import Failed
from app.training.job import Job
from app.training.trials.results import DryRun
from app.views.training.runs.run_control import CANNOT_START
from app.views.ui.background import Failure

if TYPE_CHECKING:
    from app.views.main_window import MainWindow
    from app.views.training.trials.lr_finder_dialog import FindRateDialog

UNDER_WAY = "A run is in progress. Stop it first: both would compete for processor and memory"


class TrialControl(QObject):
    """The commands of the Run menu that start no run."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._trying = False
        window.run_control.blocked_changed.connect(self._settle)
        window.session.stateChanged.connect(self._settle)

    def _settle(self, _state: str) -> None:
        """A refusal whose reason holds no more is not left standing."""
        banner, blocked = self._window.banner, self._window.run_control.blocked
        if not self._window.session.active and banner.reason() == f"{UNDER_WAY}.":
            banner.close_message()
        elif banner.title() == CANNOT_START and banner.isVisible():
            banner.set("error", CANNOT_START, blocked) if blocked else banner.close_message()

    def _job(self, what: str) -> Job | None:
        """What a run would be started with; None, and words, where none can be."""
        window = self._window
        blocked = window.run_control.blocked
        if window.session.active:
            blocked = UNDER_WAY
        if blocked or window.live.analysis is None:
            window.refuse(f"{what} has to wait", f"{blocked}.")
            return None
        return preflight.job(window.document.project, window.live.analysis, str(window.settings.data_folder))

    def find_rate(self) -> FindRateDialog | None:
        """Ask how far the learning rate shall go, and try."""
        from app.views.training.trials.lr_finder_dialog import FindRateDialog

        job = self._job("The learning rate finder")
        if job is None:
            return None
        dialog = FindRateDialog(job, self._window.engine, self._window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.chosen.connect(self.use_rate)
        dialog.open()
        return dialog

    def use_rate(self, rate: float) -> None:
        """Make a rate the optimizer's, as one undo step."""
        document = self._window.document
        training = document.project.training
        choice = replace(training.optimizer, params=training.optimizer.params.set("lr", rate))
        training = replace(training, optimizer=choice)
        document.apply(f"Set lr to {rate:g}", replace(document.project, training=training))

    def dry_run(self) -> None:
        """Two steps and a batch of validation on made data, on a thread of its own."""
        job = self._job("The dry run")
        if job is None or self._trying:
            return
        self._window.say("Dry run", "Two steps on synthetic data…")
        self._trying = True
        request = TryOnMadeData(job, cache.fact(job.data))
        self._window.engine.ask("dry run", request, on_answer=self._ended, on_error=self._ended)

    def _ended(self, answer: DryRun | Failed | Failure) -> None:
        from app.views.training.trials.dry_run_dialog import DryRunDialog

        self._trying = False
        window = self._window
        window.toasts.clear()
        if isinstance(answer, Failure):
            window.show_details("The dry run failed", str(answer.error), answer.traceback)
        elif isinstance(answer, Failed):
            window.show_failure(answer)
            node = window.document.project.graph.nodes.get(answer.node or "")
            where = f"Show {node.name}" if node else "Details"
            window.banner.set("error", f"The dry run failed: {answer.message}", answer.cure, where)
        else:
            dialog = DryRunDialog(answer, window)
            dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            dialog.open()

    def overfit(self) -> None:
        """Have the next run learn one batch by heart, or the whole data again."""
        document = self._window.document
        training = document.project.training
        on = not training.one_batch
        words = "Overfit one batch" if on else "Train on all batches"
        document.apply(words, replace(document.project, training=replace(training, one_batch=on)))
        told = "The next run trains on one batch only: its loss should fall close to 0." if on else ""
        self._window.say(words, told or "The next run trains on all training samples.")

    def show_rate(self) -> None:
        """Put the caret into the learning rate: of the run that goes on, or the optimizer's."""
        window = self._window
        window.furnish()
        window.right.show()
        window.right.pane.show_page("training")
        window.training_form.focus_rate()
