"""The page "Layer" follows the selection, the run and the drawing."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app.engine.requests.capture import WeightsFile
from app.features.layer.cards import CHOOSE
from app.features.layer.page import LayerPage
from app.features.layer.values import LookIntoStep, ReadActivations
from app.preflight import preflight
from app.training.monitoring.looks import LayerInside, StepLayer
from app.training.run_requests import LookInside
from app.util.leftovers import TemporaryFolder
from app.views.shown_run import Figures, RecomputedStep
from app.views.ui.background import WorkerFailure
from app.views.ui.deferred_answer import when_done
from app.views.ui.present import present

if TYPE_CHECKING:
    from app.views.run.session import Run
    from app.views.workspace import Workspace

INSIDE, PAST = "inside", "inside of a past step"
OF_SCRIPT = "A script reports gradient norms, no values of its layers."
REST = 250  # after the selection has changed


class LayerControl(QObject):
    """Requests activations and filters of the selected layer: of the recomputed step, of the active run, of the newest
    weights, or of fresh ones."""

    def __init__(self, workspace: Workspace, page: LayerPage) -> None:
        super().__init__(workspace.window)
        self._workspace, self.page = workspace, page
        self._sample = 0
        self._past: RecomputedStep | None = None
        self._folder = TemporaryFolder()  # weights of a run at an inspected step
        self._asked: Future | None = None
        self._again = False
        self._rest = QTimer(self, singleShot=True, interval=REST)
        self._rest.timeout.connect(self.request)
        self.page.inside.wanted.connect(self._show_sample)
        self.page.layerChosen.connect(self._chosen)
        workspace.network_selection.changed.connect(self._selected)
        workspace.session.runStarted.connect(self._run_started)
        workspace.session.progressed.connect(self.page.refresh)
        workspace.hearers.add(self._show_layers, later=True)
        workspace.shown_run.changed.connect(self._show)
        workspace.shown_run.stepped.connect(lambda _step: self._step_changed())
        workspace.shown_run.past_changed.connect(lambda _past: self._step_changed())
        page.recomputeRequested.connect(
            lambda step: workspace.commands.trigger("recompute-step", step)
        )
        page.batchRequested.connect(lambda: workspace.commands.trigger("batch-of-step"))
        page.newestRequested.connect(lambda: workspace.shown_run.choose_step(None))
        workspace.document.replaced.connect(self._replaced)
        workspace.pages.shown.connect(lambda _key: self._rest.start())
        self._show_layers()
        run, shown = workspace.newest_weights.run, workspace.shown_run.figures
        if shown is not None or run is not None:
            self._show(shown or present(run).figures)
        self._selected(workspace.network_selection.ids, self)
        self._step_changed()
        self._rest.start()

    # -- the shown run ------------------------------------------------------------------------------------------------

    def _show(self, figures: Figures | None) -> None:
        if figures is not None and not figures.beside:
            self.page.set_history(figures.history, figures.title)

    def _replaced(self, _project: object) -> None:
        """Clear what was shown of another project."""
        self._workspace.background.forget(INSIDE)
        self._workspace.engine.forget(INSIDE)
        self.page.set_history(None)
        self.page.set_layers(())
        self.page.show_layer("")
        self.page.inside.show_reason(CHOOSE)

    def _step_changed(self) -> None:
        """Follow the chosen step: what the engine holds of it is shown, else the newest."""
        shown = self._workspace.shown_run
        past, figures = shown.past, shown.figures
        self.page.set_step(
            shown.step,
            past.label if past is not None else "",
            figures is not None and figures.folder is not None,
        )
        self._workspace.engine.forget(PAST)
        if past is not self._past:  # the newest stays while steps are scrubbed
            self._past = past
            if past is None:
                self.page.inside.show_reason(
                    f"Computing {self.page.layer}…" if self.page.layer else CHOOSE
                )
            self._rest.start()

    # -- the layer ----------------------------------------------------------------------------------------------------

    def _show_layers(self) -> None:
        analysis, opened = (
            self._workspace.live.analysis,
            self._workspace.document.project.opened,
        )
        if opened is not None:
            self.page.set_layers(
                tuple(path for path in opened.interface.modules if path)
            )
        elif analysis is not None and analysis.source.modules:
            self.page.set_layers(
                tuple(
                    dict.fromkeys(
                        path for path in analysis.source.modules.values() if path
                    )
                )
            )

    def _run_started(self, run: Run) -> None:
        if self._workspace.session.takes_over(self._workspace.shown_run.figures):
            self._show(run.figures)
        if self._workspace.run_control.shows_script:
            self.page.inside.show_reason(OF_SCRIPT)
        self._rest.start()

    def _selected(self, ids: frozenset[str], _origin: object) -> None:
        analysis = self._workspace.live.analysis
        paths = (
            [analysis.source.modules.get(node_id, "") for node_id in ids]
            if analysis is not None
            else []
        )
        if len(paths) == 1 and paths[0] and paths[0] != self.page.layer:
            self.page.show_layer(paths[0])
            self._rest.start()

    def choose(self, path: str) -> None:
        """Show a module of an opened model."""
        if path and path != self.page.layer:
            self.page.show_layer(path)
            self._rest.start()

    def _chosen(self, layer: str) -> None:
        analysis = self._workspace.live.analysis
        nodes = (
            [node for node, path in analysis.source.modules.items() if path == layer]
            if analysis
            else []
        )
        if nodes:
            self._workspace.network_selection.set(nodes[:1], self)
        self._rest.start()

    def _show_sample(self, sample: int) -> None:
        self._sample = sample
        self.request()

    def request(self) -> None:
        """Request the pictures, if the page is visible."""
        layer = self.page.layer
        if not layer or not self.page.isVisible():
            return
        if self._past is not None:
            self._ask_past(self._past, layer)
            return
        if self._asked is not None:
            self._again = True
            return
        if self.page.inside.inside is None:
            self.page.inside.show_reason(f"Computing {layer}…")
        session = self._workspace.session
        if session.active and session.training_thread is not None:
            self._asked = session.training_thread.run_between_steps(
                LookInside(layer, self._sample)
            )
            when_done(self._asked, self, self._on_answer, self._refused)
            return
        workspace = self._workspace
        if (
            workspace.live.torch is None
            or workspace.live.analysis is None
            or not workspace.live.up_to_date
        ):
            return
        job = preflight.job(
            workspace.document.project,
            workspace.live.analysis,
            str(workspace.settings.data_folder),
        )
        sample, folder = self._sample, Path(self._folder.name)
        workspace.background.ask(
            INSIDE,
            workspace.newest_weights.choice(job.source, folder),
            on_answer=lambda weights: self._ask_engine(
                ReadActivations(job, weights, layer, sample)
            ),
            on_error=lambda failure: self._fail(failure.error),
        )

    def _ask_past(self, past: RecomputedStep, layer: str) -> None:
        """Ask for the layer at the step that was recomputed."""

        def show(step_layer: StepLayer) -> None:
            if step_layer.inside.layer == self.page.layer and past is self._past:
                self.page.values.show_past(step_layer)
                self.page.inside.show_past(step_layer)

        self._workspace.engine.ask(
            PAST,
            LookIntoStep(past.handle, layer, self._sample),
            on_answer=show,
            on_error=lambda failure: self._fail(failure.error),
        )

    def _ask_engine(self, request: ReadActivations) -> None:
        file = (
            Path(request.weights.path)
            if isinstance(request.weights, WeightsFile)
            else None
        )
        for older in Path(self._folder.name).glob(
            "*.pt"
        ):  # of questions that this one takes the place of
            if older != file:
                older.unlink(missing_ok=True)

        def show(layer_inside: LayerInside) -> None:
            _remove(file)
            self._show_inside(layer_inside)

        def fail(failure: WorkerFailure) -> None:
            _remove(file)
            self._fail(failure.error)

        self._workspace.engine.ask(INSIDE, request, on_answer=show, on_error=fail)

    def _on_answer(self, layer_inside: LayerInside) -> None:
        self._show_inside(layer_inside)
        self._ask_again()

    def _refused(self, error: BaseException) -> None:
        self._fail(error)
        self._ask_again()

    def _ask_again(self) -> None:
        self._asked = None
        if self._again:
            self._again = False
            self.request()

    def _show_inside(self, layer_inside: LayerInside) -> None:
        if layer_inside.layer == self.page.layer and self._past is None:
            self.page.inside.show_inside(layer_inside)

    def _fail(self, error: BaseException) -> None:
        self.page.inside.show_reason(f"{type(error).__name__}: {error}")


def _remove(file: Path | None) -> None:
    if file is not None:
        file.unlink(missing_ok=True)
