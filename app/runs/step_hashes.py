"""Read the recorded hashes of a run's steps, to verify a recomputed step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from app.runs import layer_tables, store, tables
from app.runs.log_file import logged
from app.runs.record import RunError
from app.training.revisit.recorded import RateChange, Recorded

if TYPE_CHECKING:
    from app.runs.store import Kept


def recorded_of(stored_run: Kept) -> Recorded:
    """Return the hashes and losses of a run's steps. Raises RunError."""
    try:
        parts = [
            tables.read(folder / layer_tables.HASHES)
            for folder in store.measured(stored_run)
        ]
        columns, steps = tables.read(stored_run.folder / store.STEPS)
        rates = tuple(
            rate
            for folder in store.measured(stored_run)
            for rate in _rates(folder, stored_run.folder)
        )
    except (OSError, tables.TableError) as error:
        raise RunError(
            f"The hashes of {stored_run.record.title} cannot be read: {error}"
        ) from error
    count = len(layer_tables.PLACES)
    for names, hashes in parts:
        if names and (
            tuple(names[:count]) != layer_tables.PLACES or hashes.dtype != np.int64
        ):
            raise RunError(
                f"The hashes of {stored_run.record.title} cannot be read: {layer_tables.HASHES} lacks columns."
            )
    if columns and not {"step", "loss"} <= set(columns):
        raise RunError(
            f"The measurements of {stored_run.record.title} cannot be read: {store.STEPS} lacks columns."
        )
    losses = {}
    if columns:
        numbers, values = (
            steps[columns.index("step")].tolist(),
            steps[columns.index("loss")].tolist(),
        )
        losses = {int(step): loss for step, loss in zip(numbers, values, strict=True)}
    layers: list[tuple[str, ...]] = []
    rows: dict[int, tuple[int, ...]] = {}
    for names, hashes in parts:
        layers.append(tuple(name.partition("/")[2] for name in names[count:]))
        rows |= (
            {int(row[0]): tuple(row[1:]) for row in hashes.T.tolist()} if names else {}
        )
    begins = [cut.step + 1 for cut in stored_run.record.cuts]
    ending = stored_run.record.ending
    failed = (
        ending.step + 1 if ending is not None and ending.kind == "not finite" else 0
    )
    skipped = (
        frozenset(
            line["step"] for line in logged(stored_run.folder / store.LOG, "skipped")
        )
        - losses.keys()
    )
    later = tuple(zip(begins, layers[1:], strict=True))
    return Recorded(
        layers[0],
        rows,
        losses,
        rates,
        _left_out(stored_run.folder),
        failed,
        skipped,
        later,
    )


def _rates(measured: Path, folder: Path) -> tuple[RateChange, ...]:
    """Return the learning rates set by hand in a stage; those of groups are in the log alone."""
    main = {
        (int(step), rate)
        for step, rate in tables.read(measured / layer_tables.RATES)[1].T.tolist()
    }
    changes = [
        RateChange(line["step"], line.get("rate", 0.0), line.get("group", ""))
        for line in logged(folder / store.LOG, "rate")
    ]
    return tuple(
        dict.fromkeys(
            change for change in changes if (change.step, change.rate) in main
        )
    )


def _left_out(folder: Path) -> frozenset[int]:
    """Return the steps at which a watch point paused at a loss that was not finite: they were not trained on."""
    return frozenset(
        line["step"]
        for line in logged(folder / store.LOG, "caught")
        if line.get("what") == "loss"
    )
