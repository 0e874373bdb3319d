"""The metrics that torchmetrics computes here, and which of them apply to a task; `evaluation.metric_values` has them
computed."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from app.data.spec import CLASSES, TOKENS, VALUES
from app.util.formatting import counted
from app.util.frozen import FrozenMap

SOFTMAX, SIGMOID, PLAIN = "softmax", "sigmoid", "plain"
# How a loss reads the net's output as probabilities; of any other it is taken as it is.
_READ = {
    "CrossEntropyLoss": SOFTMAX,
    "NLLLoss": SOFTMAX,
    "MultiMarginLoss": SOFTMAX,
    "KLDivLoss": SOFTMAX,
    "BCEWithLogitsLoss": SIGMOID,
    "MultiLabelSoftMarginLoss": SIGMOID,
}
MOST_CLASSES = 1000  # above, metrics by class cost too much


class Score(Struct, frozen=True):
    """One metric: the class of torchmetrics that measures it, in `module`, and its arguments.

    `least` is how many classes the data must have. `share`: it lies between 0 and 1, and more is better.
    """

    name: str
    label: str
    kinds: tuple[str, ...]
    metric: str
    module: str
    arguments: FrozenMap[str, Any] = FrozenMap()
    least: int = 2
    share: bool = True
    doc: str = ""

    @property
    def by_class(self) -> bool:
        """True if it needs the number of classes."""
        return self.metric.startswith("Multiclass")

    def call(self, classes: str) -> str:
        """Return the expression that creates it; `classes` is their number, `quiet` the name of common arguments."""
        parts = [classes] if self.by_class else []
        parts += [
            f"{name}={value!r}".replace("'", '"')
            for name, value in self.arguments.items()
        ]
        return f"{self.metric}({', '.join([*parts, '**quiet'])})"

    @property
    def quiet(self) -> dict[str, bool]:
        """Arguments of no metric's own: labels are right, and of several processes every one validates all samples."""
        return {
            **({"validate_args": False} if self.by_class else {}),
            "sync_on_compute": False,
        }


def _of_classes(
    name: str, label: str, metric: str, doc: str, least: int = 2, **arguments: Any
) -> Score:
    options = FrozenMap(arguments)
    return Score(
        name,
        label,
        (CLASSES, TOKENS),
        metric,
        "torchmetrics.classification",
        options,
        least,
        True,
        doc,
    )


_BOTH = (
    _of_classes(
        "f1",
        "F1",
        "MulticlassF1Score",
        "Harmonic mean of precision and recall, averaged over classes.",
        average="macro",
    ),
    _of_classes(
        "precision",
        "Precision",
        "MulticlassPrecision",
        "Fraction of the predictions of a class that are correct, averaged over classes.",
        average="macro",
    ),
    _of_classes(
        "recall",
        "Recall",
        "MulticlassRecall",
        "Fraction of the samples of a class that are predicted correctly, averaged over classes: balanced "
        "accuracy.",
        average="macro",
    ),
    _of_classes(
        "auroc",
        "AUROC",
        "MulticlassAUROC",
        "Area under the ROC curve of each class against the others, averaged over classes.",
        average="macro",
    ),
    *(
        _of_classes(
            f"top{k}_accuracy",
            f"Top-{k} accuracy",
            "MulticlassAccuracy",
            f"Fraction of samples whose class is among the {k} highest-scoring classes.",
            k + 1,
            average="micro",
            top_k=k,
        )
        for k in (2, 3, 5)
    ),
)
_NUMBERS = (
    Score(
        "mae",
        "MAE",
        (VALUES,),
        "MeanAbsoluteError",
        "torchmetrics",
        share=False,
        doc="Mean absolute error.",
    ),
    Score(
        "rmse",
        "RMSE",
        (VALUES,),
        "MeanSquaredError",
        "torchmetrics",
        FrozenMap(squared=False),
        share=False,
        doc="Root mean squared error.",
    ),
    Score(
        "r2",
        "R²",
        (VALUES,),
        "R2Score",
        "torchmetrics",
        share=False,
        doc="Coefficient of determination: 1 is perfect, 0 is no better than predicting the mean.",
    ),
)
PERPLEXITY = Score(
    "perplexity",
    "Perplexity",
    (TOKENS,),
    "Perplexity",
    "torchmetrics.text",
    share=False,
    doc="Perplexity: exp of the mean negative log-likelihood per token.",
)

SCORES: FrozenMap[str, Score] = FrozenMap(
    {score.name: score for score in (*_BOTH, *_NUMBERS, PERPLEXITY)}
)


def label_of(name: str) -> str:
    """Return the label of a metric, or of `loss_<output>` for one of several outputs."""
    return (
        SCORES[name].label if name in SCORES else f"{name.removeprefix('loss_')} loss"
    )


def is_share(name: str) -> bool:
    """Return whether a metric lies between 0 and 1."""
    return name in SCORES and SCORES[name].share


def fitting(kind: str, classes: int) -> tuple[Score, ...]:
    """Return the metrics that apply to a task; all of them while `kind` is "", unknown."""
    if not kind:
        return tuple(SCORES.values())
    fits = (score for score in SCORES.values() if kind in score.kinds)
    return tuple(
        score
        for score in fits
        if not score.by_class or score.least <= classes <= MOST_CLASSES
    )


def refusal(name: str, kind: str, classes: int) -> str:
    """Explain why a metric does not apply to a task; "" if it does."""
    if name not in SCORES:
        return f"There is no metric “{name}”. Choose among: {', '.join(SCORES)}."
    fit = [score.name for score in fitting(kind, classes)]
    if name in fit:
        return ""
    task_text = (
        counted(classes, "class", "classes")
        if kind == CLASSES
        else {VALUES: "values", TOKENS: "tokens"}[kind]
    )
    return f"The metric {name} does not apply to data of {task_text}. Choose among: {', '.join(fit) or 'none'}."


def reading(loss: str) -> str:
    """Return how the loss converts an output to probabilities: "softmax", "sigmoid", or "plain" for none."""
    return _READ.get(loss, PLAIN)
