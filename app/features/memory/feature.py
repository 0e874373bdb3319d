"""The memory and the time of a training step in the window."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.memory.control import MemoryControl
from app.features.memory.profile_control import ProfileControl
from app.views.feature import Action, Feature
from app.views.workspace import Workspace

BY_LAYER = "By layer: estimated for the network, measured during a run"


class MemoryFeature(Feature):
    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.memory_control = MemoryControl(workspace)
        self.profile_control = ProfileControl(workspace)

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "memory",
                "&Memory of a step…",
                self.memory_control.open,
                icon="memory",
                tip=BY_LAYER,
                menu="run.memory",
            ),
            Action(
                "profile",
                "Profile of a step…",
                self.profile_control.open,
                tip="Time of a training step by operation",
                menu="run.memory",
            ),
        )
