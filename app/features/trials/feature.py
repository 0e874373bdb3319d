"""Trials before a run in the window: commands of the Run menu that start none, and links to them in the form."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.trials.control import TrialControl
from app.views.feature import Action, Feature
from app.views.training.form.settings_form import TrainingForm
from app.views.workspace import Workspace


class TrialsFeature(Feature):
    follows = True  # its links stand in the form, which does

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.trials = TrialControl(workspace)

    def actions(self) -> Iterable[Action]:
        trials = self.trials
        return (
            Action(
                "find-rate",
                "&Find a learning rate…",
                trials.find_rate,
                menu="run.rate",
            ),
            Action(
                "dry-run",
                "Dr&y run on synthetic data",
                trials.dry_run,
                "Shift+F5",
                menu="run.trials",
            ),
            Action(
                "overfit",
                "Overfit &one batch",
                trials.overfit,
                menu="run.trials",
            ),
        )

    def finish(self) -> None:
        self.workspace.pages.make("training")
        form = self.workspace.pages.widget("training")
        assert isinstance(form, TrainingForm)
        form.add_link(form.run, "Dry run on synthetic data", self.trials.dry_run)
        form.add_link(form.optimizer, "Find a learning rate…", self.trials.find_rate)
