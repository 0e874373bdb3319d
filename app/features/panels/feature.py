"""Panels over several runs in the window: the page "Panels", offered once it was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from app.views.feature import Action, Feature, Page
from app.views.training.charts.metrics import DEFAULT, FIXED, Choice, metric_of
from app.views.ui.dialogs.search import SearchEntry

if TYPE_CHECKING:
    from app.features.panels.page import PanelsPage
    from app.features.panels.samples_control import SamplesControl
    from app.views.shown_run import Figures
    from app.views.workspace import Workspace

TIP = "Metrics and samples of the chosen runs beside one another"


class PanelsFeature(Feature):
    """The page is made when it is first shown: pyqtgraph is large."""

    rank = 190
    panels: PanelsPage
    samples: SamplesControl

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._made = False

    def pages(self) -> Iterable[Page]:
        yield Page(
            "panels",
            "Panels",
            "curves",
            "centre",
            self._make,
            words="Pa&nels",
            home=lambda: self.panels.add,
        )

    def actions(self) -> Iterable[Action]:
        yield Action(
            "panels-of-runs", "", lambda: self.workspace.pages.show("panels"), tip=TIP
        )

    def searched(self) -> Iterable[SearchEntry]:
        for metric in FIXED:
            yield SearchEntry(
                f"panel.{metric.key}",
                f"Show {metric.title} in Panels",
                partial(self._add, metric.key),
                "Panel",
                words="chart dashboard",
                icon="curves",
            )

    def _add(self, key: str) -> None:
        """Show a panel of a metric, beside those that are there."""
        self.workspace.pages.show("panels")
        choices = self.panels.choices
        if all(choice.metric != key for choice in choices):
            self.panels.set_choices((*choices, Choice(key)))
            self._store()

    def begin(self) -> None:
        self.workspace.pages.set_offered("panels", False)
        self.workspace.shown_run.changed.connect(self._show)

    def _make(self) -> PanelsPage:
        from app.features.panels.page import PanelsPage
        from app.features.panels.samples_control import SamplesControl

        workspace, page = self.workspace, PanelsPage()
        self.panels, self.samples = page, SamplesControl(workspace, page.samples)
        page.changed.connect(self._store)
        page.runsRequested.connect(lambda: workspace.pages.show("runs"))
        page.viewed.connect(lambda: self.samples.set_seen(page.shows_samples))
        workspace.session.progressed.connect(self._progressed)
        workspace.session.stateChanged.connect(lambda _state: self._progressed())
        workspace.document.replaced.connect(lambda _project: self._restore())
        self._restore()
        return page

    def finish(self) -> None:
        self._made = True
        self._show(self.workspace.shown_run.figures)

    def _show(self, figures: Figures | None) -> None:
        if self._made:
            runs = figures.runs if figures is not None else []
            self.panels.set_runs(runs)
            self.samples.set_runs(runs)

    def _restore(self) -> None:
        """Show the panels that are stored with the project."""
        workspace = self.workspace
        view, stored = workspace.settings.panels_of(workspace.document.path)
        choices = [choice for choice in map(_choice, stored) if choice is not None]
        self.panels.set_choices(choices or DEFAULT)
        self.panels.set_view(view)

    def _store(self) -> None:
        panels = [list(choice) for choice in self.panels.choices]
        path, view = self.workspace.document.path, self.panels.view.value()
        self.workspace.settings.set_panels_of(path, view, panels)

    def _progressed(self) -> None:
        self.panels.room = self.workspace.session.room
        self.panels.refresh()


def _choice(stored: Any) -> Choice | None:
    """Return a panel as it was stored; None for one that this version does not know."""
    match stored:
        case [str(metric), str(layer), bool() | None as log] if (
            metric_of(metric) is not None
        ):
            return Choice(metric, layer, log)
    return None
