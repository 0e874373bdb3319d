"""The coach in the window: a line above the curves of the run of this window."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QHeaderView, QWidget

from app.features.coach.judgement import (
    OVERFITTING,
    is_examined,
    judge,
    setup_of,
    wants_one_batch,
)
from app.features.coach.values import (
    Evidence,
    Examination,
    ExamineRun,
    Remark,
    RunSetup,
    SamplePair,
)
from app.util.columns import Column
from app.util.formatting import grouped_digits
from app.util.language import marked, tr, trn
from app.util.leftovers import TemporaryFolder
from app.views.feature import Action, Feature
from app.views.training.charts.small_plot import PlotLine, SmallPlot
from app.views.ui import theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox
from app.views.ui.tables import Table
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.fitting_label import FittingLabel
from app.views.ui.widgets.painting import Glyph, announce, label, set_property

if TYPE_CHECKING:
    from app.engine.requests.capture import WeightsChoice
    from app.views.run.session import Run
    from app.views.training.charts.curves import Curves
    from app.views.training.charts.gradient_map import GradientMap
    from app.views.ui.background import WorkerFailure
    from app.views.workspace import Workspace

# --- The line above the curves on which the coach says its sentence, and what opens from it

SILENT = marked("No remarks on this run")
LOOKED_FOR = marked(
    "Looked for during a run and at its end: divergence, a loss that stays where it began, dead units, a loss or a "
    "target that does not fit, shuffled labels, classes that are never predicted, samples in both training and "
    "validation, and overfitting. Nothing is said unless it is sure."
)
EXAMINING = marked("Looking at the data and the net…")
HEIGHT = (
    30  # px at the designed text size: the line is as high with a remark as without
)


class CoachLine(QWidget):
    """One sentence with its button: `acted`, `explained` and `shown` are emitted with the remark. It has its room
    without a remark too, so nothing moves when one comes."""

    acted = Signal(object)
    explained = Signal(object)
    shown = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.remark: Remark | None = None
        self._icon = Glyph("info", "text3", 14)
        self.sentence = FittingLabel("", "label", at_right=True)
        self.action = Button()
        self.why = Button(tr("Why?"), "link")
        self.why.setToolTip(tr("The numbers and the curve that it rests on"))
        self.show_me = Button(tr("Show me"), "link")
        self.show_me.setToolTip(tr("Go to where it is"))
        hbox(
            self._icon,
            (self.sentence, 1),
            self.action,
            self.why,
            self.show_me,
            on=self,
            margins=(12, 2, 12, 2),
            spacing=8,
        )
        for button, signal in (
            (self.action, self.acted),
            (self.why, self.explained),
            (self.show_me, self.shown),
        ):
            button.clicked.connect(
                lambda _=False, signal=signal: signal.emit(self.remark)
            )
        self.setAccessibleName("Coach")
        self.setMinimumWidth(1)
        self._measure()
        theme.manager().scaled.connect(self._measure)
        self.show_remark(None)

    def _measure(self) -> None:
        self.setFixedHeight(round(HEIGHT * theme.manager().scale))

    def show_remark(
        self, remark: Remark | None, action: str = "", silence: str = SILENT
    ) -> None:
        """Show a remark, with a button if it has an `action`, or that there is none."""
        is_new = remark is not None and (
            self.remark is None or self.remark.kind != remark.kind
        )
        self.remark = remark
        text = remark.sentence if remark is not None else tr(silence)
        self._icon.set(
            *(("warning", "warn") if remark is not None else ("info", "text3"))
        )
        self._icon.setVisible(bool(text))
        set_property(self.sentence, "tone", "text" if remark is not None else "text3")
        self.sentence.set_whole(text, text if remark is not None else tr(LOOKED_FOR))
        self.action.setText(action)
        self.action.setVisible(bool(action))
        self.why.setVisible(remark is not None)
        self.show_me.setVisible(remark is not None)
        if is_new:
            announce(self, text)


class WhyDialog(Dialog):
    """The numbers and the curve that a remark rests on."""

    def __init__(self, remark: Remark, parent: QWidget | None = None) -> None:
        super().__init__(remark.sentence, parent, icon="warning", color="warn")
        self.setWindowTitle(tr("Why?"))
        self.setMinimumWidth(520)
        self.remark = remark
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setColumnStretch(1, 1)
        for row, (name, number) in enumerate(remark.numbers):
            grid.addWidget(label(name, "label", "text2"), row, 0)
            grid.addWidget(label(number, "label", wrap=True), row, 1)
        self.body.addLayout(grid)
        if remark.evidence is not None:
            self._plot(remark.evidence)
        close = self.add_button(tr("Close"), default=True)
        close.clicked.connect(self.reject)

    def _plot(self, evidence: Evidence) -> None:
        """Draw each line of the evidence in a plot of its own scale."""
        if len(evidence.x) < 2:
            return
        self.body.addWidget(label(evidence.title, "section"))
        ends = tuple(
            f"{evidence.x_name} {grouped_digits(int(evidence.x[at]))}" for at in (0, -1)
        )
        for name, values in evidence.lines:
            y = [value if math.isfinite(value) else math.nan for value in values]
            finite = [value for value in y if not math.isnan(value)]
            if finite and 0 < 1000 * min(finite) < max(finite):
                y, name = (
                    [math.log10(value) for value in y],
                    tr("log10 of {name}", name=name),
                )
            plot = SmallPlot(f"{evidence.title}: {name}", 110)
            plot.show_lines(
                evidence.x,
                (PlotLine(tuple(y)),),
                ends=(ends[0], ends[1]),
                unit=(evidence.x_name, name),
                marks=[(mark, "warn") for mark in evidence.marks],
            )
            self.body.addWidget(plot)


def _pair_columns() -> tuple[Column, ...]:
    return (
        Column(
            tr("Validation sample"),
            lambda pair: grouped_digits(pair.validation),
            tr("Its number in the validation part, from 0"),
            number=True,
            value=lambda pair: pair.validation,
        ),
        Column(
            tr("Training sample"),
            lambda pair: grouped_digits(pair.training),
            tr("Its number in the training part, from 0"),
            number=True,
            value=lambda pair: pair.training,
        ),
        Column(
            tr("Rows of the data"),
            lambda pair: "; ".join(map(grouped_digits, pair.rows or ())) or "–",
            tr("Both rows among those that could be read, from 0"),
        ),
    )


class PairsDialog(Dialog):
    """Samples that are in the training and in the validation part."""

    def __init__(
        self, pairs: tuple[SamplePair, ...], total: int, parent: QWidget | None = None
    ) -> None:
        super().__init__(tr("Samples in both parts"), parent, icon="copy")
        self.setMinimumWidth(480)
        text = trn(
            "{count} validation sample has the very values of a training sample, so a net that has memorised these "
            "is right on it. Remove the copy from the data.",
            "{count} validation samples have the very values of a training sample, so a net that has memorised these "
            "is right on them. Remove the copies from the data.",
            total,
        )
        if total > len(pairs):
            text += " " + tr("The first {number:,} of them:", number=len(pairs))
        self.body.addWidget(label(text, "body", "text2", wrap=True))
        self.table = Table(_pair_columns(), tr("Samples in both parts"))
        self.table.cells.set_rows(list(pairs))
        stretch = QHeaderView.ResizeMode.Stretch
        self.table.horizontalHeader().setSectionResizeMode(stretch)
        self.table.setMinimumHeight(220)
        self.body.addWidget(self.table)
        close = self.add_button(tr("Close"), default=True)
        close.clicked.connect(self.reject)


KEY = "coach"
EVERY = 1.0  # seconds between two judgements of a run that goes on
FINDS_RATE = "find-rate"  # the command


class CoachFeature(Feature):
    rank = 153

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.line: CoachLine | None = None
        self._gradients: GradientMap | None = None  # of the same page
        self.remark: Remark | None = None
        self._setup: RunSetup | None = None
        self._run: Run | None = None
        self.examined: Examination | None = None
        self._examining = False
        self._done: set[str] = set()  # kinds of remarks whose button was pressed
        self._finds_rate = False  # once the run has stopped
        self._judged = 0.0
        self._folder = TemporaryFolder()  # weights of a run, as they were at its end

    def actions(self) -> Iterable[Action]:
        return (Action("coach-of-curves", "", self._furnish),)

    def begin(self) -> None:
        workspace = self.workspace
        workspace.run_control.started.connect(self._started)
        workspace.session.progressed.connect(self._progressed)
        workspace.session.runEnded.connect(self._ended)
        workspace.session.stateChanged.connect(lambda _state: self._show())
        workspace.shown_run.changed.connect(lambda _figures: self._show())

    def _furnish(self, curves: Curves) -> None:
        """Put the line above the charts of a page."""
        self.line = line = CoachLine()
        self._gradients = curves.gradients
        curves.add_above(line)
        line.acted.connect(self._act)
        line.explained.connect(self.explain)
        line.shown.connect(self.show_place)
        self._show()

    # --- Judging

    def _started(self, run: Run) -> None:
        self.workspace.engine.forget(KEY)
        self.workspace.background.forget(KEY)
        self._run, self.remark, self.examined = run, None, None
        self._examining = self._finds_rate = False
        self._done.clear()
        self._setup = self._setup_of(run)
        self._show()

    def _setup_of(self, run: Run) -> RunSetup | None:
        """Return what is known of a run of the open project; None of others, and of those of a series."""
        project, analysis = (
            self.workspace.document.project,
            self.workspace.live.analysis,
        )
        if run.series is not None or run.watched is not None or analysis is None:
            return None
        ours, its = project.training, run.job.training
        same = (
            run.job.data == project.data
            and replace(its, threads=0) == replace(ours, threads=0)
            and run.job.source.same_net(analysis.source)
        )
        return setup_of(project, analysis) if same else None

    def _progressed(self) -> None:
        run, now = self.workspace.session.current, time.monotonic()
        if run is self._run and run is not None and run.active:
            if now - self._judged >= EVERY:
                self._judged = now
                self._judge()

    def _judge(self, ended: bool = False) -> None:
        run, setup = self._run, self._setup
        if run is None or setup is None or run.history.cuts:
            self.remark = None
        else:
            self.remark = judge(setup, run.history, ended, self.examined)
        self._show()

    def _ended(self, run: Run) -> None:
        if run is not self._run:
            return
        self._judge(ended=True)
        if self._finds_rate:
            self._finds_rate = False
            self.workspace.commands.trigger(FINDS_RATE)
        sure = self.remark is not None and self.remark.kind != OVERFITTING
        if self._setup is None or run.failed is not None or run.history.cuts or sure:
            return
        if is_examined(self._setup, run.history):
            self._examining = True
            self._show()
            self.workspace.background.ask(
                KEY,
                self.workspace.newest_weights.choice(
                    run.job.source, Path(self._folder.name)
                ),
                on_answer=partial(self._examine, run),
                on_error=self._not_examined,
            )

    def _examine(self, run: Run, weights: WeightsChoice) -> None:
        assert self._setup is not None
        request = ExamineRun(
            run.job, weights, wants_one_batch(self._setup, run.history)
        )
        self.workspace.engine.ask(
            KEY, request, on_answer=self._on_examined, on_error=self._not_examined
        )

    def _on_examined(self, examination: Examination) -> None:
        self._examining, self.examined = False, examination
        self._judge(ended=True)

    def _not_examined(self, _failure: WorkerFailure) -> None:
        """Say no more: the run itself has ended well."""
        self._examining = False
        self._show()

    # --- Showing

    def _show(self) -> None:
        """Show the remark if the run that it is about is the one that is shown; then the map of gradients names its
        cause and no other."""
        if self.line is None or self._gradients is None:
            return
        figures, run = self.workspace.shown_run.figures, self._run
        ours = (
            figures is not None and run is not None and figures.history is run.history
        )
        remark = self.remark if ours else None
        self._gradients.set_cause(None if remark is None else remark.gradient_cause)
        if ours and self.remark is not None:
            self.line.show_remark(self.remark, self._action_text(self.remark))
        elif ours and self._setup is not None:
            self.line.show_remark(None, "", EXAMINING if self._examining else SILENT)
        else:
            self.line.show_remark(None, "", "")

    def _action_text(self, remark: Remark) -> str:
        """Return the text of the button, "" for none."""
        if remark.kind in self._done:
            return ""
        if remark.cure is not None:
            return remark.cure.label
        if remark.finds_rate and self.workspace.commands.has(FINDS_RATE):
            return (
                tr("Stop and find a rate…")
                if self.workspace.session.active
                else tr("Find a rate…")
            )
        return ""

    def _act(self, remark: Remark) -> None:
        """Do what the button says."""
        workspace = self.workspace
        if remark.cure is not None:
            workspace.cures.apply_to_network(remark.cure)
            workspace.notifier.say(remark.cure.label, tr("The next run has it."))
            self._done.add(remark.kind)
            self._show()
        elif workspace.session.active:
            self._finds_rate = True
            workspace.run_control.stop()
        else:
            workspace.commands.trigger(FINDS_RATE)

    def explain(self, remark: Remark) -> WhyDialog:
        """Show the numbers and the curve of a remark."""
        dialog = WhyDialog(remark, self.workspace.window)
        dialog.open()
        return dialog

    def show_place(self, remark: Remark) -> PairsDialog | None:
        """Go to the layer, the node, the step, the page or the samples of a remark."""
        workspace = self.workspace
        if remark.pairs:
            total = self.examined.repeated if self.examined is not None else 0
            dialog = PairsDialog(remark.pairs, total, workspace.window)
            dialog.open()
            return dialog
        if remark.layer or remark.node:
            modules = self._setup.source.modules if self._setup is not None else {}
            nodes = [node for node, path in modules.items() if path == remark.layer]
            for node in [remark.node] if remark.node else nodes[:1]:
                workspace.jump_to(node)
            if remark.layer:
                workspace.shown_run.choose_layer(remark.layer)
                workspace.pages.show("layer")
        if remark.step is not None:
            workspace.shown_run.choose_step(remark.step)
        if remark.page:
            workspace.pages.show(remark.page)
        return None

    def close(self) -> None:
        self.workspace.engine.forget(KEY)
