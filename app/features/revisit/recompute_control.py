"""Recompute a step of the shown run in the engine, which keeps it for the pages Autograd and Layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.data.spec import DataError
from app.engine.protocol import EngineError, Handle
from app.engine.requests.capture import HeldStep
from app.features.revisit.timeline_bar import TimelineBar
from app.features.revisit.values import Parted, Recomputing, Revisit, Revisited
from app.runs.record import RunError
from app.training.recomputing.errors import RecomputeError
from app.util import formatting
from app.util.formatting import plural
from app.views.shown_run import Figures, RecomputedStep

if TYPE_CHECKING:
    from app.views.ui.background import WorkerFailure
    from app.views.workspace import Workspace

KEY = "step of a run"
NOT_STORED = (
    "Steps of an unsaved run cannot be recomputed: save the project, then train"
)
OPERATION = "{operation} at {place} gives different results for the same inputs."
READY = "Its graph opens on the Autograd page; its activations are on the Layer page."
UNTRAINED = "The loss of this step was not finite, so its gradients have no recorded hashes; the steps before it have."


class RecomputeControl(QObject):
    """Recomputes one step of the shown run at a time, and shows the latest result that the engine holds."""

    def __init__(self, workspace: Workspace, bar: TimelineBar) -> None:
        super().__init__(workspace.window)
        self._workspace, self._bar = workspace, bar
        self._held: Handle | None = None
        self._found: Revisited | None = None  # what is held
        self._then: Callable[[Revisited], None] | None = None
        self._folder = Path()
        self._page = ""  # what was in front when the step was asked for
        bar.recomputeRequested.connect(self.recompute)
        bar.cancelRequested.connect(self.cancel)
        workspace.shown_run.changed.connect(self._run_changed)
        workspace.engine.ended.connect(self._engine_ended)

    def recompute(
        self, step: int, then: Callable[[Revisited], None] | None = None
    ) -> None:
        """Recompute a step of the shown run from its nearest checkpoint; `then` is called with a step that was,
        at once if the engine holds that very step.
        """
        shown = self._workspace.shown_run
        figures = shown.figures
        if figures is None or figures.folder is None:
            self._workspace.notifier.say(
                "This step cannot be recomputed", f"{NOT_STORED}."
            )
            return
        shown.choose_step(step)
        if then is not None and shown.past is not None and self._found is not None:
            self.cancel()
            self._open(self._found, then)
            return
        self._then, self._folder = then, figures.folder
        self._page = self._workspace.pages.front("centre")
        self._bar.show_busy(True, "reading the data")
        request = Revisit(
            figures.folder, step, str(self._workspace.settings.data_folder)
        )
        self._workspace.engine.ask(
            KEY,
            request,
            on_answer=self._answered,
            on_error=self._failed,
            on_progress=self._progressed,
        )

    def _run_changed(self, figures: Figures | None) -> None:
        """Cancel where another run is shown; one that got another name goes on."""
        if figures is None or figures.folder != self._folder:
            self.cancel()

    def cancel(self) -> None:
        """Cancel the recomputation under way."""
        if self._workspace.engine.pending(KEY):
            self._workspace.engine.forget(KEY)
            self._bar.show_busy(False, "cancelled")

    def _progressed(self, progress: Recomputing) -> None:
        done, of = (
            formatting.grouped_digits(progress.done),
            formatting.grouped_digits(progress.of),
        )
        self._bar.show_busy(True, f"step {done} of {of}")

    def _engine_ended(self, _words: str) -> None:
        """Drop the recomputed step when the engine has ended, which another message reports."""
        self._held = None
        self._workspace.shown_run.show_recomputed(None)
        if self._workspace.engine.pending(KEY):
            self._workspace.engine.forget(KEY)
            self._bar.show_busy(False, "the engine stopped")

    def _failed(self, failure: WorkerFailure) -> None:
        self._bar.show_busy(False)
        notifier = self._workspace.notifier
        if not self._folder.is_dir():
            notifier.refuse(
                "The step was not recomputed",
                f"The run was deleted: {self._folder} is gone.",
            )
        elif isinstance(
            failure.error,
            RunError | DataError | EngineError | ValueError | RecomputeError | OSError,
        ):
            notifier.refuse("The step was not recomputed", failure.message)
        else:
            notifier.show_unexpected(
                f"The step was not recomputed: {failure.message}", failure.traceback
            )

    def _answered(self, revisited: Revisited) -> None:
        workspace = self._workspace
        self._bar.show_busy(False, result_text(revisited))
        if self._held is not None:
            workspace.shown_run.show_recomputed(None)
            workspace.engine.release(self._held)
        self._held = revisited.held
        if revisited.parted is not None:
            workspace.shown_run.choose_step(revisited.parted.step)
            self._show_parting(revisited, revisited.parted)
        for note in (*revisited.notes, *((UNTRAINED,) * (not revisited.trained))):
            workspace.notifier.say(
                f"{revisited.run}, step {formatting.grouped_digits(revisited.step)}",
                note,
            )
        if revisited.tape is None or revisited.held is None:
            return
        self._found = revisited
        workspace.shown_run.show_recomputed(
            RecomputedStep(
                revisited.held,
                revisited.run,
                revisited.step,
                revisited.epoch,
                revisited.batch,
            )
        )
        if workspace.pages.front("centre") == self._page:
            self._open(revisited, self._then)
        else:  # the user continued with other work meanwhile
            title, then = (
                f"Step {formatting.grouped_digits(revisited.step)} of {revisited.run} is recomputed",
                self._then,
            )
            workspace.notifier.show(
                "info", title, READY, "Show graph", lambda: self._open(revisited, then)
            )

    def _open(
        self, revisited: Revisited, then: Callable[[Revisited], None] | None
    ) -> None:
        """Open the graph of a step, while the engine holds it."""
        if self._held is None or revisited.held != self._held:
            self._workspace.notifier.say("The step is no longer held", "Recompute it.")
            return
        self._workspace.shown_run.choose_step(revisited.step)
        self._show_held(revisited)
        if then is not None:
            then(revisited)

    def _show_held(self, revisited: Revisited) -> None:
        """Open the graph of a step that the engine holds."""
        if revisited.tape is not None and revisited.held is not None:
            step_handle = HeldStep(revisited.held, revisited.run, revisited.step)
            self._workspace.commands.trigger("show-step", revisited.tape, step_handle)

    def _show_parting(self, revisited: Revisited, parted: Parted) -> None:
        """Report where the hashes differ, with a button that shows the operation's layer."""
        workspace = self._workspace
        node = parted.node or next(
            (key for key, path in self._paths().items() if path == parted.layer), ""
        )
        drawn_node = workspace.document.project.graph.nodes.get(node)
        title = f"{revisited.run} cannot be recomputed beyond step {formatting.grouped_digits(parted.step)}"
        if drawn_node is None:
            workspace.notifier.refuse(title, parting_text(parted))
        else:
            act = f"Show {drawn_node.name}"
            workspace.notifier.show(
                "error",
                title,
                parting_text(parted),
                act,
                lambda: workspace.jump_to(node),
            )

    def _paths(self) -> dict[str, str]:
        """Return the module of each node of the shown run, if its drawing is open."""
        figures = self._workspace.shown_run.figures
        return (
            dict(figures.source.modules)
            if figures is not None and figures.source is not None
            else {}
        )


