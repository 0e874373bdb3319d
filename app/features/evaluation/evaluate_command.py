"""`tapedeck evaluate`: evaluate a project's network with given weights or a checkpoint."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli import arguments, console
from app.util import atomic
from app.util.formatting import counted

if TYPE_CHECKING:
    from app.training.evaluation.result import Evaluation


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    evaluate: argparse.ArgumentParser = commands.add_parser(
        "evaluate", help="evaluate a network: loss, metrics and confusion matrix"
    )
    arguments.add_project(evaluate)
    arguments.add_weights(evaluate)
    evaluate.add_argument(
        "--augment",
        action="append",
        default=[],
        choices=("flip", "shift"),
        help="test-time augmentation of images; may be repeated",
    )
    arguments.add(evaluate, "--device", "--data")
    evaluate.add_argument(
        "--csv",
        type=Path,
        metavar="FILE",
        help="write a line per sample; its `row` counts the samples of all data that could be read",
    )
    arguments.add(evaluate, "--json", "--at")
    arguments.add(evaluate, *arguments.MODEL, *arguments.SETTINGS, "--trust")
    evaluate.set_defaults(command=run)
    return evaluate


def run(options: argparse.Namespace) -> int:
    """Evaluate, and print the results."""
    from app.cli import nets

    if options.csv is not None:
        console.has_place(options.csv)
    evaluator, name = nets.evaluator(options)
    evaluation = evaluator.evaluate(options.part, options.augment, weights_name=name)
    if options.csv is not None:
        with console.writing(options.csv):
            atomic.write_text(options.csv, evaluation.to_csv())
    if options.json:
        print(json.dumps(evaluation.summary(), ensure_ascii=False, allow_nan=False))
    else:
        print("\n".join(lines(evaluation)))
    return 0


def lines(report: Evaluation) -> list[str]:
    """Format the results as text."""
    from app.training.metrics import label_of

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
