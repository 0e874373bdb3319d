"""The page "Layer" follows the selection, the run and the drawing."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app import preflight
from app.training import inside
from app.training.inside import Inside
from app.training.job import Job
from app.training.orders import LookInside
from app.views.later import when_done

if TYPE_CHECKING:
    from app.builder.analysis import Analysis
    from app.views.main_window import MainWindow
    from app.views.training.session import Run

REST = 250  # after the selection has changed


class LayerControl(QObject):
    """Asks for the inside of the selected layer: of the run under way, of what it left, or of fresh weights."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window, self.page = window, window.layer_page
        self._sample = 0
        self._asked: Future | None = None
        self._again = False
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(REST)
        self._rest.timeout.connect(self.look)
        self.page.inside.wanted.connect(self._look_at)
        self.page.layerChosen.connect(self._chosen)
        window.network_selection.changed.connect(self._selected)
        window.session.runStarted.connect(self._run_started)
        window.session.progressed.connect(self.page.refresh)
        window.live.analysed.connect(self._analysed)
        window.runs.runChosen.connect(lambda run: self.page.set_history(run.history))
        window.bottom.pane.shown.connect(lambda _key: self._rest.start())
        if window.live.analysis is not None:
            self._analysed(window.live.analysis)

    def _analysed(self, analysis: Analysis) -> None:
        if analysis.source.modules:
            self.page.set_layers(tuple(dict.fromkeys(path for path in analysis.source.modules.values() if path)))

    def _run_started(self, run: Run) -> None:
        self.page.set_history(run.history)
        self._rest.start()

    def _selected(self, ids: frozenset[str], _origin: object) -> None:
        analysis = self._window.live.analysis
        paths = [analysis.source.modules.get(each, "") for each in ids] if analysis is not None else []
        if len(paths) == 1 and paths[0] and paths[0] != self.page.layer:
            self.page.show_layer(paths[0])
            self._rest.start()

    def _chosen(self, layer: str) -> None:
        analysis = self._window.live.analysis
        nodes = [node for node, path in analysis.source.modules.items() if path == layer] if analysis else []
        if nodes:
            self._window.network_selection.set(nodes[:1], self)
        self._rest.start()

    def _look_at(self, sample: int) -> None:
        self._sample = sample
        self.look()

    def look(self) -> None:
        """Ask for the pictures, if the page is in sight."""
        layer = self.page.layer
        if not layer or not self.page.isVisible():
            return
        if self._asked is not None:
            self._again = True
            return
        session = self._window.session
        if session.active and session.thread is not None:
            self._asked = session.thread.run_between_steps(LookInside(layer, self._sample))
            when_done(self._asked, self, self._answered, self._refused)
            return
        job, state, words = self._at_rest()
        if job is not None:
            self._window.background.ask(
                "inside", inside.of_weights, job, state, layer, self._sample, words,
                on_answer=self._show, on_error=lambda failure: self._fail(failure.error),
            )  # fmt: skip

    def _at_rest(self) -> tuple[Job | None, dict | None, str]:
        """The job, the weights and the words for a net that is not being trained."""
        window = self._window
        if window.live.torch is None or window.live.analysis is None or not window.live.up_to_date:
            return None, None, ""
        job = preflight.job(window.document.project, window.live.analysis, str(window.settings.data_folder))
        run, thread = window.session.current, window.session.thread
        result = thread.result if thread is not None else None
        same = run is not None and run.job.source.same_net(job.source)
        if same and result is not None and result.state_dict is not None:
            return job, result.state_dict, f"the weights after step {result.step:,}"
        return job, None, f"fresh weights, seed {job.training.seed}"

    def _answered(self, found: Inside) -> None:
        self._show(found)
        self._ask_again()

    def _refused(self, error: BaseException) -> None:
        self._fail(error)
        self._ask_again()

    def _ask_again(self) -> None:
        self._asked = None
        if self._again:
            self._again = False
            self.look()

    def _show(self, found: Inside) -> None:
        if found.layer == self.page.layer:
            self.page.inside.show_inside(found)

    def _fail(self, error: BaseException) -> None:
        self.page.inside.say(f"{type(error).__name__}: {error}")
