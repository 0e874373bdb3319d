"""Sweeps in the window: run after run of the project as it was when the sweep began."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtWidgets import QProgressBar, QSizePolicy, QWidget

from app.data.own_files import cache
from app.features.sweep.dialog import SweepDialog
from app.features.sweep.values import (
    BeginSweep,
    InSweep,
    NextTrial,
    Search,
    SteerSweep,
    SweepError,
    SweepSetting,
    SweepTable,
    TellTrial,
    Trial,
    Values,
)
from app.project.project import Project
from app.runs import record
from app.training.events import EpochDone, Event
from app.util.formatting import counted, figure
from app.views.run.session import Run, RunProgress, Series, measure_progress
from app.views.ui.layouts import hbox
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import label

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.views.ui.background import WorkerFailure
    from app.views.workspace import Workspace

# --- How far a sweep is: a strip on the page "Runs", with a button that cancels it

PARTS = 1000  # of a run, on the bar
BAR = 140  # px


class SweepStrip(QWidget):
    """Hidden while there is no sweep. `cancelled` is emitted by its button."""

    cancelled = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.words = label("", "label", "text2")
        self.words.setMinimumWidth(0)
        self.words.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self.failures = label("", "label", "error")
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setFixedWidth(BAR)
        self.bar.setAccessibleName("Progress of the sweep")
        self.cancel = Button("Cancel sweep", icon="stop")
        self.cancel.setToolTip(
            "Stop the run in progress, which is saved, and start no other"
        )
        self.cancel.clicked.connect(self._cancel)
        row = ((self.words, 1), self.failures, self.bar, self.cancel)
        hbox(*row, on=self, margins=(12, 2, 8, 4), spacing=10)
        self.hide()

    def show_run(self, position: str, settings: str, count: int) -> None:
        """Show which of `count` runs is in progress."""
        text = f"Run {position}: {settings}"
        self.words.setText(text)
        self.words.setToolTip(text)
        self.bar.setRange(0, count * PARTS)
        self.cancel.setEnabled(True)
        self.show()

    def show_progress(self, done: float) -> None:
        """Show how many runs are done, with the part of the one in progress."""
        self.bar.setValue(round(done * PARTS))

    def show_failures(self, messages: list[str]) -> None:
        """Show how many runs failed, each with its reason in the tool tip."""
        self.failures.setText(
            f"{counted(len(messages), 'run')} failed" if messages else ""
        )
        self.failures.setToolTip("\n".join(messages))
        self.failures.setVisible(bool(messages))

    def _cancel(self) -> None:
        self.cancel.setEnabled(False)
        self.words.setText("Stopping: the current batch is finished first")
        self.cancelled.emit()


CANNOT_GO_ON = "The sweep cannot go on so"
UNDER_WAY, CANNOT_START = "A sweep is in progress", "The sweep cannot start"


class Sweep(Struct):
    """A sweep under way: the trial in progress with the losses of its seeds, and all runs that were started. Once
    `stopped`, no other begins. `note` says why the run in progress is ended early.
    """

    project: Project
    search: Search
    tag: str = ""
    trial: Trial | None = None
    losses: list[float] = []
    started: list[tuple[Run, str]] = []
    failures: list[str] = []
    made: int = 0
    stopped: bool = False
    note: str = ""

    @property
    def left(self) -> int:
        """How many trials have not begun."""
        return max(self.search.count - self.made, 0)


class SweepControl(QObject):
    """Opens the dialog, and starts one run when the one before has ended, however that ended; Stop ends the sweep.

    `changed` comes when a trial began, reported or ended.
    """

    changed = Signal()

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._told_count = 0
        self._workspace = workspace
        self._sweep: Sweep | None = None
        out_of_sight = QWidget(workspace.window)  # their place without a page of runs
        out_of_sight.hide()
        self.button = Button("Sweep…", "link", parent=out_of_sight)
        self.strip = SweepStrip(out_of_sight)
        self.button.setToolTip("Train a run for each of several values of the settings")
        self.button.clicked.connect(self.open)
        self.strip.cancelled.connect(self.cancel)
        workspace.commands.trigger("add-to-runs", self.button, self.strip)
        session = workspace.session
        session.stateChanged.connect(self._state_changed)
        session.runEnded.connect(self._run_ended)
        session.progressed.connect(self._show_progress)
        session.told.connect(self._report)
        workspace.document.replaced.connect(self._project_replaced)

    def open(self) -> SweepDialog | None:
        """Open the dialog; None, with a message, if no sweep can start."""
        workspace = self._workspace
        workspace.pages.set_offered("sweep", True)
        project, analysis = workspace.document.project, workspace.live.analysis
        if self._sweep is not None:
            workspace.notifier.refuse(
                UNDER_WAY, "Cancel it under Runs first, or wait until it has ended."
            )
            return None
        if (
            not workspace.run_control.can_begin_series(project, CANNOT_START)
            or analysis is None
        ):
            return None
        dialog = self._dialog(project, analysis)
        dialog.started.connect(lambda search: self.begin(Sweep(project, search)))
        return dialog

    def _dialog(
        self, project: Project, analysis: Analysis, *edited: Any
    ) -> SweepDialog:
        workspace, fact = self._workspace, cache.fact(project.data)
        engine, window = workspace.engine, workspace.window
        dialog = SweepDialog(project, analysis, fact, engine, window, *edited)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
        return dialog

    def go_on(self, table: SweepTable) -> None:
        """Make the trials that a sweep lacks."""
        project = self._workspace.document.project
        self.begin(Sweep(project, table.search, table.tag))

    def add_trial(self, table: SweepTable, values: Values) -> SweepDialog | None:
        """Ask for the values of a trial, which is made next."""
        settings = tuple(SweepSetting(name, (value,)) for name, value in values.items())
        return self._steer(table, Search(settings), "Add the trial")

    def edit_space(self, table: SweepTable) -> SweepDialog | None:
        """Ask for other bounds, from the next trial on."""
        return self._steer(table, table.search, "Change the space")

    def _steer(
        self, table: SweepTable, edited: Search, action: str
    ) -> SweepDialog | None:
        project, analysis = (
            self._workspace.document.project,
            self._workspace.live.analysis,
        )
        if analysis is None:
            return None
        dialog = self._dialog(project, analysis, edited, action)

        def steer(search: Search) -> None:
            added = {s.name: s.values[0] for s in search.settings if s.values}
            by_hand = edited is not table.search
            request = SteerSweep(
                self.folder,
                table.tag,
                search=None if by_hand else search,
                values=Values(added if by_hand else {}),
            )
            self._ask("steer", request, self._steered)

        dialog.started.connect(steer)
        return dialog

    def _steered(self, table: SweepTable | None) -> None:
        if self._sweep is not None and table is not None:
            self._sweep.search = table.search
        self.changed.emit()

    def begin(self, sweep: Sweep) -> None:
        """Start the first run of a sweep that has not begun, or the next one of a sweep that was stopped."""
        if self._sweep is not None or not self._workspace.run_control.can_begin_series(
            sweep.project, CANNOT_START
        ):
            return
        sweep.stopped = False
        self._sweep = sweep
        self._workspace.notifier.withdraw()
        if sweep.tag:
            self._next()
            return
        self._workspace.pages.show("runs")
        request = BeginSweep(
            self.folder, "", project=sweep.project, search=sweep.search
        )
        self._ask("begin", request, self._tagged)

    @property
    def folder(self) -> Path:
        """Where the runs of the project are."""
        return self._workspace.runs_keeper.folder

    def _ask(
        self, key: str, request: InSweep, on_answer: Callable[[Any], None]
    ) -> None:
        self._workspace.engine.ask(
            f"sweep {key}", request, on_answer=on_answer, on_error=self._cannot_go_on
        )

    def _tell(self, on_answer: Callable[[bool], None], **values: Any) -> None:
        """Tell the study of the trial in progress."""
        sweep = self._sweep
        if sweep is not None and sweep.trial is not None:
            self._told_count += 1
            number = sweep.trial.number
            request = TellTrial(self.folder, sweep.tag, number=number, **values)
            self._ask(f"tell {self._told_count}", request, on_answer)

    def _tagged(self, tag: str) -> None:
        if self._sweep is not None:
            self._sweep.tag = tag
            self._next()

    def _cannot_go_on(self, failure: WorkerFailure) -> None:
        if self._sweep is not None and not isinstance(failure.error, SweepError):
            self._leave()
        self._workspace.notifier.refuse(CANNOT_GO_ON, failure.message)

    @property
    def tag(self) -> str:
        """The sweep in progress, "" for none."""
        return self._sweep.tag if self._sweep is not None else ""

    def cancel(self) -> None:
        """Stop the run in progress, and start no other."""
        if self._sweep is not None:
            self._sweep.stopped = True
            if self._workspace.session.active:
                self._workspace.session.stop()
            else:
                self._end(self._sweep)

    def stop_trial(self) -> None:
        """Stop the trial in progress, and go on with the next."""
        sweep, progress = self._sweep, self._workspace.session.progress()
        if sweep is not None and self._workspace.session.active:
            sweep.note = _stopped_at(progress)
            self._workspace.session.stop()

    def _next(self) -> None:
        """Start the next run: of the trial in progress with another seed, or of the next trial."""
        sweep, workspace = self._sweep, self._workspace
        if (
            sweep is None or workspace.session.active
        ):  # a run that was started by hand: the end of it leads here
            return
        if sweep.stopped:
            self._end(sweep)
        elif sweep.trial is not None:
            self._start(sweep, sweep.trial)
        else:
            fact = cache.fact(sweep.project.data)
            request = NextTrial(self.folder, sweep.tag, fact=fact)
            self._ask("next", request, self._given)

    def _given(self, trial: Trial | None) -> None:
        sweep = self._sweep
        if sweep is None:
            return
        if trial is None:
            self._end(sweep)
            return
        sweep.made = trial.number + 1
        if trial.problem:
            sweep.failures.append(trial.problem)
        else:
            sweep.trial, sweep.losses = trial, []
        self._next()

    def _start(self, sweep: Sweep, trial: Trial) -> None:
        index, training = len(sweep.losses), trial.project.training
        training = replace(training, seed=training.seed + index)
        name = f"{trial.name}, seed {training.seed}" if index else trial.name
        count = max(sweep.search.count, sweep.made)
        series = Series(sweep.tag, trial.number + 1, count)
        self.button.hide()
        self.strip.show_run(series.place, name, count)
        run = self._workspace.run_control.start_in_series(
            replace(trial.project, training=training), trial.analysis, name, series
        )
        sweep.started.append((run, name))
        self._tell(self._noted, run=run.display_number, seed=index)
        self._show_progress()

    def _noted(self, _prune: bool) -> None:
        self.changed.emit()

    def _report(self, events: Sequence[Event]) -> None:
        """Tell the study of each epoch; a trial that is to be pruned is stopped."""
        sweep = self._sweep
        if sweep is None or sweep.trial is None or not self._trains(sweep):
            return
        if not sweep.search.prunes_at_epochs:
            return
        epochs = sweep.trial.project.training.epochs
        for event in () if sweep.losses else events:
            if isinstance(event, EpochDone):
                loss = event.train_loss if event.val_loss is None else event.val_loss
                note = f"pruned at epoch {event.epoch} of {epochs}"
                prune = partial(self._prune, note if event.epoch < epochs else "")
                self._tell(prune, step=event.epoch, loss=loss)

    def _prune(self, note: str, prune: bool) -> None:
        sweep = self._sweep
        if prune and note and sweep is not None and self._trains(sweep):
            sweep.note = note
            self._workspace.session.stop()
        self.changed.emit()

    def _trains(self, sweep: Sweep) -> bool:
        """Return whether the run in progress is of the sweep."""
        session = self._workspace.session
        return bool(sweep.started) and sweep.started[-1][0] is session.current

    def _state_changed(self, state: str) -> None:
        sweep = self._sweep
        if (
            sweep is not None and state == "stopping" and not sweep.note
        ):  # by Stop, or because the project or the window is closed
            sweep.stopped = True

    def _run_ended(self, run: Run) -> None:
        sweep = self._sweep
        if sweep is None:
            return
        if sweep.trial is not None and self._trains(sweep):
            self._tell_end(sweep, run)
        self.strip.show_failures(sweep.failures)
        QTimer.singleShot(
            0, self, self._next
        )  # after all others know that this one has ended

    def _tell_end(self, sweep: Sweep, run: Run) -> None:
        """Tell the study how a run ended, which ends the trial but for another seed."""
        summary, name = record.summary_of(run.history), sweep.started[-1][1]
        loss = summary.train_loss if summary.best_loss is None else summary.best_loss
        early = sweep.note or (
            _stopped_at(measure_progress(run.history)) if run.state == "stopped" else ""
        )
        if run.failed is not None:
            sweep.failures.append(f"{name}: {run.failed.message}")
            self._tell(self._noted, state="failed", note=run.failed.message)
        elif early or loss is None:
            note = early or "no epoch was finished"
            self._tell(self._noted, state="pruned", note=note)
        else:
            sweep.losses.append(loss)
            if len(sweep.losses) < sweep.search.seeds:
                if sweep.search.pruner == "wilcoxon":
                    step = len(sweep.losses) - 1
                    self._tell(self._prune_seeds, step=step, loss=loss)
                return
            self._tell(self._noted, state="done", losses=tuple(sweep.losses))
        sweep.trial, sweep.note = None, ""

    def _prune_seeds(self, prune: bool) -> None:
        """End a trial whose seeds so far are worse than those of the best."""
        sweep = self._sweep
        if prune and sweep is not None and sweep.trial is not None:
            sweep.note = (
                f"pruned after seed {len(sweep.losses)} of {sweep.search.seeds}"
            )
            self._workspace.session.stop()

    def _project_replaced(self, _project: object) -> None:
        """Start no other run: it would be stored with the runs of another project."""
        if self._sweep is not None and not self._workspace.session.active:
            self._leave()

    def _show_progress(self) -> None:
        sweep, progress = self._sweep, self._workspace.session.progress()
        if sweep is None or not self._trains(sweep):
            return
        done = 0.0
        if progress is not None and progress.batches:
            done = min(progress.step / (progress.epochs * progress.batches), 1.0)
        self.strip.show_progress(sweep.made - 1 + done)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        sweep, self._sweep = self._sweep, None
        if sweep is not None and sweep.tag:
            self._ask("leave", SteerSweep(self.folder, sweep.tag), self._left)
        self.button.show()
        self.strip.hide()
        self.strip.show_failures([])

    def _left(self, _table: object) -> None:
        self.changed.emit()

    def _end(self, sweep: Sweep) -> None:
        """Report the best run, and those that failed; a sweep that was stopped can be continued."""
        self._leave()
        if not sweep.made:
            return
        show = partial(
            self._workspace.commands.trigger,
            "show-runs",
            f"tags:{sweep.tag}",
            "best_loss",
        )
        summary, failed = (
            f"{_best(sweep)}{_failed(sweep.failures)}",
            bool(sweep.failures),
        )
        notifier, tag = (
            self._workspace.notifier,
            f"{sweep.tag[:1].upper()}{sweep.tag[1:]}",
        )
        if sweep.left:
            title = f"{tag} was stopped after {sweep.made:,} of {counted(sweep.search.count, 'run')}"
            notifier.show(
                "info",
                title,
                summary,
                "Continue sweep",
                partial(self.begin, sweep),
                {"Show its runs": show},
            )
        else:
            title = f"{tag} is done: {counted(sweep.made, 'run')}"
            notifier.show(
                "warning" if failed else "info", title, summary, "Show its runs", show
            )


def _stopped_at(progress: RunProgress | None) -> str:
    if progress is None:
        return "stopped before its first step"
    return f"stopped at epoch {progress.epoch} of {progress.epochs}"


def _best(sweep: Sweep) -> str:
    """Name the run with the smallest validation loss."""
    runs = {
        loss: f"run {run.display_number} ({name})"
        for run, name in sweep.started
        if (loss := record.summary_of(run.history).best_loss) is not None
    }
    if not runs:
        return ""
    best = min(runs)
    return f"Smallest validation loss: {figure(best)}, {runs[best]}. "


def _failed(failures: Sequence[str]) -> str:
    """Say how many runs failed, and the beginning of the first reason: all are at the runs."""
    if not failures:
        return ""
    count = (
        "1 run failed"
        if len(failures) == 1
        else f"{len(failures):,} runs failed, first"
    )
    return f"{count}: {': '.join(failures[0].split(': ')[:2]).rstrip('.')}."
