"""The net and the samples that a command is about: of a project, or of a model from anywhere."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from app.cli import arguments, console, models, nets

if TYPE_CHECKING:
    from app.engine.protocol import Handle
    from app.engine.requests.observe import ModelCapture
    from app.training.evaluation.evaluator import Evaluator

WORDS = """
SOURCE is a project, or any model: FILE.py:Class, package.module:Class, package.module:factory(), torchvision:resnet18,
timm:NAME, hf:NAME_OR_FOLDER, diffusers:Class. A project runs on samples of its data with the newest
weights of its runs, a model on its example inputs (--input) with its initial weights, or with --on DATA on samples of
data.
Your own files run once they are trusted, by --trust or in the window, until one of them changes.
"""
A = TypeVar("A")


def add_options(parser: argparse.ArgumentParser, several: bool) -> None:
    """Add the arguments that choose net, weights and samples."""

    arguments.add_project(parser)
    if several:
        parser.add_argument(
            "--sample",
            action="append",
            type=int,
            default=[],
            metavar="N",
            help="number of a sample, from 0; may be repeated (0)",
        )
        parser.add_argument(
            "--worst",
            type=arguments.positive,
            metavar="N",
            help="the N samples with the largest loss, instead of --sample",
        )
    else:
        parser.add_argument(
            "--sample",
            type=int,
            default=0,
            metavar="N",
            help="number of a sample, from 0 (0)",
        )
    parser.add_argument(
        "--part",
        choices=("validation", "test", "training"),
        default="validation",
        help="part of a project's data in which samples are numbered (validation)",
    )
    weights = parser.add_mutually_exclusive_group()
    arguments.add(weights, "--weights")
    weights.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR|FILE",
        help="checkpoint of a run, or the newest in a folder of runs",
    )
    arguments.add(parser, "--device", "--data", *arguments.MODEL, *arguments.SETTINGS)
    models.add_first_batch(parser)
    arguments.add(parser, "--seed", "--timeout", "--json", "--trust")


class InterpretedNet(Struct, frozen=True, eq=False):
    """What a command is about: an evaluator of this process, or a model that is made for each request."""

    source: Evaluator | ModelCapture
    seconds: float

    @property
    def net(self) -> Handle | ModelCapture:
        """Return its handle for requests; a net of this process is passed to `answer` directly."""
        from app.engine.protocol import Handle
        from app.engine.requests.observe import ModelCapture

        return self.source if isinstance(self.source, ModelCapture) else Handle(0, 0)

    def answer(self, request: Any, task: Callable[[Any, Any], A]) -> A:
        """Answer a request here, or in a separate process if it runs the user's code. Raises what `task` raises."""
        from app.engine.requests.observe import ModelCapture

        source = self.source
        if not isinstance(source, ModelCapture):
            return task(source, request)
        return models.answer(
            request, source.model, self.seconds, lambda asked: task(source, asked)
        )


def read_source(options: argparse.Namespace) -> InterpretedNet:
    """Build the model or read the project of SOURCE. Raises CommandError."""
    if options.on is None and models.is_model(options):
        return _model(options)
    return InterpretedNet(_evaluator(options), 0.0)


def _model(options: argparse.Namespace) -> InterpretedNet:
    from msgspec.structs import replace

    from app.engine.requests.observe import ModelCapture

    unfit = [
        f"--{name}"
        for name in ("checkpoint", "data", "set", "device")
        if getattr(options, name)
    ]
    if unfit:
        raise console.CommandError(
            f"{', '.join(unfit)}: for a project, or a model with --on DATA"
        )
    model = replace(models.request_of(options, str(options.project)), meta=False)
    weights = str(options.weights.absolute()) if options.weights else ""
    return InterpretedNet(
        ModelCapture(model, seed=options.seed, weights=weights), options.timeout
    )


def _evaluator(options: argparse.Namespace) -> Evaluator:
    from msgspec.structs import replace

    from app.cli import evaluate
    from app.preflight import preflight
    from app.training.evaluation.evaluator import Evaluator

    project = nets.read(options)
    if options.device is not None:
        project = replace(
            project,
            training=replace(project.training, device=console.device(options.device)),
        )
    job = preflight.job(
        project, nets.sound(project), str(options.data) if options.data else None
    )
    weights, _ = evaluate.chosen_weights(options)
    return Evaluator(job, weights)


def samples(options: argparse.Namespace) -> Any:
    """Return the samples that a command names."""
    from app.engine.requests.interpret.reading import Samples

    worst = getattr(options, "worst", None) or 0
    if worst and options.sample:
        raise console.CommandError("choose --sample or --worst")
    numbers = options.sample if isinstance(options.sample, list) else [options.sample]
    return Samples(tuple(numbers or [0]), options.part, worst)


def plain(value: Any) -> Any:
    """Return a result as data for JSON, null for numbers that are not finite."""
    import math

    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(
    path: Path,
    found: Any,
    arrays: Callable[[], dict[str, Any]],
    picture: Callable[[], Any],
) -> None:
    """Write a result as .json, its arrays as .npz, or its picture as .png. Raises CommandError."""

    if path.suffix == ".json":
        console.write_text(
            path, json.dumps(plain(found), ensure_ascii=False, allow_nan=False) + "\n"
        )
        return
    import io

    from app.util import atomic

    held = io.BytesIO()
    if path.suffix == ".npz":
        import numpy as np

        np.savez_compressed(held, **arrays())
    else:
        picture().save(held, "PNG")
    with console.writing(path):
        atomic.write_bytes(path, held.getvalue())
    print(path)


ENDINGS = (".json", ".npz", ".png")
