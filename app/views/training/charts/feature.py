"""The curves in the window: the page "Curves", and gradients on the canvas."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer

from app.training.events import Cut, Event
from app.views.feature import Feature, Page
from app.views.shown_run import Figures
from app.views.ui.turns import TURN

if TYPE_CHECKING:
    from app.project.project import Project
    from app.views.run.session import Run
    from app.views.training.charts.curves import Curves
    from app.views.training.charts.gradients import GradientOverlay
    from app.views.workspace import Workspace

GRADIENTS = "Gradients"
STRIPS = 2.0  # seconds between two paintings of the gradient strips


class ChartsFeature(Feature):
    """The charts are made when their page is shown, as by a run that starts: pyqtgraph is large."""

    rank = 150
    curves: Curves

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._painted = 0.0
        self._made = self._large_before = False
        self._layers: tuple[str, ...] = ()  # those that the selection was looked for in
        self._gradients: GradientOverlay | None = None  # of the run that is shown
        self._then: Project | None = None  # what was open when a stored run was chosen
        self._another = QTimer(
            self, singleShot=True, interval=TURN
        )  # the turn that starts a run is long enough
        self._another.timeout.connect(self._show)

    def pages(self) -> Iterable[Page]:
        yield Page(
            "curves",
            "Curves",
            "curves",
            "bottom",
            self._make,
            words="C&urves",
            controls=lambda: self.curves.controls,
        )

    def overlays(self) -> Iterable[str]:
        return (GRADIENTS,)

    def _make(self) -> Curves:
        from app.views.training.charts.curves import Curves

        self.curves = Curves()
        return self.curves

    def begin(self) -> None:
        workspace = self.workspace
        workspace.shown_run.changed.connect(self._on_run)
        workspace.run_control.started.connect(self._run_started)
        workspace.session.stateChanged.connect(self._run_state)
        workspace.session.progressed.connect(self._progressed)
        workspace.session.told.connect(self._follow_cuts)
        workspace.document.replaced.connect(self._project_replaced)
        workspace.place.changed.connect(lambda _before, _after: self.paint_gradients())
        workspace.overlays.changed.connect(self.paint_gradients)

    def finish(self) -> None:
        workspace, curves, chosen = (
            self.workspace,
            self.curves,
            self.workspace.network_selection,
        )
        curves.runRequested.connect(workspace.run_control.run)
        curves.layerSelected.connect(lambda node: chosen.set([node], curves))
        curves.layerHovered.connect(chosen.hover)
        curves.aloneChanged.connect(self._chart_alone)
        workspace.pages.enlarged.changed.connect(self._page_enlarged)
        chosen.changed.connect(self._selected)
        workspace.shown_run.layer_chosen.connect(curves.choose_layer)
        workspace.shown_run.stepped.connect(lambda _step: self.paint_gradients())
        workspace.commands.trigger("timeline-of-curves", curves)
        workspace.commands.trigger("coach-of-curves", curves)
        self._made = True
        curves.room = workspace.session.room
        self._show()

    def _page_enlarged(self, name: str) -> None:
        if not name:
            self.curves.show_alone(None)

    def _chart_alone(self, alone: bool) -> None:
        """Give a chart that is alone the window; then the page has it no longer than before."""
        pages = self.workspace.pages
        if alone:
            self._large_before = bool(pages.enlarged.name)
            pages.enlarge("curves")
        elif not self._large_before:
            pages.enlarged.put_back()

    def _on_run(self, figures: Figures | None) -> None:
        """Show another run in a separate event-loop turn; that of a project which was left goes at once."""
        self._read_gradients(figures)
        if figures is None:
            self._another.stop()
            self._show()
        else:
            self._another.start()

    def _read_gradients(self, figures: Figures | None) -> None:
        """Have the strips on the canvas follow the shown run, if its net is open."""
        self._gradients = self._then = None
        if figures is not None and figures.source is not None:
            from app.views.training.charts.gradients import GradientOverlay

            self._gradients = GradientOverlay(figures.source, figures.history)
            self._then = self.workspace.document.project
        self.paint_gradients()

    def _show(self) -> None:
        if not self._made:
            return
        figures = self.workspace.shown_run.figures
        if figures is None:
            self.curves.set_history(None)
            return
        self.curves.loss.set_loss_name(figures.loss)
        self.curves.set_run_name(figures.names[0])
        self.curves.set_history(figures.history, figures.source, figures.beside)
        self._selected(self.workspace.network_selection.ids)

    def _selected(self, ids: frozenset[str], _origin: object = None) -> None:
        self._layers = self.curves.history.layers
        self.curves.select_nodes(ids)
        self.workspace.shown_run.select(self.curves.gradients.selected)

    def _run_started(self, run: Run) -> None:
        shown = self.workspace.shown_run
        if self.workspace.session.takes_over(shown.figures):
            shown.show(run.figures)
        if self._made:
            self.curves.room = self.workspace.session.room
        if run.series is None:
            self.workspace.pages.show("curves")

    def _follow_cuts(self, events: list[Event]) -> None:
        """Continue with the layers of the edited network."""
        run = self.workspace.session.current
        if run is not None and any(isinstance(event, Cut) for event in events):
            self.workspace.shown_run.show(run.figures)

    def _run_state(self, _state: str) -> None:
        if not self.workspace.session.active:
            self._progressed()

    def _project_replaced(self, _project: object) -> None:
        """Clear the curves of the previous project, unless its run is still active."""
        if not self.workspace.session.active:
            if self.workspace.shown_run.figures is not None:
                self.workspace.shown_run.show(None)
            self.workspace.overlays.draw_gradients({})

    def _progressed(self) -> None:
        workspace, session = self.workspace, self.workspace.session
        if session.current is None:
            return
        if self._made:
            self.curves.refresh()
            if (
                self.curves.history.layers != self._layers
            ):  # known from the first norms on
                self._selected(workspace.network_selection.ids)
        now = time.monotonic()
        if not session.active:
            self.paint_gradients()
        elif now - self._painted > STRIPS / session.room:
            self._painted = now
            QTimer.singleShot(
                0, self, self.paint_gradients
            )  # in a turn without the events before it

    def paint_gradients(self, _overlay: str = "") -> None:
        """Draw strips on the nodes that are as they were when the shown run began, or was opened."""
        workspace, step = self.workspace, self.workspace.shown_run.step
        gradients_chosen = (
            self._gradients is not None and workspace.overlays.chosen == GRADIENTS
        )
        shown = (
            self._gradients.read(within=workspace.place.path, until=step)
            if self._gradients and gradients_chosen
            else None
        )
        if shown is None:
            workspace.overlays.draw_gradients({})
            return
        same = self._unchanged(workspace.place.block)
        norms = {node: values for node, values in shown.norms.items() if node in same}
        workspace.overlays.draw_gradients(norms, shown.low, shown.high, step)

    def _unchanged(self, block: str) -> frozenset[str]:
        """Return the nodes of a sheet that the shown run trained as they are now."""
        figures, run, control = (
            self.workspace.shown_run.figures,
            self.workspace.session.current,
            self.workspace.run_control,
        )
        if run is not None and figures is not None and figures.history is run.history:
            return control.unchanged(run, block)
        return (
            control.unchanged_since(self._then, block)
            if self._then is not None
            else frozenset()
        )
