"""Telemetry of a run: gradients, layers and memory, throttled to a bounded overhead."""

from __future__ import annotations

import math
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from app.source.generated import Source
from app.telemetry import memory
from app.telemetry.gradients import GradientSampler
from app.telemetry.layer_stats import Look
from app.telemetry.throttle import Meter
from app.training.control import Control
from app.training.events import (
    Caught,
    Event,
    GainFigures,
    GradientNorms,
    Hashing,
    Histograms,
    LayerFigures,
    Looking,
    MemorySample,
    Noticed,
)
from app.training.monitoring.live_model import LiveRun
from app.training.monitoring.watch_points import (
    WatchHit,
    WatchPoints,
    dead_above,
    gradients_above,
    memory_above,
)
from app.training.recomputing.recording import HashRecording
from app.training.setup.module_checks import mistakes
from app.util.processors import Delay

if TYPE_CHECKING:
    from torch import Tensor

FLUSH_EVERY = 0.05
# Seconds between two measurements at least, and the share of the time that they may take: together 0.7 % of a run that
# may lose 5 % to all that is seen of it, the window's pictures included.
NORMS = (0.05, 0.003)
LOOKS = (0.5, 0.002)
# An epoch has a look even if none is due: the first ones of a run always, so that a short run has more than one, the
# last one, so that the values shown after a run are from its end, and others while looks took less than this share.
FIRST_EPOCHS, SHARE_OF_LOOKS = 10, 0.002
MEMORY = (memory.EVERY, 0.002)
DELAY_EVERY = (
    5.0  # seconds from one measurement of what other programs cost to the next
)
# The share of the time that a run waits for a processor: above the first it is reported, below the other it is over.
SLOWED, CALM = 0.2, 0.1


