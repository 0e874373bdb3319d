"""Commands on a step of the shown run: debug it, show its batch, fork the run without its batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, Qt
from PySide6.QtWidgets import QMenu

from app.data.spec import DataError
from app.engine.protocol import EngineError
from app.engine.requests.runs import Fork
from app.features.revisit.first_step_dialog import FirstStepDialog
from app.features.revisit.recompute_control import NOT_STORED, RecomputeControl
from app.features.revisit.values import ForkWithout, Revisited, ShowStepBatch
from app.runs import record, store
from app.runs.record import RunError
from app.runs.store import Kept
from app.training.job import JobError
from app.util.formatting import grouped_digits
from app.views.run.batch_dialog import BatchDialog
from app.views.ui.dialogs.message import DialogAnswer, QuestionDialog

if TYPE_CHECKING:
    from pathlib import Path

    from app.training.history import History
    from app.training.monitoring.looks import BatchPeek
    from app.views.shown_run import RecomputedStep
    from app.views.ui.background import WorkerFailure
    from app.views.workspace import Workspace

BATCH, FORK = "batch of a step", "fork without a batch"
ACTIVE = "A run is in progress: stop it first"


class StepControl(QObject):
    """Runs the commands on a step; those that need a stored run report if there is none."""

    def __init__(self, workspace: Workspace, recompute: RecomputeControl) -> None:
        super().__init__(workspace.window)
        self._workspace, self._recompute = workspace, recompute
        self.batch_dialog: BatchDialog | None = None
        self.first_step: FirstStepDialog | None = None

    @property
    def _folder(self) -> Path | None:
        figures = self._workspace.shown_run.figures
        return figures.folder if figures is not None else None

    @property
    def step(self) -> int | None:
        """Return the chosen step, else the newest of the shown run; None without a run."""
        shown = self._workspace.shown_run
        if shown.step is not None or shown.figures is None:
            return shown.step
        steps = shown.figures.history.steps["step"]
        return int(steps[-1]) if len(steps) else None

    # -- the menu of a step -------------------------------------------------------------------------------------------

    def fill(self, menu: QMenu, step: int) -> None:
        """Fill a menu with the commands on a step."""
        menu.clear()
        menu.setToolTipsVisible(True)
        figures, title = (
            self._workspace.shown_run.figures,
            f"step {grouped_digits(step)}",
        )
        if figures is not None and (text := figures.history.marks.get(step)):
            short = text if len(text) <= 70 else f"{text[:69]}…"
            menu.addAction(short).setEnabled(False)
            menu.addSeparator()
        stored, active = self._folder is not None, self._workspace.session.active
        why = "" if stored else NOT_STORED
        for text, act, reason, tip in (
            (
                f"Show {title}",
                lambda: self._workspace.shown_run.choose_step(step),
                "",
                "",
            ),
            (
                f"Debug {title}",
                lambda: self.debug(step),
                why,
                "Recompute it and open its graph and layers; its batch is a click away",
            ),
            (
                "Find first step where…",
                self.find_first,
                why,
                "Search the run for the first step that exceeds a bound",
            ),
            (
                f"Leave out the batch of {title}…",
                lambda: self.ask_leave_out(step),
                why or (ACTIVE if active else ""),
                "Fork the run before this step, without its batch",
            ),
        ):
            action = menu.addAction(text)
            action.triggered.connect(lambda _=False, act=act: act())
            action.setEnabled(not reason)
            action.setToolTip(reason or tip)

    def show_menu(self, step: int, where: QPoint) -> None:
        """Open the menu of a step at a point of the screen."""
        menu = QMenu(self._workspace.window)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.fill(menu, step)
        menu.popup(where)

    # -- debugging ----------------------------------------------------------------------------------------------------

    def debug(self, step: int | None = None) -> None:
        """Recompute a step, the selected one if None, then open its graph and the layer with the largest gradient. The
        batch is not opened, since it would cover the graph; the page Layer shows it.
        """
        step = self.step if step is None else step
        if step is None:
            self._workspace.notifier.say(
                "There is no step to debug",
                "Run the network first, or choose a stored run.",
            )
            return
        self._workspace.pages.show("curves")
        self._recompute.recompute(step, self._debug)

    def _debug(self, revisited: Revisited) -> None:
        norms = {
            layer.layer: layer.norm
            for layer in revisited.layers
            if layer.norm is not None
        }
        self._workspace.pages.show("layer")
        if norms:
            self._workspace.commands.trigger(
                "choose-layer", max(norms, key=norms.__getitem__)
            )

    def show_batch(self) -> None:
        """Show the batch of the step that was recomputed."""
        past = self._workspace.shown_run.past
        if past is None:
            self._workspace.notifier.say(
                "No recomputed step", "Select a step under the charts and recompute it."
            )
            return
        self._workspace.engine.ask(
            BATCH,
            ShowStepBatch(past.handle),
            on_answer=lambda peek: self._show_batch(past, peek),
            on_error=lambda failure: self._failed("The batch cannot be shown", failure),
        )

    def _show_batch(self, past: RecomputedStep, peek: BatchPeek) -> None:
        if self.batch_dialog is not None:
            self.batch_dialog.close()
        message = f"{past.label}: batch {grouped_digits(past.batch)} of epoch {grouped_digits(past.epoch)}."
        self.batch_dialog = dialog = BatchDialog(peek, message, self._workspace.window)
        dialog.finished.connect(self._batch_closed)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setModal(False)  # beside the graph and the layer
        dialog.show()

    def _batch_closed(self) -> None:
        self.batch_dialog = None

    # -- bisecting ----------------------------------------------------------------------------------------------------

    def find_first(self) -> None:
        """Open the dialog that finds the first step at which a condition held."""

        figures, folder = self._workspace.shown_run.figures, self._folder
        if figures is None or folder is None:
            self._workspace.notifier.say("No stored run is shown", f"{NOT_STORED}.")
            return
        if self.first_step is not None:
            self.first_step.close()
        self.first_step = dialog = FirstStepDialog(self._workspace, figures, folder)
        dialog.stepChosen.connect(self._workspace.shown_run.choose_step)
        dialog.debugRequested.connect(self.debug)
        dialog.finished.connect(self._search_closed)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()

    def _search_closed(self) -> None:
        self.first_step = None

    # -- a fork without the batch -------------------------------------------------------------------------------------

    def ask_leave_out(self, step: int | None = None) -> None:
        """Confirm, then fork the shown run before a step, without the step's batch."""

        step, folder, workspace = (
            self.step if step is None else step,
            self._folder,
            self._workspace,
        )
        figures = workspace.shown_run.figures
        if step is None or folder is None or figures is None:
            workspace.notifier.say("No stored run is shown", f"{NOT_STORED}.")
            return
        if workspace.session.active:
            workspace.notifier.refuse("The batch cannot be left out now", f"{ACTIVE}.")
            return
        title = f"step {grouped_digits(step)}"
        dialog = QuestionDialog(
            f"Continue training without the batch of {title}?",
            f"A new run continues from the nearest checkpoint of {figures.title} before {title}, or from its start, "
            f"with its settings and leave_out = {step}. {figures.title} is unchanged.",
            workspace.window,
        )
        dialog.offer("Cancel", DialogAnswer.CANCEL)
        dialog.offer("Fork run", DialogAnswer.SAVE, "primary", default=True)
        dialog.exec()
        dialog.deleteLater()
        if dialog.answer is DialogAnswer.SAVE:
            self.leave_out(folder, step)

    def leave_out(self, folder: Path, step: int) -> None:
        """Fork a stored run before a step, without the step's batch."""
        workspace = self._workspace
        request = ForkWithout(folder, step, str(workspace.settings.data_folder))
        title = "The run was not forked"

        def found(fork: Fork) -> None:
            workspace.background.ask(
                FORK,
                _stored,
                folder,
                on_answer=lambda both: begin(fork, *both),
                on_error=lambda failure: self._failed(title, failure),
            )

        def begin(fork: Fork, stored_run: Kept, history: History) -> None:
            name = f"{stored_run.record.title} without step {step:,}"
            workspace.run_control.fork_stored(stored_run, fork, history, name)
            if fork.passed_over:
                workspace.notifier.warn(
                    "An older checkpoint was used", " ".join(fork.passed_over)
                )

        workspace.engine.ask(
            FORK,
            request,
            on_answer=found,
            on_error=lambda failure: self._failed(title, failure),
        )

    def _failed(self, title: str, failure: WorkerFailure) -> None:
        expected = RunError | DataError | JobError | EngineError | ValueError | OSError
        if isinstance(failure.error, expected):
            self._workspace.notifier.refuse(title, failure.message)
        else:
            self._workspace.notifier.show_unexpected(
                f"{title}: {failure.message}", failure.traceback
            )


def _stored(folder: Path) -> tuple[Kept, History]:
    """Read a stored run. Raises RunError."""
    stored_run = Kept(folder, record.read(folder))
    return stored_run, store.history_of(stored_run)
