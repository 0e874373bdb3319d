"""What an analysis and a run tell of a student's work."""

from __future__ import annotations

import math

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
    epochs = history.epochs
    if not len(epochs):
        return RunFigures(steps=len(history.steps))
    train_loss, val_loss, accuracy = (
        None if math.isnan(value := float(epochs[name][-1])) else value
        for name in ("train_loss", "val_loss", "val_accuracy")
    )
    count = int(epochs["epoch"][-1])
    return RunFigures("", count, len(history.steps), train_loss, val_loss, accuracy)
