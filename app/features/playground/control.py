"""The page "Playground" follows the run, or the newest weights, while it or the overlay "Units" is in front."""

from __future__ import annotations

import math
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from PySide6.QtCore import QObject, Qt, QTimer

from app.builder.edits import edits
from app.builder.rules import downstream
from app.data.config import DataConfig
from app.data.own_points import MOST, OwnPoint, points_of, text_of
from app.data.sources import DataError, spec_of
from app.data.spec import SourceSpec
from app.engine.protocol import Request
from app.engine.requests.capture import WeightsChoice
from app.features.playground.page import NOTHING, PlaygroundPage
from app.features.playground.pictures import class_image, unit_images
from app.features.playground.values import (
    Filters,
    MapPlane,
    MapPlaneOfWeights,
    Plane,
    PlaneAsked,
    ShowFilters,
    ShowFiltersOfWeights,
)
from app.preflight import preflight
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.util.language import marked, tr
from app.util.leftovers import TemporaryFolder
from app.views.ui import theme
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.training.job import Job
    from app.views.workspace import Workspace

KEY = "playground"
OWN = "made.own"
UNITS = "Units"  # the overlay
SIZE, LEAST_SIZE = 80, 32  # points a side; during a run as many as GOAL leaves time for
REACH = 1.0  # of the plane of own points, at least
FRAME = 0.033  # s from asking for a plane to asking for the next one at least
GOAL = 0.05  # s from one plane to the next that the number of points is chosen for
LOOK = 8  # ms between two looks whether a plane is there
SHARE = 0.1  # of the time of a run that its planes may take
LEAST_BUSY = 0.1  # of a processor that a run is taken to have
REST = 200  # ms after the net has changed
TITLE = marked("No plane")
LINEAR = "nn.Linear"


def spec_in(project: Project) -> SourceSpec | None:
    """Return what the data of a project are, None where that is not known."""
    try:
        return spec_of(project.data)
    except DataError:
        return None


def has_plane(project: Project) -> bool:
    """Return whether the data of a project are two numbers a sample."""
    spec = spec_in(project)
    if spec is None:
        return project.data.source == OWN
    return spec.shape == (2,) and not spec.inputs


def has_filters(project: Project) -> bool:
    """Return whether the data of a project are pictures, and its net has a convolution."""
    spec = spec_in(project)
    nodes = project.graph.nodes.values()
    is_picture = spec is not None and len(spec.shape) == 3 and not spec.inputs
    return is_picture and any(node.op == "nn.Conv2d" for node in nodes)


def hidden_layers(project: Project) -> list[str]:
    """Return the linear layers that another one follows."""
    graph = project.graph
    linear = [node.id for node in graph.nodes.values() if node.op == LINEAR]
    return [
        node
        for node in linear
        if not downstream(graph, [node]).isdisjoint({*linear} - {node})
    ]


def size_for(size: int, seconds: float) -> int:
    """Return the points a side of the next plane, so that it may be one in GOAL within SHARE of the run; one of `size`
    took so many seconds.

    >>> size_for(80, 0.001), size_for(80, 0.02), size_for(80, 9.0)
    (80, 40, 32)
    """
    fitting = size * math.sqrt(GOAL * SHARE / max(seconds, 1e-6))
    return int(min(SIZE, max(LEAST_SIZE, fitting))) // 2 * 2


