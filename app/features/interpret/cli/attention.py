"""`tapedeck attention`: the attention maps of every head, for one sample."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from app.cli import console
from app.features.interpret import task
from app.features.interpret.cli import common, pictures
from app.features.interpret.values import AttentionFound, ReadAttention

MOST = 12  # attentions in a picture


def run(options: argparse.Namespace) -> int:
    """Print a table of the attentions, and write their maps; return 1 if weights do not explain an output."""

    if options.out is not None:
        console.can_be_written(options.out, common.ENDINGS, "maps can end in")
    net = common.read_source(options)

    layers = (
        tuple(options.layer)
        if options.layer
        else (None if options.out is not None else ())
    )
    found = net.answer(
        ReadAttention(net.net, common.samples(options), layers), task.attention
    )
    known = {one.path for one in found.attentions}
    if unknown := [path for path in layers or () if path not in known]:
        there = ", ".join(known) or "none"
        raise console.CommandError(
            f"{unknown[0]} computes no attention itself; modules that do: {there}", 1
        )
    if options.json:
        summary = {
            "sample": found.sample.number,
            "label": found.sample.label,
            "prediction": found.sample.prediction,
            "attentions": [
                {
                    name: value
                    for name, value in common.plain(one).items()
                    if name != "maps"
                }
                for one in found.attentions
            ],
            "remarks": list(found.remarks),
        }
        print(json.dumps(summary, ensure_ascii=False, allow_nan=False))
    else:
        print(*map(console.printable, lines(found)), sep="\n")
    if options.out is not None and found.attentions:
        _write(options.out, found)
    return int(not found.attentions or not all(one.checked for one in found.attentions))


def lines(found: AttentionFound) -> list[str]:
    """Format the attentions as a table."""
    if not found.attentions:
        return [
            "The forward pass computes no scaled-dot-product attention.",
            *found.remarks,
        ]
    width = max(9, *(len(one.name) for one in found.attentions))
    told = [
        f"{'attention':<{width}}  {'heads':>5}  {'queries x keys':>15}  {'computed by':<28}  difference"
    ]
    for one in found.attentions:
        heads = f"{one.groups}x{one.heads}" if one.groups > 1 else str(one.heads)
        size, kind = (
            f"{one.queries:,} x {one.keys:,}",
            one.kind.removeprefix("_scaled_dot_product_"),
        )
        told.append(
            f"{one.name:<{width}}  {heads:>5}  {size:>15}  {kind:<28}  {one.error:.1e}"
            f"{f'  {one.remark}' if one.remark else ''}"
        )
    exact = sum(one.checked for one in found.attentions)
    told.append(
        f"{exact} of {len(found.attentions)} give the output of their call to rounding (relative difference)"
    )
    return [*told, *found.remarks]


def _write(path: Path, found: AttentionFound) -> None:
    shown = [one for one in found.attentions if one.maps is not None]
    if path.suffix == ".png" and len(shown) > MOST:
        console.warn(
            f"{path} shows the first {MOST} of {len(shown)} attentions; choose with --layer"
        )
    common.write(
        path,
        found,
        lambda: {one.name: one.maps for one in shown},
        lambda: pictures.of_attention(shown[:MOST]),
    )
