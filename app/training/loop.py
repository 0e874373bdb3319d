"""The training loop as a generator of events.

Its arithmetic is that of the exported `train.py`, operation for operation, so the losses are equal bit for bit on the
CPU with the same torch and the same number of threads. Whatever watches a run must keep it so: nothing here draws
from torch's generators, and visitors put them back (`app.rng`, `app.training.live`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

from app.data.sources import load
from app.rng import GENERATOR
from app.telemetry import memory
from app.telemetry.gradients import GradientSampler
from app.training.choices import make_loss, make_optimizer
from app.training.control import Control, Ending, Result
from app.training.devices import Resolved, resolve
from app.training.events import (
    EpochDone,
    Event,
    Finished,
    GradientNorms,
    MemorySample,
    Paused,
    Resumed,
    Started,
    StepDone,
)
from app.training.failures import failure
from app.training.finite import not_finite
from app.training.job import Job, check_input, check_numbers
from app.training.live import Live
from app.training.metrics import check_output, make_targets
from app.training.start import initial_module

if TYPE_CHECKING:
    from torch import Tensor

FLUSH_EVERY = 0.05


def train(job: Job, control: Control | None = None, *, threads: int | None = None) -> Iterator[Event]:
    """Run `job`; the last event is Finished or Failed. Exceptions of the job become Failed, none comes through.

    Iterate on one thread, where torch's `threads` is set too (OpenMP counts per calling thread); None keeps the
    process's default. `control` is the hand on the run and keeps the weights when it has ended.
    """
    control = control or Control()
    run = _Run(job, control)
    ending: Ending = "abandoned"
    failed = None
    try:
        try:
            for event in run.events(threads):
                if isinstance(event, Finished):
                    ending = event.reason
                    run.hand_over(ending)
                yield event
        except (Exception, SystemExit) as error:  # a layer of a person's own may call sys.exit
            failed = failure(error, job.source, job.training.batch_size, run.epoch, run.step)
        # Outside the handler: the exception's frames hold tensors, and the reader may take its time.
        if failed is not None:
            ending = "failed"
            run.hand_over(ending)
            yield failed
    finally:
        run.hand_over(ending)


class _Run:
    """One pass through a job. `epoch` and `step` are those of the last whole step."""

    def __init__(self, job: Job, control: Control) -> None:
        self.job, self.control = job, control
        self.live: Live | None = None
        self.epoch = self.step = 0
        # (epoch, step, loss, samples, seconds) and (step, norms): on the device until they are flushed.
        self._losses: list[tuple[int, int, Tensor, int, float]] = []
        self._norms: list[tuple[int, Tensor]] = []
        self._flush_due = self._memory_due = 0.0
        self._origin = 0.0
        self._total = 0.0

    def events(self, threads: int | None) -> Iterator[Event]:
        import torch

        check_numbers(self.job)
        check_input(self.job)
        torch.set_num_threads(threads or torch.get_num_threads())
        resolved = resolve(self.job.training.device)
        yield self._set_up(resolved)
        self._origin = perf_counter()
        for epoch in range(1, self.job.training.epochs + 1):
            yield from self._train_epoch(epoch)
            if self.control.stopping:
                break
        done = not self.control.stopping
        yield Finished("done" if done else "stopped", self.epoch, self.step, self._seconds())

    def hand_over(self, ending: Ending) -> None:
        """Leave the weights with the control, once."""
        if self.control.result is None:
            weights = self.live.weights() if self.live else None
            self.control.finish(Result(ending, self.epoch, self.step, weights))
            self.live = None
            self._losses.clear()
            self._norms.clear()

    def _set_up(self, resolved: Resolved) -> Started:
        import torch

        training, device = self.job.training, resolved.id
        data = load(self.job.data, self.job.data_root).to(device)
        with GENERATOR:
            torch.manual_seed(training.seed)
            model = initial_module(self.job.source, training.start).to(device)
            # Taken along, so that whatever ran between two steps is not noticed.
            loss = make_loss(training.loss).to(device)
            optimizer = make_optimizer(training.optimizer, model.parameters())
        self._shuffle = torch.Generator().manual_seed(training.seed)
        classes = len(data.info.classes)
        self._train_targets = make_targets(training.loss.name, data.train_labels, classes)
        self._val_targets = make_targets(training.loss.name, data.val_labels, classes)
        self._sampler = GradientSampler(model)
        # On the CPU every number is there at once; elsewhere reading one waits for the device.
        self._at_once = device == "cpu"
        self.live = Live(model, optimizer, loss, data, device)
        self.control.attach(self.live)
        return Started(
            device,
            resolved.note,
            training.epochs,
            training.batch_size,
            math.ceil(data.info.train_count / training.batch_size),
            training.seed,
            sum(p.numel() for p in model.parameters() if p.requires_grad),
            self._sampler.layers,
            data.info.train_count,
            data.info.validation_count,
        )

    @property
    def _now(self) -> Live:
        assert self.live is not None
        return self.live

    def _seconds(self) -> float:
        return perf_counter() - self._origin

    def _train_epoch(self, epoch: int) -> Iterator[Event]:
        import torch

        live, count = self._now, self._now.data.info.train_count
        live.model.train()
        self._total = 0.0
        correct = torch.zeros((), dtype=torch.int64, device=live.device)
        order = torch.randperm(count, generator=self._shuffle).to(live.device)
        for batch in order.split(self.job.training.batch_size):
            if self.control.attention:
                yield from self._attend()
                if self.control.stopping:
                    yield from self._flush()
                    return
            yield from self._take_step(epoch, batch, correct)
        yield from self._flush()
        train_loss, train_accuracy = self._total / count, int(correct) / count
        val_loss, val_accuracy = self._evaluate()
        if not self.control.stopping:
            yield EpochDone(epoch, self.step, train_loss, train_accuracy, val_loss, val_accuracy, self._seconds())

    def _take_step(self, epoch: int, batch: Tensor, correct: Tensor) -> Iterator[Event]:
        """One batch. `correct` is counted up in place."""
        import torch

        live = self._now
        with GENERATOR:
            state = torch.get_rng_state() if self._at_once else None
            inputs, targets = live.data.train_inputs[batch], self._train_targets[batch]
            live.optimizer.zero_grad(set_to_none=True)
            output = live.model(inputs)
            if not self.step:
                check_output(output, self.job.training.loss.name, len(batch), len(live.data.info.classes))
            loss = live.loss(output, targets)
            value = loss.item() if self._at_once else 0.0
            if not math.isfinite(value):
                # Before backward, so that the weights stay those of the last good step.
                raise not_finite(live.model, self.job.source, inputs, state, value, self.step + 1)
            loss.backward()
            now = perf_counter()
            norms = self._sampler.measure() if self._sampler.is_due(now) else None
            live.optimizer.step()
            correct += (output.argmax(1) == live.data.train_labels[batch]).sum()
        self.step += 1
        self.epoch = live.epoch = epoch
        live.step = self.step
        seconds = perf_counter() - self._origin
        if norms is not None:
            self._norms.append((self.step, norms))
        if self._at_once:
            self._total += value * len(batch)
            yield StepDone(epoch, self.step, value, len(batch), seconds)
        else:
            self._losses.append((epoch, self.step, loss.detach(), len(batch), seconds))
        if now >= self._flush_due:
            yield from self._flush()

    def _flush(self) -> Iterator[Event]:
        """Fetch what waits on the device, and say it. Raises NotFinite where a loss turns out to be so."""
        import torch

        losses, self._losses = self._losses, []
        norms, self._norms = self._norms, []
        if losses:
            values = torch.stack([loss for _, _, loss, _, _ in losses]).tolist()
            for (epoch, step, _, samples, seconds), value in zip(losses, values, strict=True):
                self._must_be_finite(value, step)
                self._total += value * samples
                yield StepDone(epoch, step, value, samples, seconds)
        if norms:
            layers = self._sampler.layers
            for (step, _), row in zip(norms, torch.stack([n for _, n in norms]).tolist(), strict=True):
                yield GradientNorms(step, layers, self._sampler.by_layer(row))
        now = perf_counter()
        self._flush_due = now + FLUSH_EVERY
        if now >= self._memory_due:
            self._memory_due = now + memory.EVERY
            r = memory.read(self._now.device)
            yield MemorySample(self.step, now - self._origin, r.scope, r.allocated, r.reserved, r.peak, r.resident)

    def _must_be_finite(self, value: float, step: int) -> None:
        """On a device a loss is seen a little late; the batch is gone, and the weights may be spoilt since."""
        if math.isfinite(value):
            return
        live = self._now
        raise not_finite(live.model, self.job.source, live.data.train_inputs[:1], None, value, step)

    def _evaluate(self) -> tuple[float | None, float | None]:
        """Mean loss and accuracy on the validation samples; None if there are none, or if the run is stopped."""
        import torch

        live, count = self._now, self._now.data.info.validation_count
        if not count:
            return None, None
        live.model.eval()
        losses, sizes, correct = [], [], torch.zeros((), dtype=torch.int64, device=live.device)
        for batch in torch.arange(count, device=live.device).split(self.job.training.batch_size):
            if self.control.stopping:
                return None, None
            with GENERATOR, torch.inference_mode():
                output = live.model(live.data.val_inputs[batch])
                losses.append(live.loss(output, self._val_targets[batch]))
                sizes.append(len(batch))
                correct += (output.argmax(1) == live.data.val_labels[batch]).sum()
        total = 0.0
        for value, size in zip(torch.stack(losses).tolist(), sizes, strict=True):
            total += value * size
        return total / count, int(correct) / count

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
                yield Paused(self.epoch, self.step)
            control.wait()
        if stood is not None:
            # The clock of the run leaves the pause out.
            self._origin += perf_counter() - stood
            if not control.paused:
                yield Resumed(self.epoch, self.step)
