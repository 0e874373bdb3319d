"""Evaluate a net and predict with it: handlers of `app.engine.requests.evaluation`."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from app.data.fields import Fields
from app.data.spec import ReadingCancelledError
from app.engine.requests.capture import InitialWeights
from app.engine.requests.evaluation import (
    LookIntoStep,
    NamedWeightsFile,
    PreparedEvaluation,
    PrepareEvaluation,
    ReadActivations,
    ReadSample,
    ShowSamples,
    TryInput,
    Weights,
)
from app.engine.server import Context, handles
from app.engine.tasks.pace import Pace
from app.engine.tasks.weights import load_chosen
from app.project.weights import state_dicts
from app.runs import resume
from app.training.checkpoints.checkpoint import CheckpointError, ForeignCheckpointError
from app.training.evaluation import predict
from app.training.evaluation.evaluator import (
    EvaluationCancelledError,
    Evaluator,
    checkpoint_weights,
)
from app.training.evaluation.result import Evaluation
from app.training.evaluation.trying import Image, InputSurvey, Prediction, Shown
from app.training.monitoring import activations
from app.training.monitoring.looks import LayerInside, StepLayer
from app.training.setup.torch_flags import cpu_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor

    from app.training.job import Job


class _Net(Struct):
    """The object held under a handle."""

    evaluator: Evaluator
    found: Evaluation | None
    survey: InputSurvey


_newest: weakref.ref[Evaluator] | None = None  # its data are reused while it is alive


def make_evaluator(
    job: Job, weights: Mapping[str, Tensor] | None, context: Context
) -> Evaluator:
    """Create an evaluator, with the data of the newest one if they are the same; progress is text. Raises JobError,
    DataError and EvaluationCancelledError."""
    global _newest
    pace = Pace()

    def reading(done: int, total: int, name: str) -> None:
        if context.cancelled():
            raise ReadingCancelledError
        if pace.due():
            context.progress(f"Reading {name}, {done:,} of {total:,}")

    old = _newest() if _newest is not None else None
    same = old is not None and (old.job.data, old.job.data_root) == (
        job.data,
        job.data_root,
    )
    evaluator = Evaluator(
        job, weights, old.data if old is not None and same else None, reading
    )
    if context.cancelled():
        raise EvaluationCancelledError
    _newest = weakref.ref(evaluator)
    return evaluator


def tell_samples(context: Context) -> Callable[[int, int], None]:
    """Return what reports the progress of an evaluation as text."""
    pace = Pace()

    def watch(done: int, total: int) -> None:
        if pace.due():
            context.progress(f"{done:,} of {total:,} samples")

    return watch


@handles(PrepareEvaluation)
def prepare(request: PrepareEvaluation, context: Context) -> PreparedEvaluation:
    job, scope = request.job, request.scope
    with cpu_threads(None):
        weights, name = _weights(request.weights)
        evaluator = make_evaluator(job, weights, context)
        survey, evaluation = predict.survey(evaluator, name), None
        if scope is not None:
            evaluation = evaluator.evaluate(
                scope.part,
                scope.augment,
                tell_samples(context),
                context.cancelled,
                name,
            )
    if context.cancelled():
        raise EvaluationCancelledError
    return PreparedEvaluation(
        context.keep(_Net(evaluator, evaluation, survey)), survey, evaluation
    )


def _weights(choice: Weights) -> tuple[Mapping[str, Tensor] | None, str]:
    """Return the weights and their name. Raises CheckpointError, WeightsError, OSError."""
    if isinstance(choice, InitialWeights):
        return None, "start weights"
    if isinstance(choice, NamedWeightsFile):
        return _in_file(choice.path), choice.name
    newest = resume.newest_weights(choice.folder)
    if newest is None:
        return None, "start weights, since there is no run yet"
    return checkpoint_weights(newest[0]), newest[1]


def _in_file(path: Path) -> Mapping[str, Tensor]:
    """Read the weights of a checkpoint or a weights file. Raises CheckpointError, WeightsError."""
    if path.suffix == ".pt":
        try:
            return checkpoint_weights(path)
        except CheckpointError as error:
            if error.code != ForeignCheckpointError.code:
                raise
    return state_dicts.read(path).tensors


@handles(ShowSamples)
def show_samples(request: ShowSamples, context: Context) -> tuple[Shown, ...]:
    net: _Net = context.object_of(request.net)
    assert net.found is not None
    return predict.shown(net.evaluator, net.found, request.numbers)


@handles(ReadSample)
def read_sample(request: ReadSample, context: Context) -> Image | Mapping[str, Image]:
    net: _Net = context.object_of(request.net)
    assert net.found is not None
    values = net.evaluator.read(net.found.part, [request.number])[0]
    if isinstance(values, Fields):
        parts = {
            name: batch[0].float().numpy().copy()
            for name, batch in values.parts.items()
        }
        return parts if net.evaluator.data.info.inputs else parts[""]
    return np.ascontiguousarray(values[0].float().numpy())


@handles(TryInput)
def try_input(request: TryInput, context: Context) -> Prediction:
    net: _Net = context.object_of(request.net)
    return predict.try_input(
        net.evaluator, request.sample, layers=True, survey=net.survey
    )


@handles(ReadActivations)
def read_activations(request: ReadActivations, _context: Context) -> LayerInside:
    """Return activations and filters. Raises what `load_chosen` and `activations.of_weights` raise."""
    job = request.job
    chosen = load_chosen(
        request.weights, job.source, job.training.seed, job.training.start
    )
    return activations.of_weights(
        job, chosen.state_dict, request.layer, request.sample, f"weights {chosen.words}"
    )


@handles(LookIntoStep)
def look_into_step(request: LookIntoStep, context: Context) -> StepLayer:
    """Return the results of a layer at a step, whose `state` is held."""
    state = context.object_of(request.held).state
    return state.layer(request.layer, request.sample)
