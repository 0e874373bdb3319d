"""Events of a run as frozen structs, and their JSON lines as printed by the command line and the exported script.

`step` counts from 1 over the whole run, `epoch` from 1. `seconds` is host time since the first step, without pauses; on
an accelerator it is the time when a step was launched, which is accurate at every flush.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from app.telemetry.histogram import Histogram
from app.training.surgery.values import Outcome

if TYPE_CHECKING:
    from torch import Tensor


class _Event(Struct, frozen=True, array_like=True, tag=True):
    """Base of the events; the encoding of each names its class."""


class Started(_Event, frozen=True, eq=False):
    """`layers` are the paths of the modules that have trainable parameters, in the order of the gradient norms, and
    `parameters` counts those.

    `changed` warns of differences to the environment of the run up to its checkpoint. `steps_per_epoch` and
    `batch_size` are 0 and `seed` is -1 of a script that is watched, which tells of none.
    """

    device: str
    device_note: str | None
    epochs: int
    batch_size: int
    steps_per_epoch: int
    seed: int
    parameters: int
    layers: tuple[str, ...]
    train_count: int
    validation_count: int
    resumed_at: int = 0  # the step that a checkpoint was taken after
    changed: str = ""
    # The environment; "" and 0 if unknown. `threads` is the number of threads per operation.
    torch: str = ""
    device_name: str = ""
    threads: int = 0
    frozen: int = 0  # parameters of the net that are not trained
    stand_in: str = ""  # says what stands in for data that are not downloaded
    timed: bool = True  # whether the seconds of the steps are those of the run, and not when its file was read
    loss: str = ""  # names the losses, their outputs and what chose them
    host: str = ""  # the name of the machine, "" for this one

    def __eq__(self, other: object) -> bool:
        """Compare the run and ignore the environment."""
        return type(other) is Started and self._run == other._run

    def __hash__(self) -> int:
        return hash(self._run)

    @property
    def _run(self) -> tuple[object, ...]:
        names = self.__struct_fields__
        return tuple(getattr(self, name) for name in names[: names.index("torch")])


class StepDone(_Event, frozen=True):
    """`rate` is the learning rate of the main parameter group at this step, nan where the optimizer has none."""

    epoch: int
    step: int
    loss: float
    samples: int
    seconds: float
    rate: float = math.nan


class GroupRates(_Event, frozen=True):
    """Learning rates of several parameter groups, emitted before the first step and after every change.

    `groups` are their paths, the main one first; "" is all that lies in no group of the project.
    """

    step: int
    groups: tuple[str, ...]
    rates: tuple[float, ...]


class LossParts(_Event, frozen=True):
    """Unweighted losses of several outputs at a step, emitted after the step whose loss is their sum."""

    epoch: int
    step: int
    outputs: tuple[str, ...]
    losses: tuple[float, ...]

    @classmethod
    def from_tensors(
        cls, epoch: int, step: int, parts: Mapping[str, Tensor]
    ) -> LossParts:
        """Read the scalar losses off the device."""
        return cls(
            epoch, step, tuple(parts), tuple(value.item() for value in parts.values())
        )


class GradientNorms(_Event, frozen=True):
    """L2 norm of each layer's gradients after backward and before the optimizer step; NaN if it has none."""

    step: int
    layers: tuple[str, ...]
    norms: tuple[float, ...]


class LayerFigures(_Event, frozen=True):
    """Measurements of one step. `weights` are the norms of the layers' weights before it, `ratios` the norm of the
    optimizer's update over that. `dead` is the fraction of units, by `cutting` layers such as ReLU, that were 0 for the
    whole batch; empty if the forward is compiled."""

    step: int
    layers: tuple[str, ...]
    weights: tuple[float, ...]
    ratios: tuple[float, ...]
    cutting: tuple[str, ...]
    dead: tuple[float, ...]


class GainFigures(_Event, frozen=True):
    """Backward gradients at a sampled step: for each layer, in forward order, the norm of the gradient at its output
    and of the one it passed to other layers; `reached` is the norm at the last layer. See `telemetry.gradient_gains`.
    """

    step: int
    reached: float
    layers: tuple[str, ...]
    arriving: tuple[float, ...]
    leaving: tuple[float, ...]


