"""Metrics over an evaluation, computed by torchmetrics.

torchmetrics is imported with the first metric in use. The exported `train.py` creates the same metrics and updates them
with the same tensors, so their values are equal bit for bit on the CPU.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

from app.training.metrics import PERPLEXITY, SCORES, SIGMOID, SOFTMAX, Score, reading
from app.training.script_recipes import computed
from app.training.task import TOKENS, VALUES, Task
from app.util.torchvision_import import import_torchvision

if TYPE_CHECKING:
    from torch import Tensor


def probabilities(loss: str, output: Tensor) -> Tensor:
    """Return the output (N, classes) as the loss interprets it, float32: probabilities, or raw values."""
    output = output.float()
    return {SOFTMAX: lambda: output.softmax(1), SIGMOID: output.sigmoid}.get(
        reading(loss), lambda: output
    )()


class Gathered:
    """Accumulates the chosen metrics over the batches of one evaluation; not reusable."""

    def __init__(self, names: tuple[str, ...], task: Task) -> None:
        self._scores = tuple(SCORES[name] for name in names)
        self._task = task
        self._metrics: tuple[Any, ...] = ()

    def add(self, output: Tensor, labels: Tensor) -> None:
        """Update with a batch: the labels, and the network's output (N, classes) or of one value a sample, of tokens
        (N, L, classes), of values (N, ...)."""
        if not self._scores:
            return
        task = self._task
        output = task.scores(output)
        columns = (
            output.shape[-1 if task.kind == TOKENS else 1] if task.kind != VALUES else 0
        )
        if not self._metrics:
            self._metrics = tuple(
                make(score, columns).to(output.device) for score in self._scores
            )
        if task.kind == VALUES:
            self._update(
                task.in_units(output).flatten(1), task.in_units(labels).flatten(1)
            )
            return
        if task.one.ignore is not None:
            judged = task.one.judged(labels)
            output, labels = output[judged][None], labels[judged][None]
        rows = probabilities(task.loss, output.reshape(-1, columns))
        self._update(rows, labels.flatten(), output.float(), labels)

    def add_rows(self, rows: Tensor, labels: Tensor) -> None:
        """Update with probabilities (N, classes) and class ids (N,)."""
        if not self._metrics:
            self._metrics = tuple(
                make(score, rows.shape[1]).to(rows.device) for score in self._scores
            )
        judged = self._task.one.judged(labels)
        self._update(rows[judged], labels[judged])

    def _update(
        self, rows: Tensor, labels: Tensor, output: Any = None, tokens: Any = None
    ) -> None:
        for score, metric in zip(self._scores, self._metrics, strict=True):
            if score is PERPLEXITY:
                metric.update(output, tokens)
            else:
                metric.update(rows, labels)

    def compute(self) -> tuple[tuple[str, float], ...]:
        """Return the value of each metric; nothing before the first batch."""
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # warnings about classes without samples, which the support column shows
            return tuple(
                (score.name, computed(metric))
                for score, metric in zip(self._scores, self._metrics, strict=False)
            )


def make(score: Score, classes: int) -> Any:
    """Create the torchmetrics metric."""
    import importlib

    _import_torchmetrics()
    cls = getattr(importlib.import_module(score.module), score.metric)
    return cls(*([classes] if score.by_class else []), **score.arguments, **score.quiet)


def _import_torchmetrics() -> None:
    """torchmetrics imports torchvision where there is one, which must be helped where its operators are missing."""
    with contextlib.suppress(ImportError):
        import_torchvision()
