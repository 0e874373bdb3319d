"""What an analysis and a run tell of a student's work."""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from app.builder.results import Analysis
from app.builder.value_types import TensorType
from app.features.lessons.facts import RunFigures, Situation
from app.training.history import History


def with_analysis(situation: Situation, analysis: Analysis, errors: int) -> Situation:
    """Add what an analysis knows of the net, and how many errors it has."""
    shapes = {
        node.name: " ".join(str(size) for size in value.shape[1:])
        for node in analysis.graph.nodes.values()
        if isinstance(value := analysis.values.get((node.id, 0)), TensorType)
    }
    total = analysis.total_parameters
    return replace(
        situation,
        errors=errors if analysis.graph.nodes else None,
        parameters=total,
        trainable=total - analysis.frozen_parameters,
        shapes=shapes,
    )


def run_figures(history: History) -> RunFigures:
    """Return the figures of a run after its last epoch so far."""
    epochs, steps = history.epochs, len(history.steps)
    first_loss = _finite(history.steps["loss"][0]) if steps else None
    if not len(epochs):
        return RunFigures(steps=steps, first_loss=first_loss)
    val_losses = epochs["val_loss"]
    lowest = None if np.isnan(val_losses).all() else int(np.nanargmin(val_losses))
    return RunFigures(
        epochs=int(epochs["epoch"][-1]),
        steps=steps,
        first_loss=first_loss,
        best_epoch=None if lowest is None else int(epochs["epoch"][lowest]),
        train_loss=_finite(epochs["train_loss"][-1]),
        val_loss=_finite(val_losses[-1]),
        val_accuracy=_finite(epochs["val_accuracy"][-1]),
    )


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
