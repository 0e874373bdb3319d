"""`tapedeck patch`: the loss with a head, a channel or a layer muted, or taken from another sample."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from app.cli import console
from app.cli.interpret import common

if TYPE_CHECKING:
    from app.interpret.results import Effect, Intervention

DETAILS = """
PART is PATH, the output of a module; PATH:channel=5; or PATH:head=3, a head of the attention that the module computes.
PATH#2 is the second call of a module; without #, all calls are changed. All changes are made in one forward pass.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    parser: argparse.ArgumentParser = commands.add_parser(
        "patch",
        help="measure the loss with parts set to zero, or patched from another sample",
        description=common.WORDS + DETAILS,
    )
    common.add_options(parser, several=True)
    parser.add_argument(
        "--mute",
        action="append",
        default=[],
        metavar="PART",
        help="replace its output by zeros; may be repeated",
    )
    parser.add_argument(
        "--take",
        action="append",
        default=[],
        metavar="PART",
        help="replace its output by that of sample --from; may be repeated",
    )
    parser.add_argument(
        "--from",
        type=int,
        dest="source",
        metavar="N",
        help="the sample that --take takes from",
    )
    parser.add_argument(
        "--axis",
        type=int,
        help="axis of channels, if not the usual one of the layer's type",
    )
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Print the loss without and with the changes."""

    changes = _changes(options)
    net = common.read_source(options)
    from app.engine.requests.interpret.reading import MeasureEffect
    from app.engine.tasks.interpret import reading

    found = net.answer(
        MeasureEffect(net.net, changes, common.samples(options)), reading.effect
    )
    if options.json:
        plain = {
            **common.plain(found),
            "change": found.change,
            "changes": list(map(str, changes)),
        }
        print(json.dumps(plain, ensure_ascii=False, allow_nan=False))
    else:
        print(*map(console.printable, lines(found)), sep="\n")
    return 0


def _changes(options: argparse.Namespace) -> tuple[Intervention, ...]:
    from app.interpret.results import parse_part

    if not options.mute and not options.take:
        raise console.CommandError("pass --mute PART, or --take PART with --from N")
    if bool(options.take) != (options.source is not None):
        raise console.CommandError("--take PART and --from N require each other")
    changes = [
        *map(parse_part, options.mute),
        *(parse_part(one, options.source) for one in options.take),
    ]
    return tuple(
        replace(one, axis=options.axis) if one.channel is not None else one
        for one in changes
    )


def lines(found: Effect) -> list[str]:
    """Format an effect as text."""
    told = [
        f"{found.measure} {found.before:.6g} -> {found.after:.6g}, a change of {found.change:+.6g}",
        f"output changed by {found.shift:.3%} of its norm",
    ]
    if len(found.each_before) == len(found.samples):
        for number, before, after, (old, new) in zip(
            found.samples,
            found.each_before,
            found.each_after,
            found.predictions,
            strict=True,
        ):
            told.append(
                f"sample {number}: {before:.6g} -> {after:.6g}"
                + (f", {old} -> {new}" if old else "")
            )
    return [*told, *found.remarks]
