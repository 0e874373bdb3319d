"""Parse the JSON lines of a run in another process into events."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from app.engine.watched import frame_types
from app.training.events import (
    EpochDone,
    Event,
    Failed,
    Finished,
    GradientNorms,
    GraphBreak,
    GroupRates,
    Looking,
    LossParts,
    MemorySample,
    Noticed,
    Paused,
    RateSet,
    Recompiled,
    Resumed,
    Saved,
    Skipped,
    Started,
    StepDone,
)
from tapedeck import frames

_REASONS: dict[str, Literal["done", "stopped", "left"]] = {
    "done": "done",
    "left": "left",
}
# Frames that have the fields of an event, in their order.
_SAME: dict[type[Any], Callable[..., Event]] = {
    frames.Saved: Saved,
    frames.GraphBreak: GraphBreak,
    frames.Recompiled: Recompiled,
    frames.Rate: RateSet,
    frames.Paused: Paused,
    frames.Resumed: Resumed,
    frames.Memory: MemorySample,
    frames.Looking: Looking,
}


class Reader:
    """Parses lines to events. `now` returns seconds since the start of the run, nan if unknown.

    Steps and samples missing from a line are derived from those of "started". With `timed` false, `now` is not the
    time of the run but of the reader of its file, which gives no speed; lines of scripts have their own times.
    """

    def __init__(
        self,
        now: Callable[[], float],
        note: str | None = None,
        timed: bool = True,
    ) -> None:
        self._now, self._note, self._timed = now, note, timed
        self._started: Started | None = None
        self.epoch = self.step = 0
        self._newest = 0  # the last step whose loss was read
        self._rate = math.nan
        self._layers: tuple[str, ...] = ()

    @property
    def has_started(self) -> bool:
        """Return whether the run has told how it started."""
        return self._started is not None

    def event(self, line: bytes | str) -> Event | None:
        """Parse a line; None for an unknown event. Raises ValueError, which quotes nothing of the line."""
        try:
            event = self._event(frame_types.decode(line), line)
        except ValueError as error:
            raise ValueError(f"not a line of a run: {error}") from error
        self.epoch = getattr(event, "epoch", self.epoch)
        self.step = getattr(event, "step", self.step)
        return event

    def _event(self, frame: Any, line: bytes | str) -> Event | None:
        match frame:
            case frames.Started():
                self._started = self._started_event(frame)
                self._newest = frame.resumed_at
                return self._started
            case frames.Step():
                return self._step_event(frame)
            case frames.Losses():
                losses = frame_types.numbers_named(line, "loss_")
                return LossParts(
                    frame.epoch,
                    frame.step,
                    tuple(losses),
                    tuple(map(_float, losses.values())),
                )
            case frames.Epoch():
                others = frame_types.numbers_named(
                    line, "val_", ("val_loss", "val_accuracy")
                ).items()
                scores = tuple((name, _float(value)) for name, value in others)
                figures = (
                    _float(frame.train_loss),
                    frame.train_accuracy,
                    frame.val_loss,
                    frame.val_accuracy,
                )
                return EpochDone(frame.epoch, frame.step, *figures, self._now(), scores)
            case frames.Said():
                return Noticed(frame.step, "", None, frame.message)
            case frames.Skipped():
                reason = (
                    frame.reason
                    or f"The batch of step {frame.step} was not trained on."
                )
                return Skipped(frame.epoch, frame.step, reason, None)
            case frames.Finished():
                return Finished(
                    _REASONS.get(frame.reason, "stopped"),
                    frame.epoch,
                    frame.steps,
                    self._now(),
                    frame.note,
                )
            case frames.Failed():
                ending = (frame.kind, frame.message, frame.cure, "", frame.node)
                return Failed(*ending, frame.epoch, frame.step)
        return self._telemetry(frame)

    def _telemetry(self, frame: Any) -> Event | None:
        """Return the events of measurements."""
        match frame:
            case frames.Layers():
                self._layers = _unique(frame.layers)
            case frames.Norms() if len(frame.norms) == len(self._layers):
                return GradientNorms(
                    frame.step, self._layers, tuple(map(_float, frame.norms))
                )
            case frames.Rates():
                if len(frame.groups) != len(frame.rates):
                    raise ValueError("there must be as many groups as rates")
                return GroupRates(
                    frame.step, _unique(frame.groups), tuple(map(_float, frame.rates))
                )
            case frames.Memory() if frame.scope not in ("device", "process"):
                return MemorySample(frame.step, frame.seconds, "process", *frame[3:])
        same = _SAME.get(type(frame))
        return same(*frame) if same is not None else None

    def _step_event(self, frame: frames.Step) -> StepDone:
        if self._started is None:
            raise ValueError("a step before the run has started")
        if frame.step <= self._newest:
            raise ValueError(f"step {frame.step} after step {self._newest}")
        self._newest = frame.step
        if frame.rate is None or not math.isnan(frame.rate):
            self._rate = _float(frame.rate)
        seconds = self._now() if frame.seconds is None else frame.seconds
        samples = self._samples(frame.epoch, frame.step)
        return StepDone(
            frame.epoch, frame.step, _float(frame.loss), samples, seconds, self._rate
        )

    def _samples(self, epoch: int, step: int) -> int:
        """Return the number of samples of a step; the last batch of an epoch has the remainder."""
        if self._started is None:
            return 0
        if not self._started.steps_per_epoch:
            return 1  # of a script, which tells steps alone
        batches, size, count = (
            getattr(self._started, n)
            for n in ("steps_per_epoch", "batch_size", "train_count")
        )
        left = count - (batches - 1) * size if step == epoch * batches else size
        return min(left, size, count)

    def _started_event(self, frame: frames.Started) -> Started:
        count, size = frame.train_count, frame.batch_size
        batches = math.ceil(count / size) if count and size else 0
        return Started(
            frame.device,
            self._note,
            frame.epochs,
            size or 0,
            batches,
            -1 if frame.seed is None else frame.seed,
            frame.parameters,
            (),
            count,
            frame.validation_count,
            frame.resumed_at,
            timed=self._timed or not batches,
            loss=frame.loss,
            torch=frame.torch,
            host=frame.host,
        )


def _float(value: float | None) -> float:
    """Return a number of a line, NaN where it was not finite."""
    return math.nan if value is None else value


def _unique(names: list[str]) -> tuple[str, ...]:
    """Return names that are columns. Raises ValueError where two are the same."""
    if len(set(names)) < len(names):
        raise ValueError("two of the names are the same")
    return tuple(names)
