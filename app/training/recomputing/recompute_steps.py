"""Recompute the steps of a run from a checkpoint, or from its start, and verify each by its recorded hashes.

It is the loop of the run itself, with another watcher: nothing is measured or saved, every step is hashed, and the
state before its forward pass is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from msgspec import Struct
from msgspec.structs import replace

from app.source.generated import Source
from app.training.control import Control
from app.training.events import Caught, Failed, Skipped, Started, StepDone
from app.training.job import Job
from app.training.loop import train
from app.training.monitoring.live_model import LiveRun
from app.training.monitoring.watch_points import WatchPoints
from app.training.monitoring.watcher import Watcher
from app.training.recomputing.errors import RecomputeCancelledError, RecomputeError
from app.training.recomputing.hashes import GradientHasher
from app.training.recomputing.recorded import FIRST, GENERATOR, Recorded
from app.training.recomputing.snapshot import Snapshot, gradients_of

if TYPE_CHECKING:
    from torch import Tensor

    from app.training.stepper import StepInputs

T = TypeVar("T")


class Parting(Struct, frozen=True):
    """The first step that is not the recorded one. `what` is "gradients", "generator", "position" or "loss"; `layers`
    are those whose gradients differ, in the order of the run's layers."""

    step: int
    what: str
    layers: tuple[str, ...] = ()


class StepFigures(Struct, frozen=True):
    """What a recomputed step computed: by layer the hash of its gradients and their norm, which is NaN without any. One
    that was not `trained`, for its loss was not finite, has neither."""

    step: int
    epoch: int
    batch: int
    loss: float
    generator: int
    hashes: dict[str, int]
    norms: dict[str, float]
    trained: bool = True


