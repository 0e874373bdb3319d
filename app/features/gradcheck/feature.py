"""gradcheck in the window: a page of Findings, a section of the inspector, and two commands of the Autograd menu."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.gradcheck.control import GradcheckControl
from app.views.feature import Action, Feature
from app.views.workspace import Workspace


class GradcheckFeature(Feature):
    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.control = GradcheckControl(workspace.notifier)
        workspace.diagnostics.append(self.control)

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "gradcheck-net",
                "Run gradcheck on the &whole network",
                self.control.run,
                late=True,
                menu="autograd",
                after="gain-ladder",
            ),
            Action(
                "gradcheck-here",
                "Run gradcheck on the &selection",
                self.control.check_selected,
                late=True,
                menu="autograd",
                after="gradcheck-net",
            ),
        )
