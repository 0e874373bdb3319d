"""What a stored run recorded of its steps, by which recomputed ones are verified, and whether one can be recomputed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from app.runs import layer_tables, store, tables
from app.runs.log_file import logged
from app.runs.record import RunError
from app.training.job import Job
from app.training.recomputing.recorded import RateChange, Recorded

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


def check_step(stored_run: Kept, job: Job, step: int, recorded: Recorded) -> None:
    """Raise RunError for a step that the run has not, and for a network whose code is another one now."""
    if not 1 <= step <= recorded.reach:
        has = (
            f"it has steps 1 to {recorded.reach:,}"
            if recorded.reach
            else "it recorded none"
        )
        raise RunError(f"{stored_run.record.title} has no step {step:,}: {has}.")
    if stored_run.record.changed is not None and step <= stored_run.record.changed.step:
        parent = stored_run.record.parent
        raise RunError(
            f"{stored_run.record.title} has its settings since step "
            f"{stored_run.record.changed.step:,}: step {step:,} is of "
            f"{parent.run if parent is not None else 'another run'}. Recompute it there."
        )
    number = stored_run.record.stage
    path = stored_run.folder / store.SOURCE
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    if text != job.at_stage(number).source.text:
        raise RunError(
            f"The code of {stored_run.record.title} differs from what this version of Tapedeck writes "
            "for its project, or a "
            f"file of its model has changed: it cannot be recomputed. Its code is {path}."
        )


def as_recorded(stored_run: Kept, job: Job) -> Job:
    """Return the job with the CPU threads and the device that the run had."""
    where = stored_run.record.environment
    if where is None:
        return job
    threads = job.training.threads or where.threads
    return replace(
        job,
        training=replace(
            job.training, threads=threads, device=where.device or job.training.device
        ),
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