class Histograms(_Event, frozen=True):
    """Of every layer at a step; `kind` is "weights", "gradients" or "activations"."""

    step: int
    kind: str
    layers: tuple[Histogram, ...]


class Looking(_Event, frozen=True):
    """Telemetry overhead since the run started or resumed: `spent` of `seconds`, over `steps`. The window's drawing is
    not in it.
    """

    step: int
    steps: int
    spent: float
    seconds: float


class StepHashes(_Event, frozen=True):
    """Hashes of some steps up to `step`, of their gradients after backward and of the states of torch's generators.

    `rows` are little-endian int64 (steps, 4 + layers): step, epoch, batch of the epoch, generators, then the layers.
    """

    step: int
    layers: tuple[str, ...]
    rows: bytes


class Hashing(_Event, frozen=True):
    """Cost of recording hashes since the run started or resumed: `spent` of `seconds`; `hashed` of `steps` have one."""

    step: int
    steps: int
    hashed: int
    spent: float
    seconds: float


class Caught(_Event, frozen=True):
    """A watch point held, and the run pauses: `what` is "loss", "gradient", "dead" or "memory"."""

    epoch: int
    step: int
    what: str
    layer: str
    node: str | None
    value: float
    message: str


class Noticed(_Event, frozen=True):
    """A mistake in a module, detected between two steps; emitted once per run."""

    step: int
    layer: str
    node: str | None
    message: str


class GraphBreak(_Event, frozen=True):
    """A line, file:line, that torch.compile leaves to Python in a layer of a script; `hints` of torch, a line each."""

    step: int
    layer: str
    line: str
    kind: str
    explanation: str
    hints: str


class Recompiled(_Event, frozen=True):
    """Code of a script was compiled again; `reason` is that of torch's log."""

    step: int
    layer: str
    reason: str


class EpochDone(_Event, frozen=True):
    """Losses are means over samples. Training figures are measured during the epoch's updates, in train mode.

    Validation figures are None without validation samples, accuracies without classes. `metrics` are further ones of
    the validation samples, by name; among them the losses of several outputs, as `loss_<output>`.
    """

    epoch: int
    step: int
    train_loss: float
    train_accuracy: float | None
    val_loss: float | None
    val_accuracy: float | None
    seconds: float
    metrics: tuple[tuple[str, float], ...] = ()


class MemorySample(_Event, frozen=True):
    """Memory in bytes. `scope` "device": allocated, reserved and peak by torch; "process": resident memory only."""

    step: int
    seconds: float
    scope: Literal["device", "process"]
    allocated: int | None
    reserved: int | None
    peak: int | None
    resident: int | None


class Skipped(_Event, frozen=True):
    """A batch that was not trained on: its loss was not finite, and `message` names the first bad layer, or it was to
    be left out.
    """

    epoch: int
    step: int
    message: str
    node: str | None
    nonfinite: bool = True


class Saving(_Event, frozen=True):
    """A checkpoint is about to be saved after this step: recorders flush their data now."""

    step: int


class Saved(_Event, frozen=True):
    """A checkpoint was saved; `problem` is the error message otherwise, and the run continues without it."""

    step: int
    path: str
    problem: str = ""


class RateSet(_Event, frozen=True):
    """The learning rate was set by hand after this step; from then on, results differ from the script.

    `group` is the path of the parameter group whose it is, "" the main one.
    """

    step: int
    rate: float
    group: str = ""


class Cut(_Event, frozen=True):
    """After this step the run continues with an edited net: its stage `stage`, from 2.

    `layers` and `parameters` are those of the edited net, as `Started` has them; `net` is the file name of its source.
    """

    epoch: int
    step: int
    stage: int
    description: str
    outcome: Outcome
    layers: tuple[str, ...]
    parameters: int
    net: str = ""


class Paused(_Event, frozen=True):
    epoch: int
    step: int


class Resumed(_Event, frozen=True):
    epoch: int
    step: int


