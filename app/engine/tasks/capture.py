"""Run one batch of a project's data through its net: source, data, loss and autograd graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from app.autograd.batch import compile_batch
from app.autograd.capture import ReadyLoss
from app.autograd.errors import CaptureError
from app.autograd.forward_modes import Special, until_cancelled
from app.autograd.playback.root_gradients import chosen_vectors
from app.data.config import DataConfig
from app.data.loaders import load
from app.data.own_files.cache import key_of
from app.engine.requests.capture import (
    Captured,
    CapturedStep,
    CaptureRequest,
    HeldStep,
    InitialWeights,
    NewestWeights,
    WeightsFile,
)
from app.engine.requests.observe import AnyCapture, ModelCapture
from app.engine.server import Context, handles
from app.engine.tasks.observe import batch_of_model
from app.export.weights_choice import untrained_text
from app.preflight import random_batch
from app.runs.newest import newest_checkpoint, weights_in
from app.training.inputs import InputError, arguments, fields_of
from app.training.objectives import prepared, task_of
from app.training.registry import make_loss
from app.training.setup.initial_weights import initial_weights
from app.util import rng, tensor_files

if TYPE_CHECKING:
    from torch import Tensor

    from app.autograd.batch import TrainingBatch
    from app.autograd.playback.kept_graph import LiveGraph
    from app.data.dataset import Dataset
    from app.training.task import Task


@lru_cache(maxsize=1)
def _dataset(config: DataConfig, root: str | None, _state: Hashable) -> Dataset:
    return load(config, root)


@handles(CaptureRequest)
def capture(request: CaptureRequest, context: Context) -> Captured:
    """Run one forward pass and describe its graph. Raises as `batch_of` and `TrainingBatch.hold`, and
    CaptureCancelledError at the next operation after it was cancelled."""
    resolved = with_weights_found(request)
    job, weights = resolved.job, resolved.weights
    description = (
        weights.words
        if isinstance(weights, WeightsFile)
        else untrained_text(job.training.seed, job.training.start)
    )
    with batch_of(resolved).hold(
        around=until_cancelled(context.cancelled, resolved.options)
    ) as graph:
        return Captured(graph.tape, resolved, f"weights {description}")


@handles(HeldStep)
def describe_step(request: HeldStep, context: Context) -> CapturedStep:
    """Return the tape of the step at which the script of this process is paused. Raises HandleLostError."""
    step = context.object_of(request.handle)
    return CapturedStep(step.tape, step.notes)


def graph_of(request: AnyCapture, context: Context) -> LiveGraph:
    """Run a batch and keep its graph; for a paused script keep its existing graph. Raises as `batch_of` and
    `TrainingBatch.hold`, and HandleLostError once the script has continued."""
    if isinstance(request, HeldStep):
        graph: LiveGraph = context.object_of(request.handle).hold()
        return graph
    return batch_of(request).hold()


def with_weights_found(request: CaptureRequest) -> CaptureRequest:
    """Return the request with "the newest run" replaced by its file. Raises OSError."""
    if not isinstance(request.weights, NewestWeights):
        return request
    newest = newest_checkpoint(Path(request.weights.folder), request.job.source)
    return replace(
        request,
        weights=WeightsFile(str(newest[0]), newest[1])
        if newest is not None
        else InitialWeights(),
    )


def batch_of(
    request: AnyCapture, state_dict: Mapping[str, Tensor] | None = None
) -> TrainingBatch:
    """Return the net with its batch and loss, or an opened model with its inputs. `state_dict` overrides the request's
    weights.

    Raises CaptureError, DataError, OSError, StartError for unusable start weights, and SourceError.
    """
    if isinstance(request, HeldStep):
        raise CaptureError(
            f"This runs the batch again, and {request.script} has run it already: only its graph can be viewed and "
            f"played"
        )
    if isinstance(request, ModelCapture):
        return batch_of_model(request)
    job, options = request.job, request.options
    state = state_dict if state_dict is not None else _state(request)
    inputs, target, loss = (
        _random(request) if options.data == "random" else _of_data(request)
    )
    batch = compile_batch(job.source, inputs, target, loss, job.training.seed, state)
    special, seeds = Special.from_options(options), chosen_vectors(options)
    return replace(
        batch, train=request.train, labels=request.labels, special=special, seeds=seeds
    )


def _state(request: CaptureRequest) -> Mapping[str, Tensor] | None:
    """Return the requested state_dict; None for weights that the seed alone determines."""
    weights, training = with_weights_found(request).weights, request.job.training
    if isinstance(weights, WeightsFile):
        try:
            path = Path(weights.path)
            return (
                weights_in(path) if weights.is_checkpoint else tensor_files.load(path)
            )
        except (OSError, tensor_files.UnreadableTensorsError) as error:
            problem = f"The weights {weights.words} can no longer be read: {error}. Capture again."
            raise CaptureError(problem) from None
    return (
        initial_weights(request.job.source, training.seed, training.start)
        if training.start is not None
        else None
    )


def _of_data(request: CaptureRequest) -> tuple[Any, Any, Any]:
    """Return inputs, target and loss of the first samples of the training data."""
    job, options = request.job, request.options
    data = prepared(job, _dataset(job.data, job.data_root, key_of(job.data)))
    with rng.borrowed(
        job.training.seed
    ):  # augmentation draws, and every run of this batch is to see the same one
        samples, ids = data.batch(options.batch or job.training.batch_size)
    task = task_of(job, data.info)
    try:
        inputs = arguments(
            samples, fields_of(job.source, job.training.inputs, data.info)
        )
    except InputError as error:
        raise CaptureError(str(error)) from error
    if not options.loss:
        return inputs, None, None
    loss = task.loss_module() or ReadyLoss(
        make_loss(job.training.loss), _in_precision_of_output(task)
    )
    return inputs, getattr(ids, "parts", ids), loss


def _in_precision_of_output(task: Task) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return what makes output and labels the inputs of the loss; one-hot rows have the precision of a float64 net."""

    def ready(output: Any, labels: Any) -> tuple[Any, Any]:
        output, target = task.loss_inputs(output, labels)
        if not target.is_floating_point():
            return output, target
        return output, target.to(torch.promote_types(target.dtype, output.dtype))

    return ready


def _random(request: CaptureRequest) -> tuple[Any, Any, Any]:
    """Return random inputs and target, and the loss, without reading the data."""
    job, options = request.job, request.options
    inputs = random_batch.inputs(
        job.source, options.batch or random_batch.samples(job), job.training.seed
    )
    return inputs, None, random_batch.loss_of(job) if options.loss else None
