"""Training settings of a project."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from app.data.config import Seed
from app.util.described import About
from app.util.frozen import FrozenMap

INPUT = "(input)"  # as a target: what went into the net is to come out again
TARGET = "(target)"  # as an input: the only target of the data, such as for a model that computes its loss itself

BY_MODEL, BY_DATA = "model", "data"  # what chose a loss that nobody did

# The largest value of each number. A project file with a larger one is refused, so no form and no command may take it.
MOST_COUNT = 10_000_000
MOST_PARAMETER = 3.4e38  # of an optimizer, a loss, a schedule, a group, data, a transform: what a float32 can hold
MOST_WEIGHT = 1e300  # of a loss

# The sections of the settings, in the form and elsewhere.
RUN, GRADIENTS, SPEED = "Run", "Gradients", "Precision and speed"
REGULAR, CHECKPOINTS, GROUPS = "Regularisation", "Checkpoints", "Parameter groups"


Count = Annotated[int, Meta(ge=1, le=MOST_COUNT)]
Amount = Annotated[int, Meta(ge=0, le=MOST_COUNT)]
Limit = Annotated[float, Meta(gt=0, le=MOST_PARAMETER)]


class Choice(Struct, frozen=True):
    """A class of `torch.optim` or a loss of `torch.nn` by name, with the parameters that differ from its defaults."""

    name: str
    params: FrozenMap[str, Any] = FrozenMap()


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
    options: FrozenMap[str, Any] = FrozenMap()


class OutputLoss(Struct, frozen=True):
    """Target, loss and weight of one output in the sum of losses.

    `target` is the name of one of the data's targets, "" for the first, or INPUT for the net's input.
    """

    output: str
    loss: Choice
    weight: float = 1.0
    target: str = ""


class TrainingConfig(Struct, frozen=True):
    """Settings of a run. The numbers and switches are described beside them, for `app.training.settings`.

    `device` is "auto", "cpu" or an accelerator as torch names it; "auto" selects the fastest. Weights are initialised
    with `seed`, then those of `start` are loaded. Gradients are clipped to `clip_value` each, then to `clip_norm`
    together. The modules in `recompute` are recomputed in backward instead of storing activations (gradient
    checkpointing).
    `metrics` are keys of `app.training.metrics.SCORES`, measured on the validation samples after every epoch. With
    `losses`, one per output, the loss is their weighted sum, and `loss` is not used; accuracy and metrics are those of
    the first. `inputs` names the field of the data for inputs of the network that are called otherwise; it may be a
    target. `loss_by` says what chose the losses: BY_MODEL, BY_DATA, or "" for whoever made the settings.
    """

    epochs: Annotated[
        Count,
        About(
            RUN,
            "Number of passes over the training samples.",
            swept=True,
        ),
    ] = 20
    batch_size: Annotated[
        Count,
        About(
            RUN,
            "Samples in a batch. The last batch of an epoch is shorter where they do not divide, unless drop_last is "
            "set.",
            swept=True,
        ),
    ] = 64
    seed: Annotated[
        Seed,
        About(
            RUN,
            "Random seed of initial weights, shuffling and dropout.",
            swept=True,
        ),
    ] = 0
    device: str = "auto"
    optimizer: Choice = Choice("Adam", FrozenMap(lr=0.001))
    loss: Choice = Choice("CrossEntropyLoss")
    start: StartWeights | None = None
    schedule: Schedule | None = None
    groups: tuple[ParameterGroup, ...] = ()
    no_decay: Annotated[
        bool,
        About(
            GROUPS,
            "Excludes one-dimensional parameters (biases, norm scales) from weight decay.",
            swept=True,
        ),
    ] = False
    accumulate: Annotated[
        Count,
        About(
            GRADIENTS,
            "Gradient accumulation: batches per optimizer step, averaging their gradients. Acts like a larger batch in "
            "less memory. A shorter group at the end of an epoch is divided by the same number, so its step is "
            "smaller.",
            swept=True,
        ),
    ] = 1
    clip_norm: Annotated[
        Limit | None,
        About(
            GRADIENTS,
            "Rescales all gradients if their total norm exceeds this (clip_grad_norm_); None to disable.",
            swept=True,
        ),
    ] = None
    clip_value: Annotated[
        Limit | None,
        About(
            GRADIENTS,
            "Clamps every gradient element to [-v, v] (clip_grad_value_); None to disable.",
            swept=True,
            expert=True,
        ),
    ] = None
    amp: Annotated[
        Literal["", "bfloat16", "float16"],
        About(
            SPEED,
            "Mixed precision: runs the forward pass in this dtype where safe (torch.autocast). float16 uses a "
            "GradScaler.",
            swept=True,
        ),
    ] = ""
    ema: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        About(
            REGULAR,
            "Decay of an exponential moving average (EMA) of the weights, such as 0.999; the average is validated "
            "and saved. None to disable.",
            swept=True,
        ),
    ] = None
    mixup: Annotated[
        Annotated[float, Meta(ge=0, le=1e6)],
        About(
            REGULAR,
            "Mixup: blends pairs of samples and their targets with a ratio drawn from Beta(alpha, alpha). Value "
            "targets are blended, for classes the losses. 0 to disable.",
            swept=True,
        ),
    ] = 0.0
    channels_last: Annotated[
        bool,
        About(
            SPEED,
            "Stores images in channels_last memory format, which is faster for convolutions on some devices.",
            expert=True,
        ),
    ] = False
    compile: Annotated[
        bool,
        About(
            SPEED,
            "Compiles the forward pass (torch.compile). The first step is slow, later steps may be faster; results may "
            "differ in the last digits.",
        ),
    ] = False
    recompute: tuple[str, ...] = ()
    save_on_cpu: Annotated[
        bool,
        About(
            SPEED,
            "Keeps what backward needs in the memory of the CPU until then: less memory of the device, slower steps. "
            "Without effect on memory where the run is on the CPU.",
            expert=True,
        ),
    ] = False
    max_steps: Annotated[
        Count | None,
        About(
            RUN,
            "Maximum number of batches, regardless of epochs; None for no limit.",
            swept=True,
            expert=True,
        ),
    ] = None
    max_minutes: Annotated[
        Annotated[float, Meta(gt=0, le=1e300)] | None,
        About(
            RUN,
            "Maximum duration in minutes; None for no limit. The number of steps varies between runs.",
            expert=True,
        ),
    ] = None
    patience: Annotated[
        Amount,
        About(
            RUN,
            "Early stopping: epochs without a lower validation loss before the run ends; 0 to disable.",
            swept=True,
        ),
    ] = 0
    one_batch: Annotated[
        bool,
        About(
            RUN,
            "Overfits the first batch as a sanity check: a correct network drives its loss close to 0.",
        ),
    ] = False
    not_finite: Annotated[
        Literal["stop", "skip"],
        About(
            GRADIENTS,
            "If the loss is NaN or infinite: stop the run and name the first bad layer, or skip the batch and report "
            "it.",
            expert=True,
        ),
    ] = "stop"
    save_every: Annotated[
        Amount,
        About(
            CHECKPOINTS,
            "Batches between checkpoints; 0 keeps only the best and the last epoch.",
        ),
    ] = 0
    revisit_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=1e6)],
        About(
            CHECKPOINTS,
            "Keeps further checkpoints, so that any step of the run can be recomputed within about this many seconds; "
            "0 keeps none.",
            expert=True,
        ),
    ] = 0.0
    leave_out: Annotated[
        tuple[Count, ...],
        Meta(max_length=10_000),
        About(
            RUN,
            "Steps whose batch is skipped, such as 33, 40; None for none.",
            expert=True,
        ),
    ] = ()
    threads: Annotated[
        Annotated[int, Meta(ge=0, le=4096)],
        About(
            SPEED,
            "CPU threads per operation (torch.set_num_threads). 0 has the run measure at its start how many make a "
            "step faster, and leaves a processor to the window and those that other programs use. "
            "Another number may change the last digits.",
            swept=True,
            expert=True,
        ),
    ] = 0
    deterministic: Annotated[
        bool,
        About(
            SPEED,
            "Rejects nondeterministic operations (torch.use_deterministic_algorithms) and disables cuDNN autotuning.",
            expert=True,
        ),
    ] = False
    anomaly: Annotated[
        bool,
        About(
            SPEED,
            "Reports the forward operation that produced a NaN in backward (torch.autograd.set_detect_anomaly). Slow.",
            expert=True,
        ),
    ] = False
    cudnn_benchmark: Annotated[
        bool,
        About(
            SPEED,
            "cuDNN autotuning: benchmarks convolution algorithms for each input size and uses the fastest "
            "(torch.backends.cudnn.benchmark). CUDA only; not together with deterministic.",
            expert=True,
        ),
    ] = False
    metrics: tuple[str, ...] = ()
    loss_by: Literal["", "model", "data"] = ""
    losses: tuple[OutputLoss, ...] = ()
    inputs: FrozenMap[str, str] = FrozenMap()

    def changed(self, **values: Any) -> TrainingConfig:
        """Return the settings with other values; losses among them are chosen by the settings then."""
        chooser = "" if values.keys() & {"loss", "losses"} else self.loss_by
        return replace(self, loss_by=chooser, **values)

    @property
    def loss_name(self) -> str:
        """Display name of the loss; of several outputs those of all."""
        return " + ".join(row.loss.name for row in self.losses) or self.loss.name
