"""The numbers and switches of `TrainingConfig` by section, with labels and tool tips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.training.choices import ChoiceParam
from app.training.config import MOST, TrainingConfig
from app.views.ui.widgets.numbers import show_number

# Values of the config that a field shows as None.
EMPTY: dict[str, Any] = {"amp": "", "leave_out": ()}


def _param(name: str, kind: str, doc: str, **more: Any) -> ChoiceParam:
    default = getattr(TrainingConfig(), name)
    shown = None if name in EMPTY and default == EMPTY[name] else default
    return ChoiceParam(name, kind, shown, maximum=MOST.get(name), doc=doc, **more)


RUN = (
    _param("epochs", "int", "Number of passes over the training samples.", minimum=1),
    _param(
        "batch_size",
        "int",
        "Samples in a batch. The last batch of an epoch is shorter where they do not divide, "
        "unless drop_last is set.",
        minimum=1,
    ),
    _param(
        "seed",
        "int",
        "Random seed of initial weights, shuffling and dropout.",
        minimum=0,
    ),
    _param(
        "max_steps",
        "int",
        "Maximum number of batches, regardless of epochs; None for no limit.",
        minimum=1,
        optional=True,
    ),
    _param(
        "max_minutes",
        "float",
        "Maximum duration in minutes; None for no limit. The number of "
        "steps varies between runs.",
        minimum=0,
        optional=True,
    ),
    _param(
        "patience",
        "int",
        "Early stopping: epochs without a lower validation loss before the run ends; 0 to "
        "disable.",
        minimum=0,
    ),
    _param(
        "one_batch",
        "bool",
        "Overfits the first batch as a sanity check: a correct network drives its loss "
        "close to 0.",
    ),
    _param(
        "leave_out",
        "ints",
        "Steps whose batch is skipped, such as 33, 40; None for none.",
        minimum=1,
        optional=True,
    ),
)

GRADIENTS = (
    _param(
        "accumulate",
        "int",
        "Gradient accumulation: batches per optimizer step, averaging their "
        "gradients. Acts like a larger batch in less memory. A shorter group at the end of an "
        "epoch is divided by the same number, so its step is smaller.",
        minimum=1,
    ),
    _param(
        "clip_norm",
        "float",
        "Rescales all gradients if their total norm exceeds this "
        "(clip_grad_norm_); None to disable.",
        minimum=0,
        optional=True,
    ),
    _param(
        "clip_value",
        "float",
        "Clamps every gradient element to [-v, v] (clip_grad_value_); None to disable.",
        minimum=0,
        optional=True,
    ),
    _param(
        "not_finite",
        "choice",
        "If the loss is NaN or infinite: stop the run and name the "
        "first bad layer, or skip the batch and report it.",
        choices=("stop", "skip"),
    ),
)

SPEED = (
    _param(
        "amp",
        "choice",
        "Mixed precision: runs the forward pass in this dtype where safe (torch.autocast). "
        "float16 uses a GradScaler.",
        choices=("bfloat16", "float16"),
        optional=True,
    ),
    _param(
        "channels_last",
        "bool",
        "Stores images in channels_last memory format, which is faster for convolutions "
        "on some devices.",
    ),
    _param(
        "compile",
        "bool",
        "Compiles the forward pass (torch.compile). The first step is slow, later steps may "
        "be faster; results may differ in the last digits.",
    ),
    _param(
        "threads",
        "int",
        "CPU threads per operation (torch.set_num_threads). 0 has the run measure at its start "
        "how many make a step faster, and leaves a processor to the window and those that "
        "other programs use. Another number may change the last digits.",
        minimum=0,
    ),
    _param(
        "deterministic",
        "bool",
        "Rejects nondeterministic operations (torch.use_deterministic_algorithms) and "
        "disables cuDNN autotuning.",
    ),
    _param(
        "anomaly",
        "bool",
        "Reports the forward operation that produced a NaN in backward "
        "(torch.autograd.set_detect_anomaly). Slow.",
    ),
    _param(
        "cudnn_benchmark",
        "bool",
        "cuDNN autotuning: benchmarks convolution algorithms for each input size and "
        "uses the fastest (torch.backends.cudnn.benchmark). CUDA only; not together "
        "with deterministic.",
    ),
)

REGULAR = (
    _param(
        "ema",
        "float",
        "Decay of an exponential moving average (EMA) of the weights, such as "
        "0.999; the average is validated and saved. None to disable.",
        minimum=0,
        optional=True,
    ),
    _param(
        "mixup",
        "float",
        "Mixup: blends pairs of samples and their targets with a ratio drawn from "
        "Beta(alpha, alpha). Value targets are blended, for classes the losses. 0 "
        "to disable.",
        minimum=0,
    ),
)

CHECKPOINTS = (
    _param(
        "save_every",
        "int",
        "Batches between checkpoints; 0 keeps only the best and the last epoch.",
        minimum=0,
    ),
    _param(
        "revisit_seconds",
        "float",
        "Keeps further checkpoints, so that any step of the run can be recomputed "
        "within about this many seconds; 0 keeps none.",
        minimum=0,
    ),
)

NO_DECAY = (
    _param(
        "no_decay",
        "bool",
        "Excludes one-dimensional parameters (biases, norm scales) from weight decay.",
    ),
)

WORDS = {
    "Gradients": "Gradient processing between backward and optimizer step.",
    "Precision and speed": "Speed, memory and reproducibility of a step.",
    "Regularisation": "Label smoothing is a parameter of the loss, dropout is a layer, weight decay is set on the "
    "optimizer.",
    "Checkpoints": "Saves everything needed to resume the run.",
}

DEFAULT = TrainingConfig()

# Summary of a folded section without values that differ from the defaults.
PLAIN = {
    "Run": f"epochs {DEFAULT.epochs}, batch_size {DEFAULT.batch_size}",
    "Gradients": "unchanged",
    "Precision and speed": "float32",
    "Checkpoints": "best and last epoch",
}


def of_field(name: str, value: Any) -> Any:
    """Convert a value of the config to that of its field."""
    if name == "leave_out" and len(value) == 1:  # as it is typed
        return value[0]
    return None if name in EMPTY and value == EMPTY[name] else value


def of_config(name: str, value: Any) -> Any:
    """Convert a value of a field to that of the config."""
    if name == "leave_out" and isinstance(value, int):
        return (value,)
    return EMPTY[name] if value is None and name in EMPTY else value


def differing(params: Sequence[ChoiceParam], training: TrainingConfig) -> list[str]:
    """List the values that differ from the defaults, briefly.

    >>> differing(GRADIENTS, TrainingConfig(accumulate=4, clip_norm=0.5))
    ['accumulate 4', 'clip_norm 0.5']
    >>> differing(SPEED, TrainingConfig(compile=True, amp="bfloat16"))
    ['bfloat16', 'compile']
    """
    differences = []
    for param in params:
        value = getattr(training, param.name)
        if value != getattr(TrainingConfig(), param.name):
            plain = value is True or isinstance(value, str)
            text = (
                param.name
                if value is True
                else value
                if plain
                else f"{param.name} {show_number(value)}"
            )
            differences.append(
                f"not_finite {value}" if param.name == "not_finite" else text
            )
    return differences
