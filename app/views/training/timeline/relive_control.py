"""Have a step of the shown run computed again by the engine, and show its graph on the page Autograd."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.data.spec import DataError
from app.engine.protocol import EngineError, Handle
from app.engine.requests.capture import HeldStep
from app.engine.requests.past.revisit import Parted, Reliving, Revisit, Revisited
from app.runs.record import RunError
from app.util import formatting
from app.util.formatting import plural
from app.views.training.timeline.timeline_bar import TimelineBar

if TYPE_CHECKING:
    from app.views.ui.background import WorkerFailure
    from app.views.workspace import Workspace

KEY = "step of a run"
NOT_STORED = "The steps of a run that is not stored cannot be re-lived: save the project, then train"
OPERATION = "{operation} at {place} gives other results for the same inputs."


class ReliveControl(QObject):
    """Asks the engine for steps of the shown run, one at a time."""

    def __init__(self, workspace: Workspace, bar: TimelineBar) -> None:
        super().__init__(workspace.window)
        self._workspace, self._bar = workspace, bar
        self._held: Handle | None = None
        self._asked = (Path(), 0)
        bar.reliveRequested.connect(self.relive)
        bar.cancelRequested.connect(self.cancel)
        workspace.shown_run.changed.connect(lambda _figures: self.cancel())
        workspace.engine.ended.connect(self._engine_ended)

    def relive(self, step: int) -> None:
        """Compute a step of the shown run again, from its nearest checkpoint."""
        figures = self._workspace.shown_run.figures
        if figures is None or figures.folder is None:
            self._workspace.notifier.say("This step cannot be re-lived", f"{NOT_STORED}.")
            return
        self._bar.show_busy(True, "reading the data")
        request = Revisit(figures.folder, step, str(self._workspace.settings.data_folder))
        self._asked = (figures.folder, step)
        self._workspace.engine.ask(
            KEY, request, on_answer=self._answered, on_error=self._failed, on_progress=self._progressed
        )

    def cancel(self) -> None:
        """Wait no longer for a step."""
        if self._workspace.engine.pending(KEY):
            self._workspace.engine.forget(KEY)
            self._bar.show_busy(False, "cancelled")

    def _progressed(self, progress: Reliving) -> None:
        done, of = formatting.grouped_digits(progress.done), formatting.grouped_digits(progress.of)
        self._bar.show_busy(True, f"step {done} of {of}")

    def _engine_ended(self, _words: str) -> None:
        """The notice of the engine says so."""
        self._held = None
        if self._workspace.engine.pending(KEY):
            self._workspace.engine.forget(KEY)
            self._bar.show_busy(False, "the engine has ended; re-live the step again")

    def _failed(self, failure: WorkerFailure) -> None:
        self._bar.show_busy(False)
        if isinstance(failure.error, RunError | DataError | EngineError | ValueError | OSError):
            self._workspace.notifier.refuse("The step was not re-lived", f"{failure.error}")
        else:
            self._workspace.notifier.show_unexpected(f"The step was not re-lived: {failure.error}", failure.traceback)

    def _answered(self, found: Revisited) -> None:
        self._bar.show_busy(False, result_text(found))
        if self._held is not None:
            self._workspace.engine.release(self._held)
        self._held = found.held
        if found.parted is not None:
            self._workspace.shown_run.choose_step(found.parted.step)
            self._workspace.notifier.refuse(
                f"{found.run} cannot be re-lived beyond this step", parting_text(found.parted)
            )
        if found.tape is None or found.held is None:
            return
        self._workspace.commands.trigger("show-step", found.tape, HeldStep(found.held, found.run, found.step))
        for note in found.notes:
            self._workspace.notifier.say(f"{found.run}, step {formatting.grouped_digits(found.step)}", note)


def result_text(found: Revisited) -> str:
    """Say in a line how a step was re-lived.

    >>> result_text(Revisited("Run 1", 30, 2, 7, "", 0, 29, 0.5, 0.5, True, (), None, None, None))
    '29 recorded steps verified'
    """
    if found.parted is not None:
        return f"parts at step {formatting.grouped_digits(found.parted.step)}"
    if found.captured is False:
        return "its graph gives other gradients"
    count = formatting.grouped_digits(found.verified)
    return f"{count} recorded {plural(found.verified, 'step')} verified"


def parting_text(parted: Parted) -> str:
    """Say where a re-lived run is no longer the recorded one, and why if that is known.

    >>> parting_text(Parted(7, "gradients", "fc1", ("fc1", "fc2"), "Noise", line="net.py:4"))
    'At step 7 the gradients differ, first in fc1. Noise at net.py:4 gives other results for the same inputs.'
    """
    where = f", first in {parted.layer}" if parted.layer else ""
    verb = "differ" if parted.what == "gradients" else "differs"
    said = [f"At step {formatting.grouped_digits(parted.step)} the {parted.what} {verb}{where}."]
    if parted.operation is not None:
        said.append(OPERATION.format(operation=parted.operation, place=parted.line or parted.layer))
    if parted.reason:
        said.append(parted.reason)
    return " ".join(said)
