"""Sweeps in the window: a button and a strip on the page Runs, and a command in the Run menu."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.sweep.control import SweepControl
from app.views.feature import Action, Feature

TIP = "Train a run for each of several values of the settings, one after the other"


class SweepFeature(Feature):
    follows = True  # its button stands in the list of runs, which does
    sweeps: SweepControl

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
