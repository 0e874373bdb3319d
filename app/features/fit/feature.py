"""Whether a training step fits into a limit of memory, in the window: measured, and a plan applied by a click."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import to_builtins
from msgspec.structs import replace
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QProgressBar, QWidget

from app.features.fit.values import Fit, Plan, WillItFit, memory_limit
from app.preflight import preflight
from app.training.config import TrainingConfig
from app.training.events import Failed
from app.training.job import Job
from app.util.columns import Column
from app.util.formatting import bytes_text, milliseconds
from app.views.engine_service import EngineService
from app.views.feature import Action, Feature
from app.views.training.charts.small_plot import PlotLine, SmallPlot
from app.views.training.form.settings_form import TrainingForm
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox
from app.views.ui.tables import Table, selected_rows
from app.views.ui.widgets import TextField
from app.views.ui.widgets.painting import label, set_property

KEY, TITLE = "fit", "Does a step fit?"
UNDER_WAY = "A run is in progress. Stop it first: both would compete for memory"
EXPLANATION = (
    "Measures a training step on synthetic data, then settings that take less, each by a step of it: the batch in "
    "parts whose gradients are accumulated, blocks recomputed in backward, on a device what is saved for backward kept "
    "on the CPU, bfloat16, an optimizer that goes parameter by parameter. The project does not change."
)
MEANINGS = {
    "fastest": "The fastest of those that fit, or the nearest to it",
    "exact": "The fastest whose gradients are those of the batch as it is",
    "smallest": "The one that takes least, however slow",
}
CHANGED = (
    "batch_size",
    "accumulate",
    "recompute",
    "save_on_cpu",
    "amp",
    "optimizer",
)


def with_plan(training: TrainingConfig, plan: Plan) -> TrainingConfig:
    """Return settings with what a plan changes."""
    values = {name: getattr(plan.training, name) for name in CHANGED}
    return replace(training, **values)


def gradients_text(plan: Plan) -> str:
    """Return how the gradients of a plan compare with those without it."""
    if plan.difference == 0:
        return "the same"
    return "equal up to rounding" if plan.exact else f"differ by {plan.difference:.2g}"


def changes_text(plan: Plan) -> str:
    """Return the changes of a plan, a parameter of the optimizer by its name alone."""
    names = [change.removeprefix("optimizer.params.") for change in plan.changes]
    return ", ".join(names) or "none"


COLUMNS = (
    Column(
        "Plan",
        lambda plan: plan.name.capitalize(),
        tip=lambda plan: MEANINGS[plan.name],
    ),
    Column(
        "Peak",
        lambda plan: bytes_text(plan.peak),
        number=True,
        value=lambda plan: plan.peak,
    ),
    Column(
        "Fits",
        lambda plan: "yes" if plan.fits else "no",
        color=lambda plan: "run" if plan.fits else "warn",
    ),
    Column(
        "Step",
        lambda plan: milliseconds(plan.step_seconds),
        number=True,
        value=lambda plan: plan.step_seconds,
    ),
    Column("Gradients", gradients_text),
    Column("Changes", changes_text),
)


def conclusion(result: Fit) -> str:
    """Return what a step takes, and where."""
    where = f"{result.phase} of {result.owner}" if result.owner else result.phase
    fits = "It fits into" if result.fits else "It does not fit into"
    return (
        f"A step with a batch of {result.batch} takes {milliseconds(result.step_seconds)} and "
        f"{bytes_text(result.peak)} at its peak, in {where}. {fits} "
        f"{bytes_text(result.memory)}."
    )


def kinds(result: Fit) -> str:
    """Return the bytes at the peak by kind, and how they were measured."""
    how = (
        "By the allocator of the device."
        if result.scope == "device"
        else "Counted at torch's operations, without their own workspace."
    )
    sizes = ", ".join(
        f"{kind} {bytes_text(size)}" for kind, size in to_builtins(result.by).items()
    )
    return f"At the peak: {sizes}. {how}"


class FitDialog(Dialog):
    """`chosen(plan)` requests to take over its settings. Closing cancels what is being measured."""

    chosen = Signal(object)

    def __init__(
        self, job: Job, engine: EngineService, parent: QWidget | None = None
    ) -> None:
        super().__init__(TITLE, parent, icon="memory")
        self.setMinimumWidth(860)
        self._job, self._engine = job, engine
        self.result_shown: Fit | None = None
        self.limit = TextField(8 << 30, memory_limit, bytes_text)
        self.limit.setAccessibleName("Limit of memory")
        self.limit.setMaximumWidth(120)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setRange(0, 0)
        self.bar.setAccessibleName("Measuring")
        self.conclusion = label("", "label", "text", wrap=True)
        self.kinds = label("", "caption", "text2", wrap=True)
        self.plot = SmallPlot("Memory over a step", 110)
        self.table = Table(COLUMNS, "Plans")
        self.table.horizontalHeader().setStretchLastSection(True)
        self.table.setFixedHeight(120)
        self.body.addWidget(label(EXPLANATION, "body", "text2", wrap=True))
        caption = label("Limit", "label", "text2")
        caption.setBuddy(self.limit)
        self.body.addLayout(
            hbox(caption, self.limit, (label("", "label", "text3"), 1), margins=0)
        )
        for widget in (self.bar, self.conclusion, self.plot, self.kinds, self.table):
            self.body.addWidget(widget)
            widget.hide()
        self.add_button("Close").clicked.connect(self.reject)
        self.start_button = self.add_button("Measure", "primary", default=True)
        self.start_button.clicked.connect(self.start)
        self.use_button = self.add_button("Apply the plan", "primary")
        self.use_button.clicked.connect(self._use)
        self.use_button.hide()
        self.table.selectionModel().selectionChanged.connect(self._selected)

    def start(self) -> None:
        """Begin to measure, in the engine."""
        try:
            limit = memory_limit(self.limit.text())
        except ValueError as error:
            self._say(str(error), "error")
            return
        self.start_button.setEnabled(False)
        self.bar.show()
        self._say("A step is measured…")
        self._engine.ask(
            KEY,
            WillItFit(self._job, limit),
            on_answer=self._ended,
            on_error=self._ended,
            on_progress=lambda count: self._say(f"{count} measurements…"),
        )

    def _say(self, text: str, tone: str = "text") -> None:
        self.conclusion.setText(text)
        self.conclusion.show()
        set_property(self.conclusion, "tone", tone)

    def _ended(self, answer: Fit | Failed | WorkerFailure) -> None:
        self.bar.hide()
        self.start_button.setEnabled(True)
        self.start_button.setText("Measure again")
        if isinstance(answer, Fit):
            self.show_result(answer)
        else:
            self._say(answer.message, "error")
            self.conclusion.setToolTip(answer.traceback)
        self.adjustSize()
        if (window := self.parentWidget()) is not None:
            self.move(window.frameGeometry().center() - self.rect().center())

    def show_result(self, result: Fit) -> None:
        """Show what was measured, with the first plan chosen that fits."""
        self.result_shown = result
        self._say(conclusion(result), "text" if result.fits else "warn")
        self.kinds.setText(kinds(result))
        mebibytes = tuple(size / 2**20 for size in result.curve)
        self.plot.show_lines(
            range(len(mebibytes)),
            (PlotLine(mebibytes),),
            ends=("forward", "optimizer"),
            unit=("operation", "MiB"),
        )
        self.table.cells.set_rows(list(result.plans))
        self.table.fit_columns()
        for widget in (self.kinds, self.plot, self.table):
            widget.show()
        self.start_button.set_kind("secondary")
        self.use_button.show()
        self.use_button.setDefault(True)
        self.table.selectRow(0)
        self._selected()

    def _plan(self) -> Plan | None:
        rows = selected_rows(self.table)
        plan: Plan | None = self.table.cells.rows[rows[0]] if rows else None
        return plan

    def _selected(self, *_: object) -> None:
        plan = self._plan()
        self.use_button.setEnabled(plan is not None and bool(plan.changes))

    def _use(self) -> None:
        plan = self._plan()
        if plan is not None:
            self.chosen.emit(plan)
            self.accept()

    def done(self, result: int) -> None:
        """Cancel what is being measured."""
        self._engine.forget(KEY)
        super().done(result)


class FitFeature(Feature):
    follows = True  # its link stands in the form, which does

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "fit",
                TITLE.replace("?", "?…"),
                self.open,
                icon="memory",
                tip="Measure the memory of a step against a limit, and settings that take less",
                menu="run.memory",
            ),
        )

    def open(self) -> FitDialog | None:
        """Open the dialog for the job that a run would start with."""
        workspace = self.workspace
        blocked = workspace.run_control.blocked
        if workspace.session.active:
            blocked = UNDER_WAY
        if blocked or workspace.live.analysis is None:
            workspace.notifier.refuse("Measuring has to wait", f"{blocked}.")
            return None
        job = preflight.job(
            workspace.document.project,
            workspace.live.analysis,
            str(workspace.settings.data_folder),
        )
        dialog = FitDialog(job, workspace.engine, workspace.window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.chosen.connect(self.use)
        dialog.open()
        return dialog

    def use(self, plan: Plan) -> None:
        """Take over the settings of a plan, as one undo step."""
        document = self.workspace.document
        training = with_plan(document.project.training, plan)
        document.apply(
            f"Apply the {plan.name} plan", replace(document.project, training=training)
        )

    def finish(self) -> None:
        self.workspace.pages.make("training")
        form = self.workspace.pages.widget("training")
        assert isinstance(form, TrainingForm)
        form.add_link(form.run, "Does a step fit into memory?", self.open)