class Watcher:
    """Telemetry hooks for the loop around each step; results pending on the device are reported at a flush.

    `idle_until` and `flush_due` are read at every step: one that begins before `idle_until` needs no observer, and
    costs nothing else.
    """

    every_step = False  # whether each one is observed

    def __init__(
        self,
        live: LiveRun,
        source: Source,
        control: Control,
        hash_share: float | None = None,
    ) -> None:
        self._live, self._source, self._control = live, source, control
        self.sampler = GradientSampler(live.model)
        self._norms_meter, self._look_meter, self._memory_meter = (
            Meter(live.device, *pace) for pace in (NORMS, LOOKS, MEMORY)
        )
        compiled = live.stepper.config.compile
        self.look = Look(
            live.model, source, self.sampler, self._look_meter, hooks=not compiled
        )
        self._hashes = HashRecording(live.model, live.device, hash_share)
        self._norms: list[tuple[int, Tensor]] = []
        self._fresh: Tensor | None = None
        self._looked_at: int | None = (
            None  # the step of a measurement that is not fetched yet
        )
        self._epoch, self._epochs = -1, 0  # the newest measured epoch, and how many are
        self._since = perf_counter()
        self._told: set[tuple[str, str]] = set()
        self._noticed: set[tuple[str, str]] = set()
        self._points: WatchPoints | None = None
        self._measures = bool(self.sampler.layers)
        self.look_due = self._measures
        self.idle_until = 0.0  # on the clock of `perf_counter`
        self.flush_due = 0.0
        self._delay, self._delay_due, self._slowed = (
            Delay(),
            perf_counter() + DELAY_EVERY,
            False,
        )
        self.began = (0, 0.0)  # the step and second where the run starts or resumes

    def share(self, seconds: float) -> float:
        """Return the fraction of time spent on telemetry up to a second of the run, 0 to 1."""
        return self.seconds / max(seconds - self.began[1], 1e-9)

    @property
    def seconds(self) -> float:
        """Return the telemetry time so far."""
        return (
            self._norms_meter.seconds
            + self._look_meter.seconds
            + self._memory_meter.seconds
        )

    def rest(self) -> None:
        """Measure no steps: another process of the run does."""
        self._measures = self.look_due = False
        self._hashes.meter.due = math.inf

    # --- Around a step

    def begin(self) -> None:
        """Prepare for an observed step, before the forward pass: a sampled one gets its hooks."""
        if self.look_due and self._looked_at is None and not self.look.open:
            self.look.begin()
            self.look_due = False

    def forward_done(self, loss: Tensor) -> None:
        """Continue after the forward pass, before backward."""
        if not self.look.open:
            return
        scaler = self._live.stepper.scaler
        self.look.forward_done(loss, scaler.get_scale() if scaler is not None else 1.0)

    def measure(self) -> None:
        """Measure between backward and the optimizer step."""
        if self._measures and perf_counter() >= self._norms_meter.due:
            with self._norms_meter:
                self._fresh = self.sampler.measure()
            self._norms_meter.schedule_next()
        if self.look.open:
            self.look.gradients()

    def hash_gradients(self) -> None:
        """Record a hash of the gradients right after backward."""
        self._hashes.take()

    def after(self, step: int, updated: bool, now: float) -> None:
        """Measure after a complete observed step."""
        self._hashes.after(step, self._live.epoch, self._live.batch)
        if self._fresh is not None:
            self._norms.append((step, self._fresh))
            self._fresh = None
            if self._control.watch.gradient_norm is not None:
                self.flush_due = 0.0  # the batch is still available
        if self.look.open:
            self.look.forward_done()
            if updated:
                self.look.end()
                self._looked_at = step
                self.flush_due = 0.0
                self._epochs += self._epoch != self._live.epoch
                self._epoch = self._live.epoch
        elif now >= self._look_meter.due or self._epoch_lacks_look(now):
            self.look_due = self._measures
        self._schedule()

    def _schedule(self) -> None:
        """Note when a step is to be observed again."""
        if self.every_step or self.look.open or self.look_due:
            self.idle_until = 0.0
            return
        measured = (
            min(self._norms_meter.due, self._look_meter.due)
            if self._measures
            else math.inf
        )
        self.idle_until = min(measured, self._hashes.due)

    def _epoch_lacks_look(self, now: float) -> bool:
        """Return whether this epoch has no look and may have one, whatever is due."""
        if self._epoch == self._live.epoch:
            return False
        if (
            self._epochs < FIRST_EPOCHS
            or self._live.epoch >= self._live.stepper.config.epochs
        ):
            return True
        return self._look_meter.seconds < SHARE_OF_LOOKS * (now - self._since)

    def skipped(self) -> None:
        """Discard the measurements of a skipped step."""
        self._fresh = None
        self._hashes.drop()
        if self.look.open:
            self.look.drop()
            self.look_due = True
        self._schedule()

    # --- Reporting

    def drain(self, epoch: int, step: int, seconds: float) -> Iterator[Event]:
        """Yield the measurements since the last call, synchronising the device if some are pending."""
        hits: list[tuple[int, WatchHit, str | None]] = []
        points = self._control.watch
        if points is not self._points:
            self._points = points
            self._told.clear()
        yield from self._hashes.drain()
        if self._norms:
            for at, norms in self._fetched():
                yield GradientNorms(at, self.sampler.layers, norms)
                by_layer = dict(zip(self.sampler.layers, norms, strict=True))
                hits += [
                    (at, new_hit, _node_of(self._source, new_hit.layer))
                    for new_hit in gradients_above(points, by_layer)
                ]
        if self._looked_at is not None:
            at, self._looked_at = self._looked_at, None
            measurements = self.look.fetch()
            yield LayerFigures(
                at,
                self.sampler.layers,
                measurements.weights,
                measurements.ratios,
                tuple(measurements.dead),
                tuple(measurements.dead.values()),
            )
            if measurements.gains is not None:
                gains = measurements.gains
                yield GainFigures(
                    at, gains.reached, gains.layers, gains.arriving, gains.leaving
                )
            for kind, histograms in measurements.histograms.items():
                yield Histograms(at, kind, histograms)
            yield from self._notice(at)
            hits += [
                (at, new_hit, measurements.nodes[new_hit.layer])
                for new_hit in dead_above(points, measurements.dead)
            ]
        now = perf_counter()
        if now >= self._memory_meter.due:
            yield from self._read_memory(step, seconds, hits)
        if now >= self._delay_due:
            yield from self._notice_delay(step, now)
        self.flush_due = now + FLUSH_EVERY
        self._schedule()
        for at, hit, node in hits:
            if (hit.what, hit.layer) not in self._told:
                self._told.add((hit.what, hit.layer))
                self._control.pause()
                message = f"Paused at step {at:,}: {hit.message}."
                yield Caught(epoch, at, hit.what, hit.layer, node, hit.value, message)

    def _notice_delay(self, step: int, now: float) -> Iterator[Event]:
        """Report that other programs slow the run down, once until that is over."""
        self._delay_due = now + DELAY_EVERY
        share = self._delay.share()
        if share > SLOWED and not self._slowed:
            waited = f"{round(100 * share)} % of the last {DELAY_EVERY:.0f} seconds it waited for a processor"
            yield Noticed(
                step, "", None, f"Other programs slow this run down: {waited}."
            )
        self._slowed = share > (CALM if self._slowed else SLOWED)

    def _notice(self, step: int) -> Iterator[Event]:
        """Return mistakes not reported yet."""
        with self._look_meter:
            new = [
                candidate
                for candidate in mistakes(self._live.model)
                if (candidate.layer, candidate.name) not in self._noticed
            ]
        for mistake in new:
            self._noticed.add((mistake.layer, mistake.name))
            yield Noticed(
                step, mistake.layer, _node_of(self._source, mistake.layer), mistake.text
            )

    def _fetched(self) -> list[tuple[int, tuple[float, ...]]]:
        with self._norms_meter:
            rows, self._norms = self._norms, []
            values = torch.stack([norms for _, norms in rows]).tolist()
            return [
                (at, self.sampler.by_layer(row))
                for (at, _), row in zip(rows, values, strict=True)
            ]

    def _read_memory(
        self, step: int, seconds: float, hits: list[tuple[int, WatchHit, str | None]]
    ) -> Iterator[Event]:
        for meter in (self._norms_meter, self._look_meter, self._memory_meter):
            meter.settle()
        with self._memory_meter:
            r = memory.read(self._live.device)
        self._memory_meter.schedule_next()
        yield MemorySample(
            step, seconds, r.scope, r.allocated, r.reserved, r.peak, r.resident
        )
        yield Looking(step, step - self.began[0], self.seconds, seconds - self.began[1])
        yield self.hashing(step, seconds)
        hits += [
            (step, hit, None)
            for hit in memory_above(self._control.watch, r.allocated or r.resident)
        ]

    def hashing(self, step: int, seconds: float) -> Hashing:
        """Return the cost of recording hashes up to a step and second of the run."""
        return self._hashes.cost(step, step - self.began[0], seconds - self.began[1])

    def hash_seconds(self) -> float:
        """Return the mean seconds of hashing one step, 0 before the first."""
        return self._hashes.mean_seconds

    def clear(self) -> None:
        """Release tensors on the device."""
        self._hashes.clear()
        self.look.drop()
        self._norms.clear()


def _node_of(source: Source, layer: str) -> str | None:
    """Return the node of a layer, of the module that contains it, or of a parameter of the network itself."""
    owners = {path: node for node, path in source.modules.items()}
    while layer and layer not in owners:
        layer = layer.rpartition(".")[0]
    return owners.get(layer)
