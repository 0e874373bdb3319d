"""Commands on a step of the shown run: debug it, show its batch, fork the run without its batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, Qt, Signal
from PySide6.QtWidgets import QGridLayout, QMenu, QProgressBar

from app.data.spec import DataError
from app.engine.protocol import EngineError
from app.engine.requests.runs import Fork
from app.features.revisit.recompute_control import (
    NOT_STORED,
    RecomputeControl,
    parting_text,
)
from app.features.revisit.values import (
    NOT_FINITE,
    FindFirst,
    FirstStep,
    ForkWithout,
    Recomputing,
    Revisited,
    ShowStepBatch,
)
from app.runs import record, store
from app.runs.record import RunError
from app.runs.store import Kept
from app.training.job import JobError
from app.training.recomputing.errors import RecomputeError
from app.util.formatting import figure, grouped_digits
from app.views.run.batch_dialog import BatchDialog
from app.views.shown_run import Figures
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.base import Dialog
from app.views.ui.dialogs.message import DialogAnswer, QuestionDialog
from app.views.ui.layouts import hbox
from app.views.ui.widgets.fields import ChoiceField
from app.views.ui.widgets.numbers import NumberField
from app.views.ui.widgets.painting import label, set_property

if TYPE_CHECKING:
    from app.training.history import History
    from app.training.monitoring.looks import BatchPeek
    from app.views.shown_run import RecomputedStep
    from app.views.workspace import Workspace

# --- Find the first step of a run at which a norm, a weight, the dead units or the loss passed a bound

KEY = "first step"
ANY = "Any layer"
QUANTITIES = {
    "norm": ("Gradient norm", 10.0),
    "weight": ("Largest weight, as a magnitude", 3.0),
    "dead": ("Fraction of dead units", 0.9),
    "loss": ("Loss", 5.0),
}
RELATIONS = ((">", "is above"), ("<", "is below"), (NOT_FINITE, NOT_FINITE))
WORDS = (
    "Recorded values are searched at once. If they were not recorded at every step, the run is recomputed from its "
    "start with a check at each step, which takes about as long as the run did."
)


class FirstStepDialog(Dialog):
    """Runs one search at a time in the engine. `stepChosen(step)` is emitted for the step that was found,
    `debugRequested(step)` to open it; closing the dialog cancels the search."""

    stepChosen = Signal(object)
    debugRequested = Signal(int)

    def __init__(self, workspace: Workspace, figures: Figures, folder: Path) -> None:
        super().__init__("Find the first step where…", workspace.window, icon="search")
        self.setMinimumWidth(560)
        self._workspace, self._folder, self._history = (
            workspace,
            folder,
            figures.history,
        )
        self.found: FirstStep | None = None
        self.searching = False
        self.quantity = ChoiceField(
            [(key, text) for key, (text, _) in QUANTITIES.items()], "norm", pairs=True
        )
        self.layer = ChoiceField((), pairs=True)
        self.relation = ChoiceField(RELATIONS, ">", pairs=True)
        self.bound = NumberField(QUANTITIES["norm"][1], "float")
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName("Progress of the search")
        self.words = label("", "label", "text2", wrap=True)
        self._lay_out(figures.title)
        self.close_button = self.add_button("Close")
        self.close_button.clicked.connect(self.reject)
        self.debug_button = self.add_button("Debug this step")
        self.debug_button.clicked.connect(self._debug)
        self.debug_button.hide()
        self.find_button = self.add_button("Find", "primary", default=True)
        self.find_button.clicked.connect(self.search)
        self.quantity.edited.connect(lambda _key: self._follow_quantity())
        self.relation.edited.connect(lambda _relation: self._enable())
        workspace.engine.ended.connect(self._engine_ended)
        workspace.document.replaced.connect(self._leave)
        self._follow_quantity()

    def _lay_out(self, title: str) -> None:
        self.body.addWidget(label(f"In {title}. {WORDS}", "body", "text2", wrap=True))
        grid = QGridLayout()
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(8)
        grid.setColumnStretch(1, 1)
        bound = hbox((self.relation, 1), self.bound, spacing=8)
        self.bound.setMinimumWidth(110)
        for row, (name, field) in enumerate(
            (("Quantity", self.quantity), ("Layer", self.layer))
        ):
            caption = label(name, "label", "text2")
            caption.setBuddy(field)
            field.setAccessibleName(name)
            grid.addWidget(caption, row, 0)
            grid.addWidget(field, row, 1)
        grid.addWidget(label("Condition", "label", "text2"), 2, 0)
        grid.addLayout(bound, 2, 1)
        self.relation.setAccessibleName("Condition")
        self.bound.setAccessibleName("Bound")
        self.body.addLayout(grid)
        self.body.addWidget(self.bar)
        self.body.addWidget(self.words)
        self.bar.hide()

    @property
    def condition(self) -> str:
        """Return the condition in the syntax of `tapedeck revisit --first`."""
        layer = f"({self.layer.value()})" if self.layer.value() else ""
        relation, bound = self.relation.value(), self.bound.value()
        return f"{self.quantity.value()}{layer} {relation}" + (
            "" if relation == NOT_FINITE else f" {bound!r}"
        )

    def _layers(self, quantity: str) -> tuple[str, ...]:
        if quantity == "dead":
            return self._history.seen.tables["dead"].layers
        return () if quantity == "loss" else self._history.layers

    def _follow_quantity(self) -> None:
        quantity = self.quantity.value()
        self.layer.clear_choices()
        self.layer.add_choice("", "of the whole batch" if quantity == "loss" else ANY)
        for layer in self._layers(quantity):
            self.layer.add_choice(layer, layer)
        self.layer.set_value("")
        self.bound.set_value(QUANTITIES[quantity][1])
        self._enable()

    def _enable(self) -> None:
        for field in (self.quantity, self.relation):
            field.setEnabled(not self.searching)
        self.layer.setEnabled(not self.searching and self.quantity.value() != "loss")
        self.bound.setEnabled(
            not self.searching and self.relation.value() != NOT_FINITE
        )
        self.find_button.setText("Cancel" if self.searching else "Find")
        self.bar.setVisible(self.searching)

    def search(self) -> None:
        """Search, or cancel the search."""
        if self.searching:
            self._stop("Cancelled.")
            return
        self.searching, self.found = True, None
        self.debug_button.hide()
        self.find_button.setFocus()  # the fields are disabled: else the focus falls on Close
        self.bar.setRange(0, 0)
        self._say("Reading what was recorded…")
        self._enable()
        request = FindFirst(
            self._folder, self.condition, str(self._workspace.settings.data_folder)
        )
        self._workspace.engine.ask(
            KEY,
            request,
            on_answer=self._answered,
            on_error=self._failed,
            on_progress=self._progressed,
        )

    def _stop(self, message: str) -> None:
        self._workspace.engine.forget(KEY)
        self.searching = False
        self._say(message)
        self._enable()

    def _progressed(self, progress: Recomputing) -> None:
        self.bar.setRange(0, progress.of)
        self.bar.setValue(progress.done)
        self._say(
            f"Recomputing step {grouped_digits(progress.done)} of {grouped_digits(progress.of)}"
        )

    def _answered(self, first_step: FirstStep) -> None:
        self.searching, self.found = False, first_step
        self._enable()
        if first_step.step is not None:
            self._say(result_text(first_step), "text")
            self.debug_button.show()
            self.stepChosen.emit(first_step.step)
        else:
            self._say(
                result_text(first_step),
                "text2" if first_step.parted is None else "error",
            )
        self.adjustSize()

    def _failed(self, failure: WorkerFailure) -> None:
        self.searching = False
        self._enable()
        self._say(failure.message, "error")
        expected = (
            RunError
            | DataError
            | JobError
            | EngineError
            | RecomputeError
            | ValueError
            | OSError
        )
        if not isinstance(failure.error, expected):
            self._workspace.notifier.show_unexpected(
                f"The search failed: {failure.message}", failure.traceback
            )

    def _engine_ended(self, _words: str) -> None:
        if self.searching:
            self._stop("The engine stopped. Search again.")

    def _leave(self, _project: object) -> None:
        self.close()

    def _debug(self) -> None:
        if self.found is not None and self.found.step is not None:
            self.debugRequested.emit(self.found.step)
            self.close()

    def _say(self, message: str, tone: str = "text2") -> None:
        self.words.setText(message)
        set_property(self.words, "tone", tone)

    def done(self, result: int) -> None:
        """Cancel the search and close."""
        if self.searching:
            self._stop("")
        super().done(result)


def result_text(first_step: FirstStep) -> str:
    """Describe the result of a search in a sentence.

    >>> result_text(FirstStep(33, "fc1", 12.5, True))
    'First at step 33, in fc1: 12.5, as recorded.'
    >>> result_text(FirstStep(None, "", None, True))
    'At no step, as recorded.'
    """
    how = "as recorded" if first_step.recorded else "found by recomputing every step"
    if first_step.parted is not None and first_step.step is None:
        return f"Not found before the recomputed run diverges from the recorded one. {parting_text(first_step.parted)}"
    if first_step.step is None:
        return f"At no step, {how}."
    layer = f", in {first_step.layer}" if first_step.layer else ""
    value = (
        "not a number"
        if first_step.value is None or first_step.value != first_step.value
        else figure(first_step.value)
    )
    return f"First at step {grouped_digits(first_step.step)}{layer}: {value}, {how}."


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
