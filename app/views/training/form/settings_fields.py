"""The numbers and switches of `TrainingConfig`, section by section, and the words about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.training.config import TrainingConfig
from app.training.registry import Param
from app.views.ui.widgets.numbers import show_number

# None in a field stands for these in the config.
EMPTY: dict[str, Any] = {"amp": ""}


def _param(name: str, kind: str, doc: str, **more: Any) -> Param:
    default = getattr(TrainingConfig, name)
    return Param(name, kind, None if name in EMPTY and default == EMPTY[name] else default, doc=doc, **more)


RUN = (
    _param("epochs", "int", "How often the run sees all training samples.", minimum=1),
    _param("batch_size", "int", "Samples in one step of the optimizer.", minimum=1),
    _param("seed", "int", "Decides the first weights, the order and the dropout.", minimum=0),
    _param("max_steps", "int", "Ends the run after so many batches, whatever epochs says; None for no limit.",
           minimum=1, optional=True),
    _param("max_minutes", "float", "Ends the run after so many minutes; None for no limit. How many steps that is "
           "differs from run to run.", minimum=0, optional=True),
    _param("patience", "int", "Ends the run after so many epochs without a smaller validation loss; 0 for never.",
           minimum=0),
    _param("one_batch", "bool", "Learns the first batch of the data and nothing else. A net that is put together "
           "rightly brings its loss to almost nothing."),
)  # fmt: skip

GRADIENTS = (
    _param("accumulate", "int", "The optimizer takes a step every so many batches, on the mean of their gradients: "
           "as large batches would, in less memory.", minimum=1),
    _param("clip_norm", "float", "Gradients are made shorter together where their norm is above this "
           "(clip_grad_norm_); None for never.", minimum=0, optional=True),
    _param("clip_value", "float", "Each number of a gradient is kept between minus this and this "
           "(clip_grad_value_); None for never.", minimum=0, optional=True),
    _param("not_finite", "choice", "What happens at a batch whose loss is nan or infinite: the run stops and names the "
           "first bad layer, or the batch is skipped and told.", choices=("stop", "skip")),
)  # fmt: skip

SPEED = (
    _param("amp", "choice", "Runs the forward in this precision where that is safe (torch.autocast). float16 comes "
           "with a scaler of the loss (GradScaler).", choices=("bfloat16", "float16"), optional=True),
    _param("channels_last", "bool", "Keeps pictures with the channels last in memory, which convolutions on some "
           "devices like better."),
    _param("compile", "bool", "torch.compile makes code of its own for the forward. The first step takes long, the "
           "rest may be faster; numbers may differ in the last digits."),
    _param("threads", "int", "CPU threads for one operation (torch.set_num_threads). 0 takes one for a net too small "
           "to be shared out, else torch's choice. Another number may change the last digits.", minimum=0),
    _param("deterministic", "bool", "Refuses operations that may give other numbers each time "
           "(torch.use_deterministic_algorithms), and lets cuDNN measure nothing (benchmark off)."),
    _param("anomaly", "bool", "Has backward name the operation of the forward that gave a nan "
           "(torch.autograd.set_detect_anomaly). Slow."),
    _param("cudnn_benchmark", "bool", "Has cuDNN try its ways to convolve on the first batch of each size and keep the "
           "fastest (torch.backends.cudnn.benchmark), on CUDA. Not with deterministic, whose numbers it could change."),
)  # fmt: skip

REGULAR = (
    _param("ema", "float", "Decay of a running mean of the weights, such as 0.999, which is validated and kept in "
           "their place; None for none.", minimum=0, optional=True),
    _param("mixup", "float", "Mixes pairs of samples by a share drawn from Beta(alpha, alpha), and what they are "
           "compared with by the same: values as they are, of classes the losses. Alpha; 0 for none.", minimum=0),
)  # fmt: skip

CHECKPOINTS = (
    _param("save_every", "int", "Batches between two checkpoints; 0 keeps those of the best epoch and of the last.",
           minimum=0),
)  # fmt: skip

NO_DECAY = (
    _param("no_decay", "bool", "Parameters of one dimension, which are biases and the scales of norms, go without "
           "weight decay."),
)  # fmt: skip

WORDS = {
    "Gradients": "Between backward and the optimizer's step.",
    "Precision and speed": "What makes a step faster or smaller, and how it is repeated.",
    "Regularisation": "Label smoothing is a parameter of the loss, dropout a layer, weight decay the optimizer's.",
    "Checkpoints": "Everything that a run needs to go on, written beside it.",
}

# What a folded section says where nothing differs from the defaults.
PLAIN = {
    "Run": f"epochs {TrainingConfig.epochs}, batch_size {TrainingConfig.batch_size}",
    "Gradients": "as they come",
    "Precision and speed": "float32",
    "Checkpoints": "best and last epoch",
}


def of_field(name: str, value: Any) -> Any:
    """A value of the config as its field shows it."""
    return None if name in EMPTY and value == EMPTY[name] else value


def of_config(name: str, value: Any) -> Any:
    """A value of a field as the config keeps it."""
    return EMPTY[name] if value is None and name in EMPTY else value


def differing(params: Sequence[Param], training: TrainingConfig) -> list[str]:
    """What is not the default, in few words.

    >>> differing(GRADIENTS, TrainingConfig(accumulate=4, clip_norm=0.5))
    ['accumulate 4', 'clip_norm 0.5']
    >>> differing(SPEED, TrainingConfig(compile=True, amp="bfloat16"))
    ['bfloat16', 'compile']
    """
    found = []
    for param in params:
        value = getattr(training, param.name)
        if value != getattr(TrainingConfig, param.name):
            plain = value is True or isinstance(value, str)
            words = param.name if value is True else value if plain else f"{param.name} {show_number(value)}"
            found.append(f"not_finite {value}" if param.name == "not_finite" else words)
    return found
