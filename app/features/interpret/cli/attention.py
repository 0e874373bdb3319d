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
    answer = net.answer(
        ReadAttention(net.net, common.samples(options), layers), task.attention
    )
    paths = {attention.path for attention in answer.attentions}
    if unknown := [path for path in layers or () if path not in paths]:
        there = ", ".join(paths) or "none"
        raise console.CommandError(
            f"{unknown[0]} computes no attention itself; modules that do: {there}", 1
        )
    if options.json:
        summary = {
            "sample": answer.sample.number,
            "label": answer.sample.label,
            "prediction": answer.sample.prediction,
            "attentions": [
                {
                    name: value
                    for name, value in common.plain(attention).items()
                    if name != "maps"
                }
                for attention in answer.attentions
            ],
            "remarks": list(answer.remarks),
        }
        print(json.dumps(summary, ensure_ascii=False, allow_nan=False))
    else:
        print(*map(console.printable, lines(answer)), sep="\n")
    if options.out is not None and answer.attentions:
        _write(options.out, answer)
    return int(
        not answer.attentions
        or not all(attention.checked for attention in answer.attentions)
    )


def lines(answer: AttentionFound) -> list[str]:
    """Format the attentions as a table."""
    if not answer.attentions:
        return [
            "The forward pass computes no scaled-dot-product attention.",
            *answer.remarks,
        ]
    width = max(9, *(len(entry.name) for entry in answer.attentions))
    rows = [
        f"{'attention':<{width}}  {'heads':>5}  {'queries x keys':>15}  {'computed by':<28}  difference"
    ]
    for attention in answer.attentions:
        heads = (
            f"{attention.groups}x{attention.heads}"
            if attention.groups > 1
            else str(attention.heads)
        )
        size, kind = (
            f"{attention.queries:,} x {attention.keys:,}",
            attention.kind.removeprefix("_scaled_dot_product_"),
        )
        rows.append(
            f"{attention.name:<{width}}  {heads:>5}  {size:>15}  {kind:<28}  {attention.error:.1e}"
            f"{f'  {attention.remark}' if attention.remark else ''}"
        )
    exact = sum(entry.checked for entry in answer.attentions)
    rows.append(
        f"{exact} of {len(answer.attentions)} give the output of their call to rounding (relative difference)"
    )
    return [*rows, *answer.remarks]


def _write(path: Path, answer: AttentionFound) -> None:
    shown = [attention for attention in answer.attentions if attention.maps is not None]
    if path.suffix == ".png" and len(shown) > MOST:
        console.warn(
            f"{path} shows the first {MOST} of {len(shown)} attentions; choose with --layer"
        )
    common.write(
        path,
        answer,
        lambda: {attention.name: attention.maps for attention in shown},
        lambda: pictures.of_attention(shown[:MOST]),
    )
