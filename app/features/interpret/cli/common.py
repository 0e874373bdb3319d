"""The net and the samples that a command is about: of a project, or of a model from anywhere."""

from __future__ import annotations

import argparse
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from app.cli import console, files, models, nets
from app.engine.protocol import Handle
from app.engine.requests.observe import ModelCapture
from app.features.interpret.values import Samples
from app.training.evaluation.evaluator import Evaluator
from app.util import atomic

ENDINGS = (".json", ".npz", ".png")  # of files with results
A = TypeVar("A")


class InterpretedNet(Struct, frozen=True, eq=False):
    """What a command is about: an evaluator of this process, or a model that is made for each request."""

    source: Evaluator | ModelCapture
    seconds: float

    @property
    def net(self) -> Handle | ModelCapture:
        """Return its handle for requests; a net of this process is passed to `answer` directly."""
        return self.source if isinstance(self.source, ModelCapture) else Handle(0, 0)

    def answer(self, request: Any, task: Callable[[Any, Any], A]) -> A:
        """Answer a request here, or in a separate process if it runs the user's code. Raises what `task` raises."""
        source = self.source
        if not isinstance(source, ModelCapture):
            return task(source, request)
        return models.answer(
            request, source.model, self.seconds, lambda question: task(source, question)
        )


def read_source(options: argparse.Namespace) -> InterpretedNet:
    """Build the model or read the project of SOURCE. Raises CommandError."""
    if options.on is None and models.is_model(options):
        return _model(options)
    return InterpretedNet(nets.evaluator(options)[0], 0.0)


def _model(options: argparse.Namespace) -> InterpretedNet:
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


def samples(options: argparse.Namespace) -> Samples:
    """Return the samples that a command names."""
    worst = getattr(options, "worst", None) or 0
    if worst and options.sample:
        raise console.CommandError("choose --sample or --worst")
    numbers = options.sample if isinstance(options.sample, list) else [options.sample]
    return Samples(tuple(numbers or [0]), options.part, worst)


def plain(value: Any) -> Any:
    """Return a result as data for JSON, null for numbers that are not finite."""
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(
    path: Path,
    result: Any,
    arrays: Callable[[], dict[str, Any]],
    picture: Callable[[], Any],
) -> None:
    """Write a result as .json, its arrays as .npz, or its picture as .png. Raises CommandError."""

    if path.suffix == ".json":
        files.write_text(
            path, json.dumps(plain(result), ensure_ascii=False, allow_nan=False) + "\n"
        )
        return
    content = io.BytesIO()
    if path.suffix == ".npz":
        np.savez_compressed(content, **arrays())
    else:
        picture().save(content, "PNG")
    with console.writing(path):
        atomic.write_bytes(path, content.getvalue())
    print(path)
