"""Edits of the drawing applied to a paused run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from app.views.feature import Action, Feature

if TYPE_CHECKING:
    from app.views.training.surgery.surgery_control import SurgeryControl

TIP = "Insert, remove, widen or freeze layers of a paused run; weights and moments of the others stay"


class SurgeryFeature(Feature):
    rank = 158
    surgery_control: SurgeryControl

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "apply-edits",
                "Apply e&dits to the run…",
                lambda: self.surgery_control.open(),
                tip=TIP,
                late=True,
            ),
        )

    def finish(self) -> Iterator[None] | None:
        from app.views.training.surgery.surgery_control import SurgeryControl

        self.surgery_control = SurgeryControl(self.workspace)
        return None
