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
    effect = net.answer(
        MeasureEffect(net.net, changes, common.samples(options)), task.effect
    )
    if options.json:
        plain = {
            **common.plain(effect),
            "change": effect.change,
            "changes": list(map(str, changes)),
        }
        print(json.dumps(plain, ensure_ascii=False, allow_nan=False))
    else:
        print(*map(console.printable, lines(effect)), sep="\n")
    return 0


def _changes(options: argparse.Namespace) -> tuple[Intervention, ...]:
    if not options.mute and not options.take:
        raise console.CommandError("pass --mute PART, or --take PART with --from N")
    if bool(options.take) != (options.source is not None):
        raise console.CommandError("--take PART and --from N require each other")
    changes = [
        *map(parse_part, options.mute),
        *(parse_part(text, options.source) for text in options.take),
    ]
    return tuple(
        replace(change, axis=options.axis) if change.channel is not None else change
        for change in changes
    )


def lines(effect: Effect) -> list[str]:
    """Format an effect as text."""
    report_lines = [
        f"{effect.measure} {effect.before:.6g} -> {effect.after:.6g}, a change of {effect.change:+.6g}",
        f"output changed by {effect.shift:.3%} of its norm",
    ]
    if len(effect.each_before) == len(effect.samples):
        for number, before, after, (old, new) in zip(
            effect.samples,
            effect.each_before,
            effect.each_after,
            effect.predictions,
            strict=True,
        ):
            report_lines.append(
                f"sample {number}: {before:.6g} -> {after:.6g}"
                + (f", {old} -> {new}" if old else "")
            )
    return [*report_lines, *effect.remarks]
