"""Checks of a network's last layer against the loss, and of normalising layers against the batch size.

`checks` covers the graph alone. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.builder.catalog.catalog import Catalog
from app.builder.diagnostics.checks import (
    RESHAPING,
    Net,
    listed,
    plain_name,
    spatial,
    take_out,
)
from app.builder.diagnostics.problems import (
    Cure,
    InsertBefore,
    Problem,
    ReplaceOp,
    SetTraining,
)
from app.builder.graph import Node
from app.util.formatting import grouped_digits
from app.util.frozen import FrozenMap
from app.util.language import tr

if TYPE_CHECKING:
    from app.builder.results import Analysis

_WITH_SIGMOID = ("BCEWithLogitsLoss", "MultiLabelSoftMarginLoss")
_OF_LOGARITHMS = ("NLLLoss", "KLDivLoss")
# The loss that fits what the net ends in, by the code of the problem and the loss that was chosen.
_FITTING = {
    ("log-softmax-twice", "CrossEntropyLoss"): "NLLLoss",
    ("loss-range", "NLLLoss"): "CrossEntropyLoss",
    ("loss-range", "BCELoss"): "BCEWithLogitsLoss",
    ("sigmoid-twice", "BCEWithLogitsLoss"): "BCELoss",
}
USUAL_BATCH = 16
HARMLESS = "log-softmax-twice"  # the code of a problem that changes no number
_RAW = ("linear", "conv", "norm")  # categories whose answers may be any number


def training(
    analysis: Analysis,
    ops: Catalog,
    loss: str,
    batch_size: int,
    samples: int | None,
    loss_of: Callable[[str], object] = str,
) -> list[Problem]:
    """List conflicts of loss and batch size with the net; `samples` is the training set's size, None if unknown.

    `loss_of` makes the value of the setting `loss` from the name of one.
    """
    net = Net(analysis, ops)
    problems = []
    for problem in _loss_problems(net, loss):
        other = _FITTING.get((problem.code, loss), "")
        use = Cure(
            tr("Use {name}", name=other), (SetTraining("", "loss", loss_of(other)),)
        )
        problems.append(
            replace(problem, cures=(use, *problem.cures)) if other else problem
        )
    return [*problems, *_batch_norm(net, batch_size, samples)]


def loss_problems(analysis: Analysis, ops: Catalog, loss: str) -> list[Problem]:
    """List conflicts of the loss with the last layer by which the net learns worse or not at all."""
    problems = _loss_problems(Net(analysis, ops), loss)
    return [problem for problem in problems if problem.code != HARMLESS]


def _loss_problems(net: Net, loss: str) -> Iterator[Problem]:
    if len(net.outputs) != 1:
        return
    output = net.outputs[0]
    way = list(
        net.before(
            output,
            lambda node: plain_name(node.op) in RESHAPING or net.is_dropout(node),
        )
    )
    if not way:
        return
    last = way[-1]
    if loss == "CrossEntropyLoss":
        yield from _before_cross_entropy(net, last)
    elif loss in _WITH_SIGMOID:
        yield from _before_sigmoid(net, last, loss)
    elif loss in _OF_LOGARITHMS:
        yield from _before_logarithms(net, output, last, loss)
    elif loss == "BCELoss" and net.spec(last).category in _RAW:
        message = tr(
            "BCELoss expects values between 0 and 1, {layer} is unbounded",
            layer=last.name,
        )
        reason = tr(
            "{kind} is unbounded, and torch raises an error for a value below 0 or above 1.",
            kind=net.spec(last).label,
        )
        cure = Cure(
            tr("Insert {layer}", layer="Sigmoid"),
            (InsertBefore(output.id, "input", "nn.Sigmoid"),),
        )
        yield Problem(
            "warning", output.id, message, reason, cures=(cure,), code="loss-range"
        )


def _before_cross_entropy(net: Net, last: Node) -> Iterator[Problem]:
    name = plain_name(last.op)
    if name == "softmax":
        shape = net.arriving(last)
        classes = shape.shape[1] if shape is not None and len(shape.shape) > 1 else None
        reason = tr(
            "CrossEntropyLoss applies softmax itself; on probabilities its gradients are small."
        )
        if isinstance(classes, int):
            least = math.log1p((classes - 1) / math.e)
            reason = tr(
                "CrossEntropyLoss applies softmax itself. On probabilities of {classes} classes its minimum is "
                "{minimum:.2f}, not 0, and its gradients are small.",
                classes=classes,
                minimum=least,
            )
        yield Problem(
            "warning",
            last.id,
            tr("{layer} and CrossEntropyLoss both apply softmax", layer=last.name),
            reason,
            cures=(take_out(last),),
            code="softmax-twice",
        )
    elif name == "logsoftmax":
        reason = tr(
            "CrossEntropyLoss applies log_softmax itself, and applying it twice changes nothing. Remove {layer}, "
            "or keep it and choose NLLLoss under Training.",
            layer=last.name,
        )
        message = tr(
            "{layer} and CrossEntropyLoss both apply log_softmax", layer=last.name
        )
        yield Problem(
            "warning",
            last.id,
            message,
            reason,
            cures=(take_out(last),),
            code=HARMLESS,
        )


def _before_sigmoid(net: Net, last: Node, loss: str) -> Iterator[Problem]:
    if plain_name(last.op) not in ("sigmoid", "hardsigmoid", "softmax"):
        return
    low, high = 0.5, 1 / (1 + math.exp(-1))
    reason = tr(
        "{loss} applies the sigmoid itself. It maps values between 0 and 1 to {low} to {high:.2f}, so no "
        "class can be given a probability below {low}.",
        loss=loss,
        low=low,
        high=high,
    )
    message = tr("{layer} and {loss} both apply a sigmoid", layer=last.name, loss=loss)
    yield Problem(
        "warning",
        last.id,
        message,
        reason,
        cures=(take_out(last),),
        code="sigmoid-twice",
    )


def _before_logarithms(
    net: Net, output: Node, last: Node, loss: str
) -> Iterator[Problem]:
    if plain_name(last.op) == "softmax":
        reason = tr(
            "{loss} expects log-probabilities. On probabilities NLLLoss gives −1 to 0 instead of 0 and more.",
            loss=loss,
        )
        if loss != "NLLLoss":
            reason = tr(
                "{loss} expects log-probabilities, which are at most 0; these are between 0 and 1.",
                loss=loss,
            )
        op = last.op.replace("softmax", "log_softmax").replace("Softmax", "LogSoftmax")
        cures = (
            (
                Cure(
                    tr("Use {name}", name="LogSoftmax"),
                    (ReplaceOp(last.id, op, last.params),),
                ),
            )
            if op in net.ops
            else ()
        )
        yield Problem(
            "warning",
            last.id,
            tr("{layer} gives probabilities to {loss}", layer=last.name, loss=loss),
            reason,
            cures=cures,
            code="probabilities-as-logs",
        )
    elif net.spec(last).category in _RAW:
        shape = net.arriving(output)
        dims = len(shape.shape) if shape is not None else 0
        insert = InsertBefore(output.id, "input", "nn.LogSoftmax", FrozenMap(dim=1))
        cures = (
            (Cure(tr("Insert {layer}", layer="LogSoftmax"), (insert,)),)
            if dims > 1
            else ()
        )
        reason = tr(
            "{kind} gives any number, a log-probability is at most 0, so the loss has no lower bound. Put "
            "LogSoftmax before the output, or choose CrossEntropyLoss under Training.",
            kind=net.spec(last).label,
        )
        yield Problem(
            "warning",
            output.id,
            tr(
                "{loss} expects log-probabilities, {layer} is unbounded",
                loss=loss,
                layer=last.name,
            ),
            reason,
            cures=cures,
            code="loss-range",
        )


def _batch_norm(net: Net, batch_size: int, samples: int | None) -> Iterator[Problem]:
    """Check for BatchNorm with one value per channel, as in batches of one sample."""
    norms = tuple(
        node
        for node in net.live
        if plain_name(node.op).startswith(("batchnorm", "syncbatchnorm"))
    )
    alone = tuple(node for node in norms if spatial(net.arriving(node)) == 1)
    if alone:
        yield from single_samples(listed(alone), alone[0].id, batch_size, samples)
    elif batch_size == 1 and norms:
        count = spatial(net.arriving(norms[0]))
        many = f" {grouped_digits(count)}" if count else ""
        reason = tr(
            "Mean and variance come from the{many} values of one sample, and the running statistics fluctuate "
            "with each. Set batch_size under Training to 2 or more; 16 and more is usual.",
            many=many,
        )
        message = tr("{layers} would normalise over 1 sample", layers=listed(norms))
        usual = min(USUAL_BATCH, max(samples, 2)) if samples else USUAL_BATCH
        yield Problem(
            "warning",
            norms[0].id,
            message,
            reason,
            cures=_batch_of(norms[0].id, usual),
            code="norm-of-one-sample",
        )


def single_samples(
    layers: str, node: str | None, batch_size: int, samples: int | None
) -> Iterator[Problem]:
    """Report batches of one sample, which `layers` cannot normalise: a channel of theirs has one value a sample."""
    if batch_size == 1:
        usual = (
            _without_single_sample(samples, min(USUAL_BATCH, samples))
            if samples
            else USUAL_BATCH
        )
        reason = tr(
            "With 1 sample a channel has 1 value, and torch raises an error. Set batch_size to 2 or more."
        )
        message = tr("{layers} cannot train with a batch size of 1", layers=layers)
        yield Problem(
            "error",
            node,
            message,
            reason,
            cures=_batch_of(node, usual),
            code="norm-of-one-sample",
        )
    elif samples and samples % batch_size == 1:
        better = _without_single_sample(samples, batch_size + 1)
        message = tr(
            "The last batch of an epoch has 1 sample, which {layers} cannot normalise",
            layers=layers,
        )
        reason = tr(
            "{samples:,} samples in batches of {size} leave 1. A channel then has 1 value, and torch raises an "
            "error. Set batch_size under Training to {better}, for example: that leaves {left}.",
            samples=samples,
            size=batch_size,
            better=better,
            left=samples % better or better,
        )
        yield Problem(
            "error",
            node,
            message,
            reason,
            cures=_batch_of(node, better),
            code="norm-of-one-sample",
        )


def _without_single_sample(samples: int, start: int) -> int:
    """Return the smallest batch size from `start` on that leaves no single sample at the end of an epoch."""
    return next(
        size for size in range(start, samples + start + 2) if samples % size != 1
    )


def _batch_of(node: str | None, size: int) -> tuple[Cure, ...]:
    return (
        Cure(
            tr("Set {name}={value}", name="batch_size", value=size),
            (SetTraining(node or "", "batch_size", size),),
        ),
    )
