"""The weights that a stored run had after a step: of a checkpoint written there, else recomputed and verified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.engine.tasks.runs import stored
from app.runs import resume, step_hashes
from app.runs.newest import weights_in
from app.runs.record import RunError
from app.runs.step_hashes import as_recorded, check_step
from app.runs.store import PROJECT, stage_folder
from app.training.checkpoints.checkpoint import step_of
from app.training.recomputing.recompute_steps import (
    RecomputeWatcher,
    StepFigures,
    leave_recomputing,
    recompute_steps,
)

if TYPE_CHECKING:
    from torch import Tensor

Tell = Callable[[int, int], None]


def weights_at_step(
    folder: Path,
    step: int,
    data_root: str | None,
    tell: Tell = lambda _done, _of: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the weights after a step, the running mean if there is one, and remarks on where they are from; step 0 is
    the start of the run. Raises RunError, for a run that parts from its record too, RecomputeError and JobError."""
    notes: list[str] = []
    stored_run, _, job = stored(folder, data_root)
    title, stage = stored_run.record.title, job.stage_at(step + 1)
    if stage != stored_run.record.stage:
        raise RunError(
            f"{title} had another net at step {step:,}: it was edited after step {job.stages[stage - 1].step:,}. Its "
            f"project is {stage_folder(folder, stage) / PROJECT}; compare its checkpoints"
        )
    nearest = resume.nearest(stored_run, step, notes.append)
    if nearest is not None and step_of(nearest)[0] == step:
        return weights_in(nearest), (
            *notes,
            f"{title} at step {step:,}: from its checkpoint {nearest.name}.",
        )
    recorded = step_hashes.recorded_of(stored_run)
    target_step = max(step, 1)
    check_step(stored_run, job, target_step, recorded)
    if (
        stored_run.record.environment is not None
        and stored_run.record.environment.processes > 1
    ):
        raise RunError(
            f"{title} ran on several processes, whose steps can only be compared at their checkpoints; there is none "
            f"of "
            f"step {step:,}"
        )

    def at_end(watcher: RecomputeWatcher, _figures: StepFigures) -> dict[str, Tensor]:
        stepper = watcher.live.stepper
        model = (
            stepper.model
            if stepper.average is None or not step
            else stepper.average.module
        )
        if not step and watcher.parting is None:
            leave_recomputing(watcher)  # the state before step 1
        return {
            name: value.detach().cpu().clone()
            for name, value in model.state_dict().items()
        }

    recomputed = recompute_steps(
        as_recorded(stored_run, job),
        recorded,
        target_step,
        at_end,
        resume=nearest,
        tell=tell,
        cancelled=cancelled,
    )
    if recomputed.parting is not None:
        at = recomputed.parting.step
        raise RunError(
            f"{title} cannot be compared at step {step:,}: recomputed, it differs from its record from step {at:,} on. "
            f"tapedeck revisit {folder} --step {at} says why"
        )
    came = (
        f"step {recomputed.started_at:,} ({nearest.name})"
        if nearest is not None
        else "its start"
    )
    step_count = target_step - recomputed.started_at
    notes.append(
        f"{title} at step {step:,}: recomputed from {came}; {recomputed.verified:,} of "
        f"{step_count:,} steps were verified by the "
        "hashes of their gradients, all by their losses."
    )
    return recomputed.found, (
        *notes,
        *((recomputed.changed,) if recomputed.changed else ()),
    )
