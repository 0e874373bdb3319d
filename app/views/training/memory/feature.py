"""The memory and the time of a training step in the window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from app.views.feature import Action, Feature

if TYPE_CHECKING:
    from app.views.training.memory.memory_control import MemoryControl
    from app.views.training.memory.profile_control import ProfileControl

BY_LAYER = "By layer: estimated for the network, measured during a run"


class MemoryFeature(Feature):
    rank = 175
    memory_control: MemoryControl
    profile_control: ProfileControl

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "memory",
                "&Memory of a step…",
                lambda: self.memory_control.open(),
                icon="memory",
                tip=BY_LAYER,
                late=True,
            ),
            Action(
                "profile",
                "Profile of a step…",
                lambda: self.profile_control.open(),
                tip="Time of a training step by operation",
                late=True,
            ),
        )

    def finish(self) -> Iterator[None] | None:
        from app.views.training.memory.memory_control import MemoryControl
        from app.views.training.memory.profile_control import ProfileControl

        self.memory_control, self.profile_control = (
            MemoryControl(self.workspace),
            ProfileControl(self.workspace),
        )
        return None
