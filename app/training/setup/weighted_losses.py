"""Losses that support class weights, and messages about them."""

from __future__ import annotations

from collections.abc import Sequence

from app.training.config import Choice, OutputLoss

# Losses whose mean is weighted by the labels' weights.
MEAN_OF_WEIGHTS = ("CrossEntropyLoss", "NLLLoss")
WEIGHED = ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss")


def takes_weights(loss: Choice) -> bool:
    """Return whether a loss supports class weights and has none. All of these compare with class ids.

    >>> takes_weights(Choice("CrossEntropyLoss")), takes_weights(Choice("MSELoss"))
    (True, False)
    """
    return loss.name in WEIGHED and "weight" not in loss.params


def is_weighed(loss: Choice, class_weights: bool) -> bool:
    """Return whether a loss is a mean weighted by its labels' weights: its own, or with `class_weights` the data's."""
    has_weights = loss.params.get("weight") is not None or (
        class_weights and takes_weights(loss)
    )
    is_mean = loss.params.get("reduction") != "sum"
    return loss.name in MEAN_OF_WEIGHTS and has_weights and is_mean


def refusal(loss: Choice, losses: Sequence[OutputLoss]) -> str:
    """Explain why class weights cannot be used; "" if they can."""
    if any(takes_weights(row.loss) for row in losses) or (
        not losses and takes_weights(loss)
    ):
        return ""
    problem = (
        f"none of the losses does ({', '.join(row.loss.name for row in losses)})"
        if losses
        else (f"the loss is {loss.name}")
    )
    return f"Class weights need {' or '.join(WEIGHED)} without a weight parameter; {problem}."


def summary_text(losses: Sequence[OutputLoss]) -> str:
    """Summarise which of several losses weigh their classes.

    >>> summary_text((OutputLoss("a", Choice("NLLLoss")), OutputLoss("b", Choice("MSELoss"))))
    'Class weights apply to the loss of a; not in that of b (MSELoss).'
    """
    weighed = [row.output for row in losses if takes_weights(row.loss)]
    left = [
        f"{row.output} ({row.loss.name}{' with its own weight' * ('weight' in row.loss.params)})"
        for row in losses
        if not takes_weights(row.loss)
    ]
    plain = f"; not in that of {', '.join(left)}" if left else ""
    return (
        f"Class weights apply to the loss of {', '.join(weighed)}{plain}."
        if weighed
        else ""
    )
