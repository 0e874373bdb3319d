"""The result of an evaluation as a value: metrics, confusion matrix, and one row per sample; samples as shown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from app.data.spec import CLASSES

Numbers = NDArray[np.int64]
Picture = NDArray[np.uint8]
PARTS = ("validation", "test", "training")
FLIP, SHIFT = "flip", "shift"
AUGMENTATIONS = {
    FLIP: "flipped horizontally",
    SHIFT: "shifted up, down, left and right",
}


class ClassRow(Struct, frozen=True):
    """How one class fares. `precision` is nan where no sample is called so, `recall` where none is of it."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


class Evaluation(Struct, frozen=True, eq=False):
    """`confusion[true, called]` counts samples (or tokens), None for values.

    `columns` are arrays with a row a sample: `loss` (N,); for classes `true` and `called` (N, 1), `right` (N,), `sure`
    (N,), the probability of the true class, `top` and `shares` (N, k), the likeliest classes and their probabilities;
    for tokens `true` and `called` (N, T), `right` their share; for values the first numbers of `true` and `called`, but
    not for a loss that the model computes itself. `row` (N,) is the number of the sample in the whole data, among those
    that could be read, from 0; missing where their authors split them.
    `views` is how many copies of a picture were averaged over, 1 without test-time augmentation.
    """

    source: str
    part: str
    weights: str
    kind: str
    classes: tuple[str, ...]
    count: int
    loss: float
    accuracy: float | None
    metrics: tuple[tuple[str, float], ...]
    confusion: Numbers | None
    columns: dict[str, NDArray[Any]]
    views: int = 1
    augment: tuple[str, ...] = ()
    seconds: float = 0.0

    def worst(self) -> Numbers:
        """Return all samples by descending loss, NaN first."""
        losses = np.where(
            np.isfinite(self.columns["loss"]), self.columns["loss"], np.inf
        )
        return np.argsort(-losses, kind="stable")

    def wrong(self) -> Numbers:
        """Return the misclassified samples by descending loss."""
        order = self.worst()
        return (
            order[self.columns["right"][order] < 1]
            if "right" in self.columns
            else order[:0]
        )

    def name_of(self, sample: int) -> str:
        """Return how a sample is called: its number in the part, and its row of the data.

        >>> empty = Evaluation("", "test", "", "values", (), 1, 0.0, None, (), None, {"row": np.array([17])})
        >>> empty.name_of(0)
        'Sample 0 (row 17 of the data)'
        """
        rows = self.columns.get("row")
        return f"Sample {sample}" + (
            f" (row {int(rows[sample])} of the data)" if rows is not None else ""
        )

    def cell(self, true: int, called: int) -> Numbers:
        """Return the samples of a cell of the confusion matrix by descending loss."""
        order = self.worst()
        there = (self.columns["true"][order] == true) & (
            self.columns["called"][order] == called
        )
        return order[there.any(1)]

    def class_rows(self) -> tuple[ClassRow, ...]:
        """Return precision, recall, F1 and support of every class; none for regression."""
        if self.confusion is None:
            return ()
        hits, support, called = (
            self.confusion.diagonal(),
            self.confusion.sum(1),
            self.confusion.sum(0),
        )
        rows = []
        for name, hit, there, predicted in zip(
            self.classes, hits.tolist(), support.tolist(), called.tolist(), strict=True
        ):
            rows.append(
                ClassRow(
                    name,
                    _ratio(hit, predicted),
                    _ratio(hit, there),
                    _ratio(2 * hit, predicted + there),
                    there,
                )
            )
        return tuple(rows)

    def name(self, number: int) -> str:
        """Return the name of a class."""
        return self.classes[number] if 0 <= number < len(self.classes) else str(number)

    def summary(self) -> dict[str, Any]:
        """Return the metrics as plain data, null for non-finite values."""
        summary: dict[str, Any] = {
            "samples": self.count,
            "part": self.part,
            "weights": self.weights,
        }
        summary |= {"loss": _plain(self.loss), "accuracy": self.accuracy}
        summary |= {name: _plain(value) for name, value in self.metrics}
        if self.augment:
            summary |= {"augment": list(self.augment), "views": self.views}
        if self.confusion is not None:
            summary["classes"] = [
                {
                    "name": row.name,
                    "precision": _plain(row.precision),
                    "recall": _plain(row.recall),
                    "f1": _plain(row.f1),
                    "support": row.support,
                }
                for row in self.class_rows()
            ]
            summary["confusion"] = self.confusion.tolist()
        return summary

    def to_csv(self) -> str:
        """Return one row per sample in dataset order, at full precision."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        columns = self.columns
        rows = columns.get("row")
        head = ("sample",) if rows is None else ("sample", "row")
        named = [(n,) if rows is None else (n, int(rows[n])) for n in range(self.count)]
        if self.kind == CLASSES:
            writer.writerow(
                (*head, "class", "called", "right", "probability of class", "loss")
            )
            for number in range(self.count):
                true, called = (
                    int(columns["true"][number, 0]),
                    int(columns["called"][number, 0]),
                )
                sure, loss = (
                    float(columns["sure"][number]),
                    float(columns["loss"][number]),
                )
                writer.writerow(
                    (
                        *named[number],
                        self.name(true),
                        self.name(called),
                        int(true == called),
                        sure,
                        loss,
                    )
                )
            return out.getvalue()
        if "true" not in columns:  # of a loss that the model computes itself
            writer.writerow((*head, "loss"))
            writer.writerows(
                (*named[number], float(columns["loss"][number]))
                for number in range(self.count)
            )
            return out.getvalue()
        width = columns["true"].shape[1]
        heads = [
            f"{word}{'' if width == 1 else f' {index}'}"
            for word in ("true", "called")
            for index in range(width)
        ]
        writer.writerow((*head, *heads, "loss"))
        for number in range(self.count):
            values = (
                *columns["true"][number].tolist(),
                *columns["called"][number].tolist(),
            )
            writer.writerow((*named[number], *values, float(columns["loss"][number])))
        return out.getvalue()

    def classes_csv(self) -> str:
        """Return the class table, followed by the confusion matrix."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("class", "precision", "recall", "f1", "support"))
        writer.writerows(
            (row.name, row.precision, row.recall, row.f1, row.support)
            for row in self.class_rows()
        )
        writer.writerow(())
        if self.confusion is not None:
            writer.writerow(("class \\ called", *self.classes))
            writer.writerows(
                (name, *row)
                for name, row in zip(self.classes, self.confusion.tolist(), strict=True)
            )
        return out.getvalue()


class Shown(Struct, frozen=True, eq=False):
    """One sample for display: `picture` (H, W, 3) bytes, or `text`; its label and its prediction as text."""

    number: int
    picture: Picture | None
    text: str
    title: str
    detail: str
    right: bool | None
    tip: str


def is_picture(shape: Sequence[int]) -> bool:
    """Return whether a sample can be displayed: grey or colour, (C, H, W) or (H, W)."""
    return (len(shape) == 3 and shape[0] in (1, 3)) or (
        len(shape) == 2 and min(shape) > 3
    )


def _ratio(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else math.nan


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