class Finished(_Event, frozen=True):
    """End of a run. `note` tells why it ended early, `looking` is the fraction of time spent on telemetry. Of the last
    `since` steps, `skipped` were not taken because their loss was not finite. The reason "left" is of a run elsewhere
    that goes on, and is watched no longer.
    """

    reason: Literal["done", "stopped", "left"]
    epoch: int
    steps: int
    seconds: float
    note: str = ""
    looking: float = 0.0
    skipped: int = 0
    since: int = 0

    @property
    def reason_text(self) -> str:
        """Return why it ended early, and what was skipped; "" if it went as planned."""
        of = f"{self.since:,} {'step was' if self.since == 1 else 'steps were'}"
        skipped = (
            f"{self.skipped:,} of {of} skipped: their loss was not finite"
            if self.skipped
            else ""
        )
        return "; ".join(filter(None, (self.note, skipped)))


class Failed(_Event, frozen=True):
    """`kind`: "job", "data", "shape", "memory", "not finite" or "error". `node` is the node whose line failed."""

    kind: str
    message: str
    cure: str
    traceback: str
    node: str | None
    epoch: int
    step: int


Event = (
    Started
    | StepDone
    | GroupRates
    | LossParts
    | GradientNorms
    | LayerFigures
    | GainFigures
    | Histograms
    | Looking
    | StepHashes
    | Hashing
    | Caught
    | Noticed
    | GraphBreak
    | Recompiled
    | EpochDone
    | MemorySample
    | Skipped
    | Saving
    | Saved
    | RateSet
    | Cut
    | Paused
    | Resumed
    | Finished
    | Failed
)


def to_json(event: Event) -> str | None:
    """Return the JSON line of an event, floats at full precision and null for non-finite ones; None for telemetry.

    >>> to_json(StepDone(1, 2, 0.1, 64, 0.01))
    '{"event": "step", "epoch": 1, "step": 2, "loss": 0.1}'
    """
    fields = _fields(event)
    if fields is None:
        return None
    clean = {
        k: None if isinstance(v, float) and not math.isfinite(v) else v
        for k, v in fields.items()
    }
    return json.dumps(clean, ensure_ascii=False, allow_nan=False)


def _fields(event: Event) -> dict[str, Any] | None:
    match event:
        case Started():
            names = (
                "device",
                "epochs",
                "batch_size",
                "seed",
                "parameters",
                "train_count",
                "validation_count",
            )
            return _picked("started", event, *names, "loss")
        case StepDone():
            return _picked("step", event, "epoch", "step", "loss")
        case LossParts():
            parts = {
                f"loss_{name}": value
                for name, value in zip(event.outputs, event.losses, strict=True)
            }
            return _picked("losses", event, "epoch", "step") | parts
        case EpochDone():
            figures = ("train_loss", "train_accuracy", "val_loss", "val_accuracy")
            gathered = {f"val_{name}": value for name, value in event.metrics}
            return _picked("epoch", event, "epoch", "step", *figures) | gathered
        case Caught():
            return _picked(
                "caught", event, "epoch", "step", "what", "layer", "value", "message"
            )
        case Skipped():
            return _picked("skipped", event, "epoch", "step")
        case Saved():
            return _picked("saved", event, "step", "path", "problem")
        case RateSet():
            return _picked(
                "rate", event, "step", "rate", *(["group"] if event.group else [])
            )
        case Cut():
            layers = {
                fate.after or fate.before: fate.what for fate in event.outcome.fates
            }
            return _picked("surgery", event, "step", "stage", "description") | {
                "difference": event.outcome.difference,
                "layers": layers,
            }
        case Finished():
            return _picked(
                "finished",
                event,
                "reason",
                "epoch",
                "steps",
                *(["note"] if event.note else []),
            )
        case Failed():
            return _picked(
                "failed", event, "kind", "message", "cure", "node", "epoch", "step"
            )
    return None


def _picked(kind: str, event: Event, *names: str) -> dict[str, Any]:
    return {"event": kind} | {name: getattr(event, name) for name in names}
