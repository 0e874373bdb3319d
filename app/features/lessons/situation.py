"""What an analysis and a run tell of a student's work, and what goals could be of it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from app.autograd.tape import ACCUMULATE, Tape
from app.builder.graph import Graph
from app.builder.results import Analysis
from app.builder.value_types import TensorType
from app.features.lessons.facts import (
    FACTS,
    FINDINGS,
    RunFigures,
    Situation,
    TapeFigures,
)
from app.features.lessons.lesson import Goal, row_of
from app.training.history import History

# How goals compare a value of the present project with that of a student, where not by "=".
BOUNDS = {
    "layers": ">=",
    "parameters": "<=",
    "trainable": "<=",
    "runs": ">=",
    "epochs": ">=",
    "first_loss": "<=",
    "best_epoch": "<=",
    "train_loss": "<=",
    "val_loss": "<=",
    "val_accuracy": ">=",
    "tape_nodes": ">=",
    "held": "<=",
    "grad_norm": ">=",
    "memory": "<=",
}


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


def suggested(situation: Situation) -> list[str]:
    """Return the lines of goals that hold now, one for each fact and what it can be about; of a fact that has no value
    yet its example."""
    rows = []
    for name, fact in FACTS.items():
        arguments = _arguments(name, situation) if fact.takes is not False else [""]
        values = [(each, fact.read(situation, each)) for each in arguments]
        present = [row for row in values if row[1] not in (None, "")]
        for argument, value in present:
            goal = Goal(name, argument, BOUNDS.get(name, "="), value or 0.0)
            rows.append(row_of(goal))
        if not present:
            rows.append(re.split("[:;,]", fact.doc)[0])
    return rows


def _arguments(fact: str, situation: Situation) -> list[str]:
    """Return what a fact can be about in a project."""
    graph = situation.project.graph if situation.project is not None else Graph()
    nodes, tape = graph.nodes, situation.tape
    match fact:
        case "layers":
            return sorted({node.op for node in nodes.values()})
        case "chain":
            pairs = ((nodes[e.source].op, nodes[e.target].op) for e in graph.edges)
            return sorted(
                {" ".join(pair) for pair in pairs if all(map(is_module, pair))}
            )
        case "param":
            return [f"{n.name}.{key}" for n in nodes.values() for key in n.params]
        case "shape":
            return list(situation.shapes)
        case "setting":
            return ["epochs", "lr", "batch_size", "optimizer", "loss", "seed"]
        case "on_tape":
            return sorted(tape.names) if tape is not None else []
        case "grad_norm":
            return sorted(tape.grads) if tape is not None else []
        case "finding":
            return list(FINDINGS) if situation.findings is not None else []
        case "memory":
            return list(situation.measured.get("memory", ()))
        case "tensor":
            values = situation.snippet.values if situation.snippet is not None else {}
            return [f"{name}.{what}" for name, by in values.items() for what in by]
        case "page":
            return sorted(situation.pages)
    return []


def is_module(op: str) -> bool:
    """Return whether an op is a module of torch.nn."""
    return op.startswith("nn.")


def tape_figures(tape: Tape, grads: Mapping[str, float] | None = None) -> TapeFigures:
    """Return the figures of a tape, and of the norms that arrived at parameters."""
    names = Counter(node.name for node in tape.nodes)
    return TapeFigures(
        nodes=len(tape.nodes),
        leaves=names[ACCUMULATE],
        saved=sum(len(node.saved) for node in tape.nodes),
        held=tape.held_bytes,
        mode="train" if tape.train else "eval",
        names=names,
        grads=grads or {},
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
