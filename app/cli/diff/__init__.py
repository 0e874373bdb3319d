"""`tapedeck diff`: where two models, runs or checkpoints part, or one model in two modes."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from app.cli import arguments, console
from app.cli.train.run_output import CLEARED

if TYPE_CHECKING:
    from app.compare.results import Difference
    from app.engine.requests.diff import Diff

WORDS = """
A and B are projects (net.tape), models as `tapedeck draw` takes them (file.py:Class, torchvision:resnet18), runs
(net.tape@3, net.tape@NAME/best, a folder of a run, or of `train --out` with one run, OUT@2 with several), steps of
runs (net.tape@3/4000, FOLDER@4000), which are recomputed where no checkpoint has them, or files of weights;
SOURCE@weights.pt is a model with weights. Their modules are matched, both run on the same batch with the same weights
and seed, forward and backward, and the first layer that adds more than rounding explains is named, with its line in
each. With --modes A is compared with itself, such as in float32 and in bfloat16. Exit code 0: nothing differs beyond
rounding, 1: something does, 2: they could not be compared. Your own files run once they are
trusted, by --trust or in the window, until one changes, in a separate process; else the exit code is 1.
"""
SECONDS = 300.0


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diff",
        help="find the first layer at which two models, runs or checkpoints differ",
        description=WORDS,
    )
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B", nargs="?")
    arguments.add(parser, *arguments.MODEL)
    parser.add_argument(
        "--args-b", metavar="JSON", help="arguments of B's constructor, if different"
    )
    parser.add_argument("--weights-a", metavar="FILE", help="weights of A, as A@FILE")
    parser.add_argument("--weights-b", metavar="FILE", help="weights of B, as B@FILE")
    parser.add_argument(
        "--modes",
        nargs=2,
        metavar=("MODE", "MODE"),
        help="compare A with itself: float32 bfloat16, "
        "cpu cuda, eval train, eager compiled",
    )
    parser.add_argument(
        "--python",
        metavar="FILE",
        help="compare A with itself in another Python interpreter that has "
        "torch, such as one of an older version: /path/to/env/bin/python",
    )
    mode = parser.add_mutually_exclusive_group()
    arguments.add(
        mode, "--train", help="run in train mode only (eval mode, then train mode)"
    )
    arguments.add(mode, "--eval", help="run in eval mode only")
    parser.add_argument(
        "--structure",
        action="store_true",
        help="compare modules and settings only; run nothing",
    )
    parser.add_argument(
        "--batch",
        type=arguments.positive,
        default=2,
        help="samples of a project's random batch (2)",
    )
    arguments.add(parser, "--seed", "--data", "--trust", "--json")
    arguments.add(parser, "--timeout", default=SECONDS)
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Compare two sides and print the differences."""
    from app.compare.report import to_plain, to_text

    request = request_of(options)
    found = _run_request(request, options)
    if options.json:
        print(json.dumps(to_plain(found), ensure_ascii=False, allow_nan=False))
    else:
        for line in to_text(found):
            print(console.printable(line))
    return int(found.differs)


def request_of(options: argparse.Namespace) -> Diff:
    """Return the request that the arguments describe. Raises CommandError."""
    from app.cli.diff import sides
    from app.compare.modes import ModeError, parse_modes
    from app.engine.requests.diff import Diff, interpreter
    from app.sources.spec import SourceError

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
    a = sides.side_of(options.a, options, options.args, options.weights_a)
    if options.b is not None:
        args_b = options.args if options.args_b is None else options.args_b
        b = sides.side_of(options.b, options, args_b, options.weights_b)
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
    one, other = (replace(a, name=f"{a.name} in {mode}") for mode in (modes.a, modes.b))
    return Diff(
        one, other, modes, trains, options.batch, options.seed, data_root=options.data
    )


def _run_request(request: Diff, options: argparse.Namespace) -> Difference:
    """Compare in this process, or in a separate one where code of the user's own runs. Raises CommandError."""
    from app.engine import observe_process
    from app.engine.requests.observe import Observe
    from app.util import gc_pause
    from app.util.errors import CodedError

    own = next(
        (
            one.model
            for one in (request.a, request.b)
            if one.own_code and isinstance(one.model, Observe)
        ),
        None,
    )
    try:
        if own is not None:
            return observe_process.answer(
                request, own, options.timeout, tell=_progress(options)
            )
        with gc_pause.put_off():
            from app.engine.tasks import diff as task

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
    return lambda words: print(
        f"{CLEARED}{words} ", end="", file=sys.stderr, flush=True
    )
