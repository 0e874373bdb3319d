"""`tapedeck evaluate`: evaluate a project's network with given weights or a checkpoint."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from app.cli import console, nets, settings
from app.preflight import preflight
from app.project.weights import state_dicts
from app.runs import store
from app.runs.resume import find_checkpoint, newest_weights
from app.training.evaluation.evaluator import Evaluator, checkpoint_weights
from app.training.metrics import label_of
from app.util import atomic
from app.util.formatting import counted

if TYPE_CHECKING:
    from app.training.evaluation.result import Evaluation


def run(options: argparse.Namespace) -> int:
    """Evaluate, and print the results."""
    project = nets.read(options)
    if options.device is not None:
        project = replace(
            project,
            training=replace(project.training, device=settings.device(options.device)),
        )
    if options.csv is not None:
        console.has_place(options.csv)
    job = preflight.job(
        project, nets.sound(project), str(options.data) if options.data else None
    )
    weights, name = chosen_weights(options)
    evaluation = Evaluator(job, weights).evaluate(
        options.part, options.augment, weights_name=name
    )
    if options.csv is not None:
        with console.writing(options.csv):
            atomic.write_text(options.csv, evaluation.to_csv())
    if options.json:
        print(json.dumps(evaluation.summary(), ensure_ascii=False, allow_nan=False))
    else:
        print("\n".join(lines(evaluation)))
    return 0


def chosen_weights(options: argparse.Namespace) -> tuple[Any, str]:
    """Return the weights of --checkpoint or --weights, else the newest of the project's runs, with their name;
    None for start weights. Raises RunError, WeightsError, CheckpointError."""
    if options.checkpoint is not None:
        path = find_checkpoint(options.checkpoint, console.warn)
        return checkpoint_weights(path), path.name
    if options.weights is not None:
        return state_dicts.read(options.weights).tensors, options.weights.name
    if (
        newest := newest_weights(store.runs_beside(options.project), console.warn)
    ) is not None:
        return checkpoint_weights(newest[0]), newest[1]
    return None, "start weights"


def lines(report: Evaluation) -> list[str]:
    """Format the results as text."""
    report_lines = [
        f"{report.weights} on {counted(report.count, f'{report.part} sample')}",
        f"loss {report.loss:.4f}",
    ]
    if report.accuracy is not None:
        report_lines.append(f"accuracy {report.accuracy:.2%}")
    report_lines += [f"{label_of(name)} {value:.4f}" for name, value in report.metrics]
    if report.augment:
        report_lines.append(
            f"classes from the mean over {report.views} augmented views of an image ({' and '.join(report.augment)})"
        )
    rows = report.class_rows()
    if not rows or len(rows) > 100:
        return report_lines
    width = max(5, *(len(row.name) for row in rows))
    report_lines += ["", f"{'class':<{width}}  precision  recall      F1  support"]
    for row in rows:
        shares = (
            f"{_share(row.precision):>9}  {_share(row.recall):>6}  {_share(row.f1):>6}"
        )
        report_lines.append(f"{row.name:<{width}}  {shares}  {row.support:>7,}")
    return report_lines


def _share(value: float) -> str:
    """Format a fraction, "–" for NaN: no sample is predicted as the class, or none is of it."""
    return "–" if value != value else f"{value:.4f}"
