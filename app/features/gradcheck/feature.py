"""gradcheck in the window: a page of Findings, a section of the inspector, and two commands of the Autograd menu."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.gradcheck.control import GradcheckControl
from app.views.feature import Action, Feature
from app.views.workspace import Workspace


class GradcheckFeature(Feature):
    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.control = GradcheckControl(workspace)
        workspace.diagnostics.append(self.control)

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "gradcheck-net",
                "Run gradcheck on the &whole network",
                self._check_net,
                menu="autograd.reports",
            ),
            Action(
                "gradcheck-here",
                "Run gradcheck on the &selection",
                self._check_selected,
                menu="autograd.reports",
            ),
        )

    def _check_net(self) -> None:
        self.workspace.pages.make("findings")
        self.control.run()

    def _check_selected(self) -> None:
        self.workspace.pages.make("findings")
        self.control.check_selected()
