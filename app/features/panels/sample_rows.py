"""Samples of several evaluated runs matched with one another and put in an order. Qt-free."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Literal, NamedTuple

import numpy as np

from app.data.spec import CLASSES, TOKENS
from app.features.panels.values import RunEvaluation
from app.training.evaluation.result import Evaluation
from app.util.formatting import significant

Order = Literal["differ", "wrong", "worst", "first"]
ORDERS: dict[Order, str] = {
    "differ": "Runs disagree",
    "wrong": "Misclassified",
    "worst": "Highest loss",
    "first": "In their order",
}


class SampleRow(NamedTuple):
    """One sample: its number in the evaluation of each run, None where a run does not have it."""

    numbers: tuple[int | None, ...]

    @property
    def first(self) -> int:
        """Return the place of the first run that has it."""
        return next(
            index for index, number in enumerate(self.numbers) if number is not None
        )


def ids_of(evaluation: RunEvaluation) -> np.ndarray:
    """Return the numbers by which samples are matched: rows of the data, or numbers in the part."""
    figures = evaluation.found
    return figures.columns.get("row", np.arange(figures.count))


def rows_of(
    evaluations: Sequence[RunEvaluation | None], order: Order, most: int
) -> tuple[list[SampleRow], int]:
    """Return the first `most` samples of all runs in an order, and how many there are; of "differ" and "wrong" those
    alone that are so.

    Samples of several runs come before those of one.
    """
    spaces = dict.fromkeys(
        evaluation.space for evaluation in evaluations if evaluation is not None
    )
    parts = [
        _in_order(
            [
                evaluation
                if evaluation is not None and evaluation.space == space
                else None
                for evaluation in evaluations
            ],
            order,
        )
        for space in spaces
    ]
    if not parts:
        return [], 0
    keys, numbers = (
        np.concatenate(blocks, axis=1) for blocks in zip(*parts, strict=True)
    )
    order_indices = np.lexsort(keys[::-1])
    rows = numbers[:, order_indices[:most]].T.tolist()
    return [SampleRow(tuple(n if n >= 0 else None for n in row)) for row in rows], len(
        order_indices
    )


def _in_order(
    evaluations: Sequence[RunEvaluation | None], order: Order
) -> tuple[np.ndarray, np.ndarray]:
    """Return of the samples of one space the keys to sort by, shape (keys, samples), and their number in each run, -1
    where it does not have them."""
    evaluated = [other for other in evaluations if other is not None]
    ids = reduce(np.union1d, [ids_of(other) for other in evaluated])
    numbers = np.full((len(evaluations), len(ids)), -1)
    losses, wrong = np.full(numbers.shape, np.nan), np.zeros(len(ids), bool)
    called: list[np.ndarray] = []
    for index, evaluation in enumerate(evaluations):
        if evaluation is None:
            continue
        at, columns = np.searchsorted(ids, ids_of(evaluation)), evaluation.found.columns
        numbers[index, at] = np.arange(evaluation.found.count)
        losses[index, at] = np.where(
            np.isfinite(columns["loss"]), columns["loss"], np.inf
        )
        if "right" in columns:
            wrong[at] |= columns["right"] < 1
        if evaluation.found.kind == CLASSES:
            predicted = np.full(len(ids), -1)
            predicted[at] = columns["called"][:, 0]
            called.append(predicted)
    count, most = (numbers >= 0).sum(axis=0), np.nanmax(losses, axis=0)
    spread = np.where(count > 1, most - np.nanmin(losses, axis=0), -1.0)
    score = {
        "differ": -spread,
        "wrong": -most,
        "worst": -most,
        "first": ids.astype(float),
    }[order]
    selected = np.ones(len(ids), bool)
    if order == "wrong":
        selected = wrong
    elif order == "differ" and len(called) == len(
        evaluated
    ):  # of classes; of values it is the loss that differs
        together = np.stack(called)
        lowest = np.where(together < 0, np.iinfo(np.int64).max, together).min(axis=0)
        selected = (count > 1) & (together.max(axis=0) != lowest)
    elif order == "differ":
        selected = count > 1
    selected_indices = np.flatnonzero(selected)
    keys = np.stack(
        [
            -count[selected_indices],
            np.nan_to_num(score[selected_indices], nan=np.inf),
            ids[selected_indices],
        ]
    )
    return keys.astype(float), numbers[:, selected_indices]


def target_text(evaluation: Evaluation, number: int) -> str:
    """Return the target of a sample as text; "" where it is long, as a mask, or unknown."""
    if "true" not in evaluation.columns or evaluation.kind == TOKENS:
        return ""
    true = evaluation.columns["true"][number]
    if evaluation.kind == CLASSES:
        return f"target {evaluation.name(int(true[0]))}"
    return (
        f"target {', '.join(significant(value, 4) for value in true.tolist())}"
        if len(true) <= 2
        else ""
    )


class Prediction(NamedTuple):
    """What a run makes of a sample: lines of text, and whether it is right; None where nothing is right or wrong."""

    lines: tuple[str, ...]
    right: bool | None


def prediction_of(evaluation: RunEvaluation, number: int) -> Prediction:
    """Return the prediction of a run for a sample: right or wrong, the classes' probabilities, and the loss."""
    figures = evaluation.found
    columns, loss = (
        figures.columns,
        f"loss {significant(figures.columns['loss'][number], 3)}",
    )
    if figures.kind == CLASSES:
        true, called = (
            int(columns["true"][number, 0]),
            int(columns["called"][number, 0]),
        )
        right = true == called
        sure = f"{_share(columns['shares'][number, 0], evaluation.unit)}"
        beside = (
            ""
            if right
            else f", target {figures.name(true)}: {_share(columns['sure'][number], evaluation.unit)}"
        )
        return Prediction(
            (
                f"{figures.name(called)}, {'right' if right else 'wrong'}",
                f"{sure}{beside}",
                loss,
            ),
            right,
        )
    if figures.kind == TOKENS:
        share = float(columns["right"][number])
        return Prediction((f"{100 * share:.0f} % right", loss), share >= 1)
    if "called" not in columns or columns["called"].shape[1] > 2:
        return Prediction((loss,), None)
    return Prediction(
        (
            ", ".join(
                significant(value, 4) for value in columns["called"][number].tolist()
            ),
            loss,
        ),
        None,
    )


def _share(value: float, unit: bool) -> str:
    return f"{100 * value:.0f} %" if unit else significant(value, 3)


def orders_for(evaluations: Sequence[RunEvaluation | None]) -> list[Order]:
    """Return the orders that make sense for these evaluations."""
    evaluated = [evaluation for evaluation in evaluations if evaluation is not None]
    spaces = [evaluation.space for evaluation in evaluated]
    common = len(set(spaces)) < len(spaces)  # samples that two of them have
    right = any("right" in evaluation.found.columns for evaluation in evaluated)
    return [
        order
        for order in ORDERS
        if (order != "differ" or common) and (order != "wrong" or right)
    ]
