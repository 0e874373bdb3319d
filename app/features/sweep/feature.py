"""Sweeps in the window: a page, a button and a strip on the page Runs, and a command in the Run menu."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.sweep.control import SweepControl
from app.features.sweep.page import SweepPage
from app.features.sweep.page_control import PageControl
from app.views.feature import Action, Feature, Page

TIP = "Search for the best settings: run after run, chosen on a grid, at random or by what earlier runs reached"


class SweepFeature(Feature):
    follows = True  # its button stands in the list of runs, which does
    sweeps: SweepControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "sweep",
            "Sweep",
            "search",
            "bottom",
            self._make,
            after="runs",
            words="Sweep",
        )

    def _make(self) -> SweepPage:
        self.page = SweepPage()
        return self.page

    def begin(self) -> None:
        self.workspace.pages.set_offered("sweep", False)  # until it is asked for

    def actions(self) -> Iterable[Action]:
        yield Action(
            "sweep",
            "Sw&eep…",
            lambda: self.sweeps.open(),
            tip=TIP,
            late=True,
            menu="run.rate",
        )

    def finish(self) -> None:
        self.sweeps = SweepControl(self.workspace)
        self.page_control = PageControl(self.workspace, self.sweeps, self.page)
