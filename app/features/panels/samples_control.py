"""Samples of the compared runs: stored evaluations are read, others made on request, pictures read as they are seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from PySide6.QtCore import QObject

from app.data.spec import CLASSES
from app.engine.protocol import Handle, HandleLostError
from app.features.panels import evaluations
from app.features.panels.sample_rows import SampleRow, rows_of
from app.features.panels.samples_view import RunColumn, SamplesView
from app.features.panels.values import (
    EvaluatedRun,
    EvaluateRun,
    RunEvaluation,
    RunSample,
    ShowRunSamples,
)
from app.runs import record
from app.runs.record import RunError
from app.runs.store import Kept
from app.views.shown_run import ComparedRun
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.views.run.session import Run
    from app.views.workspace import Workspace

T = TypeVar("T")
MORE = 24  # samples that are shown at first, and added at once
STORED, ROWS = "stored evaluations", "samples of runs"
NOT_STORED = "This run is not stored yet."


class _Stored(NamedTuple):
    """The evaluation of a run, or why there is none, and whether the run is in progress."""

    evaluation: RunEvaluation | None
    words: str
    goes_on: bool = False


def _stored(folders: tuple[Path | None, ...], split_name: str) -> list[_Stored]:
    """Read the evaluations of runs; for one without say why."""
    return [
        _stored_in(folder, split_name)
        if folder is not None
        else _Stored(None, NOT_STORED)
        for folder in folders
    ]


def _stored_in(folder: Path, split_name: str) -> _Stored:
    goes_on = False
    try:
        stored_run = Kept(folder, record.read(folder))
        goes_on = stored_run.goes_on
        now = evaluations.checkpoint_of(stored_run)
        evaluation = evaluations.read(stored_run, split_name)
    except (OSError, RunError) as error:
        return _Stored(None, str(error), goes_on)
    if evaluation is None:
        return _Stored(
            None, f"No evaluation of its {split_name} samples is stored.", goes_on
        )
    if evaluation.checkpoint != now:
        return _Stored(
            None,
            "Its weights have changed since the evaluation that is stored.",
            goes_on,
        )
    return _Stored(evaluation, "", goes_on)


class SamplesControl(QObject):
    """Follows the runs that are shown while the view is seen."""

    def __init__(self, workspace: Workspace, view: SamplesView) -> None:
        super().__init__(workspace.window)
        self._workspace, self._view = workspace, view
        self._runs: Sequence[ComparedRun] = ()
        self._columns: list[RunColumn] = []
        self._nets: dict[tuple[Path, str], Handle] = {}
        self._opening: set[tuple[Path, str]] = set()
        self._part, self._most = view.part.value(), MORE
        self._rows: list[SampleRow] = []
        self._seen = False
        view.wanted.connect(self._changed)
        view.more.clicked.connect(self._show_more)
        view.evaluateRequested.connect(self.evaluate)
        view.cancelRequested.connect(self.cancel)
        workspace.session.runEnded.connect(self._run_ended)

    # -- runs and their evaluations -----------------------------------------------------------------------------------

    def set_runs(self, runs: Sequence[ComparedRun]) -> None:
        """Show other runs, or the same ones under other names."""
        same = [run.folder for run in runs] == [
            run.folder for run in self._runs
        ] and bool(runs)
        self._runs = runs
        if same:
            for column, run in zip(self._columns, runs, strict=True):
                column.label = run.label
            self._view.set_columns(self._columns)
            self._arrange()
            return
        self._start_again()

    def set_seen(self, visible: bool) -> None:
        """Begin once the view is seen."""
        if visible and not self._seen:
            self._seen = True
            self._start_again()
        self._seen = visible

    def _changed(self) -> None:
        self._most = MORE
        if self._part != self._view.part.value():
            self._start_again()
        else:
            self._arrange()

    def _start_again(self) -> None:
        """Read the stored evaluations of the runs and drop what was of others."""
        for folder, split_name in self._opening:
            self._workspace.engine.forget(_key(folder, split_name))
        self._part = self._view.part.value()
        needed = {(run.folder, self._part) for run in self._runs}
        for key in [key for key in self._nets if key not in needed]:
            self._workspace.engine.release(self._nets.pop(key))
        self._opening.clear()
        self._most, self._rows = MORE, []
        self._columns = [
            RunColumn(run.label, words="Reading what is stored…") for run in self._runs
        ]
        self._view.set_columns(self._columns)
        self._read_stored()

    def _run_ended(self, run: Run) -> None:
        """Read the stored evaluations again: a run evaluated before its end has other weights now."""
        if run.figures.folder in {compared.folder for compared in self._runs}:
            self._read_stored()

    def _read_stored(self) -> None:
        if self._seen and self._runs:
            folders = tuple(run.folder for run in self._runs)
            self._workspace.background.ask(
                STORED,
                _stored,
                folders,
                self._part,
                on_answer=self._if_shown(self._have_stored),
                on_error=self._if_shown(self._not_read),
            )

    def _if_shown(self, answered: Callable[[T], None]) -> Callable[[T], None]:
        """Return a function that drops an answer about runs that are no longer shown."""
        columns = self._columns
        return lambda answer: answered(answer) if columns is self._columns else None

    def _have_stored(self, stored_evaluations: list[_Stored]) -> None:
        for column, stored in zip(self._columns, stored_evaluations, strict=True):
            column.goes_on = stored.goes_on
            if not column.busy:
                column.evaluation, column.words = stored.evaluation, stored.words
        self._view.set_columns(self._columns)
        self._arrange()

    def _not_read(self, failure: WorkerFailure) -> None:
        for index, column in enumerate(self._columns):
            column.words = failure.message
            self._view.tell(index)

    def evaluate(self, index: int) -> None:
        """Evaluate the weights of a run, in the engine."""
        column, run = self._columns[index], self._runs[index]
        if run.folder is None:
            return
        column.words, column.busy = "Reading weights and data…", True
        self._view.tell(index)
        self._open(index)

    def cancel(self, index: int) -> None:
        """Cancel the evaluation of a run after its current batch."""
        folder = self._runs[index].folder
        self._workspace.engine.forget(_key(folder, self._part))
        self._tell(index, "The evaluation was cancelled.")

    def _tell(self, index: int, status: str) -> None:
        column, folder = self._columns[index], self._runs[index].folder
        column.words, column.busy = status, False
        if folder is not None:
            self._opening.discard((folder, self._part))
        self._view.tell(index)

    def _open(self, index: int) -> None:
        """Have the engine hold the net and the data of a run, and evaluate it if that was not done before."""
        folder, split_name = self._runs[index].folder, self._part
        if folder is None or (folder, split_name) in self._opening:
            return
        self._opening.add((folder, split_name))
        request = EvaluateRun(
            folder, str(self._workspace.settings.data_folder), split_name
        )

        columns = self._columns

        def answered(answer: EvaluatedRun) -> None:
            if columns is not self._columns:
                self._workspace.engine.release(answer.net)
                return
            self._opening.discard((folder, split_name))
            if (before := self._nets.pop((folder, split_name), None)) is not None:
                self._workspace.engine.release(before)
            self._nets[folder, split_name] = answer.net
            column = self._columns[index]
            was, column.evaluation, column.busy, column.words = (
                column.evaluation,
                answer.evaluation,
                False,
                "",
            )
            if was is None or was.checkpoint != answer.evaluation.checkpoint:
                column.samples.clear()  # with outputs of other weights
                self._view.set_columns(self._columns)
                self._arrange()
            else:
                self._want_pictures()

        def progressed(status: str) -> None:
            if self._columns[index].busy:
                self._columns[index].words = status
                self._view.tell(index)

        self._workspace.engine.ask(
            _key(folder, split_name),
            request,
            on_answer=answered,
            on_progress=self._if_shown(progressed),
            on_error=self._if_shown(partial(self._failed, index)),
        )

    def _failed(self, index: int, failure: WorkerFailure) -> None:
        self._tell(index, failure.message)
        if self._columns[index].evaluation is not None:
            self._view.tell_note(f"Pictures cannot be shown: {failure.message}")

    # -- samples ------------------------------------------------------------------------------------------------------

    def _show_more(self) -> None:
        self._most += MORE
        self._arrange()

    def _arrange(self) -> None:
        """Find the samples to list, in the background."""
        evaluations_of_runs = tuple(column.evaluation for column in self._columns)
        if any(evaluations_of_runs):
            self._workspace.background.ask(
                ROWS,
                rows_of,
                evaluations_of_runs,
                self._view.chosen_order,
                self._most,
                on_answer=self._if_shown(self._have_rows),
            )

    def _have_rows(self, answer: tuple[list[SampleRow], int]) -> None:
        self._rows, total = answer
        self._view.show_rows(self._rows, total)
        self._want_pictures()

    def _want_pictures(self) -> None:
        """Ask for what is not there yet of the listed samples: of classes pictures of one run show them all."""
        for index, (run, column) in enumerate(
            zip(self._runs, self._columns, strict=True)
        ):
            if column.evaluation is None or run.folder is None:
                continue
            every = column.evaluation.found.kind != CLASSES
            numbers = [
                row.numbers[index] for row in self._rows if every or row.first == index
            ]
            missing = tuple(
                n for n in numbers if n is not None and n not in column.samples
            )
            if missing and (run.folder, self._part) not in self._nets:
                self._open(index)
            elif missing:
                self._ask_pictures(index, run.folder, missing)

    def _ask_pictures(self, index: int, folder: Path, numbers: tuple[int, ...]) -> None:
        def answered(samples: tuple[RunSample, ...]) -> None:
            self._columns[index].samples |= {
                sample.number: sample for sample in samples
            }
            self._view.show_pictures()

        def failed(failure: WorkerFailure) -> None:
            if isinstance(
                failure.error, HandleLostError
            ):  # of an engine that has ended
                self._nets.pop((folder, self._part), None)
                self._open(index)
            else:
                self._failed(index, failure)

        request = ShowRunSamples(self._nets[folder, self._part], numbers)
        self._workspace.engine.ask(
            f"pictures {_key(folder, self._part)}",
            request,
            on_answer=self._if_shown(answered),
            on_error=self._if_shown(failed),
        )


def _key(folder: Path | None, split_name: str) -> str:
    return f"evaluation of {folder}, {split_name}"
