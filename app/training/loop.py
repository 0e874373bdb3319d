"""The training loop as a generator of events.

Its arithmetic is that of the exported `train.py`, operation for operation, so the losses are equal bit for bit on the
CPU with the same torch and the same number of threads. Telemetry must not change that: nothing here draws from torch's
generators, and visitors restore them (`app.util.rng`, `app.training.monitoring.live_model`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from app.data.spec import ReadingCancelledError
from app.training.checkpoints import checkpoint
from app.training.checkpoints.checkpoint import Position
from app.training.checkpoints.fixed_settings import settings_of
from app.training.checkpoints.placing import Placing
from app.training.checkpoints.writer import Saver
from app.training.choices import CLOSURE
from app.training.control import Control, Ending, Result, RunEndedError
from app.training.error_messages import NotFinite, failure
from app.training.evaluation.metric_values import Gathered
from app.training.evaluation.validation import Evaluated, evaluate, sample_numbers
from app.training.events import (
    Caught,
    Cut,
    EpochDone,
    Event,
    Finished,
    Paused,
    Resumed,
    Saved,
    Saving,
    Skipped,
    Started,
    StepDone,
)
from app.training.job import Job, JobError, Stage, check_numbers
from app.training.monitoring import answers
from app.training.monitoring.live_model import LiveRun
from app.training.monitoring.nonfinite import not_finite
from app.training.monitoring.watcher import Watcher
from app.training.ranks import GO, STOP, WAIT, Decision, Ranks
from app.training.recomputing.snapshot import seconds_to_copy
from app.training.run_requests import Operate
from app.training.setup.batch_order import batch_count, ordered
from app.training.setup.device import Resolved
from app.training.setup.devices import device_name, resolve
from app.training.setup.losses_in_words import losses_in_words
from app.training.setup.prepare import set_up
from app.training.setup.thread_count import choose_threads
from app.training.setup.torch_flags import cpu_threads, switched
from app.training.stepper import BatchResult, NonFiniteLoss
from app.training.surgery.in_run import Operation
from app.training.surgery.operation import surgery_seed
from app.training.surgery.values import Outcome, Surgery, SurgeryError
from app.util.formatting import counted
from app.util.rng import GENERATOR

if TYPE_CHECKING:
    from torch import Tensor

    from app.source.generated import Source

    Watch = Callable[[LiveRun, Source, Control], Watcher]

EDITED = (
    "The net of this run was edited, which only a single process can repeat. Choose one process, or start a new run "
    "of the edited net."
)
HEARTBEAT = 1.0  # seconds: processes that wait for a paused one fail after minutes without a word
LONGEST_START = 20.0  # seconds of the processor: a process that has worked longer did other things before


def train(
    job: Job,
    control: Control | None = None,
    *,
    threads: int | None = None,
    folder: Path | None = None,
    resume: Path | None = None,
    watch: Watch = Watcher,
    ranks: Ranks | None = None,
) -> Iterator[Event]:
    """Run `job`; the last event is Finished or Failed. Exceptions of the job become Failed events.

    Iterate on one thread, where torch's `threads` is set too (OpenMP counts per calling thread); with None they are
    those of the job, else chosen by `choose_threads`. `control` controls the run and has the weights after its end.
    Checkpoints are saved to `folder`, if given; with `resume`, one of them, the run continues from there. `watch` makes
    what measures the steps. With `ranks` this is one of several processes of the run, of which the first obeys its
    control, measures and saves, and the others follow it.
    """
    control = control or Control()
    run = _Run(job, control, folder, watch, ranks)
    ending: Ending = "abandoned"
    failed = None
    try:
        try:
            for event in run.events(threads, resume):
                if isinstance(event, Finished):
                    ending = event.reason
                    run.hand_over(ending)
                yield event
        except (Exception, SystemExit) as error:  # a custom layer may call sys.exit
            failed = failure(
                error,
                run.job.source,
                job.training.batch_size,
                run.at.epoch,
                run.at.step,
            )
        # Outside the handler: the exception's frames hold tensors while the generator is suspended.
        if failed is not None:
            ending = "failed"
            run.hand_over(ending)
            yield from run.saved()
            yield failed
    finally:
        run.saved()
        run.hand_over(ending)


class _Run:
    """One execution of a job. `at` is its position after the last whole step."""

    def __init__(
        self,
        job: Job,
        control: Control,
        folder: Path | None,
        watch: Watch = Watcher,
        ranks: Ranks | None = None,
    ) -> None:
        self._ranks, self._decision = ranks, Decision(GO)
        # `job` is as it is in the stage that the run is in, `_whole` has all stages.
        self.job, self._whole, self.control, self._watch = job, job, control, watch
        self._stage = checkpoint.FIRST_STAGE
        self._saver = Saver(folder) if folder is not None else None
        self.config = job.training
        self._left_out = frozenset(job.training.leave_out)
        self.live: LiveRun | None = None
        self.at = Position()
        # (epoch, step, samples, seconds, rate, batch), whose losses are on the device until they are flushed.
        self._losses: list[tuple[int, int, int, float, float, BatchResult]] = []
        self._now_at = 0.0  # when the last step ended, on the clock of `perf_counter`
        self._batch: tuple[Tensor, Tensor] | None = (
            None  # the last one, until the measurements are reported
        )
        self._watcher: Watcher | None = None
        self._correct: Tensor | int = 0
        self._ignored: Tensor | int = 0
        self._origin = 0.0
        self._placing: Placing | None = None
        self._planned: tuple[Stage, ...] = ()
        self._copying = 0.0  # seconds of copying the state before a step
        self._note = self._changed = ""
        self._skipped = self._begun_at = (
            0  # steps whose loss was not finite, and the step that the run began after
        )

    def events(self, threads: int | None, resume: Path | None) -> Iterator[Event]:
        check_numbers(self.job)
        begun = perf_counter()
        with ExitStack() as stack:
            stack.enter_context(
                cpu_threads(self.config.threads or threads or choose_threads(self.job))
            )
            stack.enter_context(switched(self.config))
            try:
                started = self._set_up(resolve(self.config.device), resume)
            except ReadingCancelledError:
                yield Finished("stopped", 0, 0, 0.0)
                return
            yield started
            self._origin = perf_counter() - self.at.seconds
            self._begun_at = self.at.step
            if self.config.revisit_seconds and self._saver is not None:
                self._placing = self._begin_placing(perf_counter() - begun)
            for epoch in range(self.at.done + 1, self.config.epochs + 1):
                if self.at.step and self._over():  # already complete when resumed
                    break
                yield from self._train_epoch(epoch)
                if self._stopping or self._note:
                    break
            if self._planned and not self._stopping:
                late = f"the surgery planned after step {self._planned[0].step:,} was not reached"
                self._note = f"{self._note}; {late}" if self._note else late
            yield from self._save(checkpoint.LAST)
            yield from self.saved()
            if self._ranks is not None:
                self._ranks.leave()
        done, seconds = not self._stopping, self._seconds()
        yield self._watching.hashing(self.at.step, seconds)
        share = self._watching.share(seconds)
        yield Finished(
            "done" if done else "stopped",
            self.at.epoch,
            self.at.step,
            seconds,
            self._note,
            share,
            self._skipped,
            self.at.step - self._begun_at,
        )

    def hand_over(self, ending: Ending) -> None:
        """Pass the weights to the control, once."""
        if self.control.result is None:
            weights = self.live.weights() if self.live else None
            self.control.finish(Result(ending, self.at.epoch, self.at.step, weights))
            self.live = None
            self._losses.clear()
            if self._watcher is not None:
                self._watcher.clear()

    def _reading(self, _done: int, _total: int, _name: str) -> None:
        """Report whether the user cancelled while data are being read."""
        if self.control.stopping:
            raise ReadingCancelledError

    def _set_up(self, resolved: Resolved, resume: Path | None) -> Started:
        ranks = self._ranks
        if ranks is not None and self._whole.stages:
            raise JobError(EDITED)
        device = resolved.id if ranks is None else ranks.join(resolved.id)
        self._begin_stage(
            checkpoint.stage_of(resume)
            if resume is not None
            else checkpoint.FIRST_STAGE
        )
        training = self.config
        self.stepper, data = set_up(self.job, device, self._reading, ranks)
        self._shuffle = torch.Generator().manual_seed(training.seed)
        # On the CPU every number is there at once; elsewhere reading one waits for the device.
        self._reads = (
            device == "cpu" or training.not_finite == "skip" or ranks is not None
        )
        self.live = LiveRun(self.stepper, data, device)
        self._watcher = self._watch(self.live, self.job.source, self.control)
        if not self._leads:
            self._watcher.rest()
        if resume is not None:
            self._restore(resume)
            self.live.epoch, self.live.step, self.live.batch = (
                self.at.epoch,
                self.at.step,
                self.at.batch,
            )
        self._watcher.began = (self.at.step, self.at.seconds)
        self.control.attach(self.live, answers.answer)
        notes = (resolved.note, ranks.note if ranks is not None else None)
        return Started(
            device,
            " ".join(filter(None, notes)) or None,
            training.epochs,
            training.batch_size,
            batch_count(self.job, data.info.train_count),
            training.seed,
            self._parameters(),
            self._watcher.sampler.layers,
            data.info.train_count,
            data.info.validation_count,
            self.at.step,
            self._changed,
            str(torch.__version__),
            device_name(device),
            torch.get_num_threads(),
            sum(
                p.numel()
                for p in self.stepper.model.parameters()
                if not p.requires_grad
            ),
            data.info.stand_in,
            loss=losses_in_words(training, self.job.source, data.info.known_targets[0]),
        )

    def _parameters(self) -> int:
        """Return the number of trainable parameters."""
        return sum(
            p.numel() for p in self.stepper.model.parameters() if p.requires_grad
        )

    @property
    def _leads(self) -> bool:
        """Return whether this process decides for all of the run."""
        return self._ranks is None or not self._ranks.rank

    @property
    def _stopping(self) -> bool:
        if self._ranks is None:
            return self.control.stopping
        return self._decision.turn == STOP

    @property
    def _now(self) -> LiveRun:
        assert self.live is not None
        return self.live

    @property
    def _watching(self) -> Watcher:
        assert self._watcher is not None
        return self._watcher

    def _seconds(self) -> float:
        return perf_counter() - self._origin

    # --- An epoch

    def _train_epoch(self, epoch: int) -> Iterator[Event]:
        live, data = self._now, self._now.data
        begun = self.at.epoch == epoch and self.at.batch > 0
        if not begun:
            self.at.batch, self.at.samples, self.at.total, self.at.left_out = (
                0,
                0,
                0.0,
                0,
            )
            self.at.correct, self.at.ignored = 0, 0
            self.at.order = self._shuffle.get_state()
        self._correct = self._ignored = 0
        chunks = ordered(
            self.job, data.info.train_count, self._shuffle, self.at.samples
        )
        end = self.at.batch + len(chunks)
        live.model.train()
        self._watching.idle_until = 0.0  # an epoch may lack a look
        parts = chunks if self._ranks is None else map(self._ranks.part, chunks)
        batches = data.train.batches(part.to(live.device) for part in parts)
        for chunk in chunks:
            if self._planned:
                yield from self._operate_as_planned()
            if self.control.attention or self._ranks is not None:
                yield from self._attend()
                if self._stopping:
                    if not self.at.batch and self.at.order is not None:
                        # A resumed run draws the order of this epoch again.
                        self._shuffle.set_state(self.at.order)
                    yield from self._flush()
                    return
            if self.stepper.set_by_hand:
                yield from self.stepper.rates_set(self.at.step)
            if self._left_out and self.at.step + 1 in self._left_out:
                yield from self._leave_out(epoch, len(chunk), batches)
            else:
                if self._ranks is not None:
                    self._ranks.weigh(chunk)
                last = self.at.batch + 1 == end or (
                    self._limited and self._is_last_step()
                )
                yield from self._take_step(epoch, len(chunk), last, batches)
            reports = self._now_at >= self._watching.flush_due
            if reports:
                yield from self._report()
            if self._limited and self._over():
                break
            if self.config.save_every and self.at.step % self.config.save_every == 0:
                yield from self._save(checkpoint.step_file(self.at.step))
            if self._placing is not None and self._revisit_due(reports):
                yield from self._keep_to_revisit()
        yield from self._flush()
        yield from self._end_epoch(
            epoch, self.at.samples - self.at.left_out, whole=self.at.batch == end
        )

    def _over(self) -> bool:
        """Return whether a limit ends the run after this batch."""
        steps, minutes = self.config.max_steps, self.config.max_minutes
        if steps is not None and self.at.step >= steps:
            self._note = f"the limit of {steps:,} steps was reached"
        elif minutes is not None and self._agreed(self._seconds()) >= 60 * minutes:
            self._note = f"the limit of {minutes:g} minutes was reached"
        return bool(self._note)

    def _agreed(self, value: float) -> float:
        """Return the value of the process that decides for all."""
        return value if self._ranks is None else self._ranks.agreed(value)

    def _end_epoch(self, epoch: int, count: int, whole: bool) -> Iterator[Event]:
        self._count_correct()
        accuracy = (
            self.stepper.task.share(self.at.correct, count, self.at.ignored)
            if count
            else None
        )
        train_loss = self.at.total / count if count else math.nan
        gathered = Gathered(self.config.metrics, self.stepper.task)
        val_loss, val_accuracy, parts = self._evaluate(gathered)
        if self._stopping:
            return
        val_loss = val_loss if val_loss is None else self._agreed(val_loss)
        if whole:  # else a limit came first, and a resumed run continues with the remaining batches
            self.stepper.end_epoch(val_loss)
            self.at.done, self.at.batch, self.at.samples = epoch, 0, 0
        better = val_loss is not None and (
            self.at.best is None or val_loss < self.at.best
        )
        self.at.best, self.at.stale = (
            (val_loss, 0) if better else (self.at.best, self.at.stale + 1)
        )
        metrics = (*parts, *gathered.compute())
        yield EpochDone(
            epoch,
            self.at.step,
            train_loss,
            accuracy,
            val_loss,
            val_accuracy,
            self._seconds(),
            metrics,
        )
        if better:
            yield from self._save(checkpoint.BEST)
        if (
            self.config.patience
            and self.at.stale >= self.config.patience
            and not self._note
        ):
            self._note = f"the validation loss has not improved for {counted(self.at.stale, 'epoch')}"

    # --- A batch

    def _take_step(
        self,
        epoch: int,
        count: int,
        last: bool,
        batches: Iterator[tuple[Tensor, Tensor]],
    ) -> Iterable[Event]:
        """Train on the next batch, and return the events that are there at once.

        Every line of it counts: a step of a small net takes half a millisecond. So it is no generator, and what
        measures a step is called where something is due.
        """
        live, at, stepper, watcher = self.live, self.at, self.stepper, self._watcher
        assert live is not None and watcher is not None
        rate, read = stepper.rates.main, self._reads or self.control.watch.not_finite
        observed = perf_counter() >= watcher.idle_until
        with GENERATOR:
            inputs, labels = next(batches)
            if observed:
                watcher.begin()
            try:
                batch = stepper.take(
                    inputs, labels, last, watcher if observed else None, read
                )
            except NonFiniteLoss as error:
                return self._skip_step(error, epoch, count, inputs, labels)
        at.step, at.epoch, at.batch, at.samples = (
            at.step + 1,
            epoch,
            at.batch + 1,
            at.samples + count,
        )
        live.epoch, live.step, live.batch = epoch, at.step, at.batch
        self._now_at = now = perf_counter()
        if batch.correct is not None:
            self._correct = self._correct + batch.correct
        self._ignored = self._ignored + (0 if batch.ignored is None else batch.ignored)
        if observed:
            watcher.after(at.step, batch.updated, now)
        if now >= watcher.flush_due:
            self._batch = inputs, labels
        if not read:
            self._losses.append(
                (epoch, at.step, count, now - self._origin, rate, batch)
            )
            return ()
        before = (
            list(self._flush()) if self._losses else ()
        )  # of steps before the loss was read
        at.total += batch.value * count
        done = StepDone(epoch, at.step, batch.value, count, now - self._origin, rate)
        return (*before, *batch.events(done)) if before else batch.events(done)

    def _report(self) -> Iterator[Event]:
        """Emit the measurements; a watch point that pauses keeps the batch of the last step."""
        batch, self._batch = self._batch, None
        for event in self._flush():
            if isinstance(event, Caught) and batch is not None:
                self._now.caught = batch
            yield event

    def _skip_step(
        self,
        error: NonFiniteLoss,
        epoch: int,
        count: int,
        inputs: Tensor,
        labels: Tensor,
    ) -> Iterable[Event]:
        """Leave out a batch whose loss is not finite. Raises NotFinite unless the run skips such batches or pauses."""
        watcher = self._watching
        watcher.look.forward_done()
        diagnosis = not_finite(
            self.stepper, self.job.source, error.value, self.at.step + 1
        )
        watcher.skipped()
        # LBFGS has moved the weights by then: there is no step to leave out.
        pauses = self._pauses_at_not_finite and self.config.optimizer.name != CLOSURE
        if self.config.not_finite != "skip" and not pauses:
            raise diagnosis from None
        self._pass_over(epoch, count)
        self._skipped += 1
        skipped = Skipped(epoch, self.at.step, str(diagnosis), diagnosis.node)
        if self._pauses_at_not_finite:
            return skipped, self._caught_loss(diagnosis, (inputs, labels))
        return (skipped,)

    @property
    def _pauses_at_not_finite(self) -> bool:
        if self._ranks is None:
            return self.control.watch.not_finite
        return self._decision.pauses_at_not_finite

    def _pass_over(self, epoch: int, count: int) -> None:
        """Count a batch that was not trained on."""
        self.at.step, self.at.epoch, self.at.batch = (
            self.at.step + 1,
            epoch,
            self.at.batch + 1,
        )
        self.at.samples += count
        self.at.left_out += count
        live = self._now
        live.epoch, live.step, live.batch = epoch, self.at.step, self.at.batch

    def _leave_out(
        self, epoch: int, count: int, batches: Iterator[tuple[Tensor, Tensor]]
    ) -> Iterator[Event]:
        """Read a batch that is not to be trained on; the schedule of the learning rate does not move either."""
        with GENERATOR:
            next(batches)
        self._pass_over(epoch, count)
        yield Skipped(
            epoch,
            self.at.step,
            f"The batch of step {self.at.step:,} is left out.",
            None,
            False,
        )

    def _caught_loss(self, error: NotFinite, batch: tuple[Tensor, Tensor]) -> Caught:
        """Pause at a batch with a non-finite loss, without training on it."""
        self._now.caught = batch
        self.control.pause()
        layer = self.job.source.modules.get(error.node or "", error.node or "")
        message = (
            f"Paused at step {self.at.step:,}: {error} This batch was not trained on."
        )
        return Caught(
            self.at.epoch, self.at.step, "loss", layer, error.node, math.nan, message
        )

    def _is_last_step(self) -> bool:
        return (
            self.config.max_steps is not None
            and self.at.step + 1 >= self.config.max_steps
        )

    def _flush(self) -> Iterator[Event]:
        """Fetch pending values from the device and emit them. Raises NotFinite for a non-finite loss."""
        losses, self._losses = self._losses, []
        if losses:
            values = torch.stack([batch.loss for *_, batch in losses]).tolist()
            for (epoch, step, samples, seconds, rate, batch), value in zip(
                losses, values, strict=True
            ):
                self._must_be_finite(value, step)
                self.at.total += value * samples
                yield from batch.events(
                    StepDone(epoch, step, value, samples, seconds, rate)
                )
        yield from self._watching.drain(self.at.epoch, self.at.step, self._seconds())
        if self._saver is not None and self._saver.news:
            yield from self._saver.drain()

    def _must_be_finite(self, value: float, step: int) -> None:
        """Raise NotFinite for a delayed loss; its batch is gone, and the weights may already be non-finite."""
        if math.isfinite(value):
            return
        later, _ = self._now.data.batch(self.config.batch_size)
        raise not_finite(self.stepper, self.job.source, value, step, later=later)

    def _evaluate(self, gathered: Gathered) -> Evaluated:
        """Return mean loss and accuracy on the validation samples; None without any, or if the run is stopped."""
        live = self._now
        chunks = sample_numbers(
            live.data.info.validation_count, self.config.batch_size, live.device
        )
        return evaluate(
            self.stepper,
            live.data.val.batches(chunks),
            lambda: self._stopping,
            gathered,
        )

    # --- Checkpoints

    def _save(self, name: str) -> Iterator[Event]:
        """Save a checkpoint, if there is a folder for them; errors become events and the run continues."""
        if self._saver is None or not self.at.step:
            return
        yield from self._flush()
        yield Saving(self.at.step)
        with GENERATOR:
            self._count_correct()
            self.at.seconds = self._seconds()
            source, settings = self.job.source.text, self._settings()
            state = checkpoint.state_of(
                source, self.at, self._shuffle, self.stepper, settings, self._stage
            )
            if self._ranks is not None:
                state["ranks"] = self._ranks.of_all(state["generators"])
            if self._leads:
                self._saver.put(name, self.at.step, state)

    def _begin_placing(self, set_up: float) -> Placing:
        """Return the placer of checkpoints; its CPU time includes the start of the process."""
        spent = process_time()
        begin = max(set_up, spent if spent < LONGEST_START else 0.0)
        placing = Placing(
            self.config.revisit_seconds, begin, self.at.seconds, self.at.step
        )
        self._copying = seconds_to_copy(self.stepper)
        placing.recomputed_steps_take(self._copying)
        return placing

    def _revisit_due(self, reports: bool) -> bool:
        """Return whether a checkpoint is due after this step; while one is being written, the next step will do."""
        if self._ranks is not None:
            return self._decision.checkpoint
        return reports and self._is_placed_here()

    def _is_placed_here(self) -> bool:
        placing, saver = self._placing, self._saver
        if placing is None or saver is None:
            return False
        return placing.due(self._seconds(), self.at.step) and not saver.busy

    def _keep_to_revisit(self) -> Iterator[Event]:
        """Save a checkpoint that is kept."""
        if self._saver is None or self._placing is None:
            return
        began = perf_counter()
        yield from self._save(checkpoint.revisit_file(self.at.step))
        self._placing.took(perf_counter() - began, self._saver.writing)
        self._placing.recomputed_steps_take(
            self._copying + self._watching.hash_seconds()
        )
        self._placing.placed(self._seconds(), self.at.step)

    def saved(self) -> list[Saved]:
        """Wait until all checkpoints are written, and emit the results."""
        return self._saver.close() if self._saver is not None else []

    def _restore(self, path: Path) -> None:
        with GENERATOR:  # a borrower of the generators restores them afterwards
            source, settings = self.job.source.text, self._settings()
            self.at, self._changed = checkpoint.go_on(
                path, source, self._shuffle, self.stepper, settings
            )

    def _settings(self) -> dict[str, str]:
        """Return the settings that a run which resumes from here must have."""
        return settings_of(self.job, self._now.data.info)

    def _count_correct(self) -> None:
        """Fetch the numbers of correct predictions and ignored labels from the device, which synchronises with it."""
        correct, ignored = self._correct, self._ignored
        if self._ranks is not None:
            correct, ignored = self._ranks.sum_of(correct), self._ranks.sum_of(ignored)
        self.at.correct += int(correct)
        self.at.ignored += int(ignored)
        self._correct = self._ignored = 0

    # --- Surgeries

    def _begin_stage(self, number: int) -> None:
        """Take the net and the settings of a stage. Raises JobError for one that the job does not have."""
        if number > len(self._whole.stages) + 1:
            raise JobError(
                f"The checkpoint is of stage {number} of its run, whose net was edited, and this run has "
                f"{counted(len(self._whole.stages) + 1, 'stage')}. Resume the stored run that it belongs to."
            )
        self._stage, self.job = number, self._whole.at_stage(number)
        self.config = self.job.training
        self._limited = (
            self.config.max_steps is not None or self.config.max_minutes is not None
        )
        self._planned = self._whole.stages[number - 1 :]

    def _operate_as_planned(self) -> Iterator[Event]:
        """Perform the surgeries of the job that are due after the last step."""
        while self._planned and self._planned[0].step <= self.at.step:
            stage = self._planned[0]
            if stage.step < self.at.step:
                raise JobError(
                    f"A surgery is planned after step {stage.step:,}, and the run is at {self.at.step:,}."
                )
            yield from self._operate(stage.surgery)

    def _operate_as_asked(
        self, request: Operate, answer: Future[Outcome]
    ) -> Iterator[Event]:
        """Perform a requested surgery; a failing one leaves the run unchanged."""
        previous = self._whole
        try:
            if self._planned:
                step = self._planned[0].step
                raise SurgeryError(
                    f"Another surgery is planned after step {step:,} of this run. Edit the net after that step."
                )
            stages = (*previous.stages, Stage(self.at.step, request.surgery))
            self._whole = replace(previous, stages=stages)
            outcome = yield from self._operate(request.surgery)
        except SurgeryError as error:
            self._whole = previous
            answer.set_exception(error)
        except BaseException as error:
            answer.set_exception(
                error
                if isinstance(error, Exception)
                else RunEndedError("The run has ended.")
            )
            raise
        else:
            answer.set_result(outcome)

    def _operate(self, surgery: Surgery) -> Generator[Event, None, Outcome]:
        """Put the net of the next stage in place. Raises SurgeryError before anything is changed."""
        live, number = self._now, self._stage + 1
        job, seed = (
            self._whole.at_stage(number),
            surgery_seed(self.config.seed, self.at.step, self._stage),
        )
        yield from self._flush()
        with GENERATOR:
            operation = Operation(live, self.job, job, surgery, seed)
        yield from self._save_between(checkpoint.stage_file(self._stage, "end"))
        if self._saver is not None:
            self._saver.set_aside(
                checkpoint.BEST, checkpoint.stage_file(self._stage, "best")
            )
        with GENERATOR:
            operation.commit()
        self._watching.clear()
        self._begin_stage(number)
        self._watcher = self._watch(live, job.source, self.control)
        self._watcher.began = (self.at.step, self._seconds())
        self.at.best, self.at.stale = None, 0  # of the stage
        yield Cut(
            self.at.epoch,
            self.at.step,
            number,
            surgery.description,
            operation.outcome,
            self._watcher.sampler.layers,
            self._parameters(),
            surgery.source.filename,
        )
        yield from self._save_between(checkpoint.stage_file(number, "start"))
        return operation.outcome

    def _save_between(self, name: str) -> Iterator[Event]:
        """Save a checkpoint before a batch. Who resumes from one before the first batch of an epoch draws the order of
        the epoch again.
        """
        if self.at.batch or self.at.order is None:
            yield from self._save(name)
            return
        drawn = self._shuffle.get_state()
        self._shuffle.set_state(self.at.order)
        try:
            yield from self._save(name)
        finally:
            self._shuffle.set_state(drawn)

    # --- Hands

    def _attend(self) -> Iterator[Event]:
        """Run queued callbacks, and wait while the run is paused."""
        control, stood = self.control, None
        while True:
            control.run_calls()
            while (
                not control.stopping
                and (request := control.next_operation()) is not None
            ):
                yield from self._operate_as_asked(*request)
            turn = self._turn()
            if turn == STOP:
                return
            if turn == GO:
                break
            if stood is None:
                yield from self._flush()
                stood = perf_counter()
                yield Paused(self.at.epoch, self.at.step)
            if self._leads:
                control.wait(None if self._ranks is None else HEARTBEAT)
        if stood is not None:
            # The clock of the run leaves the pause out.
            self._origin += perf_counter() - stood
            if not control.paused:
                yield Resumed(self.at.epoch, self.at.step)

    def _turn(self) -> int:
        """Return whether to take the next step, to wait, or to stop."""
        control = self.control
        if control.stopping:
            turn = STOP
        else:
            turn = GO if control.may_step() else WAIT
        if self._ranks is not None:
            mine = Decision(turn, self._is_placed_here(), control.watch.not_finite)
            self._decision = self._ranks.decided(mine)
            turn = self._decision.turn
        return turn
