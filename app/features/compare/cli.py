"""`tapedeck diff`: where two models, runs or checkpoints part, or one model in two modes."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from app.cli import console, models, nets
from app.cli.train.run_output import CLEARED
from app.engine import observe_process
from app.engine.requests.observe import Observe
from app.features.compare import task
from app.features.compare.report import to_plain, to_text
from app.features.compare.values import (
    Diff,
    Difference,
    DiffSide,
    ModeError,
    interpreter,
    parse_modes,
    side_of_project,
)
from app.project.weights.state_dict_diff import SUFFIXES
from app.runs import named, store
from app.sources.spec import SourceError
from app.util.errors import CodedError

GRAPHS = (".onnx", ".pt2")


def run(options: argparse.Namespace) -> int:
    """Compare two sides and print the differences."""
    request = request_of(options)
    difference = _run_request(request, options)
    if options.json:
        print(json.dumps(to_plain(difference), ensure_ascii=False, allow_nan=False))
    else:
        for line in to_text(difference):
            print(console.printable(line))
    return int(difference.differs)


def request_of(options: argparse.Namespace) -> Diff:
    """Return the request that the arguments describe. Raises CommandError."""
    trains = (True,) if options.train else (False,) if options.eval else (False, True)
    ways = [
        options.b is not None,
        options.modes is not None,
        options.python is not None,
    ]
    if sum(ways) != 1:
        raise console.CommandError(
            "pass A and B, or A and --modes MODE MODE, or A and --python FILE"
        )
    a = side_of(options.a, options, options.args, options.weights_a)
    if options.b is not None:
        args_b = options.args if options.args_b is None else options.args_b
        b = side_of(options.b, options, args_b, options.weights_b)
        return Diff(
            a,
            b,
            None,
            trains,
            options.batch,
            options.seed,
            not options.structure,
            options.data,
        )
    if options.weights_b or options.args_b is not None or options.structure:
        raise console.CommandError(
            "--weights-b, --args-b and --structure are for a second model"
        )
    if options.python is not None:
        try:
            python = interpreter(options.python)
        except SourceError as error:
            raise console.CommandError(f"--python: {error}") from error
        here = replace(a, name=f"{a.name} here")
        there = replace(a, name=f"{a.name} in {python}")
        return Diff(
            here,
            there,
            None,
            trains,
            options.batch,
            options.seed,
            True,
            options.data,
            python,
        )
    try:
        modes = parse_modes(*options.modes)
    except ModeError as error:
        raise console.CommandError(f"--modes: {error}") from error
    first, second = (
        replace(a, name=f"{a.name} in {mode}") for mode in (modes.a, modes.b)
    )
    return Diff(
        first,
        second,
        modes,
        trains,
        options.batch,
        options.seed,
        data_root=options.data,
    )


def _run_request(request: Diff, options: argparse.Namespace) -> Difference:
    """Compare in this process, or in a separate one where code of the user's own runs. Raises CommandError."""
    user_model = next(
        (
            side.model
            for side in (request.a, request.b)
            if side.own_code and isinstance(side.model, Observe)
        ),
        None,
    )
    try:
        if user_model is not None:
            return observe_process.answer(
                request, user_model, options.timeout, tell=_progress(options)
            )
        with contextlib.redirect_stdout(sys.stderr):  # what a model prints is no result
            return task.answer(request, _progress(options))
    except (CodedError, OSError) as error:
        raise console.CommandError(str(error)) from error
    finally:
        if not options.json and sys.stderr.isatty():
            print(CLEARED, end="", file=sys.stderr, flush=True)


def _progress(options: argparse.Namespace) -> Callable[[str], None]:
    """Return a function that prints the progress on a terminal, in place; without a terminal it does nothing."""
    if options.json or not sys.stderr.isatty():
        return lambda _words: None
    return lambda message: print(
        f"{CLEARED}{message} ", end="", file=sys.stderr, flush=True
    )


def side_of(
    text: str, options: argparse.Namespace, arguments: str, weights: str | None
) -> DiffSide:
    """Parse one side. Raises CommandError."""
    if not Path(text).exists() and "@" in text:
        text, _, of = text.rpartition("@")
        if weights is not None:
            raise console.CommandError(f"{text}@{of}: the weights are given twice")
        weights = of
    path = Path(text)
    run = named.named_run(path, weights or "")
    if run is None and weights is not None and not Path(weights).is_file():
        raise console.CommandError(f"there is no file {weights}")
    if run is None and path.is_file() and path.suffix in SUFFIXES:
        if weights is not None:
            raise console.CommandError(
                f"{text} contains only weights; pass a model, such as file.py:Class@{path.name}"
            )
        return DiffSide(text, None, str(path.absolute()))
    file = "" if weights is None else str(Path(weights).absolute())
    if run is None and path.suffix != named.PROJECT:
        return _model(
            text,
            text if weights is None else f"{text}@{Path(weights).name}",
            options,
            arguments,
            file,
        )
    if arguments != "{}" or options.input:
        raise console.CommandError(
            f"--args and --input are for a model, and {path} is a project"
        )
    read_from = path if run is None else run.kept.folder / store.PROJECT
    project = nets.read(argparse.Namespace(project=read_from, trust=options.trust))
    name = text if run is None else run.kept.record.title
    side = side_of_project(
        project,
        name,
        lambda: nets.sound(project, alone=True).source,
        file if run is None else "",
        run,
    )
    if project.opened is not None:
        assert isinstance(side.model, Observe)
        models.admit(side.model.source, side.model.folder, options.trust)
    return side


def _are_graphs(*texts: str | None) -> bool:
    """Return whether all are files that describe a graph, which can be compared without running it."""
    return all(text is not None and Path(text).suffix in GRAPHS for text in texts)


def _model(
    text: str, name: str, options: argparse.Namespace, arguments: str, weights: str
) -> DiffSide:
    looked_at = not options.trust and _are_graphs(options.a, options.b)
    request = models.request_of(options, text, arguments, viewed=looked_at)
    return DiffSide(name, replace(request, meta=False, train=False), weights)
