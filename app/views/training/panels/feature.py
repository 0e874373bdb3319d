"""Panels over several runs in the window: the page "Panels", offered once it was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.views.feature import Action, Feature, Page

if TYPE_CHECKING:
    from app.views.shown_run import Figures
    from app.views.training.panels.control import PanelsControl
    from app.views.training.panels.page import PanelsPage
    from app.views.workspace import Workspace

TIP = "Metrics and samples of the chosen runs beside one another"


class PanelsFeature(Feature):
    """The page is made when it is first shown: pyqtgraph is large."""

    rank = 190
    panels: PanelsPage
    panels_control: PanelsControl

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

    def begin(self) -> None:
        self.workspace.pages.set_offered("panels", False)
        self.workspace.shown_run.changed.connect(self._show)

    def _make(self) -> PanelsPage:
        from app.views.training.panels.control import PanelsControl
        from app.views.training.panels.page import PanelsPage

        self.panels = PanelsPage()
        self.panels_control = PanelsControl(self.workspace, self.panels)
        return self.panels

    def finish(self) -> None:
        self._made = True
        self._show(self.workspace.shown_run.figures)

    def _show(self, figures: Figures | None) -> None:
        if self._made:
            self.panels_control.set_runs(figures.runs if figures is not None else [])
