"""A recomputed step in print and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from app.cli import console
from app.util.formatting import counted

if TYPE_CHECKING:
    from app.engine.requests.past.revisit import Parted, Revisited
    from app.runs.store import Kept


def print_step(found: Revisited) -> None:
    """Print a recomputed step: its losses, and each layer's hashes and norm."""

    start = (
        f"step {found.started_at:,} ({found.checkpoint})"
        if found.checkpoint
        else "the start of the run"
    )
    print(
        f"{console.printable(found.run)}, step {found.step:,}: batch {found.batch:,} of epoch {found.epoch:,}, "
        f"recomputed "
        f"from {start}; {found.verified:,} steps verified by their hashes, all by their losses"
    )
    same = {None: "not recorded", True: "equal", False: "not equal"}
    recorded = (
        "not recorded" if found.recorded_loss is None else repr(found.recorded_loss)
    )
    print(
        f"loss {found.loss!r}, recorded {recorded}; generators {same[found.generator]}"
    )
    rows = [("layer", "recorded", "recomputed", "gradient norm")]
    for one in found.layers:
        norm = "-" if one.norm is None else f"{one.norm:.6g}"
        mark = "" if one.is_equal else "  differs"
        rows.append(
            (
                console.printable(one.layer),
                one.recorded or "-",
                one.recomputed,
                norm + mark,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print(
            "  ".join(
                [
                    *(
                        f"{cell:<{width}}"
                        for cell, width in zip(row, widths, strict=False)
                    ),
                    row[3],
                ]
            )
        )
    if found.captured:
        print("The gradients of the captured graph are those of the step, bit for bit.")
    if found.parted is not None:
        print(console.printable(parted_text(found.parted)))


def parted_text(parted: Parted) -> str:
    """Describe where a recomputed run parted from the recorded one."""
    what = {
        "gradients": f"the gradients of {counted(len(parted.layers), 'layer')} differ, {parted.layer} first",
        "generator": "torch's generators are in another state",
        "position": "the batch is a different one",
        "loss": "the loss differs",
    }[parted.what]
    text = f"The run differs from its record at step {parted.step:,}: {what}."
    if parted.operation is None:
        return f"{text} No operation was found: {parted.reason}."
    where = f", {parted.line}" if parted.line else ""
    return f"{text} {parted.operation}{where} is not deterministic: {parted.reason}."


def plain_step(kept: Kept, found: Revisited) -> dict[str, Any]:
    """Return the JSON object of a recomputed step."""
    return {
        "run": kept.record.title,
        "step": found.step,
        "checkpoint": found.checkpoint or None,
        "loss": found.loss if math.isfinite(found.loss) else None,
        "layers": [
            {
                "layer": one.layer,
                "recorded": one.recorded,
                "recomputed": one.recomputed,
                "norm": one.norm,
                "relived": one.recomputed,
            }  # the name that scripts of earlier versions read
            for one in found.layers
        ],
        "parted": plain_parted(found.parted),
        "verified": found.verified,
        "captured": found.captured,
    }


def plain_parted(parted: Parted | None) -> dict[str, Any] | None:
    """Return the JSON object of where a run parted; None if it did not."""
    if parted is None:
        return None
    return {
        "step": parted.step,
        "layer": parted.layer,
        "operation": parted.operation,
        "what": parted.what,
        "line": parted.line,
        "reason": parted.reason,
    }
