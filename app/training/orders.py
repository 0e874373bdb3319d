"""What can be asked of a run under way, as values: they can be sent to a run in another process."""

from __future__ import annotations

from dataclasses import dataclass

from app.training.live import Live


@dataclass(frozen=True)
class SetRate:
    """Go on with this learning rate: the first group's, the others in proportion."""

    rate: float

    def __call__(self, live: Live) -> float:
        """The rate that was in force before."""
        before = live.stepper.rate
        live.stepper.set_rate(self.rate)
        return before