def result_text(revisited: Revisited) -> str:
    """Summarise in a line how a step was recomputed.

    >>> result_text(Revisited("Run 1", 30, 2, 7, "", 0, 29, 0.5, 0.5, True, (), None, None, None))
    '29 recorded steps verified'
    """
    if revisited.parted is not None:
        return f"diverges at step {formatting.grouped_digits(revisited.parted.step)}"
    if revisited.captured is False:
        return "its graph gives different gradients"
    count = formatting.grouped_digits(revisited.verified)
    return f"{count} recorded {plural(revisited.verified, 'step')} verified"


def parting_text(parted: Parted) -> str:
    """Describe where a recomputed run differs from the recorded one, and why if known.

    >>> parting_text(Parted(7, "gradients", "fc1", ("fc1", "fc2"), "Noise", line="net.py:4"))
    'At step 7 the gradients differ, first in fc1. Noise at net.py:4 gives different results for the same inputs.'
    """
    where = f", first in {parted.layer}" if parted.layer else ""
    verb = "differ" if parted.what == "gradients" else "differs"
    sentences = [
        f"At step {formatting.grouped_digits(parted.step)} the {parted.what} {verb}{where}."
    ]
    if parted.operation is not None:
        sentences.append(
            OPERATION.format(
                operation=parted.operation, place=parted.line or parted.layer
            )
        )
    if parted.reason:
        sentences.append(f"{parted.reason[0].upper()}{parted.reason[1:].rstrip('.')}.")
    return " ".join(sentences)
