"""The surgery of a running run: tried on a batch first, so that one that fails leaves the run as it was."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from app.data.dataset import Dataset
from app.source.compiled import make_module
from app.training.choices import CLOSURE
from app.training.error_messages import failure
from app.training.inputs import fields_of
from app.training.job import Job
from app.training.learning_rates import LearningRates
from app.training.monitoring.live_model import LiveRun, preserved
from app.training.objectives import forms
from app.training.registry import make_optimizer
from app.training.script_recipes import recompute, save_on_cpu
from app.training.setup.prepare import check_weights
from app.training.stepper import Stepper
from app.training.surgery.operation import Edited, groups_of, regroup
from app.training.surgery.values import Fate, Outcome, Surgery, SurgeryError
from app.util.rng import Generators, borrowed
from tapedeck import devices

if TYPE_CHECKING:
    from torch import Tensor, nn


class Operation:
    """A surgery that was tried on a batch of the run, and is made by `commit`."""

    def __init__(
        self, live: LiveRun, before: Job, job: Job, surgery: Surgery, seed: int
    ) -> None:
        """Try it. `before` and `job` are those of the run until and from here on. Raises SurgeryError; the run is as it
        was then."""
        stepper, data, device, step = live.stepper, live.data, live.device, live.step
        if surgery.source.same_net(before.source) and job.training == replace(
            before.training, start=None
        ):
            raise SurgeryError(
                "The edited net equals the net of the run: there is nothing to change."
            )
        _check(stepper, data, job, surgery)
        self._stepper, self._job, self._device = stepper, job, device
        learned = [
            (weight, weight.requires_grad) for weight in stepper.model.parameters()
        ]
        try:
            with borrowed(Generators()):
                moves = surgery.layers, surgery.starts, surgery.segments
                self._edited = Edited(stepper.model, self._build_net, seed, *moves)
                self._average = None
                if stepper.average is not None:
                    self._average = Edited(
                        stepper.average.module, self._build_net, seed, *moves
                    )
                difference = self._tried(data)
        except SurgeryError:
            raise
        except (Exception, SystemExit) as error:  # code of the user too
            problem = failure(
                error, job.source, job.training.batch_size, 0, step, kept=False
            )
            raise SurgeryError(
                f"The edited net was tried on a batch of the run, and it failed. {problem.message} The run "
                f"is as it was. {problem.cure}".strip()
            ) from error
        finally:
            for parameter, learns in learned:
                parameter.requires_grad_(learns)
        self.outcome = Outcome(
            tuple(Fate(*row) for row in self._edited.fates), difference
        )

    def _build_net(self) -> nn.Module:
        model = make_module(self._job.source)
        check_weights(model)
        model = model.to(self._device)
        if self._job.training.channels_last:
            model = model.to(memory_format=_channels_last())  # type: ignore[call-overload]
        return model

    def _tried(self, data: Dataset) -> float | None:
        """Run both nets in eval mode, and a training step of the edited one without its update; return the relative
        difference of the outputs."""
        stepper, model, config = (
            copy(self._stepper),
            self._edited.module,
            self._job.training,
        )
        with preserved(self._stepper.model), preserved(model):
            inputs, labels = data.batch(config.batch_size)
            difference = self._difference(inputs)
            self._edited.set_learning()
            recompute(model, config.recompute)
            if config.save_on_cpu:
                save_on_cpu(model)
            model.train()
            stepper.model, stepper.config = model, config
            output = stepper.output(model, inputs)
            stepper.task.check(output, labels)
            stepper.measured(output, labels).backward()
        groups = groups_of(
            model,
            {group.path: dict(group.options) for group in config.groups},
            config.no_decay,
        )
        make_optimizer(config.optimizer, list(groups.values()))
        return difference

    def _difference(self, inputs: Tensor) -> float | None:
        outputs = []
        with torch.no_grad():
            for model in (self._stepper.model, self._edited.module):
                model.eval()
                output = self._stepper.task.answer(
                    model(*self._stepper.arguments(inputs))
                )
                outputs.append(devices.doubled(output))
        before, after = outputs
        if before.shape != after.shape:
            return None
        largest = before.abs().max().item()
        return (before - after).abs().max().item() / (largest or 1.0)

    def commit(self) -> None:
        """Put the edited net in the place of the run's. Nothing is drawn from the random generators."""
        stepper, edited, config = self._stepper, self._edited, self._job.training
        own_before = {
            group.path: dict(group.options) for group in stepper.config.groups
        }
        group_options = {group.path: dict(group.options) for group in config.groups}
        before = groups_of(stepper.model, own_before, config.no_decay)
        edited.set_learning()
        after = groups_of(edited.module, group_options, config.no_decay)
        regroup(stepper.optimizer, stepper.schedule, before, after, edited.changed)
        if self._average is not None:
            stepper.average.module = self._average.module
        edited.module.train()
        stepper.model, stepper.config = edited.module, config
        stepper.forward = (
            torch.compile(edited.module) if config.compile else edited.module
        )
        stepper.rates = LearningRates(
            edited.module, stepper.optimizer, stepper.schedule, group_options
        )


def _channels_last() -> object:
    return torch.channels_last


def _check(stepper: Stepper, data: Dataset, job: Job, surgery: Surgery) -> None:
    """Raise SurgeryError if this run does not support the surgery."""
    if stepper.config.optimizer.name == CLOSURE:
        raise SurgeryError(
            f"{CLOSURE} keeps one history of all parameters together, so the net of its run cannot be edited. Stop the "
            "run, and start another one from its weights."
        )
    if surgery.source.opened:
        raise SurgeryError(
            "The net of an opened model is defined by its own code and cannot be edited during a run."
        )
    if fields_of(job.source, job.training.inputs, data.info) != stepper.fields:
        raise SurgeryError(
            "The edited net has other inputs. Keep the inputs of the net during a run."
        )
    current_forms = getattr(stepper.task, "forms", None)
    if job.training.losses and tuple(forms(job.source)) != tuple(current_forms or ()):
        raise SurgeryError(
            "The edited net has other outputs, and each has its loss. Keep the outputs during a run."
        )
