"""The page "Playground" follows the run, or the newest weights, while it is in front."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Qt, QTimer

from app.data.sources import DataError, spec_of
from app.engine.requests.capture import WeightsChoice
from app.features.playground.page import NOTHING, PlaygroundPage
from app.features.playground.values import MapPlane, MapPlaneOfWeights, Plane
from app.preflight import preflight
from app.util.leftovers import TemporaryFolder
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.views.workspace import Workspace

KEY = "playground"
SIZE = 80  # points a side
FRAME = 0.033  # s between two planes at least
LOOK = 8  # ms between two looks whether a plane is there
SHARE = 0.1  # of the time of a run that its planes may take
REST = 200  # ms after the net has changed
TITLE = "No plane"


def has_plane(workspace: Workspace) -> bool:
    """Return whether the data of the project are two numbers a sample."""
    try:
        spec = spec_of(workspace.document.project.data)
    except DataError:
        return False
    return spec.shape == (2,) and not spec.inputs


class PlaygroundControl(QObject):
    """Asks for planes: of the active run, as often as it may cost SHARE of it, else once of the newest weights."""

    def __init__(self, workspace: Workspace, page: PlaygroundPage) -> None:
        super().__init__(page)
        self._workspace, self.page = workspace, page
        self._asked: Future[Any] | None = None
        self._folder = TemporaryFolder()
        self._next = QTimer(self, singleShot=True)
        self._next.setTimerType(Qt.TimerType.PreciseTimer)
        self._next.timeout.connect(self._ask_run)
        self._looks = QTimer(self, interval=LOOK)
        self._looks.setTimerType(Qt.TimerType.PreciseTimer)
        self._looks.timeout.connect(self._look)
        self._rest = QTimer(self, singleShot=True, interval=REST)
        self._rest.timeout.connect(self.request)
        page.layer.edited.connect(lambda _layer: self.request())
        workspace.session.stateChanged.connect(lambda _state: self._follow())
        workspace.pages.shown.connect(lambda _key: self._follow())
        workspace.hearers.add(self._net_changed, later=True)
        workspace.document.replaced.connect(lambda _project: self._replaced())
        self._net_changed()
        self._follow()

    def _net_changed(self) -> None:
        analysis = self._workspace.live.analysis
        if analysis is not None and not analysis.partial:
            self.page.set_layers(list(analysis.source.modules.values()))
        self._rest.start()

    def _replaced(self) -> None:
        self._workspace.engine.forget(KEY)
        self.page.show_reason(*NOTHING)
        self._rest.start()

    def _follow(self) -> None:
        """Ask again and again while a run is active and the page is seen, else once."""
        if self._workspace.session.active:
            self._ask_run()
        else:
            self._next.stop()
            self._rest.start()

    def request(self) -> None:
        """Ask for the plane that is to be seen now."""
        if not self.page.isVisible():
            return
        if self._workspace.session.active:
            self._ask_run()
        else:
            self._ask_weights()

    def _ask_run(self) -> None:
        session = self._workspace.session
        thread = session.training_thread
        if self._asked is None and self.page.isVisible() and thread is not None:
            request = MapPlane(SIZE, self.page.layer.value())
            self._asked = thread.run_between_steps(request)
            self._looks.start()

    def _look(self) -> None:
        """Show the plane of the run once it is there, and have the next one when its time has come."""
        answer = self._asked
        if answer is None or not answer.done():
            return
        self._asked = None
        self._looks.stop()
        if answer.cancelled() or answer.exception() is not None:
            self._refused(None if answer.cancelled() else answer.exception())
            return
        plane: Plane = answer.result()
        self._show(plane, f"Step {plane.step:,}")
        if self._workspace.session.active:
            pause = max(FRAME, plane.seconds * (1 / SHARE - 1))
            self._next.start(round(1000 * pause))

    def _refused(self, error: BaseException | None) -> None:
        """Show why the net has no plane; a run that has ended gives way to its weights."""
        if isinstance(error, ValueError):
            self.page.show_reason(TITLE, str(error))
        else:
            self._rest.start()

    def _ask_weights(self) -> None:
        workspace = self._workspace
        live = workspace.live
        if live.torch is None or live.analysis is None or not live.up_to_date:
            return
        project = workspace.document.project
        if not project.graph.nodes and project.opened is None:
            self.page.show_reason(*NOTHING)
            return
        if live.errors or not live.analysis.runnable:
            self.page.show_reason(TITLE, "The network has errors: see Problems.")
            return
        job = preflight.job(
            project,
            live.analysis,
            str(workspace.settings.data_folder),
        )
        layer, folder = self.page.layer.value(), Path(self._folder.name)

        def ask(weights: WeightsChoice) -> None:
            workspace.engine.ask(
                KEY,
                MapPlaneOfWeights(job, weights, SIZE, layer),
                on_answer=lambda plane: self._show(plane, "The newest weights"),
                on_error=self._failed,
            )

        weights = workspace.newest_weights.choice(job.source, folder)
        workspace.background.ask(KEY, weights, on_answer=ask, on_error=self._failed)

    def _failed(self, failure: WorkerFailure) -> None:
        self.page.show_reason(TITLE, failure.message)

    def _show(self, plane: Plane, weights: str) -> None:
        try:
            columns = spec_of(self._workspace.document.project.data).columns
        except DataError:
            columns = ()
        names = (columns[0], columns[1]) if len(columns) == 2 else ("x", "y")
        self.page.show_plane(plane, names, weights)
