"""One training step: forward, backward, and the optimizer step when it is due.

The order of operations is that of the exported `train.py`; unused features are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from app.training.checkpoints.fixed_settings import SETS_RATES
from app.training.choices import CLOSURE, OF_ONE_OUTPUT, PLATEAU
from app.training.config import Choice, TrainingConfig
from app.training.events import Event, GroupRates, LossParts, RateSet, StepDone
from app.training.inputs import arguments
from app.training.learning_rates import LearningRates, Rates
from app.training.registry import (
    make_loss,
    make_optimizer,
    make_schedule,
    missing_state,
)
from app.training.script_recipes import (
    clippable,
    mixed,
    mixed_loss,
    options_of,
    parameter_groups,
    recompute,
    save_on_cpu,
    take_options,
)
from app.training.task import Task, check_weights
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from app.training.ranks import Ranks

_NO_PARTS: Mapping[str, Tensor] = MappingProxyType({})


class BatchResult(NamedTuple):
    """Result of a batch: its loss on the device, detached unless it was read, the number of correct samples, and
    whether the optimizer stepped.

    `parts` are the losses of several outputs, detached, `rates` are the rates of several parameter groups, if changed.
    `value` is the loss as a number, NaN if it was not to be read, and `ignored` the number of labels that the loss
    leaves out.
    """

    loss: Tensor
    correct: Tensor | None
    updated: bool
    parts: Mapping[str, Tensor]
    rates: Rates | None = None
    value: float = math.nan
    ignored: Tensor | None = None

    def events(self, done: StepDone) -> Iterable[Event]:
        """Return the events of a step, once its loss is read from the device."""
        if self.rates is None and not self.parts:
            return (done,)
        changed = (
            (GroupRates(done.step, self.rates.names, self.rates.values),)
            if self.rates is not None
            else ()
        )
        parts = (
            (LossParts.from_tensors(done.epoch, done.step, self.parts),)
            if self.parts
            else ()
        )
        return (*changed, done, *parts)


class NonFiniteLoss(ArithmeticError):
    """Raised before backward for a loss of `value`, NaN or infinite; the weights are those before the step."""

    def __init__(self, value: float) -> None:
        super().__init__(f"The loss is {value}.")
        self.value = value


class Observer(Protocol):
    """What measures a step. With an optimizer that takes a closure, the last two follow its step."""

    def forward_done(self, loss: Tensor) -> None:
        """Measure between forward and backward."""

    def hash_gradients(self) -> None:
        """Hash the gradients as backward left them."""

    def measure(self) -> None:
        """Measure between unscaling the gradients and the optimizer step."""


class StepInputs(NamedTuple):
    """What a forward pass of a step gets: a batch, as mixup left it; `others` and `share` are mixup's, see
    `script_recipes.mixed`.
    """

    inputs: Any
    labels: Any
    others: Tensor | None = None
    share: float = 1.0


# What schedules put into an optimizer's groups.
_OF_SCHEDULES = {"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum"}


class Stepper:
    """Owns optimizer, schedule and averaging of `model`, which is on its device.

    `fields` are the inputs of the data that the net gets, in order; none where a batch has one. With `ranks` each batch
    is this process's part of one.
    """

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        task: Task,
        device: str,
        fields: Sequence[str] = (),
        ranks: Ranks | None = None,
    ) -> None:
        self.model, self.config, self.task, self.fields = (
            model,
            config,
            task,
            tuple(fields),
        )
        self.ranks = ranks
        self.kind = device.partition(":")[0]
        recompute(model, config.recompute)
        if config.save_on_cpu:
            save_on_cpu(model)
        self.loss: nn.Module = (task.loss_module() or make_loss(config.loss)).to(device)
        group_options = {group.path: dict(group.options) for group in config.groups}
        groups = (
            parameter_groups(model, group_options, config.no_decay)
            if group_options or config.no_decay
            else {}
        )
        self.optimizer: Optimizer = make_optimizer(
            config.optimizer, list(groups.values()) or model.parameters()
        )
        self._options = options_of(self.optimizer)
        self.schedule: Any = (
            make_schedule(config.schedule, self.optimizer) if config.schedule else None
        )
        self.scaler = (
            torch.amp.GradScaler(self.kind) if config.amp == "float16" else None
        )
        self.average: Any = None
        if config.ema is not None:
            self.average = AveragedModel(
                model, multi_avg_fn=get_ema_multi_avg_fn(config.ema), use_buffers=True
            )
        forward = model if ranks is None else ranks.averaged(model)
        self.forward: Callable[..., Any] = (
            torch.compile(forward) if config.compile else forward
        )
        # Cached, as they are read at every step: a step of a small net takes less than a millisecond.
        self._several = hasattr(self.loss, "losses")
        self._clips = config.clip_value is not None or config.clip_norm is not None
        each_step = config.schedule is not None and config.schedule.per == "step"
        self._only_steps = not (self._clips or self.scaler or self.average or each_step)
        self._checked = False  # whether the output matches the labels, which the first forward pass shows
        self._direct = False  # whether net and loss then take the batch as it is
        # The last inputs of the net, and on the CPU the generator's state before it; until the loss was checked.
        self.fed: tuple[Any, Tensor | None] | None = None
        self._state: Callable[[], Tensor | None] = (
            torch.default_generator.get_state if self.kind == "cpu" else lambda: None
        )
        self.rates = LearningRates(model, self.optimizer, self.schedule, group_options)
        self.set_by_hand: list[
            str
        ] = []  # groups whose rate the user changed since the loop last checked
        self.waiting = 0  # batches accumulated since the last optimizer step
        # For whoever recomputes a step: called before each forward pass, and after each backward pass of a closure.
        self.before_forward: Callable[[StepInputs], None] | None = None
        self.after_backward: Callable[[], None] | None = None

    @property
    def rate(self) -> float:
        """Return the learning rate of the main group, NaN if the optimizer has none."""
        return self.rates.main

    def set_rate(self, rate: float, group: str = "") -> None:
        """Set the rate of one parameter group, "" is the main one, see `LearningRates.set`. Raises ValueError."""
        self.set_by_hand.append(self.rates.set(rate, group))

    def rates_set(self, step: int) -> Iterable[RateSet]:
        """Return the rates set by hand since the last call, after that step."""
        names, self.set_by_hand = dict.fromkeys(self.set_by_hand), []
        rates = dict(zip(self.rates.names, self.rates.all, strict=True))
        for name in names:
            yield RateSet(
                step, rates[name], "" if name == self.rates.names[0] else name
            )

    @property
    def validated(self) -> nn.Module:
        """Return the module to validate and save: the EMA model if there is one."""
        module: nn.Module = self.model if self.average is None else self.average.module
        return module

    def arguments(self, inputs: Any) -> tuple[Any, ...]:
        """Return the argument of the net for the inputs of a batch: a tensor, or Fields of several."""
        net_inputs = arguments(inputs, self.fields)
        if not self.config.channels_last:
            return net_inputs
        return tuple(
            tensor.contiguous(memory_format=torch.channels_last)
            if tensor.ndim == 4
            else tensor
            for tensor in net_inputs
        )

    def output(self, module: Callable[..., Any], inputs: Any) -> Any:
        """Run the forward pass in the run's precision, on the inputs of a batch: a tensor, or Fields of several."""
        net_inputs = self.arguments(inputs)
        if not self.config.amp:
            return module(*net_inputs)
        with torch.autocast(self.kind, dtype=getattr(torch, self.config.amp)):
            return module(*net_inputs)

    def measured(
        self,
        output: Any,
        labels: Tensor,
        others: Tensor | None = None,
        share: float = 1.0,
        portions: Mapping[str, Tensor | float] | None = None,
    ) -> Tensor:
        """Compute the loss, in the precision of the run; `others` and `share` are of mixup, see `recipes.mixed`, and
        `portions` weights of several losses.
        """
        if not self.config.amp:
            return self._measured(output, labels, others, share, portions)
        with torch.autocast(self.kind, dtype=getattr(torch, self.config.amp)):
            return self._measured(output, labels, others, share, portions)

    def _measured(
        self,
        output: Any,
        labels: Tensor,
        others: Tensor | None,
        share: float,
        portions: Mapping[str, Tensor | float] | None,
    ) -> Tensor:
        output, target = self.task.loss_inputs(output, labels)
        loss: Tensor
        if self._several:  # of several outputs, each mixed separately
            loss = self.loss(output, target, others, share, portions)
        elif others is None:
            loss = self.loss(output, target)
        else:
            loss = mixed_loss(self.loss, output, target, others, share)
        return loss

    @property
    def parts(self) -> Mapping[str, Tensor]:
        """Return the detached losses of several outputs of the last batch; empty for a single loss."""
        return self.loss.parts if self._several else _NO_PARTS  # type: ignore[return-value]

    @property
    def chief_loss(self) -> nn.Module:
        """The loss of the output that accuracy and metrics are measured on."""
        return self.loss.losses[0] if self._several else self.loss  # type: ignore[index,return-value]

    def _whole(self, loss: Tensor) -> Tensor:
        """Return the loss of the whole batch."""
        return loss if self.ranks is None else self.ranks.mean(loss)

    def take(
        self,
        inputs: Tensor,
        labels: Tensor,
        last: bool,
        observer: Observer | None = None,
        read: bool = False,
    ) -> BatchResult:
        """Train on a batch. The `last` of an epoch always steps the optimizer.

        With `read`, the loss is read from the device before backward. Raises NonFiniteLoss if it is not finite then,
        OutputError if the first output does not match the labels.
        """
        if self.config.optimizer.name == CLOSURE:
            return self._take_closure(inputs, labels, observer, read)
        rates = self.rates.news()
        if not self.waiting:
            self.optimizer.zero_grad(set_to_none=True)
        output, loss = self._run(inputs, labels)
        value = _finite(self._whole(loss)) if read else math.nan
        if observer is not None:
            observer.forward_done(loss)
        self.fed = None
        scaled_loss = (
            loss / self.config.accumulate if self.config.accumulate > 1 else loss
        )
        (
            self.scaler.scale(scaled_loss) if self.scaler is not None else scaled_loss
        ).backward()
        if observer is not None:
            observer.hash_gradients()
        self.waiting += 1
        updated = last or self.waiting == self.config.accumulate
        if updated:
            if self._only_steps and observer is None:
                self.optimizer.step()
                self.waiting = 0
            else:
                self._update(observer)
        if rates is not None:
            self.rates.mark_reported(rates)
        if not read:
            loss = loss.detach()
        return self._result(output, labels, loss, updated, self.parts, rates, value)

    def _result(
        self,
        output: Any,
        labels: Tensor,
        loss: Tensor,
        updated: bool,
        parts: Mapping[str, Tensor],
        rates: Rates | None,
        value: float,
    ) -> BatchResult:
        correct, ignored = (
            self.task.correct(output, labels),
            self.task.ignored(output, labels),
        )
        if (ranks := self.ranks) is not None:
            parts = {
                name: ranks.mean(part * ranks.portion) for name, part in parts.items()
            }
            counts = ranks.portion > 0  # else the sample is another process's
            correct = None if correct is None else counts * correct
            ignored = None if ignored is None else counts * ignored
        return BatchResult(loss, correct, updated, parts, rates, value, ignored)

    def _run(self, inputs: Tensor, labels: Tensor) -> tuple[Any, Tensor]:
        if self._direct and self.before_forward is None:
            self.fed = inputs, self._state()
            output = self.forward(inputs)
            return output, self.loss(output, labels)
        others, share = None, 1.0
        if self.config.mixup:
            inputs, others, share = mixed(inputs, self.config.mixup)
        if self.before_forward is not None:
            self.before_forward(StepInputs(inputs, labels, others, share))
        output = self._output(inputs, labels)
        if self.ranks is None:
            return output, self.measured(output, labels, others, share)
        loss = self.measured(output, labels, others, share, self.ranks.portions)
        return output, loss * self.ranks.portion

    def _output(self, inputs: Tensor, labels: Tensor) -> Any:
        self.fed = inputs, self._state()
        output = self.output(self.forward, inputs)
        if not self._checked:
            self.task.check(output, labels)
            if type(self.chief_loss).__name__ in OF_ONE_OUTPUT:
                check_weights(self.chief_loss, self.task.chief(output, labels)[0])
            self._checked = True
            converts = (
                self.config.amp
                or self.config.channels_last
                or self.config.mixup
                or self.fields
                or self.ranks is not None
            )
            self._direct = not converts and not self._several and self.task.direct
        return output

    def _take_closure(
        self,
        inputs: Tensor,
        labels: Tensor,
        observer: Observer | None,
        read: bool,
    ) -> BatchResult:
        first: list[tuple[Any, Tensor, Mapping[str, Tensor], float]] = []

        def closure() -> Tensor:
            self.optimizer.zero_grad(set_to_none=True)
            output, loss = self._run(inputs, labels)
            whole = self._whole(loss)
            value = _finite(whole) if read else math.nan
            if observer is not None:
                observer.forward_done(loss)
            self.fed = None
            loss.backward()
            if self.after_backward is not None:
                self.after_backward()
            self._clip()
            first.append((output, loss.detach(), self.parts, value))
            return whole

        self.optimizer.step(closure)  # type: ignore[arg-type]
        if observer is not None:
            observer.hash_gradients()
            observer.measure()
        self._moved()
        output, loss, parts, value = first[
            0
        ]  # it is called several times; the loss of the batch is the first
        return self._result(output, labels, loss, True, parts, None, value)

    def _update(self, observer: Observer | None) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if observer is not None:
            observer.measure()
        self._clip()
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self._moved()

    def _clip(self) -> None:
        if not self._clips:
            return
        if self.config.clip_value is not None:
            clip_grad_value_(clippable(self.model), self.config.clip_value)
        if self.config.clip_norm is not None:
            clip_grad_norm_(clippable(self.model), self.config.clip_norm)

    def _moved(self) -> None:
        self.waiting = 0
        if self.average is not None:
            self.average.update_parameters(self.model)
        if (
            self.schedule is not None
            and self.config.schedule is not None
            and self.config.schedule.per == "step"
        ):
            self.schedule.step()

    def end_epoch(self, val_loss: float | None) -> None:
        """Step an epoch-wise scheduler; ReduceLROnPlateau is skipped without a validation loss. One that waits for the
        validation loss does without it.
        """
        schedule = self.config.schedule
        if schedule is None or schedule.per != "epoch":
            return
        if schedule.choice.name != PLATEAU:
            self.schedule.step()
        elif val_loss is not None:
            self.schedule.step(val_loss)

    # --- Checkpoints

    def state(self) -> dict[str, Any]:
        """Return the complete state as tensors and numbers, including accumulated gradients. Gradients that wait for
        the optimizer's step are among it.
        """
        gradients = {}
        if self.waiting:
            gradients = {
                name: p.grad
                for name, p in self.model.named_parameters()
                if p.grad is not None
            }
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "options": self._options,
            "schedule": self.schedule.state_dict()
            if self.schedule is not None
            else None,
            "scaler": self.scaler.state_dict() if self.scaler is not None else None,
            "average": dict(self.average.state_dict())
            if self.average is not None
            else None,
            "waiting": self.waiting,
            "gradients": gradients,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state, and take the options of the optimizer that differ from those that it was saved with.

        Raises torch's error for a state that does not match, ValueError for an option that cannot be changed.
        """
        for group, saved_group in zip(
            self.optimizer.param_groups,
            state["optimizer"]["param_groups"],
            strict=False,
        ):
            # torch accepts the state of another optimizer, and fails at the next step. Additional settings on one side
            # only indicate another version of torch.
            if (
                group.keys() - saved_group.keys() - _OF_SCHEDULES
                and saved_group.keys() - group.keys() - _OF_SCHEDULES
            ):
                raise ValueError("its optimizer was another one")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for component, name in (
            (self.schedule, "schedule"),
            (self.scaler, "scaler"),
            (self.average, "average"),
        ):
            if component is not None and state[name] is not None:
                component.load_state_dict(state[name])
        if (
            self.average is not None and state["average"] is None
        ):  # it begins with the weights as they are
            self.average.module.load_state_dict(state["model"])
        before = state.get("options", self._options)
        self._check_options(before)
        take_options(self.optimizer, self.schedule, before, self._options)
        self.waiting = state["waiting"]
        if self.waiting:
            for name, parameter in self.model.named_parameters():
                gradient = state["gradients"].get(name)
                parameter.grad = (
                    gradient.to(parameter) if gradient is not None else None
                )

    def _check_options(self, before: Sequence[Mapping[str, Any]]) -> None:
        """Raise ValueError for options that are other ones than `before` and that cannot be changed amid a run."""
        pairs = zip(before, self._options, strict=True)
        changed = {
            key
            for old, new in pairs
            for key in new
            if key in old and old[key] != new[key]
        }
        schedule = (
            self.config.schedule.choice.name if self.config.schedule is not None else ""
        )
        if "lr" in changed and schedule in SETS_RATES:
            raise ValueError(
                f"lr of {self.config.optimizer.name} has no effect, since {schedule} sets the rate"
            )
        choice = self.config.optimizer
        for options in (
            ({}, *(group.options for group in self.config.groups)) if changed else ()
        ):
            candidate = Choice(choice.name, FrozenMap({**choice.params, **options}))
            if missing := missing_state(candidate, self.optimizer):
                names = ", ".join(sorted(changed))
                raise ValueError(
                    f"{names} of {choice.name} needs {missing}, which the optimizer's state does not have"
                )


def _finite(loss: Tensor) -> float:
    """Read a loss from the device. Raises NonFiniteLoss."""
    value = float(loss.item())
    if not math.isfinite(value):
        raise NonFiniteLoss(value)
    return value
