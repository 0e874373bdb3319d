"""The x of a step: its number, its epoch, or seconds of the run. Qt-free."""

from __future__ import annotations

from typing import Literal

import numpy as np

from app.training.history import History
from app.views.training.charts.series import Floats

Mode = Literal["step", "epoch", "time"]


class TimeScale:
    """Reads a history's x values in one of three modes."""

    def __init__(self, history: History, mode: Mode = "step") -> None:
        self.history = history
        self.mode: Mode = mode

    @property
    def _per_epoch(self) -> int:
        return (
            self.history.started.steps_per_epoch or 1 if self.history.started else 1
        )  # 0 of a script

    def of_steps(self) -> Floats:
        """Return the x of every step taken, ascending."""
        if self.mode == "time":
            return self.history.steps["seconds"]
        steps = self.history.steps["step"]
        return steps / self._per_epoch if self.mode == "epoch" else steps

    def x_of(self, after: Floats, seconds: Floats | None = None) -> Floats:
        """Return the x of events after the given steps; `seconds` are their own times, if known."""
        if self.mode == "epoch":
            return after / self._per_epoch
        if self.mode == "step":
            return after
        if seconds is not None:
            return seconds
        steps = self.history.steps
        if not len(steps):
            return np.zeros(len(after))
        indices = np.searchsorted(steps["step"], after)
        return steps["seconds"][np.minimum(indices, len(steps) - 1)]

    def end(self) -> float:
        """Return the x of the newest step; 0 before the first."""
        steps = self.history.steps
        if not len(steps):
            return 0.0
        newest = float(steps["seconds" if self.mode == "time" else "step"][-1])
        return newest / self._per_epoch if self.mode == "epoch" else newest

    def nearest(self, x: float) -> int | None:
        """Return the index of the step nearest to `x`; None before the first step."""
        positions = self.of_steps()
        if not len(positions):
            return None
        right = min(int(np.searchsorted(positions, x)), len(positions) - 1)
        left = max(right - 1, 0)
        return left if x - positions[left] < positions[right] - x else right
