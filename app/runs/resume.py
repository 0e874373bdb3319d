"""Resume a run from a checkpoint, or fork a new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from app.export.weights import save_safetensors
from app.project.project import Project
from app.project.weights import files
from app.runs import compare, store
from app.runs import record as records
from app.runs.checkpoint_files import GoingOn
from app.runs.record import Changed, RunError
from app.runs.store import Kept
from app.training.checkpoints import checkpoint
from app.training.checkpoints.checkpoint import (
    BEST,
    CheckpointError,
    DamagedCheckpointError,
    go_on,
    load,
    load_chosen,
    ran_on_of,
    stage_file,
    stage_of,
    step_by_name,
    step_of,
)
from app.training.checkpoints.fixed_settings import (
    FROM_WEIGHTS,
    fixed_settings,
    refusal,
    refusals,
    settings_of,
)
from app.training.config import StartWeights, TrainingConfig
from app.training.job import Job
from app.training.setup.prepare import set_up
from app.util.rng import borrowed


def newest(stored_run: Kept, tell: Callable[[str], None] = lambda _words: None) -> Path:
    """Return the newest intact checkpoint; `tell` is called for each one skipped.

    Raises RunError if there is none.
    """
    path = checkpoint.newest(
        stored_run.checkpoints, tell, len(stored_run.record.stages) + 1
    )
    if path is None:
        raise RunError(
            f"{stored_run.record.title} has no readable checkpoint, so it cannot be resumed. Start a new run."
        )
    return path


def nearest(
    stored_run: Kept, step: int, tell: Callable[[str], None] = lambda _words: None
) -> Path | None:
    """Return the intact checkpoint nearest before or at the end of a step; None if there is none, as before step 1.

    `tell` is called for each one skipped.
    """
    candidates = []
    for path in stored_run.checkpoints.glob("*.pt"):
        try:
            by_name = step_by_name(path)  # there may be hundreds
            at, stage = (
                (step_of(path)[0], stage_of(path)) if by_name is None else (by_name, 0)
            )  # before a surgery
            if at <= step:
                candidates.append((at, stage, path.name, path))
        except CheckpointError as error:
            tell(f"A checkpoint is skipped: {error}")
    for *_, path in sorted(candidates, reverse=True):
        try:
            if stage_of(path) > len(stored_run.record.stages) + 1:
                continue
            load(path)
        except CheckpointError as error:
            tell(f"A checkpoint is skipped: {error}")
        else:
            return path
    return None


def check(job: Job, path: Path) -> None:
    """Raise CheckpointError if a run cannot be resumed from a checkpoint, of another network or other settings, on the
    CPU.

    `going_on` removes checkpoints, so call this first if job and checkpoint may not match.
    """
    if (stage := stage_of(path)) > len(job.stages) + 1:
        raise CheckpointError(
            f"{path.name} was saved after the net of its run was edited; resume the run that it belongs to."
        )
    job = job.at_stage(stage)
    with borrowed(job.training.seed):
        try:
            stepper, data = set_up(job, "cpu")
        except (
            Exception
        ):  # errors of user code too: the run raises and reports them again
            return
        go_on(
            path,
            job.source.text,
            torch.Generator(),
            stepper,
            settings_of(job, data.info),
        )


def going_on(stored_run: Kept, path: Path) -> GoingOn:
    """Return the position of a checkpoint, and delete later ones of the run, which will be written again.

    Raises CheckpointError and OSError.
    """
    (step, done), stage = step_of(path), stage_of(path)
    for other in stored_run.checkpoints.glob("*.pt"):
        try:
            later = other.name != path.name and (step_of(other)[0], stage_of(other)) > (
                step,
                stage,
            )
        except DamagedCheckpointError:
            later = True
        except CheckpointError:  # of a newer version, or not readable
            later = False
        if later:
            other.unlink(missing_ok=True)
    best, aside = (
        stored_run.checkpoints / BEST,
        stored_run.checkpoints / stage_file(stage, "best"),
    )
    if aside.exists() and aside != path and not best.exists():
        aside.replace(best)
    return GoingOn(step, done, stage)


# Settings that change no number of a run: with others it is the same run, up to where it ends.
_FREE = frozenset(
    (
        "epochs",
        "max_steps",
        "max_minutes",
        "patience",
        "save_every",
        "revisit_seconds",
        "leave_out",
        "device",
        "threads",
        "anomaly",
        "data.path",
    )
)


_LIMITS = frozenset(("epochs", "max_steps", "max_minutes", "patience"))


def with_settings(project: Project, other: Project) -> Project:
    """Return a project with the settings of another one, and its own initial weights."""
    training = replace(other.training, start=project.training.start)
    return replace(project, training=training, data=other.data)


def differing(before: Project, now: Project) -> tuple[str, ...]:
    """Describe the settings that a run has and another project does not, such as "batch_size 17 (the run: 64)"."""
    pairs = compare.differences(before, now).items()
    return tuple(
        f"{name} {new} (the run: {old})"
        for name, (old, new) in pairs
        if name not in _FREE or name in _LIMITS
    )


def changes(before: Project, now: Project) -> dict[str, tuple[str, str]]:
    """Return the settings with which a run would be resumed as another run, with both values by name."""
    return {
        name: pair
        for name, pair in compare.differences(before, now).items()
        if name not in _FREE
    }


def check_changes(stored_run: Kept, before: Project, now: Project) -> None:
    """Raise RunError for settings that cannot be changed amid a run. Gradients that wait for the optimizer's step are
    seen by `check`, which reads the checkpoint.
    """
    old, new = (
        {
            **fixed_settings(project.training, project.data),
            "seed": str(project.training.seed),
        }
        for project in (before, now)
    )
    if wrong := refusal(refusals(old, new, waiting=False)):
        raise RunError(f"{stored_run.record.title} has {wrong}")
    if stored_run.record.stages and (names := ", ".join(changes(before, now))):
        raise RunError(
            f"{names} cannot be changed: the net of {stored_run.record.title} was edited amid it, and "
            "such a run keeps its "
            f"settings. Leave them, or {FROM_WEIGHTS}."
        )


def continued(
    stored_run: Kept, before: Kept, path: Path, changed: Changed | None
) -> Kept:
    """Give a new run the history of the one that it continues, and the checkpoint if settings are changed there.

    Raises OSError.
    """
    store.copy_history(before, stored_run)
    if changed is not None:
        store.keep_begin(path, stored_run)
    record = records.continuing(stored_run.record, before.record, changed)
    records.write(stored_run.folder, record)
    return replace(stored_run, record=record)


def with_begin(job: Job, stored_run: Kept) -> Job:
    """Return the job of a stored run with the checkpoint that it begins with, if its settings were changed there."""
    return (
        replace(job, begin=str(stored_run.begin)) if stored_run.begin.exists() else job
    )


def as_before(job: Job, project: Project, path: Path) -> Job:
    """Return the job of a resumed run: with its number of CPU threads, unless chosen explicitly.

    Raises CheckpointError.
    """
    ran_on = ran_on_of(path)
    if (
        project.training.threads
        or ran_on.get("processes", 1) != 1
        or "threads" not in ran_on
    ):
        return job
    return replace(job, training=replace(job.training, threads=ran_on["threads"]))


def further(stored_run: Kept, now: TrainingConfig) -> TrainingConfig:
    """Return the settings of a finished run with the limits of `now`, to continue it.

    Raises RunError, which names the limit, where one of these would end it at once.
    """
    before, summary, title = (
        store.project_of(stored_run).training,
        stored_run.record.summary,
        stored_run.record.title,
    )
    limits = replace(
        before,
        epochs=now.epochs,
        max_steps=now.max_steps,
        max_minutes=now.max_minutes,
        patience=now.patience,
    )
    to_do = f"{title} is finished. To continue it, set "
    or_fork = "; or fork a new run from one of its checkpoints."
    if limits.max_steps is not None and summary.steps >= limits.max_steps:
        raise RunError(
            f"{to_do}a limit of more steps under Training than its {summary.steps:,}, or none{or_fork}"
        )
    if limits.max_minutes is not None and summary.seconds >= 60 * limits.max_minutes:
        minutes = f"{summary.seconds / 60:.1f}"
        raise RunError(
            f"{to_do}a limit of more minutes under Training than its {minutes}, or none{or_fork}"
        )
    begun = stored_run.record.beginning
    steps = begun.steps_per_epoch if begun is not None else 0
    if summary.steps >= steps * limits.epochs:
        raise RunError(
            f"{to_do}more epochs under Training than its {before.epochs}{or_fork}"
        )
    early = summary.steps < steps * before.epochs and not (
        before.max_steps is not None
        and summary.steps >= before.max_steps
        or before.max_minutes is not None
        and summary.seconds >= 60 * before.max_minutes
    )
    if early and 0 < limits.patience <= before.patience:
        raise RunError(
            f"{to_do}patience under Training to more than its {before.patience} epochs, or to 0{or_fork}"
        )
    return limits


def run_of(path: Path) -> Kept | None:
    """Return the stored run that contains a checkpoint, if any."""
    folder = path.absolute().parent.parent
    return next(
        (
            stored_run
            for stored_run in store.listed(folder.parent)
            if stored_run.folder == folder
        ),
        None,
    )


def newest_weights(
    folder: Path, tell: Callable[[str], None] = lambda _words: None
) -> tuple[Path, str] | None:
    """Return the newest intact checkpoint of the newest run that has one, and its description.

    `tell` is called for each one skipped. None if there is none. Raises OSError.
    """
    for stored_run in store.listed(folder):
        path = (
            checkpoint.newest(stored_run.checkpoints, tell)
            if stored_run.checkpoints.is_dir()
            else None
        )
        if path is not None:
            return (
                path,
                f"newest weights, of {stored_run.record.title} at step {checkpoint.step_of(path)[0]:,}",
            )
    return None


def find_checkpoint(
    path: Path, tell: Callable[[str], None] = lambda _words: None
) -> Path:
    """Return the checkpoint at a path: a file, or the newest intact one in a folder of runs.

    `tell` is called for each one skipped. Raises RunError, and CheckpointError for a damaged file.
    """
    if path.is_file():
        checkpoint.load_chosen(path)
        return path
    if not path.is_dir():
        raise RunError(
            f"{path} does not exist, neither as a checkpoint nor as a folder with one."
        )
    runs = [
        stored_run
        for folder in (path / "runs", path)
        for stored_run in store.listed(folder)
    ]
    run_folders = [
        (stored_run.checkpoints, len(stored_run.record.stages) + 1)
        for stored_run in runs
    ]
    inside = path / store.CHECKPOINTS, path
    for folder, stages in (*run_folders, *((directory, None) for directory in inside)):
        newest_path = (
            checkpoint.newest(folder, tell, stages) if folder.is_dir() else None
        )
        if newest_path is not None:
            return newest_path
    raise RunError(f"There is no readable checkpoint in {path}.")


def weights_of(path: Path, name: str) -> StartWeights:
    """Return the weights of a checkpoint as start weights: the EMA weights if there are any.

    Raises CheckpointError, OSError, and ValueError for weights that cannot be written.
    """
    state = load_chosen(path)
    weights: dict[str, Any] = state["model"]
    if state["average"] is not None:
        prefix = "module."
        weights = {
            key[len(prefix) :]: value
            for key, value in state["average"].items()
            if key.startswith(prefix)
        }
    return files.keep(lambda file: save_safetensors(weights, file), name)
