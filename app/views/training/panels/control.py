"""The page "Panels" follows the runs that are shown; what its panels show is kept with the project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject

from app.views.training.charts.metrics import DEFAULT, Choice, metric_of
from app.views.training.panels.samples_control import SamplesControl

if TYPE_CHECKING:
    from app.views.shown_run import ComparedRun
    from app.views.training.panels.page import PanelsPage
    from app.views.workspace import Workspace


class PanelsControl(QObject):
    """Restores the panels of a project, stores them when they change, and redraws them during a run."""

    def __init__(self, workspace: Workspace, page: PanelsPage) -> None:
        super().__init__(workspace.window)
        self._workspace, self._page = workspace, page
        page.changed.connect(self._store)
        page.runsRequested.connect(lambda: workspace.pages.show("runs"))
        workspace.session.progressed.connect(self._progressed)
        workspace.session.stateChanged.connect(lambda _state: self._progressed())
        workspace.document.replaced.connect(lambda _project: self._restore())
        self.samples = SamplesControl(workspace, page.samples)
        page.viewed.connect(lambda: self.samples.set_seen(page.shows_samples))
        self._restore()

    def set_runs(self, runs: Sequence[ComparedRun]) -> None:
        """Show these runs."""
        self._page.set_runs(runs)
        self.samples.set_runs(runs)

    def _restore(self) -> None:
        view, stored_choices = self._workspace.settings.panels_of(
            self._workspace.document.path
        )
        choices = [
            choice for choice in map(_choice, stored_choices) if choice is not None
        ]
        self._page.set_choices(choices or DEFAULT)
        self._page.set_view(view)

    def _store(self) -> None:
        panels = [list(choice) for choice in self._page.choices]
        self._workspace.settings.set_panels_of(
            self._workspace.document.path, self._page.view.value(), panels
        )

    def _progressed(self) -> None:
        self._page.room = self._workspace.session.room
        self._page.refresh()


def _choice(stored: Any) -> Choice | None:
    """Return a panel as it was stored; None for one that this version does not know."""
    match stored:
        case [str(metric), str(layer), bool() | None as log] if (
            metric_of(metric) is not None
        ):
            return Choice(metric, layer, log)
    return None
