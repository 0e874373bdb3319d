"""Training settings of a project."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from app.util.frozen import FrozenMap

INPUT = "(input)"  # as a target: what went into the net is to come out again
TARGET = "(target)"  # as an input: the only target of the data, such as for a model that computes its loss itself

BY_MODEL, BY_DATA = "model", "data"  # what chose a loss that nobody did

_COUNTS = (
    "epochs",
    "batch_size",
    "accumulate",
    "max_steps",
    "patience",
    "save_every",
    "leave_out",
    "warmup",
)
# The largest value of each number. A project file with a larger one is refused, so no form and no command may take it.
MOST = {
    **dict.fromkeys(_COUNTS, 10_000_000),
    "parameter": 3.4e38,  # of an optimizer, a loss, a schedule, a group, data or a transform: what a float32 can hold
    "seed": 2**63 - 1,
    "threads": 4096,
    "max_minutes": 1e300,
    "mixup": 1e6,
    "revisit_seconds": 1e6,
    "weight": 1e300,
}


class Choice(Struct, frozen=True):
    """A class of `torch.optim` or a loss of `torch.nn` by name, with the parameters that differ from its defaults."""

    name: str
    params: FrozenMap[str, Any] = field(default_factory=FrozenMap)


class StartWeights(Struct, frozen=True):
    """Initial weights of a run: a `.safetensors` file with keys of the net, and its expected hash.

    `keys` are those to load, all of the file if empty; other weights are initialised with the seed. `name` is shown to
    the user, such as the original file.
    """

    path: str
    sha256: str
    keys: tuple[str, ...] = ()
    name: str = ""


class Schedule(Struct, frozen=True):
    """A class of `torch.optim.lr_scheduler`, stepped `per` "step" or "epoch".

    `warmup` is the number of steps or epochs of a linear warm-up.
    """

    choice: Choice
    per: str = "epoch"
    warmup: int = 0


class ParameterGroup(Struct, frozen=True):
    """A parameter group: the parameters below the module or of the name `path`, with their own options."""

    path: str
    options: FrozenMap[str, Any] = field(default_factory=FrozenMap)


class OutputLoss(Struct, frozen=True):
    """Target, loss and weight of one output in the sum of losses.

    `target` is the name of one of the data's targets, "" for the first, or INPUT for the net's input.
    """

    output: str
    loss: Choice
    weight: float = 1.0
    target: str = ""


class TrainingConfig(Struct, frozen=True):
    """Settings of a run. `device` is "auto", "cpu", "cuda:0", "mps" ...; "auto" selects the fastest.

    Weights are initialised with `seed`, then those of `start` are loaded.

    The optimizer takes a step every `accumulate` batches, on the mean of their gradients; before it gradients are
    clipped to `clip_value` each, then to `clip_norm` together. With `no_decay`, parameters of one dimension (biases,
    scales of norms) have no weight decay. `amp` is "", "bfloat16" or "float16", the latter with a gradient scaler.
    `ema` is the decay of an exponential moving average of the weights, which is validated and saved instead of them;
    None for none. `mixup` is the alpha of the Beta distribution for mixing pairs of samples and their targets; 0 for
    none. The modules in `recompute` are recomputed in backward instead of storing activations (gradient checkpointing).
    A run ends after `epochs`, `max_steps` batches, `max_minutes`, or `patience` epochs without a smaller validation
    loss; None and 0 are no limit. With `one_batch` it trains on the first batch only (overfit test). `not_finite` is
    "stop" or "skip", for a batch whose loss is nan or infinite. `save_every` is the number of batches between two
    checkpoints; with 0 only the best and the last epoch's are saved. With `revisit_seconds` above 0 further ones are
    kept, so that any step can be recomputed within about that time (s). `leave_out` are steps, from 1, whose batch is
    read and not trained on. `metrics` are keys of
    `app.training.metrics.SCORES`, measured on the validation samples after every epoch. With `losses`, one per output,
    the loss is their weighted sum, and `loss` is not used; accuracy and metrics are those of the first. `inputs` names
    the field of the data for inputs of the network that are called otherwise; it may be a target. `loss_by` says what
    chose the losses: BY_MODEL, BY_DATA, or "" for whoever made the settings.
    """

    epochs: int = 20
    batch_size: int = 64
    seed: int = 0
    device: str = "auto"
    optimizer: Choice = Choice("Adam", FrozenMap(lr=0.001))
    loss: Choice = Choice("CrossEntropyLoss")
    start: StartWeights | None = None
    schedule: Schedule | None = None
    groups: tuple[ParameterGroup, ...] = ()
    no_decay: bool = False
    accumulate: int = 1
    clip_norm: float | None = None
    clip_value: float | None = None
    amp: str = ""
    ema: float | None = None
    mixup: float = 0.0
    compile: bool = False
    channels_last: bool = False
    recompute: tuple[str, ...] = ()
    max_steps: int | None = None
    max_minutes: float | None = None
    patience: int = 0
    one_batch: bool = False
    not_finite: str = "stop"
    save_every: int = 0
    revisit_seconds: float = 0.0
    leave_out: tuple[int, ...] = ()
    deterministic: bool = False
    anomaly: bool = False
    cudnn_benchmark: bool = False
    threads: int = 0
    metrics: tuple[str, ...] = ()
    loss_by: str = ""
    losses: tuple[OutputLoss, ...] = ()
    inputs: FrozenMap[str, str] = field(default_factory=FrozenMap)

    def changed(self, **values: Any) -> TrainingConfig:
        """Return the settings with other values; losses among them are chosen by the settings then."""
        chooser = "" if values.keys() & {"loss", "losses"} else self.loss_by
        return replace(self, loss_by=chooser, **values)

    @property
    def loss_name(self) -> str:
        """Display name of the loss; of several outputs those of all."""
        return " + ".join(row.loss.name for row in self.losses) or self.loss.name
