"""Check training settings for contradictions before a run, with fixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from app.builder.blocks import PREFIX
from app.builder.diagnostics.problems import Cure, Problem, SetData, SetTraining
from app.data import description
from app.data.config import DataConfig
from app.data.known_sources import STANDARDISE_TARGET
from app.data.spec import VALUES, SourceSpec
from app.project.module_paths import Layers
from app.project.project import Project
from app.training.choices import CLOSURE, PLATEAU, SCHEDULERS
from app.training.config import TrainingConfig
from app.training.setup import schedule_length
from app.training.setup.device import Device
from app.util.formatting import grouped_digits, significant
from app.util.frozen import FrozenMap
from app.util.language import tr, trn

FAR = 30.0  # mean or standard deviation of a target that no longer resembles the outputs of a new net

if TYPE_CHECKING:
    from app.builder.results import Analysis


def problems(
    project: Project, analysis: Analysis, samples: int | None, source: SourceSpec
) -> list[Problem]:
    """Report settings that are invalid or have no effect. `samples` is the training set's size, None if unknown."""
    training = project.training
    return [
        *_closure(training),
        *_schedule(
            training, schedule_length.span(training, samples, project.data.drop_last)
        ),
        *_validation(project, source),
        *_mixup(training, source),
        *target_scale(project, source),
        *(_paths(project, analysis) if analysis.runnable else ()),
    ]


def absent_device(project: Project, present: Sequence[Device]) -> tuple[Problem, ...]:
    """Report that the project's device is not one of those that are here."""
    device = project.training.device
    ids = [each.id for each in present]
    if not ids or device == "auto" or not {device, f"{device}:0"}.isdisjoint(ids):
        return ()
    return (
        Problem(
            "warning",
            None,
            tr("{device} is not available here", device=device),
            tr(
                "A run uses the CPU in its place. Here are {devices}.",
                devices=", ".join(ids),
            ),
            cures=_set(tr("Train on auto ({device})", device=ids[0]), "device", "auto"),
            code="device-absent",
        ),
    )


# Layers of torch that consist of others, as blocks do.
_OF_SEVERAL = ("nn.TransformerEncoderLayer", "nn.TransformerDecoderLayer")


def memory_cures(project: Project, analysis: Analysis | None) -> tuple[Cure, ...]:
    """Return what lets a step need less memory: fewer samples at once, the same number in parts, or activations that
    are recomputed."""
    training = project.training
    cures: list[Cure] = []
    half = training.batch_size // 2
    if half:
        cures += _set(
            tr("Set {name} to {value}", name="batch_size", value=half),
            "batch_size",
            half,
        )
    if half and training.optimizer.name != CLOSURE:
        parts = 2 * training.accumulate
        edits = (
            SetTraining("", "batch_size", half),
            SetTraining("", "accumulate", parts),
        )
        cures.append(
            Cure(
                tr("Accumulate {parts} batches of {half}", parts=parts, half=half),
                edits,
            )
        )
    blocks = _blocks(Layers(project, analysis)) if analysis is not None else []
    if missing := [path for path in blocks if path not in training.recompute]:
        paths = (*training.recompute, *missing)
        text = tr("Recompute {path}", path=missing[0])
        if len(missing) > 1:
            text = tr("Recompute {number} blocks", number=len(missing))
        cures += _set(text, "recompute", paths)
    return tuple(cures)


def _blocks(layers: Layers) -> list[str]:
    """Return the outermost modules that hold others, which recomputing frees the activations of."""
    above = {path.rpartition(".")[0] for layer in layers for path in layer.modules}
    holders = [
        path
        for layer in layers
        for path in layer.modules
        if layer.op.startswith((PREFIX, *_OF_SEVERAL)) or path in above
    ]
    return [
        path
        for path in holders
        if not any(path.startswith(f"{other}.") for other in holders)
    ]


def _set(label: str, name: str, value: Any) -> tuple[Cure, ...]:
    return (Cure(label, (SetTraining("", name, value),)),)


