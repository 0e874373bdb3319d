"""Trials before a run in the window: commands of the Run menu that start none, and links to them in the form."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QGridLayout, QProgressBar, QWidget

from app.data.own_files import cache
from app.features.trials.times_page import OVERLAY, TimesControl, TimesPage
from app.features.trials.values import (
    BATCHES,
    HIGHEST,
    LOWEST,
    DryRun,
    RangeTest,
    RateTest,
    TryOnSyntheticData,
)
from app.preflight import preflight
from app.training.events import Failed
from app.training.job import Job
from app.util.formatting import bytes_text, figure, milliseconds, shape_text
from app.views.engine_service import EngineService
from app.views.feature import Action, Feature, Page
from app.views.run.failures import show_failure
from app.views.run.run_control import CANNOT_START
from app.views.training.charts.small_plot import PlotLine, SmallPlot
from app.views.training.form.settings_form import TrainingForm
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox
from app.views.ui.widgets import NumberField
from app.views.ui.widgets.painting import label, set_property
from app.views.workspace import Workspace

# --- The learning rate finder, with progress, loss over rate and a suggested rate; and the figures of a dry run

KEY = "rate test"
WORDS = (
    "Trains a copy of the network on a few batches with a learning rate that grows from batch to batch. A good rate "
    "is where the loss falls most steeply, well before it diverges. The project does not change."
)
GROUPS = (
    " The rate is that of the main parameter group; groups with their own rate are scaled in proportion; in the "
    "project they keep theirs."
)


class FindRateDialog(Dialog):
    """`chosen(rate)` requests to set the optimizer's rate. Closing cancels a running test."""

    chosen = Signal(float)

    def __init__(
        self, job: Job, engine: EngineService, parent: QWidget | None = None
    ) -> None:
        super().__init__("Find a learning rate", parent, icon="curves")
        self.setMinimumWidth(560)
        self._job, self._engine = job, engine
        self.going_on = False
        self.result_shown: RateTest | None = None
        self.lowest, self.highest = (
            NumberField(LOWEST, "float", 0),
            NumberField(HIGHEST, "float", 0),
        )
        self.batches = NumberField(BATCHES, "int", 10, 100_000)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName("Progress of the test")
        self.plot = SmallPlot("Loss over the learning rate", 220)
        self.plot.picked.connect(self._pick)
        self.words = label("", "label", "text2", wrap=True)
        self.rate = NumberField(LOWEST, "float", 0)
        self.rate.setAccessibleName("Learning rate to use")
        self.rate.setMinimumWidth(110)
        self.rate.edited.connect(lambda rate: self._mark(rate))
        self._lay_out()
        self.close_button = self.add_button("Close")
        self.close_button.clicked.connect(self.reject)
        self.start_button = self.add_button("Start", "primary", default=True)
        self.start_button.clicked.connect(self.start)
        self.use_button = self.add_button("Use it", "primary")
        self.use_button.clicked.connect(self._use)
        self.use_button.hide()

    def _lay_out(self) -> None:
        groups_have_rates = any(
            "lr" in group.options for group in self._job.training.groups
        )
        self.body.addWidget(
            label(WORDS + GROUPS * groups_have_rates, "body", "text2", wrap=True)
        )
        grid = QGridLayout()
        grid.setHorizontalSpacing(10)
        fields = (
            ("from", self.lowest),
            ("to", self.highest),
            ("batches", self.batches),
        )
        for column, (name, field) in enumerate(fields):
            caption = label(name, "code", "text2")
            caption.setBuddy(field)
            field.setAccessibleName(f"Range test: {name}")
            grid.addWidget(caption, 0, 2 * column)
            grid.addWidget(field, 0, 2 * column + 1)
        self.body.addLayout(grid)
        self.body.addWidget(self.bar)
        self.body.addWidget(self.plot)
        self.body.addWidget(self.words)
        self._use_row = QWidget()
        hbox(
            label("lr", "code", "text2"),
            self.rate,
            (label("Click the curve to choose another.", "label", "text3"), 1),
            on=self._use_row,
            margins=0,
        )
        self.body.addWidget(self._use_row)
        for widget in (self.bar, self.plot, self._use_row):
            widget.hide()

    def start(self) -> None:
        """Begin the test, in the engine."""
        if self.going_on:
            return
        lowest, highest, batches = (
            self.lowest.value(),
            self.highest.value(),
            self.batches.value(),
        )
        self.bar.setRange(0, batches)
        self.bar.setValue(0)
        self.bar.show()
        self.start_button.setEnabled(False)
        self._update_text("Reading the data…")
        self.going_on = True
        self._engine.ask(
            KEY,
            RangeTest(self._job, lowest, highest, batches),
            on_answer=self._ended,
            on_error=self._ended,
            on_progress=self._show_progress,
        )

    def _show_progress(self, done: int) -> None:
        self.bar.setValue(done)
        self._update_text(f"Batch {done} of {self.bar.maximum()}")

    def _update_text(self, text: str, tone: str = "text2") -> None:
        self.words.setText(text)
        set_property(self.words, "tone", tone)

    def _ended(self, answer: RateTest | WorkerFailure) -> None:
        self.going_on = False
        self.bar.hide()
        self.start_button.setEnabled(True)
        self.start_button.setText("Again")
        if isinstance(answer, WorkerFailure):
            self._update_text(answer.message, "error")
            self.words.setToolTip(answer.traceback)
        else:
            self.show_test(answer)
        self.adjustSize()

    def show_test(self, test: RateTest) -> None:
        """Show the result."""
        self.result_shown = test
        if len(test.rates) < 2:
            self._update_text(test.ended or "No batch had a finite loss.", "warn")
            return
        self.plot.show_lines(
            test.rates,
            (PlotLine(test.losses, 0.38, 1.0), PlotLine(test.smoothed, 1.0, 2.0)),
            log_x=True,
            ends=(figure(test.rates[0]), figure(test.rates[-1])),
            unit=("lr", "loss"),
        )
        self.plot.show()
        if test.suggested is None:
            conclusion = "The loss did not fall, so there is nothing to suggest. Try a wider range or more batches."
        else:
            conclusion = f"The loss falls most steeply at {figure(test.suggested)}."
        self._update_text(f"{conclusion} {test.ended}".strip())
        rate = (
            test.suggested
            if test.suggested is not None
            else test.rates[len(test.rates) // 2]
        )
        self._use_row.show()
        self.use_button.show()
        self.start_button.set_kind("secondary")
        self.use_button.setDefault(True)
        self._pick(rate)

    def _pick(self, rate: float) -> None:
        self.rate.set_value(float(f"{rate:.2g}"))
        self._mark(rate)

    def _mark(self, rate: float) -> None:
        marks = [] if self.result_shown is None else [(rate, "run")]
        low, high = (
            (self.result_shown.rates[0], self.result_shown.rates[-1])
            if self.result_shown
            else (0.0, 0.0)
        )
        self.plot.set_marks([mark for mark in marks if low <= mark[0] <= high])

    def _use(self) -> None:
        rate = self.rate.value()
        if isinstance(rate, int | float) and rate > 0:
            self.chosen.emit(float(rate))
            self.accept()

    def done(self, result: int) -> None:
        """Cancel a running test, which stops at its next batch."""
        self._engine.forget(KEY)
        super().done(result)


def facts(tried: DryRun) -> list[tuple[str, str]]:
    """Return the measured values with their names."""
    shape = shape_text((tried.batch_size, *tried.input_shape))
    first, *rest = tried.seconds
    rows = [
        ("Device", tried.device),
        ("Batch", shape),
        (
            "Step",
            f"{milliseconds(rest[-1] if rest else first)}, the first one {milliseconds(first)}",
        ),
        ("Validation batch", milliseconds(tried.validation_seconds)),
        ("Loss", " → ".join(map(figure, tried.losses))),
    ]
    if tried.memory is not None:
        name = (
            "Peak memory on the device"
            if tried.scope == "device"
            else "Process memory growth"
        )
        rows.append((name, bytes_text(tried.memory)))
    return rows


class DryRunDialog(Dialog):
    """The figures of a dry run that went well."""

    def __init__(self, tried: DryRun, parent: QWidget | None = None) -> None:
        super().__init__("Everything matches", parent, icon="check", color="run")
        self.setMinimumWidth(440)
        explanation = (
            "Ran forward, loss, backward, an optimizer step and a validation batch on synthetic data of the input's "
            "shape. All figures are measured; the losses say nothing about the real data."
        )
        self.body.addWidget(label(explanation, "body", "text2", wrap=True))
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(1, 1)
        for row, (name, value) in enumerate(facts(tried)):
            grid.addWidget(label(name, "label", "text3"), row, 0)
            grid.addWidget(label(value, "label", "text"), row, 1)
        self.body.addLayout(grid)
        notes = [tried.note] if tried.note else []
        if tried.scope == "process" and tried.memory is not None:
            notes.append("Process memory growth includes libraries loaded meanwhile.")
        for note in notes:
            self.body.addWidget(label(note, "caption", "text3", wrap=True))
        self.add_button("Close", "primary", default=True).clicked.connect(self.accept)


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


class TimesFeature(Feature):
    rank = 153  # its overlay comes after that of the costs
    times: TimesPage
    times_control: TimesControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "times",
            "Time",
            "curves",
            "bottom",
            self._make,
            after="cost",
            words="Time of layers",
        )

    def actions(self) -> Iterable[Action]:
        yield Action(
            "layer-times",
            "Time of each layer",
            self._measure,
            tip="Time of each layer in a step, forward and backward, beside what its operations need",
            menu="run.memory",
        )

    def overlays(self) -> Iterable[str]:
        return (OVERLAY,)

    def begin(self) -> None:
        self.workspace.pages.set_offered("times", False)
        self.workspace.overlays.offer(OVERLAY, False)

    def _make(self) -> TimesPage:
        self.times = TimesPage()
        self.times_control = TimesControl(self.workspace, self.times)
        return self.times

    def _measure(self) -> None:
        self.workspace.pages.make("times")
        self.times_control.measure()