class RecomputeWatcher(Watcher):
    """Hashes every step and compares it with the recorded one; `done` after the step `last`, or where they part."""

    every_step = True

    def __init__(
        self,
        live: LiveRun,
        source: Source,
        control: Control,
        recorded: Recorded,
        last: int,
        probe: Probe | None,
    ) -> None:
        super().__init__(live, source, control)
        self._measures = self.look_due = False
        self._memory_meter.due = math.inf
        self._recorded, self._last, self._probe = recorded, last, probe
        self._hasher = GradientHasher(live.model, live.device)
        self._row: tuple[Tensor, Tensor] | None = None
        self._layer_norms: Tensor | None = None
        self.live = live
        self.snapshot: Snapshot | None = None
        self.snapshot_of = 0  # the step that the snapshot is of
        self.gradients: list[
            Tensor | None
        ] = []  # of the last step, as backward left them
        self.parting: Parting | None = None
        self.done = False
        self.verified = 0  # steps whose recorded hashes were found equal
        live.stepper.before_forward = self._before_forward
        live.stepper.after_backward = self._after_backward
        if probe is not None:
            probe.begin(self)
            self.look_due = probe.looks

    @property
    def _is_last(self) -> bool:
        return self.live.step + 1 == self._last

    def _before_forward(self, step_inputs: StepInputs) -> None:
        self.snapshot = None  # its memory first
        self.snapshot = Snapshot(self.live.stepper, step_inputs)
        self.snapshot_of = self.live.step + 1

    def _after_backward(self) -> None:
        """Keep the gradients of a closure before they are clipped."""
        if self._is_last:
            self.gradients = gradients_of(self.live.model)

    def hash_gradients(self) -> None:
        self._row = self._hasher.generator(), self._hasher.gradients()
        if self._is_last:
            self._layer_norms = (
                self.sampler.measure()
            )  # `measure` follows where the optimizer takes a step
            self.gradients = self.gradients or gradients_of(self.live.model)

    def measure(self) -> None:
        if self._is_last or self._probe is not None:
            self._layer_norms = self.sampler.measure()
        super().measure()

    def skipped(self) -> None:
        super().skipped()
        self._row = None

    def after(self, step: int, updated: bool, now: float) -> None:
        for change in self._recorded.rates:
            if change.step == step:
                self.live.stepper.set_rate(change.rate, change.group)
        self.parting = self._compared(step)
        self.done = self.parting is not None or step >= self._last
        if self._probe is not None and self.parting is None:
            self.look_due = self._probe.looks
            if self.look.open:
                self.look.forward_done()
            self.done = self._probe.holds(self, step, updated) or self.done
        self.flush_due = 0.0 if self.done else self.flush_due

    def _compared(self, step: int) -> Parting | None:
        row = self._recorded.hashes.get(step)
        if row is None or self._row is None:
            return None
        generator, hashes = int(self._row[0]), self._row[1].tolist()
        if row[:GENERATOR] != (self.live.epoch, self.live.batch):
            return Parting(step, "position")
        names, expected = self._hasher.layers, self._recorded.layers_of(step)
        if names != expected:
            return Parting(
                step,
                "gradients",
                tuple(name for name in names if name not in expected) or names,
            )
        pairs = zip(names, hashes, row[FIRST:], strict=True)
        if parted := tuple(
            name for name, computed, other in pairs if computed != other
        ):
            return Parting(step, "gradients", parted)
        if generator != row[GENERATOR]:
            return Parting(step, "generator")
        self.verified += 1
        return None

    def figures(self, step: int, loss: float) -> StepFigures:
        """Return the results of the last step."""
        assert self._row is not None
        names = self._hasher.layers
        hashes = dict(zip(names, self._row[1].tolist(), strict=True))
        measured = (
            self.sampler.by_layer(self._layer_norms.tolist())
            if self._layer_norms is not None
            else ()
        )
        norms = dict(zip(names, measured or (math.nan,) * len(names), strict=True))
        return StepFigures(
            step,
            self.live.epoch,
            self.live.batch,
            loss,
            int(self._row[0]),
            hashes,
            norms,
        )

    def layer_norms(self) -> dict[str, float]:
        """Return the gradient norm of each layer at the last step; empty between two steps of the optimizer."""
        if self._layer_norms is None:
            return {}
        norms = self.sampler.by_layer(self._layer_norms.tolist())
        self._layer_norms = None
        return dict(zip(self.sampler.layers, norms, strict=True))

    def largest_weights(self) -> dict[str, float]:
        """Return the largest magnitude of each layer's weights."""
        with torch.no_grad():
            norms = torch._foreach_norm(
                [parameter.detach() for parameter in self.sampler.parameters], math.inf
            )
            magnitudes = torch.stack(
                [norm.to(norms[0].device, torch.float32) for norm in norms]
            ).tolist()
        largest: dict[str, float] = {}
        for layer, value in zip(self.sampler.owners, magnitudes, strict=True):
            largest[layer] = max(value, largest.get(layer, 0.0))
        return largest


class Probe:
    """Probe of every recomputed step, until its condition holds."""

    looks = False  # whether the telemetry's close look is wanted at every step

    def begin(self, watcher: RecomputeWatcher) -> None:
        """Prepare for the run."""

    def holds(self, _watcher: RecomputeWatcher, _step: int, _updated: bool) -> bool:
        """Return whether to end after this step."""
        return False


class Recomputed(Struct, Generic[T], frozen=True):
    """How re-living ended: at the requested step, or where it differed from the recorded run; `found` is what
    `at_end` made of that step."""

    started_at: int
    verified: int
    figures: StepFigures
    parting: Parting | None
    found: T
    changed: str = ""  # differences of the environment


