"""Handlers: look inside a layer, now and at a recomputed step."""

from __future__ import annotations

from app.engine.server import Context, handles
from app.engine.tasks.weights import load_chosen
from app.features.layer.values import LookIntoStep, ReadActivations
from app.training.monitoring import activations
from app.training.monitoring.looks import LayerInside, StepLayer


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