def _closure(training: TrainingConfig) -> Iterator[Problem]:
    """Check LBFGS, which runs a batch several times in one step, against settings that apply once per batch."""
    if training.optimizer.name != CLOSURE:
        return
    reason = tr(
        "{optimizer} runs forward and backward several times per step.",
        optimizer=CLOSURE,
    )
    for name, plain in (("accumulate", 1), ("amp", ""), ("not_finite", "stop")):
        value = getattr(training, name)
        if value != plain:
            cures = _set(
                tr("Set {name} to {value}", name=name, value=plain or "none"),
                name,
                plain,
            )
            yield Problem(
                "error",
                None,
                tr(
                    "{optimizer} does not support {name}={value}",
                    optimizer=CLOSURE,
                    name=name,
                    value=value,
                ),
                reason,
                cures=cures,
                code="lbfgs-setting",
            )
    if training.groups or training.no_decay:
        setting = "groups" if training.groups else "no_decay"
        reason = tr(
            "{optimizer} updates all parameters along one line, so none can have its own rate or decay.",
            optimizer=CLOSURE,
        )
        cures = _set(f"Remove {setting}", setting, () if training.groups else False)
        yield Problem(
            "error",
            None,
            tr("{optimizer} does not support parameter groups", optimizer=CLOSURE),
            reason,
            cures=cures,
            code="lbfgs-setting",
        )


def _schedule(
    training: TrainingConfig, length: schedule_length.Span
) -> Iterator[Problem]:
    schedule = training.schedule
    if schedule is None:
        return
    name = schedule.choice.name
    if name not in SCHEDULERS:
        reason = tr("Choose one under Training: {names}.", names=", ".join(SCHEDULERS))
        yield Problem(
            "error",
            None,
            tr("Unknown {setting} {name!r}", setting="schedule", name=name),
            reason,
            code="unknown-choice",
        )
        return
    moves, total_steps = (
        length.moves(schedule.per),
        schedule.choice.params.get("total_steps"),
    )
    if (
        name == "OneCycleLR"
        and moves is not None
        and isinstance(total_steps, int)
        and total_steps < moves
    ):
        fitted = schedule_length.fitted(schedule, length)
        reason = tr(
            "Its total_steps is {steps:,} and the run has {run_steps:,}; torch raises an error beyond it.",
            steps=total_steps,
            run_steps=moves,
        )
        cures = (
            _set(
                tr(
                    "Set {name} to {value}",
                    name="total_steps",
                    value=grouped_digits(moves),
                ),
                "schedule",
                fitted,
            )
            if fitted is not None
            else ()
        )
        yield Problem(
            "error",
            None,
            tr("OneCycleLR ends before the run"),
            reason,
            cures=cures,
            code="schedule-too-short",
        )


def target_scale(project: Project, source: SourceSpec) -> Iterator[Problem]:
    """Report values to predict that are far from the outputs a net begins with, which lie around 0."""
    chosen = project.data.options
    if STANDARDISE_TARGET.name not in {
        option.name for option in source.options
    } or chosen.get(STANDARDISE_TARGET.name):
        return
    for target in source.known_targets:
        scale = source.target_scales.get(target.name)
        if (
            target.task != VALUES
            or scale is None
            or max(abs(scale[0]), scale[1]) <= FAR
        ):
            continue
        mean, spread = (significant(number, 3) for number in scale)
        name = target.name or next(
            iter(source.arguments.get("targets", ())), tr("the target")
        )
        reason = tr(
            "{name} has a mean of {mean} and a standard deviation of {spread}, and a net begins with outputs "
            "around 0: loss and gradients are as large, and an ordinary learning rate diverges or does not move.",
            name=name,
            mean=mean,
            spread=spread,
        )
        options = FrozenMap({**chosen, STANDARDISE_TARGET.name: True})
        cures = (
            Cure(tr("Standardise the target"), (SetData("", "options", options),)),
        )
        yield Problem(
            "warning",
            None,
            tr("The scale of {name} is far from 1", name=name),
            reason,
            cures=cures,
            code="target-scale",
        )
        return


