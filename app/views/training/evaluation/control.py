"""What the page "Evaluation" has done: where weights and samples come from, and where results go."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QFileDialog

from app.preflight import preflight
from app.runs import resume, store
from app.training.evaluation.evaluator import Cancelled, Evaluator, checkpoint_weights
from app.training.evaluation.predict import Answer, Survey, shown, survey, try_input
from app.training.evaluation.result import Evaluation
from app.training.job import Job
from app.util import atomic
from app.views.training.evaluation.page import EvaluationPage
from app.views.ui.background import Failure
from app.views.ui.thread_task import Errand, Tell

if TYPE_CHECKING:
    from app.views.main_window import MainWindow

POLL = 100  # milliseconds between two looks at how far it is
SHOWN = 60  # samples that are shown at once
RUNS = 5  # whose checkpoints are offered
NEWEST, START, FILE = "newest", "start", "file"
FILTER = "Weights (*.safetensors *.pt);;All files (*)"


@dataclass(frozen=True)
class Prepared:
    """A net that is ready, what its data are like, and what was found, if it was asked."""

    evaluator: Evaluator
    survey: Survey
    found: Evaluation | None = None


class EvaluationControl(QObject):
    """One evaluation at a time, on a thread of its own; a run that goes on does not notice it."""

    def __init__(self, page: EvaluationPage, window: MainWindow) -> None:
        super().__init__(window)
        self._page, self._window = page, window
        self._errand: Errand | None = None
        self._stop = threading.Event()
        self._evaluator: Evaluator | None = None
        self._key = NEWEST
        self._path: Path | None = None  # of the weights that a person chose
        self._name = ""
        self._timer = QTimer(self)
        self._timer.setInterval(POLL)
        self._timer.timeout.connect(self._look)
        page.evaluateRequested.connect(self.evaluate)
        page.preparationRequested.connect(self.prepare)
        page.cancelRequested.connect(self.cancel)
        page.exportRequested.connect(self.export)
        page.wanted.connect(self._read)
        page.sampleOpened.connect(self.try_sample)
        page.trying.asked.connect(self._try)
        page.trying.refused.connect(window.refuse)
        page.weights_menu.aboutToShow.connect(self._list_weights)
        page.weights_menu.triggered.connect(lambda action: self._choose(str(action.data()), action.text()))
        window.document.replaced.connect(self._project_replaced)

    # --- Weights

    def _list_weights(self) -> None:
        choices = [(NEWEST, "Newest weights"), (START, "Start weights")]
        for kept in store.listed(self._window.runs_keeper.folder)[:RUNS]:
            found = resume.checkpoints(kept)
            if found:
                choices.append(("", ""))
            choices += [(str(each.path), f"{kept.record.title}: {each.label}") for each in found]
        choices += [("", ""), (FILE, "From a file…")]
        self._page.set_weights(choices, self._key if self._path is None else str(self._path))

    def _choose(self, key: str, words: str) -> None:
        if key == FILE:
            folder = str(self._window.settings.export_folder)
            name, _ = QFileDialog.getOpenFileName(self._window, "Weights to evaluate", folder, FILTER)
            if not name:
                return
            key, words = name, Path(name).name
        self.choose(key, words)

    def choose(self, key: str, words: str = "") -> None:
        """Other weights: "newest", "start", or the path of a file of weights or of a checkpoint."""
        known = key in (NEWEST, START)
        self._key, self._path = key, None if known else Path(key)
        self._name = words or ("" if known else Path(key).name)
        self._page.weights.setText(self._name or {NEWEST: "Newest weights", START: "Start weights"}[key])
        if self._page.view.value() == "try":
            self.prepare()

    def _source(self) -> tuple[Job, Callable[[], tuple[Any, str]]]:
        """The job, and how to come by the weights and what they are called. Raises LookupError with words."""
        window = self._window
        run, thread = window.newest_weights.run, window.session.thread
        if self._key == NEWEST and run is not None and thread is not None:
            result, name = thread.result, f"newest weights of run {run.kept_number}"
            if result is None or result.state_dict is not None:
                return run.job, lambda: (thread.weights(), name)
        analysis = window.live.analysis
        if analysis is None or not window.live.up_to_date:
            raise LookupError("The network is still being checked. Try again in a moment.")
        if window.live.errors:
            first = window.live.errors[0]
            raise LookupError(f"The network cannot run yet: {first.message}. {first.reason}")
        job = preflight.job(window.document.project, analysis, str(window.settings.data_folder))
        if self._path is not None:
            path, name = self._path, self._name
            return job, lambda: (_read_weights(path), name)
        if self._key != NEWEST:
            return job, lambda: (None, "start weights")
        folder = window.runs_keeper.folder
        return job, lambda: _newest_kept(folder)

    # --- An evaluation

    def evaluate(self) -> None:
        """Hold the net against the samples that are chosen."""
        page = self._page
        part, augment = page.part.value(), page.augmented

        def work(evaluator: Evaluator, name: str, tell: Tell, stop: threading.Event) -> tuple[Any, ...]:
            def watch(done: int, total: int) -> None:
                tell(f"{done:,} of {total:,} samples")

            return (evaluator.evaluate(part, augment, watch, stop.is_set, name),)

        self._begin(work)

    def prepare(self) -> None:
        """Make the net ready to be tried."""
        self._begin(lambda evaluator, name, tell, stop: ())

    def _begin(self, work: Callable[[Evaluator, str, Tell, threading.Event], tuple[Any, ...]]) -> None:
        if self._errand is not None:
            return
        try:
            job, weights = self._source()
        except LookupError as error:
            self._page.refuse("Nothing to evaluate yet", str(error))
            return
        stop = self._stop = threading.Event()
        old, threads = self._evaluator, _threads()

        def run(tell: Tell) -> Prepared:
            import torch

            if threads:
                torch.set_num_threads(threads)
            tell("Reading weights and data…")
            given, name = weights()
            same = old is not None and (old.job.data, old.job.data_root) == (job.data, job.data_root)
            evaluator = Evaluator(job, given, old.data if old is not None and same else None)
            if stop.is_set():
                raise Cancelled
            return Prepared(evaluator, survey(evaluator, name), *work(evaluator, name, tell, stop))

        self._page.banner.hide()
        self._errand = Errand(run)
        self._errand.ended.connect(self._ended)
        self._errand.begin()
        self._page.set_busy("Reading weights and data…")
        self._timer.start()

    def _look(self) -> None:
        if self._errand is not None:
            self._page.set_busy(self._errand.progress or "Reading weights and data…")

    def cancel(self) -> None:
        """Break off after the batch under way."""
        self._stop.set()
        if self._errand is not None:
            self._errand.cancel()
        self._settle()

    def _settle(self) -> None:
        self._errand = None
        self._timer.stop()
        self._page.set_busy("")

    def _ended(self, answer: Prepared | Failure) -> None:
        self._settle()
        if isinstance(answer, Failure):
            if not isinstance(answer.error, Cancelled):
                self._page.refuse("Evaluation failed", str(answer.error))
            return
        self._evaluator = answer.evaluator
        self._page.trying.set_survey(answer.survey)
        if answer.found is not None:
            self._page.set_found(answer.found)

    # --- Samples

    def _read(self, numbers: list[int]) -> None:
        evaluator, found = self._evaluator, self._page.found
        if evaluator is None or found is None:
            return
        self._window.background.ask(
            "evaluation.samples", shown, evaluator, found, tuple(numbers[:SHOWN]),
            on_answer=self._page.show_samples, on_error=self._not_read,
        )  # fmt: skip

    def _not_read(self, failure: Failure) -> None:
        self._page.refuse("The samples cannot be shown", str(failure.error))

    def try_sample(self, number: int) -> None:
        """Give a sample of the evaluation to the net again, to see all of its answer."""
        evaluator, found = self._evaluator, self._page.found
        if evaluator is None or found is None:
            return
        name = f"{found.part.capitalize()} sample {number}"

        def read() -> Any:
            return evaluator.read(found.part, [number])[0][0].float().numpy()

        def take(values: Any) -> None:
            self._page.view.set_value("try")
            self._page.trying.show_sample(values, name)

        self._window.background.ask("evaluation.sample", read, on_answer=take, on_error=self._not_read)

    def _try(self, sample: Any) -> None:
        if self._evaluator is not None:
            self._window.background.ask(
                "evaluation.try", try_input, self._evaluator, sample, True,
                on_answer=self._answered, on_error=self._not_tried,
            )  # fmt: skip

    def _answered(self, answer: Answer) -> None:
        if self._page.trying.survey is not None:
            self._page.trying.show_answer(answer)

    def _not_tried(self, failure: Failure) -> None:
        self._page.refuse("The network rejected this input", str(failure.error))

    # --- Out

    def export(self, what: str) -> None:
        """Ask where to, and write the samples or the classes as CSV."""
        found, window = self._page.found, self._window
        if found is None:
            return
        start = window.settings.export_folder / f"{window.document.project.name}-{found.part}-{what}.csv"
        name, _ = QFileDialog.getSaveFileName(window, "Export the evaluation", str(start), "Numbers (*.csv)")
        if name:
            self.write(what, Path(name))

    def write(self, what: str, path: Path) -> None:
        found = self._page.found
        if found is None:
            return
        try:
            atomic.write_text(path, found.to_csv() if what == "samples" else found.classes_csv())
        except OSError as error:
            self._window.refuse(f"{path.name} could not be written", error.strerror or str(error))
            return
        self._window.say(f"Wrote {path.name}", str(path.parent))

    def _project_replaced(self, _project: object) -> None:
        """What was found is of another project, and so are the runs of this window so far."""
        self.cancel()
        self._evaluator = None
        self._page.view.set_value("results")
        self._page.trying.set_survey(None)
        self._page.set_found(None)
        self.choose(NEWEST)


def _newest_kept(folder: Path) -> tuple[Any, str]:
    """The weights of the newest run in a folder of runs, and what they are called. Raises CheckpointError, OSError."""
    newest = resume.newest_weights(folder)
    if newest is None:
        return None, "start weights, since there is no run yet"
    return checkpoint_weights(newest[0]), newest[1]


def _read_weights(path: Path) -> Any:
    """The weights of a checkpoint, or of a file of them. Raises CheckpointError, WeightsError."""
    from app.export.weights import load_weights
    from app.training.checkpoints.checkpoint import CheckpointError

    if path.suffix == ".pt":
        try:
            return checkpoint_weights(path)
        except CheckpointError as error:
            if "is not a checkpoint of a run" not in str(error):
                raise
    return load_weights(path)


def _threads() -> int | None:
    """As many as a run has, so that its numbers are the same."""
    count = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return count() if count else None
