"""Whether a step of a stored run can be recomputed as it ran, and where a recomputation parted from its record."""

from __future__ import annotations

from msgspec.structs import replace

from app.engine.requests.revisit import Parted
from app.runs import store
from app.runs.record import RunError
from app.runs.store import Kept
from app.training.job import Job
from app.training.revisit.nondeterminism import find_operation
from app.training.revisit.recompute_steps import Parting, RecomputeWatcher
from app.training.revisit.recorded import Recorded
from app.training.stepper import Stepper


def check(stored_run: Kept, job: Job, step: int, recorded: Recorded) -> None:
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


def parted_at(
    parting: Parting, stepper: Stepper, watcher: RecomputeWatcher, job: Job
) -> Parted:
    """Return where re-living parted, with the operation that is not deterministic if it can be found."""
    assert watcher.snapshot is not None
    first = (
        parting.layers[-1] if parting.layers else ""
    )  # backward begins with the last
    operation = find_operation(stepper, watcher.snapshot, job.source)
    parted = Parted(parting.step, parting.what, first, parting.layers)
    if operation is None:
        reason = "the step gives the same gradients each time it is run from this state, so it is not the network that "
        return replace(
            parted,
            reason=f"{reason}differs: look for data, files or an environment that changed",
        )
    where = operation.place
    name = f"{operation.name} (backward)" if operation.backward else operation.name
    return replace(
        parted,
        layer=where.layer or first,
        operation=name,
        node=where.node,
        line=where.line,
        reason=operation.reason,
    )
