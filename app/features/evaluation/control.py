"""Controller of the page "Evaluation": resolves weights and samples, runs the evaluation, exports results."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec.structs import replace
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog

from app.data.config import DataConfig
from app.data.sources import spec_of
from app.data.spec import DataError
from app.engine.protocol import Handle, HandleLostError
from app.engine.requests.capture import InitialWeights
from app.features.evaluation import stored
from app.features.evaluation.page import EvaluationPage
from app.features.evaluation.values import (
    EvaluationScope,
    Image,
    NamedWeightsFile,
    NewestStored,
    Prediction,
    PreparedEvaluation,
    PrepareEvaluation,
    ReadSample,
    Sample,
    ShowSamples,
    TryInput,
    Weights,
)
from app.preflight import preflight
from app.project.weights.state_dict_diff import PATTERNS
from app.runs import store
from app.runs.checkpoint_files import checkpoints
from app.training.evaluation.result import Evaluation
from app.training.job import Job
from app.training_thread import TrainingThread
from app.util import atomic, leftovers
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.views.workspace import Workspace

KEY = "evaluation"
# The setting that holds samples out for a part, and the share that a click holds out.
FRACTIONS = {"validation": ("validation_fraction", 0.2), "test": ("test_fraction", 0.1)}
SHOWN = 60  # samples that are shown at once
RUNS = 5  # runs whose checkpoints are offered
NEWEST, START, FILE = "newest", "start", "file"
NOTHING = "Nothing to evaluate yet"
FILTER = f"Weights ({PATTERNS});;All files (*)"


def _holds_out_nothing(data: DataConfig, part: str) -> bool:
    """Return whether it is known that no samples are held out for a part."""
    name = FRACTIONS[part][0] if part in FRACTIONS else ""
    try:
        own_split = spec_of(data).own_split
    except DataError:
        return False
    return (
        bool(name)
        and not (own_split and part == "validation")
        and not getattr(data, name)
    )


class EvaluationControl(QObject):
    """Runs one evaluation at a time in the engine, independent of a training run."""

    def __init__(self, page: EvaluationPage, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._page, self._workspace = page, workspace
        self._busy = False
        self._net: Handle | None = None  # of the page "Try"
        self._evaluated: Handle | None = None  # the net of the newest evaluation
        self._newest: Evaluation | None = None
        self._read_run: Path | None = None  # whose stored evaluations were looked for
        self._folder = (
            leftovers.TemporaryFolder()
        )  # weights of a run, as they were for an evaluation
        self._key = NEWEST
        self._path: Path | None = None  # of weights chosen from a file
        self._name = ""
        page.evaluateRequested.connect(self.evaluate)
        page.preparationRequested.connect(self.prepare)
        page.cancelRequested.connect(self.cancel)
        page.exportRequested.connect(self.export)
        page.wanted.connect(self._read)
        page.sampleOpened.connect(self.try_sample)
        page.trying.prediction_requested.connect(self._try)
        page.trying.refused.connect(workspace.notifier.refuse)
        page.weights_menu.aboutToShow.connect(self._list_weights)
        page.weights_menu.triggered.connect(
            lambda action: self._choose(str(action.data()), action.text())
        )
        workspace.document.replaced.connect(self._project_replaced)
        workspace.runs_keeper.listed.connect(lambda _runs: self._show_run())
        workspace.session.runStarted.connect(lambda _run: self._show_run())
        self._show_run()

    def _show_run(self) -> None:
        newest = self._workspace.newest_weights
        self._page.set_run(newest.title)
        folder = newest.stored.folder if newest.stored is not None else None
        if folder not in (None, self._read_run) and not self._page.evaluations:
            self._read_run = folder
            self._workspace.background.ask(
                "evaluation.stored", stored.read, folder, on_answer=self._show_stored
            )

    def _show_stored(self, evaluations: dict[str, Evaluation]) -> None:
        if evaluations and not self._page.evaluations:
            self._page.set_stored(evaluations)

    # --- Weights

    def _list_weights(self) -> None:
        choices = [(NEWEST, "Newest weights"), (START, "Start weights")]
        for stored_run in store.listed(self._workspace.runs_keeper.folder)[:RUNS]:
            saved = checkpoints(stored_run)
            if saved:
                choices.append(("", ""))
            choices += [
                (str(checkpoint.path), f"{stored_run.record.title}: {checkpoint.label}")
                for checkpoint in saved
            ]
        choices += [("", ""), (FILE, "From a file…")]
        self._page.set_weights(
            choices, self._key if self._path is None else str(self._path)
        )

    def _choose(self, key: str, label: str) -> None:
        if key == FILE:
            folder = str(self._workspace.settings.export_folder)
            name, _ = QFileDialog.getOpenFileName(
                self._workspace.window, "Weights to evaluate", folder, FILTER
            )
            if not name:
                return
            key, label = name, Path(name).name
        self.choose(key, label)

    def choose(self, key: str, label: str = "") -> None:
        """Other weights: "newest", "start", or the path of a file of weights or of a checkpoint."""
        preset = key in (NEWEST, START)
        self._key, self._path = key, None if preset else Path(key)
        self._name = label or ("" if preset else Path(key).name)
        self._page.weights.setText(
            self._name or {NEWEST: "Newest weights", START: "Start weights"}[key]
        )
        if self._page.view.value() == "try":
            self.prepare()

    def _source(self) -> tuple[Job, Weights | TrainingThread, str]:
        """Return the job, and its weights or the run that has them, and what these are called.

        Raises LookupError with words.
        """
        workspace = self._workspace
        if (of_run := self._of_run()) is not None:
            return of_run
        analysis = workspace.live.analysis
        assert analysis is not None
        if workspace.live.errors:
            first = workspace.live.errors[0]
            raise LookupError(
                f"The network cannot run yet: {first.message}. {first.reason}"
            )
        job = preflight.job(
            workspace.document.project, analysis, str(workspace.settings.data_folder)
        )
        if self._path is not None:
            return job, NamedWeightsFile(self._path, self._name), self._name
        newest = self._key == NEWEST
        return (
            job,
            NewestStored(workspace.runs_keeper.folder) if newest else InitialWeights(),
            "",
        )

    def _of_run(self) -> tuple[Job, TrainingThread, str] | None:
        """Return the job and run of this window that has the chosen weights, None if no run has."""
        run, thread = (
            self._workspace.newest_weights.run,
            self._workspace.session.training_thread,
        )
        if self._key != NEWEST or run is None or thread is None:
            return None
        if thread.result is not None and thread.result.state_dict is None:
            return None
        return run.job, thread, f"newest weights of run {run.display_number}"

    def _folder_of_run(self) -> Path | None:
        run = self._workspace.newest_weights.run
        recorder = run.recorder if run is not None else None
        return recorder.kept.folder if recorder is not None else None

    # --- An evaluation

    def evaluate(self) -> None:
        """Hold the net against the samples that are chosen."""
        self._start(
            EvaluationScope(self._page.part.value(), tuple(self._page.augmented))
        )

    def predict(self) -> None:
        """Show the page where an input is entered, and give it the keys."""
        self._workspace.pages.show("evaluation")
        self._page.show_try()

    def prepare(self) -> None:
        """Make the net ready to be tried."""
        self._start(None)

    def _start(self, scope: EvaluationScope | None) -> None:
        if self._busy:
            return
        live, start = self._workspace.live, partial(self._start_checked, scope)
        if self._of_run() is not None:
            start()
            return
        if live.unfinished is not None:
            self._busy = True
            self._page.set_busy(f"{live.unfinished[0]}…", scope is not None)
        live.when_checked(KEY, start, self._not_checked)

    def _not_checked(self, reason: str) -> None:
        self._settle()
        self._page.refuse(NOTHING, reason)

    def _start_checked(self, scope: EvaluationScope | None) -> None:
        self._settle()
        try:
            job, weights, name = self._source()
        except LookupError as error:
            self._page.refuse(NOTHING, str(error))
            return
        self._page.banner.hide()
        if scope is not None and _holds_out_nothing(job.data, scope.part):
            self._refuse_part(scope.part)
            return
        self._busy = True
        self._page.set_busy("Reading weights and data…", scope is not None)
        if not isinstance(weights, TrainingThread):
            self._request_preparation(PrepareEvaluation(job, weights, scope))
            return
        # A run writes its current weights between two of its steps.
        file = Path(self._folder.name) / f"{uuid4().hex}.pt"
        self._workspace.background.ask(
            KEY,
            weights.write_weights,
            file,
            on_answer=lambda _none: self._request_preparation(
                PrepareEvaluation(
                    job, NamedWeightsFile(file, name, self._folder_of_run()), scope
                )
            ),
            on_error=self._failed,
        )

    def _refuse_part(self, part: str) -> None:
        """Say that a part has no samples, with the click that holds some out, or trains a run without them."""
        name, share = FRACTIONS[part]
        if not _holds_out_nothing(self._workspace.document.project.data, part):
            self._page.refuse(
                f"These weights were trained before samples were held out for {part}",
                "They may have learnt from them. Train again, then evaluate that run.",
                "Run",
                lambda: self._workspace.commands.trigger("run"),
            )
            return
        self._page.refuse(
            f"No samples are held out for {part}",
            f"{name} (Training, Data) is 0. A run does not learn from samples that are held out.",
            f"Hold out {round(100 * share)} % for {part}",
            partial(self.hold_out, part),
        )

    def hold_out(self, part: str) -> None:
        """Hold samples out for a part from the next run on, and evaluate on them."""
        document, (name, share) = self._workspace.document, FRACTIONS[part]
        data = replace(document.project.data, **{name: share})
        document.apply(
            f"Hold out {round(100 * share)} % for {part}",
            replace(document.project, data=data),
        )
        self.evaluate()

    def _request_preparation(self, request: PrepareEvaluation) -> None:
        self._workspace.engine.ask(
            KEY,
            request,
            on_answer=self._prepared,
            on_error=self._failed,
            on_progress=partial(
                self._page.set_busy, evaluates=request.scope is not None
            ),
        )

    def cancel(self) -> None:
        """Cancel after the current batch."""
        for requests in (
            self._workspace.live,
            self._workspace.background,
            self._workspace.engine,
        ):
            requests.forget(KEY)
        self._settle()

    def _settle(self) -> None:
        self._busy = False
        self._page.set_busy("")
        for file in Path(self._folder.name).iterdir():
            file.unlink(missing_ok=True)

    def _failed(self, failure: WorkerFailure) -> None:
        self._settle()
        self._page.refuse("Evaluation failed", failure.message)

    def _prepared(self, answer: PreparedEvaluation) -> None:
        self._settle()
        self._keep(answer.net, self._evaluated if answer.found is None else answer.net)
        self._page.trying.set_survey(answer.survey)
        if answer.found is not None:
            self._newest = answer.found
            self._page.set_found(answer.found)

    def _keep(self, net: Handle | None, evaluated: Handle | None) -> None:
        """Set the net to try and the one whose evaluation is shown, and release the handles of others."""
        before = {self._net, self._evaluated}
        self._net, self._evaluated = net, evaluated
        for handle in before - {net, evaluated, None}:
            assert handle is not None
            self._workspace.engine.release(handle)

    # --- Samples

    def _read(self, numbers: list[int]) -> None:
        is_there = self._evaluated is not None and self._page.found is self._newest
        self._page.show_unread(not is_there)
        if self._evaluated is not None and is_there:
            self._workspace.engine.ask(
                "evaluation.samples",
                ShowSamples(self._evaluated, tuple(numbers[:SHOWN])),
                on_answer=self._page.show_samples,
                on_error=self._not_read,
            )

    def _not_read(self, failure: WorkerFailure) -> None:
        cure = " Evaluate again." * isinstance(failure.error, HandleLostError)
        self._page.refuse("The samples cannot be shown", f"{failure.message}{cure}")

    def try_sample(self, number: int) -> None:
        """Predict on a sample of the evaluation again, to show the whole output."""
        evaluation = self._page.found
        if self._evaluated is None or evaluation is None:
            return
        name = f"{evaluation.part.capitalize()} sample {number}"

        def take(values: Image | Mapping[str, Image]) -> None:
            self._page.view.set_value("try")
            self._page.trying.show_sample(values, name)

        request = ReadSample(self._evaluated, number)
        self._workspace.engine.ask(
            "evaluation.sample", request, on_answer=take, on_error=self._not_read
        )

    def _try(self, sample: Sample) -> None:
        if self._net is not None:
            self._workspace.engine.ask(
                "evaluation.try",
                TryInput(self._net, sample),
                on_answer=self._show_answer,
                on_error=self._not_tried,
            )

    def _show_answer(self, answer: Prediction) -> None:
        if self._page.trying.survey is not None:
            self._page.trying.show_answer(answer)

    def _not_tried(self, failure: WorkerFailure) -> None:
        if isinstance(
            failure.error, HandleLostError
        ):  # prepare the net in the new engine, which repeats the request
            self._net = None
            self.prepare()
            return
        unreadable = isinstance(failure.error, DataError)
        title = (
            "The image could not be used"
            if unreadable
            else "The network rejected this input"
        )
        self._page.refuse(title, failure.message)

    # --- Out

    def export(self, table: str) -> None:
        """Ask for a file, and write the samples or the classes as CSV."""
        evaluation, workspace = self._page.found, self._workspace
        if evaluation is None:
            return
        start = (
            workspace.settings.export_folder
            / f"{workspace.document.title}-{evaluation.part}-{table}.csv"
        )
        name, _ = QFileDialog.getSaveFileName(
            workspace.window, "Export the evaluation", str(start), "Numbers (*.csv)"
        )
        if name:
            self.write(table, Path(name))

    def write(self, table: str, path: Path) -> None:
        evaluation = self._page.found
        if evaluation is None:
            return
        try:
            atomic.write_text(
                path,
                evaluation.to_csv() if table == "samples" else evaluation.classes_csv(),
            )
        except OSError as error:
            self._workspace.notifier.refuse(
                f"{path.name} could not be written", error.strerror or str(error)
            )
            return
        self._workspace.notifier.say(f"Wrote {path.name}", str(path.parent))

    def _project_replaced(self, _project: object) -> None:
        """Reset the page: results and runs belong to the previous project."""
        self.cancel()
        self._keep(None, None)
        self._newest = self._read_run = None
        self._workspace.background.forget("evaluation.stored")
        self._page.view.set_value("results")
        self._page.trying.reset()
        self._page.set_found(None)
        self.choose(NEWEST)
