"""Edits of the drawing applied to a paused run."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.surgery.control import SurgeryControl
from app.views.feature import Action, Feature
from app.views.workspace import Workspace

TIP = "Insert, remove, widen or freeze layers of a paused run; weights and moments of the others stay"


class SurgeryFeature(Feature):
    rank = 158

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.surgery_control = SurgeryControl(workspace)

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "apply-edits",
                "Apply e&dits to the run…",
                self.surgery_control.open,
                tip=TIP,
                menu="run.control",
                after="continue",
            ),
        )
