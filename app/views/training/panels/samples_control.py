"""Samples of the compared runs: stored evaluations are read, others made on request, pictures read as they are seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from PySide6.QtCore import QObject

from app.data.spec import CLASSES
from app.engine.protocol import Handle, HandleLostError
from app.engine.requests.past.run_samples import (
    EvaluatedRun,
    EvaluateRun,
    ShowRunSamples,
)
from app.runs import evaluations, record
from app.runs.record import RunError
from app.runs.store import Kept
from app.training.evaluation.of_run import RunEvaluation, RunSample
from app.views.shown_run import ComparedRun
from app.views.training.panels.sample_rows import SampleRow, rows_of
from app.views.training.panels.samples_view import RunColumn, SamplesView
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.views.training.runs.session import Run
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


def _stored(folders: tuple[Path | None, ...], part: str) -> list[_Stored]:
    """Read the evaluations of runs; for one without say why."""
    return [
        _stored_in(folder, part) if folder is not None else _Stored(None, NOT_STORED)
        for folder in folders
    ]


def _stored_in(folder: Path, part: str) -> _Stored:
    goes_on = False
    try:
        kept = Kept(folder, record.read(folder))
        goes_on = kept.goes_on
        now = evaluations.checkpoint_of(kept)
        found = evaluations.read(kept, part)
    except (OSError, RunError) as error:
        return _Stored(None, str(error), goes_on)
    if found is None:
        return _Stored(None, f"No evaluation of its {part} samples is stored.", goes_on)
    if found.checkpoint != now:
        return _Stored(
            None,
            "Its weights have changed since the evaluation that is stored.",
            goes_on,
        )
    return _Stored(found, "", goes_on)


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

    def set_seen(self, seen: bool) -> None:
        """Begin once the view is seen."""
        if seen and not self._seen:
            self._seen = True
            self._start_again()
        self._seen = seen

    def _changed(self) -> None:
        self._most = MORE
        if self._part != self._view.part.value():
            self._start_again()
        else:
            self._arrange()

    def _start_again(self) -> None:
        """Read the stored evaluations of the runs and drop what was of others."""
        for folder, part in self._opening:
            self._workspace.engine.forget(_key(folder, part))
        self._part = self._view.part.value()
        wanted = {(run.folder, self._part) for run in self._runs}
        for key in [key for key in self._nets if key not in wanted]:
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
        if run.figures.folder in {each.folder for each in self._runs}:
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

    def _have_stored(self, found: list[_Stored]) -> None:
        for column, stored in zip(self._columns, found, strict=True):
            column.goes_on = stored.goes_on
            if not column.busy:
                column.evaluation, column.words = stored.evaluation, stored.words
        self._view.set_columns(self._columns)
        self._arrange()

    def _not_read(self, failure: WorkerFailure) -> None:
        for place, column in enumerate(self._columns):
            column.words = failure.message
            self._view.tell(place)

    def evaluate(self, place: int) -> None:
        """Evaluate the weights of a run, in the engine."""
        column, run = self._columns[place], self._runs[place]
        if run.folder is None:
            return
        column.words, column.busy = "Reading weights and data…", True
        self._view.tell(place)
        self._open(place)

    def cancel(self, place: int) -> None:
        """Cancel the evaluation of a run after its current batch."""
        folder = self._runs[place].folder
        self._workspace.engine.forget(_key(folder, self._part))
        self._tell(place, "The evaluation was cancelled.")

    def _tell(self, place: int, words: str) -> None:
        column, folder = self._columns[place], self._runs[place].folder
        column.words, column.busy = words, False
        if folder is not None:
            self._opening.discard((folder, self._part))
        self._view.tell(place)

    def _open(self, place: int) -> None:
        """Have the engine hold the net and the data of a run, and evaluate it if that was not done before."""
        folder, part = self._runs[place].folder, self._part
        if folder is None or (folder, part) in self._opening:
            return
        self._opening.add((folder, part))
        request = EvaluateRun(folder, str(self._workspace.settings.data_folder), part)

        columns = self._columns

        def answered(answer: EvaluatedRun) -> None:
            if columns is not self._columns:
                self._workspace.engine.release(answer.net)
                return
            self._opening.discard((folder, part))
            if (before := self._nets.pop((folder, part), None)) is not None:
                self._workspace.engine.release(before)
            self._nets[folder, part] = answer.net
            column = self._columns[place]
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

        def progressed(words: str) -> None:
            if self._columns[place].busy:
                self._columns[place].words = words
                self._view.tell(place)

        self._workspace.engine.ask(
            _key(folder, part),
            request,
            on_answer=answered,
            on_progress=self._if_shown(progressed),
            on_error=self._if_shown(partial(self._failed, place)),
        )

    def _failed(self, place: int, failure: WorkerFailure) -> None:
        self._tell(place, failure.message)
        if self._columns[place].evaluation is not None:
            self._view.tell_note(f"Pictures cannot be shown: {failure.message}")

    # -- samples ------------------------------------------------------------------------------------------------------

    def _show_more(self) -> None:
        self._most += MORE
        self._arrange()

    def _arrange(self) -> None:
        """Find the samples to list, in the background."""
        found = tuple(column.evaluation for column in self._columns)
        if any(found):
            self._workspace.background.ask(
                ROWS,
                rows_of,
                found,
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
        for place, (run, column) in enumerate(
            zip(self._runs, self._columns, strict=True)
        ):
            if column.evaluation is None or run.folder is None:
                continue
            every = column.evaluation.found.kind != CLASSES
            numbers = [
                row.numbers[place] for row in self._rows if every or row.first == place
            ]
            missing = tuple(
                n for n in numbers if n is not None and n not in column.samples
            )
            if missing and (run.folder, self._part) not in self._nets:
                self._open(place)
            elif missing:
                self._ask_pictures(place, run.folder, missing)

    def _ask_pictures(self, place: int, folder: Path, numbers: tuple[int, ...]) -> None:
        def answered(samples: tuple[RunSample, ...]) -> None:
            self._columns[place].samples |= {
                sample.number: sample for sample in samples
            }
            self._view.show_pictures()

        def failed(failure: WorkerFailure) -> None:
            if isinstance(
                failure.error, HandleLostError
            ):  # of an engine that has ended
                self._nets.pop((folder, self._part), None)
                self._open(place)
            else:
                self._failed(place, failure)

        request = ShowRunSamples(self._nets[folder, self._part], numbers)
        self._workspace.engine.ask(
            f"pictures {_key(folder, self._part)}",
            request,
            on_answer=self._if_shown(answered),
            on_error=self._if_shown(failed),
        )


def _key(folder: Path | None, part: str) -> str:
    return f"evaluation of {folder}, {part}"
