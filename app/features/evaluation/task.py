"""Handlers: evaluate a net, and predict with it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from msgspec import Struct
from torch import Tensor

from app.data.fields import Fields
from app.engine.requests.capture import InitialWeights
from app.engine.server import Context, handles
from app.engine.tasks.evaluators import make_evaluator, tell_samples
from app.features.evaluation import compute, stored
from app.features.evaluation.values import (
    Image,
    InputSurvey,
    NamedWeightsFile,
    Prediction,
    PreparedEvaluation,
    PrepareEvaluation,
    ReadSample,
    ShowSamples,
    TryInput,
    Weights,
)
from app.project.file import ProjectFileError
from app.project.weights import state_dicts
from app.runs import resume
from app.runs.store import CHECKPOINTS
from app.training.checkpoints.checkpoint import CheckpointError, ForeignCheckpointError
from app.training.evaluation.evaluator import (
    EvaluationCancelledError,
    Evaluator,
    checkpoint_weights,
)
from app.training.evaluation.result import Evaluation, Shown
from app.training.evaluation.shown_samples import shown
from app.training.setup.torch_flags import cpu_threads


class _Net(Struct):
    """The object held under a handle."""

    evaluator: Evaluator
    found: Evaluation | None
    survey: InputSurvey
    like: compute.Likeness | None


@handles(PrepareEvaluation)
def prepare(request: PrepareEvaluation, context: Context) -> PreparedEvaluation:
    job, scope = request.job, request.scope
    with cpu_threads(None):
        weights, name, run = _weights(request.weights)
        evaluator = make_evaluator(job, weights, context)
        survey, evaluation = compute.survey(evaluator, name), None
        like = compute.likeness(evaluator)
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
    if evaluation is not None and run is not None:
        with suppress(OSError, ProjectFileError):  # it can be evaluated again
            stored.write(run, evaluation, job.data)
    return PreparedEvaluation(
        context.keep(_Net(evaluator, evaluation, survey, like)), survey, evaluation
    )


def _weights(
    choice: Weights,
) -> tuple[Mapping[str, Tensor] | None, str, Path | None]:
    """Return the weights, their name, and the folder of their run. Raises CheckpointError, WeightsError, OSError."""
    if isinstance(choice, InitialWeights):
        return None, "start weights", None
    if isinstance(choice, NamedWeightsFile):
        return _in_file(choice.path), choice.name, choice.run or _run_of(choice.path)
    newest = resume.newest_weights(choice.folder)
    if newest is None:
        return None, "start weights, since there is no run yet", None
    return checkpoint_weights(newest[0]), newest[1], _run_of(newest[0])


def _run_of(path: Path) -> Path | None:
    return path.parent.parent if path.parent.name == CHECKPOINTS else None


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
    return shown(net.evaluator, net.found, request.numbers)


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
    return compute.try_input(
        net.evaluator, request.sample, layers=True, survey=net.survey, like=net.like
    )