def _mixup(training: TrainingConfig, source: SourceSpec) -> Iterator[Problem]:
    """Report mixup on samples that are token ids."""
    if training.mixup and not source.dtype.startswith(("float", "bfloat")):
        reason = tr(
            "{label} has {dtype}, such as token ids, which cannot be blended.",
            label=source.label,
            dtype=source.dtype,
        )
        cures = _set(tr("Set {name} to {value}", name="mixup", value=0), "mixup", 0.0)
        yield Problem(
            "error",
            None,
            tr("mixup blends samples as numbers"),
            reason,
            cures=cures,
            code="mixup-of-ids",
        )


def _validation(project: Project, source: SourceSpec) -> Iterator[Problem]:
    """Report settings that need a validation loss if there is none, and a fraction that holds out no sample."""
    training, fraction = project.training, project.data.validation_fraction
    none = (
        fraction > 0
        and source.per_class
        and not description.parts(source, project.data)[1]
    )
    if source.own_split or (fraction > 0 and not none):
        return
    reason = tr(
        "No samples are held out for validation: validation_fraction (Training, Data) is 0."
    )
    usual = DataConfig().validation_fraction
    hold_out = Cure(
        tr("Hold out {percent} % for validation", percent=round(100 * usual)),
        (SetData("", "validation_fraction", usual),),
    )
    able = () if none else (hold_out,)
    if none:
        enough = ceil(100 / source.count) / 100  # of at least one sample
        why = trn(
            "validation_fraction={fraction:g} of {count} sample is less than one sample.",
            "validation_fraction={fraction:g} of {count} samples is less than one sample.",
            source.count,
            fraction=fraction,
        )
        cure = Cure(
            tr(
                "Set {name} to {value}", name="validation_fraction", value=f"{enough:g}"
            ),
            (SetData("", "validation_fraction", enough),),
        )
        several = (cure,) if source.count > 1 else ()
        yield Problem(
            "warning",
            None,
            tr("No samples are held out for validation"),
            why,
            cures=several,
            code="no-validation-samples",
        )
    if training.schedule is not None and training.schedule.choice.name == PLATEAU:
        cures = (*able, *_set(tr("Remove the schedule"), "schedule", None))
        yield Problem(
            "warning",
            None,
            tr(
                "{schedule} needs a validation loss, and there is none",
                schedule=PLATEAU,
            ),
            reason,
            cures=cures,
            code="no-validation-samples",
        )
    if training.patience:
        yield Problem(
            "warning",
            None,
            trn(
                "patience={patience} ends the run after {count} epoch",
                "patience={patience} ends the run after {count} epochs",
                training.patience,
                patience=training.patience,
            ),
            reason,
            cures=(
                *able,
                *_set(
                    tr("Set {name} to {value}", name="patience", value=0), "patience", 0
                ),
            ),
            code="no-validation-samples",
        )


def _paths(project: Project, analysis: Analysis) -> Iterator[Problem]:
    """Report layers that the network no longer has, for example after renaming."""
    training = project.training
    if not (training.recompute or training.groups):
        return
    layers = Layers(project, analysis)
    gone = [path for path in training.recompute if not layers.has(path)]
    if gone:
        left = tuple(path for path in training.recompute if path not in gone)
        reason = tr(
            "{names} should be recomputed in backward. Was it renamed or removed?",
            names=", ".join(gone[:6]),
        )
        cures = _set(
            tr("Remove {name}", name=gone[0]) if len(gone) == 1 else tr("Remove them"),
            "recompute",
            left,
        )
        yield Problem(
            "error",
            None,
            tr("recompute names {name}, which the network does not have", name=gone[0]),
            reason,
            cures=cures,
            code="layer-gone",
        )
    lost = [group.path for group in training.groups if not layers.has(group.path)]
    if lost:
        left_groups = tuple(
            group for group in training.groups if group.path not in lost
        )
        reason = tr(
            "Parameter groups name {names}. A layer was renamed or removed.",
            names=", ".join(lost[:6]),
        )
        cures = _set(
            trn("Remove the group", "Remove the groups", len(lost)),
            "groups",
            left_groups,
        )
        yield Problem(
            "warning",
            None,
            tr("The parameter group of {name} is empty", name=lost[0]),
            reason,
            cures=cures,
            code="layer-gone",
        )
