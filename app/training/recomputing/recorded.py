"""What a run recorded of its steps, to verify those that are recomputed."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

EPOCH, BATCH, GENERATOR, FIRST = range(4)  # of a row, then the layers


class RateChange(Struct, frozen=True):
    """A learning rate that was set by hand after a step; `group` is the parameter group's path, "" the main one."""

    step: int
    rate: float
    group: str = ""


class Recorded(Struct, frozen=True):
    """The hashes of some steps and the losses of all, by step.

    A row of `hashes` has the epoch, the batch in it, the hash of the generators and those of the layers: `layers`, or
    of a stage of `later`, which has the first step of each and its layers. The steps in `not_finite` had a loss at
    which the run paused, and were not trained on; `skipped` are all that were not, also those that were left out;
    `failed` is the step at whose loss the run ended, 0 if it did not.
    """

    layers: tuple[str, ...] = ()
    hashes: Mapping[int, tuple[int, ...]] = {}
    losses: Mapping[int, float] = {}
    rates: tuple[RateChange, ...] = ()
    not_finite: frozenset[int] = frozenset()
    failed: int = 0
    skipped: frozenset[int] = frozenset()
    later: tuple[tuple[int, tuple[str, ...]], ...] = ()

    @property
    def last(self) -> int:
        """Return the last step that was recorded, 0 without any."""
        return max(max(self.losses, default=0), max(self.hashes, default=0))

    @property
    def reach(self) -> int:
        """Return the last step that can be recomputed: `last`, unless later ones were not trained on."""
        return max(self.last, self.failed, *self.skipped)

    def layers_of(self, step: int) -> tuple[str, ...]:
        """Return the layers that the net had at a step."""
        return next(
            (layers for first, layers in reversed(self.later) if first <= step),
            self.layers,
        )

    def layers_at(self, step: int) -> dict[str, int]:
        """Return the hash of each layer at a step, empty where it has none."""
        row = self.hashes.get(step)
        return (
            dict(zip(self.layers_of(step), row[FIRST:], strict=True))
            if row is not None
            else {}
        )
