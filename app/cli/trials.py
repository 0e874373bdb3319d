"""`tapedeck try`: a dry run on synthetic data, or the learning rate finder. Neither writes files."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.util.formatting import shape_text

if TYPE_CHECKING:
    from app.training.job import Job


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "try", help="dry run: two steps on synthetic data, with shapes and time per step; or find a learning rate"
    )
    parser.add_argument("project", type=Path)
    parser.add_argument(
        "--find-rate",
        action="store_true",
        help=(
            "learning rate finder: train on a few real batches with an increasing rate, and report where the loss "
            "falls most steeply"
        ),
    )
    parser.add_argument("--batches", type=int, default=100, metavar="N", help="batches of the range test (100)")
    parser.add_argument("--device", help="auto, cpu, cuda:0, mps")
    parser.add_argument("--data", type=Path, help="folder for downloaded datasets")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(command=run, epochs=None, seed=None)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the trial and print its measurements; return 1 if it fails."""
    from dataclasses import replace

    from app import cli
    from app.preflight import preflight

    project = cli.read(options)
    if options.device:
        project = replace(project, training=replace(project.training, device=cli.device(options.device)))
    analysis = cli.sound(project)
    job = preflight.job(project, analysis, str(options.data) if options.data else None)
    if options.find_rate:
        return _find(job, options.batches, options.json)
    return _try(job, options.json, options.traceback)


def _try(job: Job, as_json: bool, whole: bool) -> int:
    from app import cli
    from app.cli import failures
    from app.training.events import Failed
    from app.training.trials.dry_run import dry_run
    from app.util.formatting import bytes_text

    tried = dry_run(job)
    if isinstance(tried, Failed):
        raise cli.CommandError(failures.describe_failure(tried, whole), 1)
    if as_json:
        print(json.dumps(asdict(tried)))
        return 0
    first, second = tried.seconds
    print(f"device: {tried.device}" + (f" ({tried.note})" if tried.note else ""))
    print(f"batch: {shape_text((tried.batch_size, *tried.input_shape))}")
    print(f"step: {1000 * second:.3g} ms, the first {1000 * first:.3g} ms")
    print(f"validation batch: {1000 * tried.validation_seconds:.3g} ms")
    print(f"loss on synthetic data: {', '.join(f'{loss:.4g}' for loss in tried.losses)}")
    if tried.memory is not None:
        of = "peak memory on the device" if tried.scope == "device" else "process memory growth, libraries included"
        print(f"memory: {bytes_text(tried.memory)} {of}")
    return 0


def _find(job: Job, batches: int, as_json: bool) -> int:
    from app import cli
    from app.data.sources import DataError
    from app.training.choices import ChoiceError
    from app.training.job import JobError
    from app.training.trials.lr_range_test import rate_test

    try:
        found = rate_test(job, batches=batches)
    except (DataError, JobError, ChoiceError) as error:
        raise cli.CommandError(str(error), 1) from error
    if as_json:
        print(json.dumps(asdict(found)))
    elif found.suggested is None:
        print(f"The loss did not fall over {len(found.rates)} batches. {found.ended}".strip())
    else:
        print(f"The loss falls most steeply at lr={found.suggested:.2g}. {found.ended}".strip())
    return 0
