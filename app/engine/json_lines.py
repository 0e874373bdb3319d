"""Parse the JSON lines of a run in another process into events."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec

from app.training.events import (
    EpochDone,
    Event,
    Failed,
    Finished,
    GradientNorms,
    GroupRates,
    Hashing,
    Looking,
    LossParts,
    MemorySample,
    Noticed,
    Paused,
    RateSet,
    Resumed,
    Saved,
    Skipped,
    Started,
    StepDone,
    StepHashes,
)

_ALWAYS = ("epoch", "step", "train_loss")
_FIGURES = ("train_accuracy", "val_loss", "val_accuracy")
_decoder = msgspec.json.Decoder(dict[str, Any])


class Reader:
    """Parses lines to events. `now` returns seconds since the start of the run, nan if unknown; `batches` returns the
    batches per epoch for a number of samples, where rounding up is not right.

    Steps and samples missing from a line are derived from those of "started". With `timed` false, `now` is not the
    time of the run but of the reader of its file, which gives no speed; lines of scripts have their own times.
    """

    def __init__(
        self, now: Callable[[], float], note: str | None = None, batches: Callable[[int], int] | None = None,
        timed: bool = True,
    ) -> None:  # fmt: skip
        self._now, self._note, self._batches, self._timed = now, note, batches, timed
        self._started: Started | None = None
        self.epoch = self.step = 0
        self._rate = math.nan
        self._layers: tuple[str, ...] = ()
        self._hash_layers: tuple[str, ...] = ()

    def event(self, line: bytes | str) -> Event | None:
        """Parse a line; None for an unknown event. Raises ValueError."""
        try:
            fields = _decoder.decode(line)
            event = self._event(fields.pop("event", ""), fields)
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise ValueError(f"not a line of a run: {line!r:.200}") from error
        self.epoch = getattr(event, "epoch", self.epoch)
        self.step = getattr(event, "step", self.step)
        return event

    def _event(self, kind: str, fields: dict[str, Any]) -> Event | None:
        number = {name: math.nan if value is None else value for name, value in fields.items()}
        match kind:
            case "started":
                self._started = self._started_event(fields)
                return self._started
            case "step":
                epoch, step = int(fields["epoch"]), int(fields["step"])
                self._rate = float(number.get("rate", self._rate))
                seconds = float(fields.get("seconds", self._now()))
                return StepDone(epoch, step, float(number["loss"]), self._samples(epoch, step), seconds, self._rate)
            case "losses":
                names = tuple(name for name in fields if name.startswith("loss_"))
                outputs = tuple(name.removeprefix("loss_") for name in names)
                return LossParts(fields["epoch"], fields["step"], outputs, tuple(float(number[n]) for n in names))
            case "epoch":
                known = {*_FIGURES, *_ALWAYS}
                others = tuple((k.removeprefix("val_"), float(number[k])) for k in fields if k not in known)
                train_loss = float(number["train_loss"])
                accuracy, val_loss, val_accuracy = (fields[name] for name in _FIGURES)
                figures = (train_loss, accuracy, val_loss, val_accuracy)
                return EpochDone(fields["epoch"], fields["step"], *figures, self._now(), others)
            case "said":
                return Noticed(fields["step"], "", None, fields["message"])
            case "skipped":
                step = fields["step"]
                return Skipped(fields["epoch"], step, f"The batch of step {step} was not trained on.", None)
            case "saved":
                return Saved(fields["step"], fields["path"], fields["problem"])
            case "rate":
                return RateSet(fields["step"], fields["rate"], fields.get("group", ""))
            case "paused":
                return Paused(fields["epoch"], fields["step"])
            case "resumed":
                return Resumed(fields["epoch"], fields["step"])
            case "hash_layers":
                self._hash_layers = tuple(map(str, fields["layers"]))
                return None
            case "hashes":
                return self._hashes(fields)
            case "hashing":
                return Hashing(
                    fields["step"], fields["steps"], fields["hashed"], float(fields["spent"]), float(fields["seconds"])
                )
            case "layers" | "norms" | "rates" | "memory" | "looking":
                return self._telemetry(kind, fields)
            case "finished":
                return Finished(fields["reason"], fields["epoch"], fields["steps"], self._now(), fields.get("note", ""))
            case "failed":
                kind, message, cure = fields["kind"], fields["message"], fields["cure"]
                return Failed(kind, message, cure, "", fields["node"], fields["epoch"], fields["step"])
        return None

    def _hashes(self, fields: dict[str, Any]) -> StepHashes | None:
        """Return the hashes of one step of a run on several processes."""
        row = (fields["step"], fields["epoch"], fields["batch"], fields["generator"], *fields["layers"])
        if len(row) != 4 + len(self._hash_layers):
            return None
        try:
            data = struct.pack(f"<{len(row)}q", *row)
        except struct.error as error:
            raise ValueError(f"not the hashes of a step: {row!r:.200}") from error
        return StepHashes(fields["step"], self._hash_layers, data)

    def _telemetry(self, kind: str, fields: dict[str, Any]) -> Event | None:
        """Return the further events of a watched script; see `tapedeck.frames`."""
        step = int(fields.get("step", 0))
        match kind:
            case "layers":
                self._layers = tuple(map(str, fields["layers"]))
                return None
            case "norms":
                norms = tuple(math.nan if norm is None else float(norm) for norm in fields["norms"])
                return GradientNorms(step, self._layers, norms) if len(norms) == len(self._layers) else None
            case "rates":
                rates = (math.nan if rate is None else float(rate) for rate in fields["rates"])
                return GroupRates(step, tuple(fields["groups"]), tuple(rates))
            case "memory":
                sizes = (fields[name] for name in ("allocated", "reserved", "peak", "resident"))
                return MemorySample(step, float(fields["seconds"]), fields["scope"], *sizes)
        return Looking(step, fields["steps"], fields["spent"], fields["seconds"])

    def _samples(self, epoch: int, step: int) -> int:
        """Return the number of samples of a step; the last batch of an epoch has the remainder."""
        if self._started is None:
            return 0
        if not self._started.steps_per_epoch:
            return 1  # of a script, which tells steps alone
        batches, size, count = (getattr(self._started, n) for n in ("steps_per_epoch", "batch_size", "train_count"))
        left = count - (batches - 1) * size if step == epoch * batches else size
        return min(left, size, count)

    def _started_event(self, fields: dict[str, Any]) -> Started:
        epochs, size, count = (int(fields[name]) for name in ("epochs", "batch_size", "train_count"))
        batches = self._batches(count) if self._batches is not None else max(1, math.ceil(count / size))
        batches = batches if "train_count" in fields and count else 0
        return Started(
            fields["device"], self._note, epochs, size, batches, fields["seed"], fields["parameters"], (), count,
            fields["validation_count"], fields.get("resumed_at", 0), timed=self._timed or not batches,
        )  # fmt: skip


class Clock:
    """Seconds since the start without pauses, plus those of the run `before` that is resumed."""

    def __init__(self) -> None:
        self.before = 0.0
        self._began: float | None = None
        self._stood: float | None = None

    def __call__(self) -> float:
        return 0.0 if self._began is None else (self._stood or perf_counter()) - self._began

    def follow(self, event: Event) -> None:
        """Start, pause and resume with the events of a run."""
        now = perf_counter()
        if isinstance(event, Started):
            self._began, self._stood = now - self.before, None
        elif isinstance(event, Paused) and self._stood is None:
            self._stood = now
        elif self._stood is not None and self._began is not None:
            self._began, self._stood = self._began + now - self._stood, None