class PlaygroundControl(QObject):
    """Asks for planes or filters: of the active run, as often as it may cost SHARE of it, else once of the newest
    weights."""

    def __init__(self, workspace: Workspace, page: PlaygroundPage) -> None:
        super().__init__(page)
        self._workspace, self.page = workspace, page
        self._asked: Future[Any] | None = None
        self._asked_at = 0.0
        self._shown_at = 0.0
        self._clock = 0.0  # of the run's thread at the last plane
        self._size = SIZE
        self._again = False  # a run is to begin once the one before has ended
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
        page.view.drawn.connect(self._draw)
        page.view.erased.connect(self._erase)
        page.drawing_wanted.connect(self._begin_drawing)
        page.cleared.connect(lambda: self._set_points("Erase all points", ()))
        page.restart_wanted.connect(self.start_anew)
        page.rate.moved.connect(self._set_rate)
        page.noise.moved.connect(self._set_noise)
        page.widths.moved.connect(self._set_width)
        workspace.session.stateChanged.connect(lambda _state: self._follow())
        workspace.pages.shown.connect(lambda _key: self._follow())
        workspace.overlays.changed.connect(lambda _name: self._overlay_chosen())
        workspace.hearers.add(self._net_changed, later=True)
        workspace.document.replaced.connect(lambda _project: self._replaced())
        workspace.document.changed.connect(lambda *_: self._show_settings())
        theme.manager().changed.connect(self._rest.start)
        self._show_settings()
        self._net_changed()
        self._follow()

    # --- What is followed

    def _net_changed(self) -> None:
        analysis = self._workspace.live.analysis
        if analysis is not None and not analysis.partial:
            self.page.set_layers(list(analysis.source.modules.values()))
        self._rest.start()

    def _replaced(self) -> None:
        self._workspace.engine.forget(KEY)
        self._workspace.overlays.draw_pictures({})
        self.page.show_reason(*map(tr, NOTHING))
        self._rest.start()

    def _overlay_chosen(self) -> None:
        if self._workspace.overlays.chosen != UNITS:
            self._workspace.overlays.draw_pictures({})
        self._follow()

    def _follow(self) -> None:
        """Ask again and again while a run is active and its planes are seen, else once."""
        if self._workspace.session.active:
            self._ask_run()
        elif self._again:
            self._again = False
            self._workspace.run_control.run()
        else:
            self._next.stop()
            self._rest.start()

    @property
    def _draws_units(self) -> bool:
        """Whether the nodes on the canvas show what their units say."""
        workspace = self._workspace
        return workspace.overlays.chosen == UNITS and workspace.pages.is_front(
            "network"
        )

    @property
    def _is_seen(self) -> bool:
        return self.page.isVisible() or self._draws_units

    def request(self) -> None:
        """Ask for what is to be seen now."""
        if not self._is_seen:
            return
        if self._workspace.session.active:
            self._ask_run()
        else:
            self._ask_weights()

    @property
    def _plane_asked(self) -> PlaneAsked:
        own = self._workspace.document.project.data.source == OWN
        layer = self.page.layer.value()
        size = self._size if self._workspace.session.active else SIZE
        return PlaneAsked(size, layer, self._draws_units, REACH if own else 0.0)

    @property
    def _shows_filters(self) -> bool:
        return has_filters(self._workspace.document.project)

    def _ask_run(self) -> None:
        thread = self._workspace.session.training_thread
        if self._asked is None and self._is_seen and thread is not None:
            self._asked_at = monotonic()
            self._asked = thread.run_between_steps(
                ShowFilters() if self._shows_filters else MapPlane(self._plane_asked)
            )
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
        plane: Plane | Filters = answer.result()
        self._show(plane, tr("Step {step:,}", step=plane.step))
        if self._workspace.session.active:
            self._next.start(round(1000 * self._pause(plane)))

    def _pause(self, plane: Plane | Filters) -> float:
        """Return the seconds until the next question. Planes may take SHARE of what the run has of a processor, which
        is less than the time that passes where other programs keep it busy."""
        now = monotonic()
        passed, self._shown_at = now - self._shown_at, now
        worked, self._clock = plane.clock - self._clock, plane.clock
        busy = min(1.0, worked / passed) if worked > 0 < passed else 1.0
        cost = plane.seconds / max(busy, LEAST_BUSY)
        if isinstance(plane, Plane):
            self._size = size_for(len(plane.outputs), cost)
        period = max(FRAME, cost / SHARE)
        return max(0.0, period - (now - self._asked_at))

    def _refused(self, error: BaseException | None) -> None:
        """Show why the net has no plane; a run that has ended gives way to its weights."""
        if isinstance(error, ValueError):
            self.page.show_reason(tr(TITLE), str(error))
        else:
            self._rest.start()

    def _ask_weights(self) -> None:
        workspace = self._workspace
        live = workspace.live
        if live.torch is None or live.analysis is None or not live.up_to_date:
            return
        project = workspace.document.project
        if not project.graph.nodes and project.opened is None:
            self._show_nothing(*map(tr, NOTHING))
            return
        if live.errors or not live.analysis.runnable:
            self._show_nothing(tr(TITLE), tr("The network has errors: see Problems."))
            return
        job = preflight.job(
            project,
            live.analysis,
            str(workspace.settings.data_folder),
        )
        folder = Path(self._folder.name)
        weights = workspace.newest_weights.choice(job.source, folder)
        workspace.background.ask(
            KEY,
            weights,
            on_answer=lambda chosen: self._ask_engine(job, chosen),
            on_error=self._failed,
        )

    def _ask_engine(self, job: Job, weights: WeightsChoice) -> None:
        request: Request[Any] = MapPlaneOfWeights(job, weights, self._plane_asked)
        if self._shows_filters:
            request = ShowFiltersOfWeights(job, weights)
        self._workspace.engine.ask(
            KEY,
            request,
            on_answer=lambda answer: self._show(answer, tr("The newest weights")),
            on_error=self._failed,
        )

    # --- What is shown

    def _show_nothing(self, title: str, reason: str) -> None:
        self._workspace.overlays.draw_pictures({})
        self.page.show_reason(title, reason)

    def _failed(self, failure: WorkerFailure) -> None:
        self._show_nothing(tr(TITLE), failure.message)

    def _show(self, answer: Plane | Filters, weights: str) -> None:
        if isinstance(answer, Filters):
            self.page.show_filters(answer, f"{answer.layer} · {weights}")
            return
        spec = spec_in(self._workspace.document.project)
        columns = spec.columns if spec is not None else ()
        names = (columns[0], columns[1]) if len(columns) == 2 else ("x", "y")
        self.page.show_plane(answer, names, weights)
        if self._draws_units:
            self._draw_units(answer)

    def _draw_units(self, plane: Plane) -> None:
        """Draw in each node what its first units say of the plane, in the Output what the net says."""
        workspace, now = self._workspace, theme.current()
        analysis = workspace.live.analysis
        if analysis is None or workspace.place.path:
            return
        pictures = {
            node: unit_images(plane.inside[path], now.series, now.plot)
            for node, path in analysis.source.modules.items()
            if path in plane.inside
        }
        whole = [class_image(plane, now.series, now.plot)]
        nodes = workspace.document.project.graph.nodes.values()
        pictures |= {node.id: whole for node in nodes if node.op == "output"}
        workspace.overlays.draw_pictures(pictures)

    def _show_settings(self) -> None:
        """Put the sliders where the project is, and its own points on the plane."""
        project, page = self._workspace.document.project, self.page
        lr = project.training.optimizer.params.get("lr")
        page.rate.show_value(float(lr) if lr is not None else 1e-3)
        spec = spec_in(project)
        noise = (
            next((o for o in spec.options if o.name == "noise"), None) if spec else None
        )
        page.noise.setVisible(noise is not None)
        if noise is not None:
            page.noise.show_value(
                float(project.data.options.get("noise", noise.default))
            )
        hidden = hidden_layers(project)
        page.widths.setVisible(bool(hidden))
        if hidden:
            params = project.graph.nodes[hidden[0]].params
            page.widths.show_value(float(params.get("out_features", 1)))
        page.set_own(self._points if project.data.source == OWN else None)

    # --- What is changed

    @property
    def _points(self) -> tuple[OwnPoint, ...]:
        data = self._workspace.document.project.data
        try:
            return points_of(str(data.options.get("points", "")))
        except DataError:
            return ()

    def _begin_drawing(self) -> None:
        """Have points of one's own in place of the data."""
        project = self._workspace.document.project
        if project.data.source != OWN:
            self.page.view.show_plane(None, ("x", "y"))  # it has other bounds
            data = DataConfig(OWN, options=FrozenMap(points=""))
            self._workspace.document.apply("Draw points", replace(project, data=data))

    def _draw(self, x: float, y: float, label: int, gesture: str) -> None:
        if len(self._points) < MOST:
            points = (*self._points, OwnPoint(x, y, label))
            self._set_points("Draw points", points, gesture)

    def _erase(self, x: float, y: float, reach: float, gesture: str) -> None:
        left = tuple(
            point
            for point in self._points
            if (point.x - x) ** 2 + (point.y - y) ** 2 > reach**2
        )
        self._set_points("Erase points", left, gesture)

    def _set_points(
        self, text: str, points: tuple[OwnPoint, ...], gesture: str | None = None
    ) -> None:
        self._set_option(text, "points", text_of(points), gesture)

    def _set_option(
        self, text: str, name: str, value: object, gesture: str | None
    ) -> None:
        project = self._workspace.document.project
        options = project.data.options.set(name, value)
        data = replace(project.data, options=options)
        self._workspace.document.apply(text, replace(project, data=data), gesture)

    def _set_rate(self, value: float, gesture: str) -> None:
        project = self._workspace.document.project
        optimizer = project.training.optimizer
        params = optimizer.params.set("lr", value)
        training = replace(
            project.training, optimizer=replace(optimizer, params=params)
        )
        self._workspace.document.apply(
            "Set lr", replace(project, training=training), gesture
        )
        if self._workspace.session.active:
            self._workspace.run_control.set_rate(value)

    def _set_noise(self, value: float, gesture: str) -> None:
        self._set_option("Set noise", "noise", value, gesture)

    def _set_width(self, value: float, gesture: str) -> None:
        before = project = self._workspace.document.project
        for node in hidden_layers(project):
            project = edits.with_params(project, node, {"out_features": int(value)})
        if project is not before:
            self._workspace.document.apply(
                "Set the width of the hidden layers", project, gesture
            )

    def start_anew(self) -> None:
        """Begin a run from new weights; one under way is stopped before."""
        if self._workspace.session.active:
            self._again = True
            self._workspace.run_control.stop()
        else:
            self._workspace.run_control.run()
