"""Counts on the data of a run and measurements with its trained net, within a few seconds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from app.data.fields import Fields
from app.data.spec import CLASSES, VALUES
from app.features.coach.values import Examination, SamplePair
from app.training.evaluation.evaluator import EvaluationCancelledError, Evaluator
from app.training.setup.isolated_step import aside, stepper_of
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor

SECONDS = 4.0  # for each of the examinations
PAIRS = 50  # listed
OF_VALUES = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss")
COLUMNS = 512  # of a sample that are compared one by one
DISTINCT = 12  # values that a column has at least, for equal samples not to be chance
NEIGHBOURS, QUERIES = 1000, 300  # samples
BATCH, STEPS = 8, 2000  # samples and steps of one batch
LEARNT = 0.3  # of its first loss


def examine(
    evaluator: Evaluator,
    one_batch: bool,
    cancelled: Callable[[], bool] = lambda: False,
) -> Examination:
    """Examine the data and the net of an evaluator. What takes longer than SECONDS is left out."""
    result = Examination()
    if not len(evaluator.data.val) or not len(evaluator.data.train):
        return result
    for part in (_repeats, _answers, _neighbours):
        if cancelled():
            return result
        result = part(evaluator, result, perf_counter() + SECONDS)
    if one_batch and not cancelled():
        losses = _batch_losses(evaluator, perf_counter() + 2 * SECONDS)
        result = replace(result, batch_losses=losses)
    return result


def _read(
    evaluator: Evaluator, samples: Any, deadline: float
) -> Iterator[tuple[Any, Tensor]]:
    """Yield the batches of a part in its order, until the deadline."""
    size = max(evaluator.job.training.batch_size, 256)
    chunks = torch.arange(len(samples), device=evaluator.device).split(size)
    batches = iter(samples.batches(chunks))
    while perf_counter() < deadline:
        with borrowed():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _rows(inputs: Any) -> Tensor:
    """Return the numbers of each sample of a batch, shape (samples, numbers), on the CPU."""
    parts = inputs.parts.values() if isinstance(inputs, Fields) else (inputs,)
    flat = [part.reshape(len(part), -1).cpu() for part in parts]
    return flat[0] if len(flat) == 1 else torch.cat([part.double() for part in flat], 1)


def _digests(rows: Tensor) -> list[bytes]:
    return [
        hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        for row in rows.contiguous().numpy()
    ]


def _repeats(evaluator: Evaluator, result: Examination, deadline: float) -> Examination:
    """Count the validation samples that are in the training part too."""
    training: dict[bytes, int] = {}
    some: list[Tensor] = []
    number = 0
    for inputs, _ in _read(evaluator, evaluator.data.train, deadline):
        rows = _rows(inputs)
        fresh = []
        for at, digest in enumerate(_digests(rows)):
            if training.setdefault(digest, number + at) == number + at:
                fresh.append(at)
        number += len(rows)
        if sum(map(len, some)) < 2000:
            some.append(_spread_columns(rows[fresh]))
    compared, repeated = 0, []
    for inputs, _ in _read(evaluator, evaluator.data.val, deadline + SECONDS):
        for at, digest in enumerate(_digests(_rows(inputs))):
            if digest in training:
                repeated.append((compared + at, training[digest]))
        compared += len(inputs)
    measured = evaluator.data.info.dtype.startswith(("float", "bfloat"))
    collision = _collision(torch.cat(some)) if some and measured else 1.0
    chance = min(1.0, number * collision)  # codes repeat by themselves
    rows_of = evaluator.data.rows
    of_validation, of_training = rows_of.get("validation"), rows_of.get("training")
    pairs = tuple(
        SamplePair(
            validation,
            train,
            (int(of_validation[validation]), int(of_training[train]))
            if of_validation is not None and of_training is not None
            else None,
        )
        for validation, train in repeated[:PAIRS]
    )
    return replace(
        result,
        compared=compared,
        repeated=len(repeated),
        expected_repeats=chance * compared,
        pairs=pairs,
    )


def _spread_columns(rows: Tensor) -> Tensor:
    """Return at most `COLUMNS` columns, evenly spaced."""
    return rows[:, :: -(-rows.shape[1] // COLUMNS)] if rows.shape[1] else rows


def _collision(rows: Tensor) -> float:
    """Return the chance that two samples are equal if their columns were independent; 1 where no column has many
    values, as of codes, whose samples repeat."""
    count, chance, most = len(rows), 1.0, 0
    if count < 2:
        return 1.0
    for column in rows.T:
        _, sizes = column.unique(return_counts=True)
        most = max(most, len(sizes))
        chance *= float((sizes * (sizes - 1)).sum()) / (count * (count - 1))
    return chance if most >= DISTINCT else 1.0


def _answers(evaluator: Evaluator, result: Examination, deadline: float) -> Examination:
    """Count what the net answers for the validation samples, and measure the best constant answer to values."""
    kind = evaluator.task.kind
    if kind == CLASSES:
        try:
            confusion = evaluator.evaluate(
                "validation", stopping=lambda: perf_counter() > deadline
            ).confusion
        except EvaluationCancelledError:
            return result
        if confusion is None:
            return result
        return replace(
            result,
            support=tuple(confusion.sum(1).tolist()),
            predicted=tuple(confusion.sum(0).tolist()),
        )
    if kind == VALUES and not evaluator.job.training.losses:
        return replace(result, constant_loss=_constant_loss(evaluator, deadline))
    return result


def _constant_loss(evaluator: Evaluator, deadline: float) -> float | None:
    """Return the validation loss of the mean or the median of the training values, whichever is smaller."""
    if evaluator.job.training.loss.name not in OF_VALUES:
        return None
    train_batches, val_batches = (
        [labels for _, labels in _read(evaluator, samples, deadline)]
        for samples in (evaluator.data.train, evaluator.data.val)
    )
    if (
        not train_batches
        or not val_batches
        or not isinstance(train_batches[0], torch.Tensor)
    ):
        return None
    training, validation = (
        torch.cat(train_batches).float(),
        torch.cat(val_batches).float(),
    )
    answers = (training.mean(0), training.median(0).values)
    loss = evaluator.stepper.chief_loss
    return min(
        float(loss(answer.expand_as(validation), validation)) for answer in answers
    )


def _neighbours(
    evaluator: Evaluator, result: Examination, deadline: float
) -> Examination:
    """Measure how well the nearest training sample predicts a validation sample that is not the same."""
    if evaluator.data.info.inputs or evaluator.task.kind not in (CLASSES, VALUES):
        return result
    train_rows, train_labels = _first(
        evaluator, evaluator.data.train, NEIGHBOURS, deadline
    )
    val_rows, labels = _first(evaluator, evaluator.data.val, QUERIES, deadline)
    if train_rows is None or val_rows is None or not train_rows.is_floating_point():
        return result
    spread = train_rows.std(0)
    used = spread > 0
    if not bool(used.any()):
        return result
    train_rows, val_rows = (
        ((rows - train_rows.mean(0)) / spread)[:, used]
        for rows in (train_rows, val_rows)
    )
    nearest = torch.cdist(val_rows, train_rows).argmin(1)
    answers = train_labels[nearest]
    if evaluator.task.kind == CLASSES:
        shares = train_labels.long().bincount().float() / len(train_labels)
        chance = float((shares[train_labels.long()]).mean())
        right = float((answers == labels).float().mean())
        return replace(result, neighbours=(right - chance) / max(1 - chance, 1e-9))
    variance = float(train_labels.float().var(0).mean())
    if not variance:
        return result
    error = float((answers.float() - labels.float()).square().mean())
    return replace(result, neighbours=1 - error / (2 * variance))


def _first(
    evaluator: Evaluator, samples: Any, most: int, deadline: float
) -> tuple[Any, Any]:
    """Return the first samples of a part as rows of numbers, and their labels; None for none."""
    inputs, labels = [], []
    for batch_inputs, batch_labels in _read(evaluator, samples, deadline):
        if not isinstance(batch_labels, torch.Tensor):
            return None, None
        inputs.append(_rows(batch_inputs))
        labels.append(batch_labels.cpu())
        if sum(map(len, inputs)) >= most:
            break
    if not inputs:
        return None, None
    return _spread_columns(torch.cat(inputs)[:most]), torch.cat(labels)[:most]


def _batch_losses(evaluator: Evaluator, deadline: float) -> tuple[float, float] | None:
    """Train a new net on one batch alone; return its first and its last loss."""
    job = evaluator.job
    plain = replace(
        job.training,
        schedule=None,
        ema=None,
        accumulate=1,
        mixup=0.0,
        compile=False,
    )
    job = replace(job, training=plain)
    with aside(plain.seed):
        stepper = stepper_of(job, evaluator.data.info, evaluator.device)
        inputs, labels = evaluator.data.batch(BATCH)
    stepper.model.train()
    losses: list[float] = []
    for number in range(STEPS):
        with aside(plain.seed + number):
            losses.append(float(stepper.take(inputs, labels, True).loss))
        if losses[-1] < LEARNT * losses[0] or perf_counter() > deadline:
            break
    return losses[0], losses[-1]
