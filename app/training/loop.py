"""The training loop as a generator of events.

Its arithmetic is that of the exported `train.py`, operation for operation, so the losses are equal bit for bit on the
CPU with the same torch and the same number of threads. Whatever watches a run must keep it so: nothing here draws
from torch's generators, and visitors put them back (`app.rng`, `app.training.live`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from app.data.sources import load
from app.rng import GENERATOR
from app.telemetry import memory
from app.telemetry.gradients import GradientSampler
from app.training import checkpoint
from app.training.checkpoint import Position
from app.training.control import Control, Ending, Result
from app.training.devices import Resolved, resolve
from app.training.evaluation import evaluate, sample_numbers
from app.training.events import (
    EpochDone,
    Event,
    Finished,
    GradientNorms,
    MemorySample,
    Paused,
    RateSet,
    Resumed,
    Saved,
    Saving,
    Skipped,
    Started,
    StepDone,
)
from app.training.failures import NotFinite, failure
from app.training.finite import not_finite
from app.training.job import Job, check_input, check_numbers
from app.training.live import Live
from app.training.metrics import Task
from app.training.order import batch_count, ordered
from app.training.saving import Saver
from app.training.start import initial_module
from app.training.stepper import Stepper
from app.training.switches import switched

if TYPE_CHECKING:
    from torch import Tensor

FLUSH_EVERY = 0.05


def train(
    job: Job,
    control: Control | None = None,
    *,
    threads: int | None = None,
    folder: Path | None = None,
    resume: Path | None = None,
) -> Iterator[Event]:
    """Run `job`; the last event is Finished or Failed. Exceptions of the job become Failed, none comes through.

    Iterate on one thread, where torch's `threads` is set too (OpenMP counts per calling thread); None keeps the
    process's default. `control` is the hand on the run and keeps the weights when it has ended. Checkpoints go into
    `folder`, none are taken without; with `resume`, one of them, the run goes on where that was taken.
    """
    control = control or Control()
    run = _Run(job, control, folder)
    ending: Ending = "abandoned"
    failed = None
    try:
        try:
            for event in run.events(threads, resume):
                if isinstance(event, Finished):
                    ending = event.reason
                    run.hand_over(ending)
                yield event
        except (Exception, SystemExit) as error:  # a layer of a person's own may call sys.exit
            failed = failure(error, job.source, job.training.batch_size, run.at.epoch, run.at.step)
        # Outside the handler: the exception's frames hold tensors, and the reader may take its time.
        if failed is not None:
            ending = "failed"
            run.hand_over(ending)
            yield from run.saved()
            yield failed
    finally:
        run.saved()
        run.hand_over(ending)


class _Run:
    """One pass through a job. `at` is where it stands after the last whole step."""

    def __init__(self, job: Job, control: Control, folder: Path | None) -> None:
        self.job, self.control = job, control
        self._saver = Saver(folder) if folder is not None else None
        self.config = job.training
        self.live: Live | None = None
        self.at = Position()
        # (epoch, step, loss, samples, seconds, rate) and (step, norms): on the device until they are flushed.
        self._losses: list[tuple[int, int, Tensor, int, float, float]] = []
        self._norms: list[tuple[int, Tensor]] = []
        self._flush_due = self._memory_due = 0.0
        self._origin = 0.0
        self._note = ""

    def events(self, threads: int | None, resume: Path | None) -> Iterator[Event]:
        import torch

        check_numbers(self.job)
        torch.set_num_threads(self.config.threads or threads or torch.get_num_threads())
        with ExitStack() as stack:
            stack.enter_context(switched(self.config))
            yield self._set_up(resolve(self.config.device), resume)
            self._origin = perf_counter() - self.at.seconds
            for epoch in range(self.at.done + 1, self.config.epochs + 1):
                yield from self._train_epoch(epoch)
                if self.control.stopping or self._note:
                    break
            yield from self._save(checkpoint.LAST)
            yield from self.saved()
        done = not self.control.stopping
        yield Finished("done" if done else "stopped", self.at.epoch, self.at.step, self._seconds(), self._note)

    def hand_over(self, ending: Ending) -> None:
        """Leave the weights with the control, once."""
        if self.control.result is None:
            weights = self.live.weights() if self.live else None
            self.control.finish(Result(ending, self.at.epoch, self.at.step, weights))
            self.live = None
            self._losses.clear()
            self._norms.clear()

    def _set_up(self, resolved: Resolved, resume: Path | None) -> Started:
        import numpy as np
        import torch

        training, device = self.config, resolved.id
        data = load(self.job.data, self.job.data_root)
        check_input(self.job, data.info)
        data = data.to(device)
        task = Task(training.loss.name, len(data.info.classes), data.info.task, data.info.labels_per_sample)
        with GENERATOR:
            torch.manual_seed(training.seed)
            random.seed(training.seed)
            np.random.seed(training.seed % 2**32)
            # Taken along, so that whatever ran between two steps is not noticed.
            model = initial_module(self.job.source, training.start).to(device)
            if training.channels_last:
                model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.stepper = Stepper(model, training, task, device)
            if self.job.data.class_weights:
                self._weigh_classes(data.info.class_counts, device)
        self._shuffle = torch.Generator().manual_seed(training.seed)
        self._sampler = GradientSampler(model)
        # On the CPU every number is there at once; elsewhere reading one waits for the device.
        self._at_once = device == "cpu"
        self._reads = self._at_once or training.not_finite == "skip"
        self.live = Live(self.stepper, data, device)
        if resume is not None:
            self._restore(resume)
        self.control.attach(self.live)
        return Started(
            device,
            resolved.note,
            training.epochs,
            training.batch_size,
            batch_count(self.job, data.info.train_count),
            training.seed,
            sum(p.numel() for p in model.parameters() if p.requires_grad),
            self._sampler.layers,
            data.info.train_count,
            data.info.validation_count,
            self.at.step,
        )

    def _weigh_classes(self, counts: tuple[int, ...], device: str) -> None:
        """Weigh rare classes in the loss as much as common ones."""
        import torch

        from app.data.splits import balanced_weights

        self.stepper.loss.weight = balanced_weights(torch.tensor(counts)).to(device)

    @property
    def _now(self) -> Live:
        assert self.live is not None
        return self.live

    def _seconds(self) -> float:
        return perf_counter() - self._origin

    # --- An epoch

    def _train_epoch(self, epoch: int) -> Iterator[Event]:
        live, data = self._now, self._now.data
        begun = self.at.epoch == epoch and self.at.batch > 0
        if not begun:
            self.at.batch, self.at.total, self.at.correct = 0, 0.0, 0
            self.at.order = self._shuffle.get_state()
        self._correct: Tensor | None = None
        chunks = ordered(self.job, data.info.train_count, self._shuffle)
        live.model.train()
        batches = data.train.batches(chunk.to(live.device) for chunk in chunks[self.at.batch :])
        for number in range(self.at.batch, len(chunks)):
            if self.control.attention:
                yield from self._attend()
                if self.control.stopping:
                    yield from self._flush()
                    return
            if self.stepper.set_by_hand:
                self.stepper.set_by_hand = False
                yield RateSet(self.at.step, self.stepper.rate)
            yield from self._take_step(epoch, len(chunks[number]), number + 1 == len(chunks), batches)
            if self._over():
                break
            if self.config.save_every and self.at.step % self.config.save_every == 0:
                yield from self._save(checkpoint.step_file(self.at.step))
        yield from self._flush()
        yield from self._end_epoch(epoch, sum(len(chunk) for chunk in chunks[: self.at.batch]))

    def _over(self) -> bool:
        """Whether a limit ends the run after this batch."""
        steps, minutes = self.config.max_steps, self.config.max_minutes
        if steps is not None and self.at.step >= steps:
            self._note = f"the limit of {steps:,} steps was reached"
        elif minutes is not None and self._seconds() >= 60 * minutes:
            self._note = f"the limit of {minutes:g} minutes was reached"
        return bool(self._note)

    def _end_epoch(self, epoch: int, count: int) -> Iterator[Event]:
        self._count_correct()
        accuracy = self.stepper.task.share(self.at.correct, count)
        train_loss = self.at.total / count
        val_loss, val_accuracy = self._evaluate()
        if self.control.stopping:
            return
        self.stepper.end_epoch(val_loss)
        self.at.done, self.at.batch = epoch, 0
        better = val_loss is not None and (self.at.best is None or val_loss < self.at.best)
        self.at.best, self.at.stale = (val_loss, 0) if better else (self.at.best, self.at.stale + 1)
        yield EpochDone(epoch, self.at.step, train_loss, accuracy, val_loss, val_accuracy, self._seconds())
        if better:
            yield from self._save(checkpoint.BEST)
        if self.config.patience and self.at.stale >= self.config.patience and not self._note:
            self._note = f"the validation loss has not become smaller for {self.at.stale} epochs"

    # --- A batch

    def _take_step(
        self, epoch: int, count: int, last: bool, batches: Iterator[tuple[Tensor, Tensor]]
    ) -> Iterator[Event]:
        import torch

        live, norms, now = self._now, None, 0.0
        rate = self.stepper.rate

        def look(loss: Tensor) -> None:
            # Before backward, so that the weights stay those of the last good step.
            if self._reads and not math.isfinite(value := loss.item()):
                raise not_finite(live.model, self.job.source, inputs, state, value, self.at.step + 1)

        def measure() -> None:
            nonlocal norms, now
            now = perf_counter()
            if self._sampler.is_due(now):
                norms = self._sampler.measure()

        skipped: NotFinite | None = None
        with GENERATOR:
            state = torch.get_rng_state() if self._at_once else None
            inputs, labels = next(batches)
            try:
                batch = self.stepper.take(inputs, labels, last or self._is_last_step(), look, measure)
            except NotFinite as error:
                if self.config.not_finite != "skip":
                    raise
                skipped = error
        self.at.step, self.at.epoch, self.at.batch = self.at.step + 1, epoch, self.at.batch + 1
        live.epoch, live.step = epoch, self.at.step
        now = now or perf_counter()
        seconds = perf_counter() - self._origin
        if skipped is not None:
            yield Skipped(epoch, self.at.step, str(skipped), skipped.node)
            return
        if batch.correct is not None:
            self._correct = batch.correct if self._correct is None else self._correct + batch.correct
        if norms is not None:
            self._norms.append((self.at.step, norms))
        if self._at_once:
            value = batch.loss.item()
            self.at.total += value * count
            yield StepDone(epoch, self.at.step, value, count, seconds, rate)
        else:
            self._losses.append((epoch, self.at.step, batch.loss, count, seconds, rate))
        if now >= self._flush_due:
            yield from self._flush()

    def _is_last_step(self) -> bool:
        return self.config.max_steps is not None and self.at.step + 1 >= self.config.max_steps

    def _flush(self) -> Iterator[Event]:
        """Fetch what waits on the device, and say it. Raises NotFinite where a loss turns out to be so."""
        import torch

        losses, self._losses = self._losses, []
        norms, self._norms = self._norms, []
        if losses:
            values = torch.stack([loss for _, _, loss, _, _, _ in losses]).tolist()
            for (epoch, step, _, samples, seconds, rate), value in zip(losses, values, strict=True):
                self._must_be_finite(value, step)
                self.at.total += value * samples
                yield StepDone(epoch, step, value, samples, seconds, rate)
        if norms:
            layers = self._sampler.layers
            for (step, _), row in zip(norms, torch.stack([n for _, n in norms]).tolist(), strict=True):
                yield GradientNorms(step, layers, self._sampler.by_layer(row))
        if self._saver is not None and self._saver.news:
            yield from self._saver.told()
        now = perf_counter()
        self._flush_due = now + FLUSH_EVERY
        if now >= self._memory_due:
            self._memory_due = now + memory.EVERY
            r = memory.read(self._now.device)
            yield MemorySample(self.at.step, now - self._origin, r.scope, r.allocated, r.reserved, r.peak, r.resident)

    def _must_be_finite(self, value: float, step: int) -> None:
        """On a device a loss is seen a little late; the batch is gone, and the weights may be spoilt since."""
        if math.isfinite(value):
            return
        live = self._now
        raise not_finite(live.model, self.job.source, live.data.batch(1)[0], None, value, step)

    def _evaluate(self) -> tuple[float | None, float | None]:
        """Mean loss and accuracy on the validation samples; None if there are none, or if the run is stopped."""
        live = self._now
        chunks = sample_numbers(live.data.info.validation_count, self.config.batch_size, live.device)
        return evaluate(self.stepper, live.data.val.batches(chunks), lambda: self.control.stopping)

    # --- Checkpoints

    def _save(self, name: str) -> Iterator[Event]:
        """Take a checkpoint, if there is a folder for them. What goes wrong is told, and the run goes on."""
        if self._saver is None or not self.at.step:
            return
        yield from self._flush()
        yield Saving(self.at.step)
        with GENERATOR:
            self._count_correct()
            self.at.seconds = self._seconds()
            state = checkpoint.state_of(self.job.source.text, self.at, self._shuffle, self.stepper)
            self._saver.put(name, self.at.step, state)

    def saved(self) -> list[Saved]:
        """Wait until the checkpoints are written, and say what came of them."""
        return self._saver.close() if self._saver is not None else []

    def _restore(self, path: Path) -> None:
        self.at = checkpoint.go_on(path, self.job.source.text, self._shuffle, self.stepper)

    def _count_correct(self) -> None:
        """Take over what was counted on the device; reading it waits for that."""
        if self._correct is not None:
            self.at.correct += int(self._correct)
            self._correct = None

    # --- Hands

    def _attend(self) -> Iterator[Event]:
        """Do the work that was handed in, and stand while the control says so."""
        control, stood = self.control, None
        while True:
            control.run_calls()
            if control.stopping:
                return
            if control.may_step():
                break
            if stood is None:
                yield from self._flush()
                stood = perf_counter()
                yield Paused(self.at.epoch, self.at.step)
            control.wait()
        if stood is not None:
            # The clock of the run leaves the pause out.
            self._origin += perf_counter() - stood
            if not control.paused:
                yield Resumed(self.at.epoch, self.at.step)
