"""Frames of a watched script, written by hooks before and after each optimizer step and on each backward.

A step is one of the main optimizer, the first that takes one. Its loss is the sum of the losses on which `backward` was
called since the step before, which under gradient accumulation is that of the whole batch; with a closure (LBFGS) it is
the first that the closure computed. A backward whose gradients were cleared before any step belongs to none. What other
optimizers do until the next step of the main one belongs to its step.

A step only records what to report, since code that runs between two steps finds the processor's caches full of the
script's: records become lines, and commands are read, every `TURN_EVERY` seconds, for many steps at once.
"""

# A whole, which its parts import for type checkers alone: the actions of a watcher, and its captures.
from __future__ import annotations

import gc
import math
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from tapedeck import devices, frames, models
from tapedeck.actions import Actions, save
from tapedeck.capture import notes_of
from tapedeck.commands import CommandSocket
from tapedeck.frames import TRY_AGAIN, Ending, FrameFile, number
from tapedeck.resuming import HELD, Resuming, before

NORMS = (
    0.2,
    0.01,
)  # seconds between two looks at the gradients at least, and their share of the time at most
MEMORY_EVERY = 0.5  # seconds
TURN_EVERY = 0.05  # seconds
FETCH_EVERY = 0.1  # seconds in which the losses on an accelerator are fetched together
MOST_NOTED = 500  # steps
ALONE = 50  # steps that another optimizer takes alone until it is the main one
UNSTEPPED = 100  # calls of backward after which it is said that there are no steps
MOST_NAMED = 8  # optimizers
MOST_DISCARDS = 20  # steps in a row that are marked
PARTS = "part"  # the kind of a step of another than the main optimizer


def _parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [
        parameter for group in optimizer.param_groups for parameter in group["params"]
    ]


def _has_gradient(parameter: Tensor) -> bool:
    """Return whether a parameter has a gradient that is not zero."""
    gradient = parameter.grad
    if gradient is None:
        return False
    if type(gradient) is not Tensor:
        return True  # asking one that is spread over ranks would make all of them wait
    return (
        bool(gradient.any())
        if gradient.layout is torch.strided
        else gradient._nnz() > 0
    )


