"""Training settings of a project."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.util.frozen import FrozenMap

INPUT = "(input)"  # as a target: what went into the net is to come out again


@dataclass(frozen=True)
class Choice:
    """A class of `torch.optim` or a loss of `torch.nn` by name, with the parameters that differ from its defaults."""

    name: str
    params: FrozenMap[str, Any] = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class StartWeights:
    """What a run starts from: a `.safetensors` file whose keys are those of the net, and the hash that it must have.

    `keys` are those that are taken, all of the file if there are none named; the rest of the net is drawn with the
    seed. `name` is what a person knows the weights by, such as the file that they were read from.
    """

    path: str
    sha256: str
    keys: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Schedule:
    """A class of `torch.optim.lr_scheduler`; `per` "step" or "epoch" says when it is asked for the next rate.

    `warmup` is how many of those steps or epochs the rate first rises in a line to its own value.
    """

    choice: Choice
    per: str = "epoch"
    warmup: int = 0


@dataclass(frozen=True)
class Group:
    """A group of the optimizer: the parameters below the module or of the name `path`, with options of their own."""

    path: str
    options: FrozenMap[str, Any] = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class OutputLoss:
    """What one output of a net is compared with, by which loss, and how much that counts in the sum.

    `target` is the name of one of the data's targets, "" for the first, or INPUT for what went into the net.
    """

    output: str
    loss: Choice
    weight: float = 1.0
    target: str = ""


@dataclass(frozen=True)
class TrainingConfig:
    """`device` is "auto", "cpu", "cuda:0", "mps" ...; "auto" takes the fastest that is present.

    Weights are drawn with `seed`, and then those of `start` are put in their place.

    The optimizer takes a step every `accumulate` batches, on the mean of their gradients; before it gradients are
    clipped to `clip_value` each, then to `clip_norm` together. With `no_decay`, parameters of one dimension (biases,
    scales of norms) go without weight decay. `amp` is "", "bfloat16" or "float16", the latter with a scaler of the
    loss. `ema` is the decay of a running mean of the weights, which is validated and kept in their place; None for
    none. `mixup` is the alpha of the Beta distribution that pairs of samples, and what they are compared with, are
    mixed by; 0 for none. The forward of the modules in `recompute` is run anew in backward, so that their activations
    are not kept (gradient checkpointing). A run ends after `epochs`, and before that after `max_steps` batches,
    `max_minutes`, or `patience` epochs without a smaller validation loss; None and 0 are no limit. With `one_batch` the
    first batch of the data is all that it sees. `not_finite` is "stop" or "skip": what happens at a batch whose loss is
    nan or infinite. `save_every` is the number of batches between two checkpoints; 0 keeps those of the best and of the
    last epoch. `metrics` are keys of `app.training.metrics.SCORES`, measured on the validation samples after every
    epoch beside loss and accuracy. With `losses`, one for each of several outputs, the loss is their sum, each times
    its weight, and `loss` is not used; accuracy and metrics are those of the first.
    """

    epochs: int = 20
    batch_size: int = 64
    seed: int = 0
    device: str = "auto"
    optimizer: Choice = Choice("Adam", FrozenMap(lr=0.001))
    loss: Choice = Choice("CrossEntropyLoss")
    start: StartWeights | None = None
    schedule: Schedule | None = None
    groups: tuple[Group, ...] = ()
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
    deterministic: bool = False
    anomaly: bool = False
    cudnn_benchmark: bool = False
    threads: int = 0
    metrics: tuple[str, ...] = ()
    losses: tuple[OutputLoss, ...] = ()

    @property
    def loss_name(self) -> str:
        """The loss as a person knows it; of several outputs those of all."""
        return " + ".join(row.loss.name for row in self.losses) or self.loss.name
