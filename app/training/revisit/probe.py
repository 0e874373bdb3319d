"""Check a condition at every step that is recomputed."""

from __future__ import annotations

from app.training.revisit.conditions import Condition, Hit
from app.training.revisit.recompute_steps import Probe, RecomputeWatcher


class ConditionProbe(Probe):
    """Checks a condition at every step that is recomputed; `hit` is the first step at which it held."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self.looks = condition.figure == "dead"
        self.hit: Hit | None = None
        self.known: tuple[str, ...] = ()  # the layers that have the figure

    def holds(self, watcher: RecomputeWatcher, step: int, updated: bool) -> bool:
        values = self._values(watcher, updated)
        self.known = tuple(values) or self.known
        if self._condition.layer and values and self._condition.layer not in values:
            return True
        if found := self._condition.first(values):
            self.hit = Hit(step, *found)
        return self.hit is not None

    def _values(self, watcher: RecomputeWatcher, updated: bool) -> dict[str, float]:
        if self._condition.figure == "norm":
            return watcher.layer_norms()
        if self._condition.figure == "weight":
            return watcher.largest_weights()
        if not (updated and watcher.look.open):
            return {}
        watcher.look.end()
        return watcher.look.fetch().dead