class OptimizerState:
    """One optimizer: its models and layers, and what was reported of it."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.name = type(optimizer).__name__
        self.models: dict[str, nn.Module] = {}
        self.layers: models.Layers | None = None
        self.count = 0  # of parameters that the layers were made of
        self.steps = self.steps_at_main = 0
        self.loss = math.nan
        self.rate: float | None = None  # of its only group
        self.rates: tuple[float, ...] = ()
        self.closure = False
        self.norms: list[float] | None = None  # measured in the round under way


# kind, step, seconds, losses, rate where it changed
_Noted = tuple[str, int, float, list[float | Tensor], float | None, OptimizerState]


class Quick:
    """Steps of which only loss and rate are reported, as the hooks record them while `on`.

    They are of one `optimizer` with one group, and end at `due`; each has its time, where its losses end in `losses`,
    and its rate. While it `looks`, its gradients may be due for measuring. Noting the first took `spent` seconds.
    """

    __slots__ = ("due", "looks", "losses", "noted", "on", "optimizer", "spent")

    def __init__(self) -> None:
        self.on = self.looks = False
        self.optimizer: Callable[[], Any] = lambda: None
        self.due = self.spent = 0.0  # seconds
        self.losses: list[float | Tensor] = []
        self.noted: list[tuple[float, int, Any]] = []

    @property
    def pending(self) -> int:
        """Return how many losses there are since the last step."""
        return len(self.losses) - (self.noted[-1][1] if self.noted else 0)


class Watcher:
    """Writes frames into a file and, with `listening`, executes commands between two steps.

    One that is not `speaking` writes nothing of its steps until it is asked to. With `only` no other optimizers are
    looked at; `known` are models by name, which need not be searched for.

    As long as there is one optimizer, and only the loss of its steps is reported, the hooks record them in `quick`
    without a call, until `turn_due`.
    """

    def __init__(
        self,
        file: FrameFile,
        listening: CommandSocket | None = None,
        *,
        speaking: bool = True,
        known: Mapping[str, nn.Module] | None = None,
        only: Iterable[torch.optim.Optimizer] | None = None,
        resuming: Resuming | None = None,
    ) -> None:
        self.file, self.speaking = file, speaking
        self.folder: Path = file.path.parent
        self._resuming = resuming
        self._step = self._resumed_at = 0
        self._earlier = 0.0  # seconds of the script before a queue started it again
        self.quick = Quick()
        self.states: dict[int, OptimizerState] = {}
        self.actions = Actions(self, listening) if listening is not None else None
        self._known = dict(known or {})
        self._only = (
            None
            if only is None
            else tuple(weakref.ref(optimizer) for optimizer in only)
        )
        self._main: OptimizerState | None = None
        self.losses = self.quick.losses
        self.previous: list[
            float | Tensor
        ] = []  # those that the optimizer before stepped by
        self._in_closure = False
        self._discarded: list[
            float | Tensor
        ] = []  # losses since the last step of which no step was taken
        self._discards = 0  # steps in a row before which a backward was discarded
        self._unstepped = 0  # calls of backward before the first step
        self._unstepped_optimizers: weakref.WeakSet[torch.optim.Optimizer] | None = None
        self.noted: list[_Noted] = []
        self.thread = 0  # that took the last steps
        self.fetches = False  # there are losses on an accelerator
        self._fetch_due = 0.0
        self._layers: tuple[str, ...] = ()
        self.norms_due = self._norms_cost = self._memory_due = self.turn_due = 0.0
        self._measuring = False
        self._measured_step = 1
        self.spent = 0.0
        self.began = math.nan

    @property
    def step(self) -> int:
        """The number of steps that the main optimizer has taken."""
        return self._step + len(self.quick.noted)

    # -- what the hooks call ------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Take over the steps that the hooks have noted; they call for each step until the next turn."""
        quick = self.quick
        quick.on = False
        if not quick.noted:
            return
        (state,) = self.states.values()
        start = 0
        for now, end, rate in quick.noted:
            self._step += 1
            if end > start:
                self.previous = self.losses[start:end]
            changed = None
            if rate != state.rate and rate is not None:
                changed = state.rate = models.rate_of({"lr": rate})
                state.rates = (changed,)
            self.noted.append(
                ("step", self._step, now - self.began, self.previous, changed, state)
            )
            start = end
        state.steps += len(quick.noted)
        state.steps_at_main = state.steps
        self.spent += quick.spent * len(quick.noted)
        del self.losses[:start]
        quick.noted.clear()

    def backward_called(self, loss: Tensor) -> None:
        """Remember a loss: its value where it is on the CPU, else a copy that is fetched with others."""
        began = perf_counter()
        if loss.is_cpu:
            self.losses.append(loss.item())
        else:
            self.losses.append(loss.detach().clone())
            self.fetches = True
        self.spent += perf_counter() - began

    def gradients_cleared(self, owner: torch.optim.Optimizer | nn.Module) -> None:
        """Discard the losses since the last step if no gradient is left by which an optimizer could step.

        `owner` has just cleared its own.
        """
        if self._in_closure:
            return
        began = perf_counter()
        parameters = (
            owner.parameters()
            if isinstance(owner, nn.Module)
            else _parameters_of(owner)
        )
        cleared = {id(parameter) for parameter in parameters}
        others = [
            parameter
            for parameter in self._stepped_parameters()
            if id(parameter) not in cleared
        ]
        if not any(map(_has_gradient, others)):
            self._discard()
        self.spent += perf_counter() - began

    def backward_again(self) -> None:
        """Discard the losses since the last step if the parameters have no gradients any more, as another backward is
        called; count the calls before the first step.
        """
        if not self.states:
            self._unstepped += 1
            if self._unstepped == UNSTEPPED:
                self.say(
                    f"backward was called {UNSTEPPED} times, and no optimizer of torch has stepped. Of a script that "
                    "updates its weights by itself there are no steps to show."
                )
            if len(self.losses) > MOST_NOTED:
                self.losses.clear()
        if self.quick.pending and not self._in_closure:
            parameters = self._stepped_parameters()
            if parameters and all(parameter.grad is None for parameter in parameters):
                self._discard()

    def _stepped_parameters(self) -> list[Tensor]:
        """Return the parameters of the optimizers that have stepped; before the first step, of all there were when a
        second backward was called.
        """
        optimizers = list(self.live_optimizers().values())
        if not optimizers:
            if self._unstepped_optimizers is None:
                live = (
                    candidate
                    for candidate in gc.get_objects()
                    if issubclass(type(candidate), torch.optim.Optimizer)
                )
                self._unstepped_optimizers = weakref.WeakSet(live)
            optimizers = list(self._unstepped_optimizers)
        return [
            parameter
            for optimizer in optimizers
            for parameter in _parameters_of(optimizer)
        ]

    def _discard(self) -> None:
        self.settle()
        self._discarded += self.losses
        self.losses.clear()

    def _tell_discarded(self) -> None:
        """Tell of the losses that belong to no step, before the step that is due."""
        discarded, self._discarded = self._discarded, []
        self._discards = self._discards + 1 if discarded else 0
        if not discarded or not self.speaking or self._discards > MOST_DISCARDS:
            return
        self._write_noted()
        if self._discards == MOST_DISCARDS:
            self.say(
                "Each step of this script discards the gradients of a backward. Further ones are not marked."
            )
            return
        tensors = [loss for loss in discarded if isinstance(loss, Tensor)]
        fetched = iter(models.fetched([tensor.reshape(()) for tensor in tensors]))
        losses = ", ".join(
            f"{next(fetched) if isinstance(loss, Tensor) else loss:.6g}"
            for loss in discarded[:5]
        )
        more = ", …" if len(discarded) > 5 else ""
        batches = f"{len(discarded)} batches" if len(discarded) > 1 else "a batch"
        reason = f"The script cleared the gradients of {batches} before step {self.step + 1} without a step"
        self.file.tell(
            frames.Skipped(1, self.step + 1, f"{reason} (loss {losses}{more}).")
        )

    def stand_if_asked(
        self, tensors: Any, gradients: Any, scale: float, inputs: Any
    ) -> None:
        """Pause before a backward that is to be captured."""
        capturing = self.actions.capturing if self.actions is not None else None
        if capturing is None or not capturing.armed:
            return
        self.settle()
        if self.speaking:
            self._write_noted()
        parameters = [
            parameter
            for state in self.states.values()
            if state.layers
            for parameter in state.layers.parameters
        ]
        averaged = any(models.is_averaged(model) for model in self.models.values())
        self.began += capturing.stand(
            tensors, gradients, notes_of(scale, inputs, parameters, averaged)
        )
        self.turn_due = 0.0  # it may be to pause after this step

    def before_step(self, optimizer: torch.optim.Optimizer, closure: bool) -> None:
        """Measure the gradients, where that is due."""
        began = perf_counter()
        self.settle()
        state = self._state_of(optimizer)
        if state is None:
            return
        self._tell_discarded()
        state.closure = self._in_closure = closure
        if closure:
            self.losses.clear()
        elif self.speaking and (self._measuring or began >= self.norms_due):
            self._measure_if_due(state, began)
        self.spent += perf_counter() - began

    def after_step(self, optimizer: torch.optim.Optimizer, closure: bool) -> None:
        """Report a step, and execute pending commands."""
        began = perf_counter()
        self.settle()
        self._in_closure = False
        state = self._state_of(optimizer)
        if state is None:
            return
        state.closure = closure
        if state.closure and self.speaking:
            self._measure_if_due(state, began)
        losses = self.losses[:]
        self.losses.clear()
        if state.closure:
            del losses[1:]
        if losses:
            self.previous = losses
        else:
            losses = self.previous  # one backward, by which several optimizers step
        state.steps += 1
        main = self._main
        if (
            main is None
            or main.optimizer() is None
            or state.steps - state.steps_at_main > ALONE
        ):
            main = self._main = state
        if state is main:
            self._step += 1
            for other_state in self.states.values():
                other_state.steps_at_main = other_state.steps
        if self.speaking:
            self._note(
                state,
                optimizer,
                "step" if state is main else PARTS,
                began - self.began,
                losses,
            )
        if self.actions is not None and self.actions.capturing.later:
            self.actions.capturing.after_step(self.step)
        if began < self.turn_due:
            self._be_quick()
            self.spent += perf_counter() - began
        else:
            self._turn(state is main, began)

    def _turn(self, main: bool, began: float) -> None:
        """Write the recorded steps, and execute pending commands. While the script is paused each step is one turn."""
        self.thread = threading.get_ident()
        if self.speaking:
            paused = self.actions is not None and self.actions.paused
            if (
                not self.fetches
                or began >= self._fetch_due
                or len(self.noted) >= MOST_NOTED
                or paused
            ):
                self._fetch_due = began + FETCH_EVERY
                self._write_noted()
            if began >= self._memory_due:
                self._tell_memory(began - self.began)
        ended = perf_counter()
        self.spent += ended - began
        self.turn_due = ended + TURN_EVERY
        if self.actions is not None:
            self.began += self.actions.obey(main)
            if self.actions.paused:
                self.turn_due = 0.0
        if main and self._resuming is not None and self._resuming.asked:
            self._end_for_queue(self._resuming)
        self._be_quick()

    def _end_for_queue(self, resuming: Resuming) -> None:
        """Save the models and optimizers, and end the script, which the queue starts again."""
        self.catch_up()
        save(self, resuming.path(self.step))
        raise SystemExit(TRY_AGAIN)

    def _be_quick(self) -> None:
        """Let the hooks record the steps until the next turn, if only their losses are reported."""
        capturing = self.actions.capturing if self.actions is not None else None
        (*others, last) = self.states.values()
        looked = self._measuring or (
            capturing is not None and (capturing.later or capturing.armed)
        )
        optimizer = last.optimizer()
        if not self.speaking or others or last.closure or looked or optimizer is None:
            return
        if (
            len(optimizer.param_groups) != 1
            or type(optimizer.param_groups[0].get("lr")) is not float
        ):
            return
        quick = self.quick
        quick.optimizer, quick.due = last.optimizer, self.turn_due
        quick.looks = self.norms_due <= self.turn_due
        quick.on = True

    def catch_up(self) -> None:
        """Write all that is known of the steps so far."""
        self.settle()
        if self.speaking:
            self._write_noted()
            self.file.flush()

    def skipped(self) -> None:
        """Tell that a gradient scaler left a step out, since its gradients were not finite."""
        self.settle()
        self.losses.clear()
        if self.speaking:
            self._write_noted()
            self.file.tell(frames.Skipped(1, self.step + 1))

    def stepped(self, optimizer: object) -> int:
        """Return how many steps an optimizer has taken."""
        self.settle()
        state = self.states.get(id(optimizer))
        return state.steps if state is not None else 0

    def finish(self, ending: Ending) -> None:
        """Write all pending frames and the last one; then close everything."""
        self.settle()
        self._tell_discarded()
        if self.actions is not None:
            self.actions.capturing.ended()
        if self.speaking:
            self._write_noted()
        self.file.tell(ending.frame(self.step))
        self.release()

    def release(self, remove: bool = True) -> None:
        """Close the file and the socket silently; without `remove` the files stay on disk (a forked process)."""
        if self.actions is not None:
            self.actions.listening.close(remove)
        self.file.close()

    # -- who is there -------------------------------------------------------------------------------------------------

    def _state_of(self, optimizer: torch.optim.Optimizer) -> OptimizerState | None:
        """Return the state of an optimizer, which may be new; None for one that is not watched."""
        state = self.states.get(id(optimizer))
        if state is not None and state.optimizer() is optimizer:
            return state
        if self._only is not None and all(
            reference() is not optimizer for reference in self._only
        ):
            return None
        return self._meet(optimizer)

    def _meet(self, optimizer: torch.optim.Optimizer) -> OptimizerState:
        """Find the models of an optimizer that steps for the first time."""
        self._write_noted()  # reports of a step name the optimizers at that time
        for key in [
            key
            for key, old_state in self.states.items()
            if old_state.optimizer() is None
        ]:
            del self.states[key]
        state = self.states[id(optimizer)] = OptimizerState(optimizer)
        self._name(state)
        self._find_layers()
        if math.isnan(self.began):
            self._begin()
        elif self.speaking and state.count:
            count = (
                sum(parameter.numel() for parameter in state.layers.parameters)
                if state.layers is not None
                else 0
            )
            if len(self.states) <= MOST_NAMED:
                self.say(
                    f"Another optimizer steps, {state.name}: {count:,} parameters."
                )
            elif len(self.states) == MOST_NAMED + 1:
                self.say(
                    "Further optimizers step, as where each parameter has one; they are not named."
                )
        self._tell_layers()
        return state

    def _begin(self) -> None:
        """Tell of the first step of this process, which may go on from a checkpoint."""
        note = ""
        if self._resuming is not None:
            self._step, self._earlier, note = self._resuming.begin()
            if self.actions is not None and os.environ.get(HELD):
                self.actions.hold()
        else:
            self._step, self._earlier = before()
        self._resumed_at = self._step
        self.began = perf_counter() - self._earlier
        self._tell_started()
        if note:
            self.say(note)

    def _name(self, state: OptimizerState) -> None:
        optimizer = state.optimizer()
        named = models.variable_of(optimizer)
        used_names = {
            other.name for other in self.states.values() if other is not state
        }
        state.name = models.free_name(named or state.name, used_names)

    def _find_layers(self) -> None:
        """Name the layers of all optimizers, by one search through the modules."""
        named_models = self._known | (
            self.models if len(self.states) > MOST_NAMED else {}
        )  # each search takes long
        live = [
            (candidate, optimizer)
            for candidate in self.states.values()
            if (optimizer := candidate.optimizer()) is not None
        ]
        parameters = [
            parameter
            for _, optimizer in live
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        trained_models = models.find_models(parameters, named_models)
        for state, optimizer in live:
            state.models = trained_models
            state.layers = models.Layers(optimizer, trained_models)
            state.count = len(state.layers.parameters)
        layers = [state.layers for state, _ in live if state.layers is not None]
        self._layers = tuple(
            dict.fromkeys(
                name for optimizer_layers in layers for name in optimizer_layers.names
            )
        )

    @property
    def models(self) -> dict[str, nn.Module]:
        """The models that are trained, by name."""
        return next(iter(self.states.values())).models if self.states else {}

    def live_optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Return the optimizers by name, the main one first."""
        states = sorted(self.states.values(), key=lambda state: state is not self._main)
        return {
            state.name: optimizer
            for state in states
            if (optimizer := state.optimizer()) is not None
        }

    # -- reports ------------------------------------------------------------------------------------------------------

    def speak(self) -> None:
        """Start reporting steps, with everything known so far."""
        if self.speaking:
            return
        self.speaking = True
        if self.states:
            self._tell_started()
            self._tell_layers()

    def _tell_started(self) -> None:
        if not self.speaking:
            return
        parameters: dict[int, Tensor] = {
            id(parameter): parameter
            for model in self.models.values()
            for parameter in model.parameters()
        }
        for state in self.states.values():
            parameters |= {
                id(parameter): parameter
                for parameter in (state.layers.parameters if state.layers else ())
            }
        device = next(
            (str(parameter.device) for parameter in parameters.values()), "cpu"
        )
        self.file.tell(
            frames.Started(
                device,
                sum(parameter.numel() for parameter in parameters.values()),
                resumed_at=self._resumed_at,
                torch=str(torch.__version__),
                host=socket.gethostname(),
            )
        )
        for name, model in self.models.items():
            if models.is_compiled(model):
                self.say(
                    f"{name} is compiled: its layers are only read between two steps."
                )

    def _tell_layers(self) -> None:
        if self.speaking:
            self.file.tell(frames.Layers(list(self._layers)))

    def say(self, message: str) -> None:
        """Tell the person who watches something."""
        self.file.tell(frames.Said(self.step, message))

    def _note(
        self,
        state: OptimizerState,
        optimizer: torch.optim.Optimizer,
        kind: str,
        seconds: float,
        losses: list[float | Tensor],
    ) -> None:
        """Keep the report of a step until it is written."""
        groups = optimizer.param_groups
        rate = None
        if (
            len(groups) != 1
            or type(now := groups[0].get("lr")) is not float
            or now != state.rate
        ):
            rate = self._rate_changed(state, groups, kind)
        self.noted.append((kind, self.step, seconds, losses, rate, state))

    def _rate_changed(
        self, state: OptimizerState, groups: list[dict[str, Any]], kind: str
    ) -> float | None:
        """Return a changed rate for the frame of a step, None if unchanged."""
        rates = tuple(models.rate_of(group) for group in groups)
        if rates == state.rates:
            return None
        state.rates, state.rate = rates, rates[0] if len(rates) == 1 else None
        if len(groups) > 1 or len(self.states) > 1:
            self._write_noted()
            self._tell_rates()
        return rates[0] if kind == "step" else None

    def _write_noted(self) -> None:
        """Add the lines of the steps that wait; losses on an accelerator are read off it together."""
        noted, self.noted = self.noted, []
        fetched: dict[int, float] = {}
        if self.fetches:
            tensors = {
                id(candidate): candidate
                for note in noted
                for candidate in note[3]
                if isinstance(candidate, Tensor)
            }
            numbers = models.fetched(
                [tensor.reshape(()) for tensor in tensors.values()]
            )
            fetched = dict(zip(tensors, numbers, strict=True))
        lines = []
        for kind, step, seconds, losses, rate, state in noted:
            if len(losses) == 1 and type(first := losses[0]) is float:
                loss = first
            else:
                values = [
                    fetched[id(candidate)]
                    if isinstance(candidate, Tensor)
                    else candidate
                    for candidate in losses
                ]
                loss = (
                    math.fsum(values)
                    if values and all(map(math.isfinite, values))
                    else math.nan
                )
            state.loss = loss
            if kind == "step":
                lines.append(frames.line_of_step(step, loss, seconds, rate))
            elif state is next(
                reversed(self.states.values())
            ):  # the others of this round have stepped before it
                parts = "".join(
                    f', "loss_{other_state.name}": {number(other_state.loss)}'
                    for other_state in self.states.values()
                )
                lines.append(
                    f'{{"event": "losses", "epoch": 1, "step": {step}{parts}}}'
                )
        if lines:
            self.file.add(lines, perf_counter())

    def _tell_rates(self) -> None:
        """Tell the rates of all groups, where there are several."""
        names: list[str] = []
        rates: list[float | None] = []
        for name, optimizer in self.live_optimizers().items():
            several = len(optimizer.param_groups) > 1
            for index, group in enumerate(optimizer.param_groups):
                names.append(f"{name} {index}" if several else name)
                rates.append(models.rate_of(group))
        if len(names) > 1:
            self.file.tell(frames.Rates(self.step, names, rates))

    # -- measurements -------------------------------------------------------------------------------------------------

    def _measure_if_due(self, state: OptimizerState, now: float) -> None:
        """Begin a round of measuring with the main optimizer; the others are measured if they step in it."""
        main = self._main
        leads = main is None or state is main or main.optimizer() is None
        if leads and self._measuring:
            self._tell_norms()  # others did not step in this round
        if leads and now >= self.norms_due:
            self._measured_step = self.step + 1
            self._measure(state)
        elif self._measuring:
            self._measure(state)

    def _measure(self, state: OptimizerState) -> None:
        """Measure the norms of one optimizer's layers; they are reported once those of all are measured."""
        began = perf_counter()
        optimizer = state.optimizer()
        if optimizer is None or state.layers is None:
            return
        if sum(len(group["params"]) for group in optimizer.param_groups) != state.count:
            self._find_layers()
            self._tell_layers()
        scale = getattr(
            optimizer, "grad_scale", None
        )  # of a fused step, which unscales by itself
        state.norms = state.layers.measure(1.0 if scale is None else float(scale))
        self._measuring = True
        if all(other.norms is not None for other in self.states.values()):
            self._tell_norms()
        now = perf_counter()
        self._norms_cost += now - began
        if not self._measuring:
            self.norms_due = now + max(NORMS[0], self._norms_cost / NORMS[1])
            self._norms_cost = 0.0

    def _tell_norms(self) -> None:
        """Tell the norms of a round, NaN for those who did not step in it."""
        self._write_noted()
        norms: dict[
            str, list[float]
        ] = {}  # a layer may have its weight in one optimizer and its bias in another
        for state in self.states.values():
            if state.norms is not None and state.layers is not None:
                for name, norm in zip(state.layers.names, state.norms, strict=True):
                    norms.setdefault(name, []).extend(
                        [] if math.isnan(norm) else [norm]
                    )
            state.norms = None
        self._measuring = False
        values = ", ".join(
            number(math.hypot(*norms[name]) if norms.get(name) else None)
            for name in self._layers
        )
        line = (
            f'{{"event": "norms", "step": {self._measured_step}, "norms": [{values}]}}'
        )
        self.file.add([line], perf_counter())

    def _tell_memory(self, seconds: float) -> None:
        began = perf_counter()
        self._memory_due = began + MEMORY_EVERY
        kind = devices.accelerator_in_use()
        figures = devices.memory(kind) if kind else devices.Memory()
        scope = "process" if figures.allocated is None else "device"
        self.file.tell(
            frames.Memory(self.step, seconds, scope, *figures[:3], resident())
        )
        steps, seconds = self.step - self._resumed_at, seconds - self._earlier
        self.file.tell(frames.Looking(self.step, steps, self.spent, seconds))


def resident() -> int | None:
    """Return the resident memory of this process in bytes, read from /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