def recompute_steps(
    job: Job,
    recorded: Recorded,
    step: int,
    at_end: Callable[[RecomputeWatcher, StepFigures], T],
    *,
    resume: Path | None = None,
    tell: Callable[[int, int], None] = lambda _done, _of: None,
    cancelled: Callable[[], bool] = lambda: False,
    probe: Probe | None = None,
) -> Recomputed[T]:
    """Run a job from the checkpoint `resume`, or from its start, up to a step, from 1, and verify every step.

    It ends at the first step that is not the recorded one. `at_end` is called after the last step while the run stands,
    with the state before it in the watcher's snapshot; `tell` gets the steps done, and how many there are. Raises
    RecomputeError, RecomputeCancelledError, and what `at_end` raises.
    """
    control, watchers = Control(), list[RecomputeWatcher]()
    if recorded.not_finite:
        control.pause_at(WatchPoints(not_finite=True))

    def watch(live: LiveRun, source: Source, control: Control) -> Watcher:
        watcher = RecomputeWatcher(live, source, control, recorded, step, probe)
        if watchers:  # the net was edited
            watcher.verified = watchers[-1].verified
        watchers[:] = [watcher]
        return watcher

    unlimited = replace(job, training=replace(job.training, max_minutes=None))
    began, changed, per_epoch = 0, "", 0
    events = train(unlimited, control, resume=resume, watch=watch)
    try:
        for event in events:
            match event:
                case Started():
                    began, changed, per_epoch = (
                        event.resumed_at,
                        event.changed,
                        event.steps_per_epoch,
                    )
                    _set_rates(watchers[0], recorded, began)
                case StepDone():
                    tell(event.step - began, step - began)
                    watcher = watchers[0]
                    recorded_loss = recorded.losses.get(event.step)
                    if (
                        watcher.parting is None
                        and recorded_loss is not None
                        and not _same(recorded_loss, event.loss)
                    ):
                        watcher.parting = Parting(event.step, "loss")
                    if watcher.done or watcher.parting is not None:
                        figures = watcher.figures(event.step, event.loss)
                        outcome = at_end(watcher, figures)
                        return Recomputed(
                            began,
                            watcher.verified,
                            figures,
                            watcher.parting,
                            outcome,
                            changed,
                        )
                case Skipped() if event.step == step == watchers[0].snapshot_of:
                    return _untrained(
                        watchers[0], event.step, per_epoch, began, changed, at_end
                    )
                case Skipped() if event.step >= step:
                    raise RecomputeError(
                        f"The batch of step {event.step:,} was not trained on: {event.message}"
                    )
                case Caught():
                    control.resume()
                case Failed(kind="not finite") if (
                    watchers and watchers[0].snapshot_of == step == event.step + 1
                ):
                    return _untrained(
                        watchers[0], step, per_epoch, began, changed, at_end
                    )
                case Failed():
                    raise RecomputeError(
                        f"Recomputing failed after step {event.step:,}: {event.message}"
                    )
            if cancelled():
                raise RecomputeCancelledError
    finally:
        events.close()  # type: ignore[attr-defined]
    reached = watchers[0].live.step if watchers else 0
    raise RecomputeError(
        f"The run has no step {step:,}: it ends after step {reached:,}."
    )


def _untrained(
    watcher: RecomputeWatcher,
    step: int,
    per_epoch: int,
    began: int,
    changed: str,
    at_end: Callable[[RecomputeWatcher, StepFigures], T],
) -> Recomputed[T]:
    """Return the end at a step whose loss was not finite."""
    epoch, batch = divmod(step - 1, max(per_epoch, 1))
    figures = StepFigures(
        step, epoch + 1, batch + 1, math.nan, 0, {}, {}, trained=False
    )
    return Recomputed(
        began, watcher.verified, figures, None, at_end(watcher, figures), changed
    )


def _set_rates(watcher: RecomputeWatcher, recorded: Recorded, step: int) -> None:
    for change in recorded.rates:
        if change.step == step:
            watcher.live.stepper.set_rate(change.rate, change.group)


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def leave_recomputing(watcher: RecomputeWatcher) -> Any:
    """Return the stepper without the hooks of re-living, at the state before the last step."""
    stepper = watcher.live.stepper
    stepper.before_forward = stepper.after_backward = None
    assert watcher.snapshot is not None
    watcher.snapshot.restore()
    return stepper
