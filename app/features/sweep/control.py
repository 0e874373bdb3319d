"""Sweeps in the window: run after run of the project as it was when the sweep began."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace
from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtWidgets import QWidget

from app.data.own_files import cache
from app.features.sweep.dialog import SweepDialog
from app.features.sweep.strip import SweepStrip
from app.features.sweep.values import SweepRun, next_tag
from app.project.project import Project
from app.runs import record, store
from app.util.formatting import counted, figure
from app.views.run.session import Run, Series
from app.views.ui.widgets.button import Button

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.views.ui.background import WorkerFailure
    from app.views.workspace import Workspace

UNDER_WAY, CANNOT_START = "A sweep is in progress", "The sweep cannot start"


class Sweep(Struct):
    """A sweep under way: its runs, and those that were started. Once `stopped`, no other begins."""

    project: Project
    analysis: Analysis
    runs: tuple[SweepRun, ...]
    tag: str = ""
    started: list[Run] = field(default_factory=list)
    stopped: bool = False

    @property
    def failures(self) -> list[str]:
        """The names of the runs that failed, each with the reason."""
        return [
            f"{self.runs[index].name}: {run.failed.message}"
            for index, run in enumerate(self.started)
            if run.failed is not None
        ]

    @property
    def left(self) -> int:
        """How many runs have not begun."""
        return len(self.runs) - len(self.started)


class SweepControl(QObject):
    """Opens the dialog, and starts one run when the one before has ended, however that ended; Stop ends the sweep."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
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
        workspace.document.replaced.connect(self._project_replaced)

    def open(self) -> SweepDialog | None:
        """Open the dialog; None, with a message, if no sweep can start."""
        workspace = self._workspace
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
        dialog = SweepDialog(
            project,
            analysis,
            cache.fact(project.data),
            workspace.engine,
            workspace.window,
        )
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.started.connect(lambda runs: self.begin(Sweep(project, analysis, runs)))
        dialog.open()
        return dialog

    def begin(self, sweep: Sweep) -> None:
        """Start the first run of a sweep that has not begun, or the next one of a sweep that was stopped."""
        if self._sweep is not None or not self._workspace.run_control.can_begin_series(
            sweep.project, CANNOT_START
        ):
            return
        sweep.stopped = False
        self._sweep = sweep
        self._workspace.notifier.withdraw()
        self._workspace.pages.show("runs")
        if sweep.tag:
            self._next()
            return
        folder = self._workspace.runs_keeper.folder
        self._workspace.background.ask(
            "sweep tag",
            _next_tag,
            folder,
            on_answer=self._tagged,
            on_error=self._untagged,
        )

    def _tagged(self, tag: str) -> None:
        if self._sweep is not None:
            self._sweep.tag = tag
            self._next()

    def _untagged(self, failure: WorkerFailure) -> None:
        self._sweep = None
        self._workspace.notifier.refuse(
            CANNOT_START, f"The runs cannot be listed: {failure.message}"
        )

    def cancel(self) -> None:
        """Stop the run in progress, and start no other."""
        if self._sweep is not None:
            self._sweep.stopped = True
            if self._workspace.session.active:
                self._workspace.session.stop()
            else:
                self._end(self._sweep)

    def _next(self) -> None:
        sweep = self._sweep
        if (
            sweep is None or self._workspace.session.active
        ):  # a run that was started by hand: the end of it leads here
            return
        if sweep.stopped or not sweep.left:
            self._end(sweep)
            return
        run, number = sweep.runs[len(sweep.started)], len(sweep.started) + 1
        series = Series(sweep.tag, number, len(sweep.runs))
        self.button.hide()
        self.strip.show_run(series.place, run.name, series.count)
        sweep.started.append(
            self._workspace.run_control.start_in_series(
                replace(sweep.project, training=run.training),
                sweep.analysis,
                run.name,
                series,
            )
        )
        self._show_progress()

    def _state_changed(self, state: str) -> None:
        if (
            self._sweep is not None and state == "stopping"
        ):  # by Stop, or because the project or the window is closed
            self._sweep.stopped = True

    def _run_ended(self, _run: Run) -> None:
        if self._sweep is not None:
            self.strip.show_failures(self._sweep.failures)
            QTimer.singleShot(
                0, self, self._next
            )  # after all others know that this one has ended

    def _project_replaced(self, _project: object) -> None:
        """Start no other run: it would be stored with the runs of another project."""
        if self._sweep is not None and not self._workspace.session.active:
            self._leave()

    def _show_progress(self) -> None:
        sweep, progress = self._sweep, self._workspace.session.progress()
        if (
            sweep is None
            or not sweep.started
            or sweep.started[-1] is not self._workspace.session.current
        ):
            return
        done = 0.0
        if progress is not None and progress.batches:
            done = min(progress.step / (progress.epochs * progress.batches), 1.0)
        self.strip.show_progress(len(sweep.started) - 1 + done)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        self._sweep = None
        self.button.show()
        self.strip.hide()
        self.strip.show_failures([])

    def _end(self, sweep: Sweep) -> None:
        """Report the best run, and those that failed; a sweep that was stopped can be continued."""
        self._leave()
        if not sweep.started:
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
            title = f"{tag} was stopped after {len(sweep.started):,} of {counted(len(sweep.runs), 'run')}"
            notifier.show(
                "info",
                title,
                summary,
                "Continue sweep",
                partial(self.begin, sweep),
                {"Show its runs": show},
            )
        else:
            title = f"{tag} is done: {counted(len(sweep.runs), 'run')}"
            notifier.show(
                "warning" if failed else "info", title, summary, "Show its runs", show
            )


def _next_tag(folder: Path) -> str:
    return next_tag(
        tag for stored_run in store.listed(folder) for tag in stored_run.record.tags
    )


def _best(sweep: Sweep) -> str:
    """Name the run with the smallest validation loss."""
    losses = [
        (record.summary_of(run.history).best_loss, index)
        for index, run in enumerate(sweep.started)
    ]
    finite = [
        (loss, index) for loss, index in losses if loss is not None and loss == loss
    ]
    if not finite:
        return ""
    loss, best_index = min(finite)
    number = sweep.started[best_index].display_number
    return f"Smallest validation loss: {figure(loss)}, run {number} ({sweep.runs[best_index].name}). "


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
