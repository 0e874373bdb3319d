"""Make the models that are compared, each with its weights and its batch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor, nn

from app.engine.requests.observe import Observe
from app.engine.tasks.observe import load_model
from app.engine.tasks.runs import stored
from app.engine.tasks.weights import fit_weights, state_of
from app.features.compare.values import Diff, DiffSide
from app.preflight import random_batch
from app.runs import resume, step_hashes
from app.runs.newest import weights_in
from app.runs.record import RunError
from app.runs.step_hashes import as_recorded, check_step
from app.runs.store import PROJECT, stage_folder
from app.source.compiled import make_module
from app.source.generated import Source
from app.sources.finding import package_of
from app.sources.loading import LARGEST, Loaded, weight_bytes
from app.sources.spec import SourceError
from app.training.checkpoints.checkpoint import step_of
from app.training.recomputing.recompute_steps import (
    RecomputeWatcher,
    StepFigures,
    leave_recomputing,
    recompute_steps,
)
from app.training.setup.initial_weights import put_in
from app.util import rng
from app.util.formatting import bytes_text

# --- The weights that a stored run had after a step: of a checkpoint written there, else recomputed and verified

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


def load_side(side: DiffSide, request: Diff) -> Loaded:
    """Make a model and its batch: the inputs of a source, random ones of a project."""
    if isinstance(side.model, Source):
        with rng.borrowed(request.seed):
            model = make_module(side.model)
        if side.start is not None:
            put_in(model, side.start)
        return Loaded(
            model, random_batch.inputs(side.model, request.batch, request.seed)
        )
    assert isinstance(side.model, Observe)
    observed = side.model
    if observed.source.looked_at:
        raise SourceError(
            f"{side.name} is looked at and not run: it can be compared with another .onnx or .pt2. Pass --trust to run "
            "a .pt2"
        )
    if observed.folder:
        os.chdir(
            observed.folder
        )  # relative paths in the model's code are relative to it
    if not observed.source.own_code:
        _check_size(observed)
    with rng.borrowed(request.seed):
        return load_model(observed, meta=False)


def _check_size(observed: Observe) -> None:
    try:
        meta_model = load_model(observed, meta=True).model
    except SourceError:  # some constructors need values
        return
    size = weight_bytes(meta_model)
    if size > LARGEST:
        raise SourceError(
            f"{observed.source} has {bytes_text(size)} of weights, and comparing numbers takes "
            f"{bytes_text(LARGEST)} at "
            "most. Pass arguments that make it smaller, such as fewer layers"
        )


def forget(side: DiffSide) -> None:
    """Import the modules of a user's folder again: another version of a file may have the same name."""
    if not isinstance(side.model, Observe) or not side.model.source.own_code:
        return
    source = side.model.source
    top = (
        package_of(Path(side.model.folder, source.where))[0]
        if source.kind == "file"
        else Path(side.model.folder)
    )
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if (
            file
            and top in Path(file).resolve().parents
            and "-packages" not in file
            and not _is_ours(name)
        ):
            del sys.modules[name]
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != top]


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in ("app", "tapedeck", "__main__")


def load_weights(
    model: nn.Module,
    side: DiffSide,
    request: Diff,
    tell: Callable[[str], None],
    cancelled: Callable[[], bool],
) -> list[str]:
    """Load the weights of a side, and return remarks. Raises WeightsError, CheckpointError, SourceError, RunError and
    RecomputeError."""
    if not side.has_weights or (side.step is not None and not request.numbers):
        return []
    remarks: tuple[str, ...] = ()
    where = side.weights or side.name
    state_dict: Mapping[str, Tensor]
    if side.step is not None:

        def show(done: int, of: int) -> None:
            tell(f"Recomputing {side.name}: {done:,} of {of:,} steps")

        state_dict, remarks = weights_at_step(
            Path(side.run), side.step, request.data_root, show, cancelled
        )
    else:
        state_dict = state_of(side.weights)
    return [*remarks, *fit_weights(model, state_dict, where, side.name)]
