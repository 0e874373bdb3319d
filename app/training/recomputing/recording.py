"""Record hashes of a step's gradients and of torch's generators, by which a recomputed step is verified.

At most `SHARE` of a run's time is spent on that: where a hash of every step would cost more, some steps have none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from app.telemetry.throttle import Meter
from app.training.events import Event, Hashing, StepHashes
from app.training.recomputing.hashes import GradientHasher

if TYPE_CHECKING:
    from torch import Tensor, nn

SHARE = 0.004  # of the run's time; the promise is 2 %, which includes what this meter does not measure


class HashRecording:
    """Hashes of one run, taken between backward and the optimizer's step and fetched from the device at a flush."""

    def __init__(
        self, model: nn.Module, device: str, share: float | None = None
    ) -> None:
        self.meter = Meter(device, 0.0, share or SHARE)
        self._hasher = GradientHasher(model, device)
        self._hasher.warm_up()
        self._fresh: tuple[Tensor, Tensor] | None = None
        self._rows: list[tuple[int, int, int, Tensor, Tensor]] = []
        self.hashed = 0

    @property
    def due(self) -> float:
        """Return when the next hash is due, in seconds of `perf_counter`; infinite for a net without parameters."""
        return self.meter.due if self._hasher.layers else math.inf

    def take(self) -> None:
        """Hash the gradients as backward left them, if that is due."""
        if perf_counter() >= self.due:
            with self.meter:
                self._fresh = self._hasher.generator(), self._hasher.gradients()

    def after(self, step: int, epoch: int, batch: int) -> None:
        """Keep the hashes of a complete step, the `batch`-th of its epoch."""
        if self._fresh is not None:
            self._rows.append((step, epoch, batch, *self._fresh))
            self._fresh = None
            self.hashed += 1
            self.meter.schedule_next()

    def drop(self) -> None:
        """Discard the hashes of a skipped step."""
        self._fresh = None

    def drain(self) -> Iterator[Event]:
        """Yield the hashes since the last call, which synchronises the device."""
        if not self._rows:
            return
        with self.meter:
            rows, self._rows = self._rows, []
            positions = torch.tensor([row[:3] for row in rows], dtype=torch.int64)
            states = torch.stack([row[3] for row in rows])[:, None]
            hashes = torch.stack([row[4] for row in rows]).cpu()
            data = (
                torch.cat([positions, states, hashes], 1)
                .numpy()
                .astype("<i8")
                .tobytes()
            )
        yield StepHashes(rows[-1][0], self._hasher.layers, data)

    def cost(self, step: int, steps: int, seconds: float) -> Hashing:
        """Return the cost of recording over the last `steps` and `seconds`."""
        self.meter.settle()
        return Hashing(step, steps, self.hashed, self.meter.seconds, seconds)

    @property
    def mean_seconds(self) -> float:
        """Return the mean seconds of hashing one step, 0 before the first."""
        return self.meter.seconds / self.hashed if self.hashed else 0.0

    def clear(self) -> None:
        """Release tensors on the device."""
        self._rows.clear()
        self.drop()
