"""A recomputed step in print and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from app.cli import console
from app.util.formatting import counted

if TYPE_CHECKING:
    from app.features.revisit.values import Parted, Revisited
    from app.runs.store import Kept


def print_step(step: Revisited) -> None:
    """Print a recomputed step: its losses, and each layer's hashes and norm."""

    start = (
        f"step {step.started_at:,} ({step.checkpoint})"
        if step.checkpoint
        else "the start of the run"
    )
    print(
        f"{console.printable(step.run)}, step {step.step:,}: batch {step.batch:,} of epoch {step.epoch:,}, "
        f"recomputed "
        f"from {start}; {step.verified:,} steps verified by their hashes, all by their losses"
    )
    same = {None: "not recorded", True: "equal", False: "not equal"}
    recorded = (
        "not recorded" if step.recorded_loss is None else repr(step.recorded_loss)
    )
    print(f"loss {step.loss!r}, recorded {recorded}; generators {same[step.generator]}")
    rows = [("layer", "recorded", "recomputed", "gradient norm")]
    for layer in step.layers:
        norm = "-" if layer.norm is None else f"{layer.norm:.6g}"
        mark = "" if layer.is_equal else "  differs"
        rows.append(
            (
                console.printable(layer.layer),
                layer.recorded or "-",
                layer.recomputed,
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
    if step.captured:
        print("The gradients of the captured graph are those of the step, bit for bit.")
    if step.parted is not None:
        print(console.printable(parted_text(step.parted)))


def parted_text(parted: Parted) -> str:
    """Describe where a recomputed run parted from the recorded one."""
    difference = {
        "gradients": f"the gradients of {counted(len(parted.layers), 'layer')} differ, {parted.layer} first",
        "generator": "torch's generators are in another state",
        "position": "the batch is a different one",
        "loss": "the loss differs",
    }[parted.what]
    text = f"The run differs from its record at step {parted.step:,}: {difference}."
    if parted.operation is None:
        return f"{text} No operation was found: {parted.reason}."
    where = f", {parted.line}" if parted.line else ""
    return f"{text} {parted.operation}{where} is not deterministic: {parted.reason}."


def plain_step(stored_run: Kept, step: Revisited) -> dict[str, Any]:
    """Return the JSON object of a recomputed step."""
    return {
        "run": stored_run.record.title,
        "step": step.step,
        "checkpoint": step.checkpoint or None,
        "loss": step.loss if math.isfinite(step.loss) else None,
        "layers": [
            {
                "layer": layer.layer,
                "recorded": layer.recorded,
                "recomputed": layer.recomputed,
                "norm": layer.norm,
                "relived": layer.recomputed,
            }  # the name that scripts of earlier versions read
            for layer in step.layers
        ],
        "parted": plain_parted(step.parted),
        "verified": step.verified,
        "captured": step.captured,
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
