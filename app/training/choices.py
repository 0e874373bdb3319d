"""Names of losses, optimizers and schedulers, and the fields of their forms; without torch.

`registry` creates and validates them.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from app.util.errors import CodedError
from app.util.frozen import FrozenMap

CLASS_IDS = "class ids"
ONE_HOT = "one-hot"

# What a loss takes as target for class labels: the ids (int64), or one-hot rows (float32).
LOSSES: FrozenMap[str, str] = FrozenMap(
    CrossEntropyLoss=CLASS_IDS,
    NLLLoss=CLASS_IDS,
    MultiMarginLoss=CLASS_IDS,
    BCEWithLogitsLoss=ONE_HOT,
    BCELoss=ONE_HOT,
    MultiLabelSoftMarginLoss=ONE_HOT,
    MSELoss=ONE_HOT,
    L1Loss=ONE_HOT,
    SmoothL1Loss=ONE_HOT,
    HuberLoss=ONE_HOT,
    KLDivLoss=ONE_HOT,
    PoissonNLLLoss=ONE_HOT,
)

# Those that compare one output a sample with labels of two classes, too, and what the scores of both classes add up to.
OF_ONE_OUTPUT: FrozenMap[str, int] = FrozenMap(
    BCEWithLogitsLoss=0, BCELoss=1, MSELoss=1, L1Loss=1, SmoothL1Loss=1, HuberLoss=1
)
OF_LOGITS = "BCEWithLogitsLoss"

# A loss that the model computes itself: the output is the loss. For one of several outputs of an opened model.
OWN_LOSS = "OwnLoss"
WITH_PROBABILITIES = "CrossEntropyLoss"  # of those that take class ids the one that takes their probabilities, too

# SparseAdam needs sparse gradients (Embedding with sparse=True) and Muon matrices; LBFGS runs a closure.
OPTIMIZERS: tuple[str, ...] = (
    "Adam",
    "AdamW",
    "SGD",
    "RMSprop",
    "NAdam",
    "RAdam",
    "Adamax",
    "Adagrad",
    "Adadelta",
    "Adafactor",
    "Rprop",
    "ASGD",
    "LBFGS",
    "Muon",
    "SparseAdam",
)

# Left out: LambdaLR and MultiplicativeLR take a function, ChainedScheduler and SequentialLR other schedulers (a warmup
# is a field of every schedule); LRScheduler is their base.
SCHEDULERS: tuple[str, ...] = (
    "StepLR",
    "MultiStepLR",
    "ExponentialLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "OneCycleLR",
    "LinearLR",
    "PolynomialLR",
    "ConstantLR",
    "CyclicLR",
    "ReduceLROnPlateau",
)
PLATEAU = "ReduceLROnPlateau"

# Options of optimizers and schedulers, and of losses, that few change: how a step is computed, and rare variants.
EXPERT = frozenset(
    (
        "amsgrad",
        "capturable",
        "centered",
        "dampening",
        "decoupled_weight_decay",
        "differentiable",
        "eps",
        "foreach",
        "fused",
        "ignore_index",
        "initial_accumulator_value",
        "last_epoch",
        "lr_decay",
        "maximize",
        "reduction",
    )
)

CLOSURE = "LBFGS"
WARMUP_FROM = 0.01  # of the rate
NO_WARMUP = {
    PLATEAU: ", since it depends on the validation loss",
    "OneCycleLR": ", since it has its own warmup",
    "CyclicLR": ", since it starts with its own increase",
}


def takes_one_output(loss: str, classes: int) -> bool:
    """Return whether a loss compares one output a sample with the labels of so many classes.

    >>> takes_one_output("BCEWithLogitsLoss", 2), takes_one_output("BCEWithLogitsLoss", 3)
    (True, False)
    """
    return classes == 2 and loss in OF_ONE_OUTPUT


class ChoiceError(CodedError, ValueError):
    """Raised for a loss or optimizer that torch rejects; `param` names the offending field, if known."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


def loss_named(text: str) -> str:
    """Return the name of a loss as it may be written. Raises ChoiceError.

    >>> loss_named("cross_entropy"), loss_named("mse"), loss_named("own")
    ('CrossEntropyLoss', 'MSELoss', 'OwnLoss')
    """
    names = {_plain(name): name for name in (*LOSSES, OWN_LOSS)}
    if (name := names.get(_plain(text))) is None:
        raise ChoiceError(
            f"There is no loss “{text}” here. Choose own, or one of: {', '.join(LOSSES)}."
        )
    return name


def _plain(name: str) -> str:
    return name.lower().replace("_", "").removeprefix("nn.").removesuffix("loss")


class ChoiceParam(Struct, frozen=True):
    """One field of the form; the fields are those of the layer catalog's parameters.

    A "literal" is a number, None, or a tuple of numbers (`count` of them; 0: any).
    """

    name: str
    kind: str
    default: Any
    required: bool = False
    choices: tuple[Any, ...] = ()
    auto: bool = False
    count: int = 0
    optional: bool = False
    minimum: float | None = None
    maximum: float | None = None
    doc: str = ""
    expert: bool = False  # shown under "More" alone while it is the default
