"""Trials before a run in the window: commands of the Run menu that start none."""

from __future__ import annotations

from collections.abc import Iterable

from app.views.feature import Action, Feature
from app.views.training.trials.trial_control import TrialControl
from app.views.workspace import Workspace


class TrialsFeature(Feature):
    rank = 100

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.trial_control = TrialControl(workspace)

    def actions(self) -> Iterable[Action]:
        trial = self.trial_control
        return (
            Action("find-rate", "&Find a learning rate…", trial.find_rate),
            Action("dry-run", "Dr&y run on synthetic data", trial.dry_run, "Shift+F5"),
            Action("overfit", "Overfit &one batch", trial.overfit),
        )
