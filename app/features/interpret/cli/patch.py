"""`tapedeck patch`: the loss with a head, a channel or a layer muted, or taken from another sample."""

from __future__ import annotations

import argparse
import json

from msgspec.structs import replace

from app.cli import console
from app.features.interpret import task
from app.features.interpret.cli import common
from app.features.interpret.values import (
    Effect,
    Intervention,
    MeasureEffect,
    parse_part,
)


def run(options: argparse.Namespace) -> int:
    """Print the loss without and with the changes."""

    changes = _changes(options)
    net = common.read_source(options)
    found = net.answer(
        MeasureEffect(net.net, changes, common.samples(options)), task.effect
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
