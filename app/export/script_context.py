"""Variables of the `train.py` template: the settings of a job, and values derived from them.

Decisions are made here; `train.py.jinja` has the text. The arithmetic of the script is that of `app.training.loop`,
operation for operation, and the functions that read and split the data are copied verbatim, so the losses of both are
equal bit for bit on the CPU.
"""

from __future__ import annotations

import ast
import inspect
from math import prod
from types import ModuleType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.data import fields, readers, splits, targets, transforms
from app.data.loaders import read_spec
from app.data.sources import options_of
from app.data.spec import CLASSES, TOKENS, VALUES, SourceSpec
from app.data.transform_list import alone, calls, is_random
from app.export.layers import nets_of
from app.export.script_reading import Function, is_streamed, quoted, reading_of
from app.training import launch, multi_output, script_recipes
from app.training.checkpoints import checkpoint, checksums, writer
from app.training.checkpoints.fixed_settings import WAITING, fixed_settings
from app.training.choices import (
    CLASS_IDS,
    CLOSURE,
    LOSSES,
    OF_ONE_OUTPUT,
    OWN_LOSS,
    PLATEAU,
    takes_one_output,
)
from app.training.config import INPUT
from app.training.inputs import fields_of, target_fields
from app.training.job import Job
from app.training.metrics import SCORES, SIGMOID, SOFTMAX, reading
from app.training.objectives import OutputTarget, forms, input_is_target, rows_of
from app.training.registry import loss_call, optimizer_call, schedule_call
from app.training.setup.losses_in_words import losses_in_words
from app.training.setup.weighted_losses import is_weighed, takes_weights
from app.training.surgery import operation, transfer
from app.training.task import ignored_label
from app.util import processors
from tapedeck import devices

# Names of the standard library that the script may use; it imports those that it does use.
_NAMES = {
    "collections.abc": "Callable Collection Iterable Iterator Mapping Sequence",
    "concurrent.futures": "Future ThreadPoolExecutor",
    "contextlib": "nullcontext suppress",
    "functools": "partial",
    "pathlib": "Path",
    "typing": "Any",
}
# What a checkpoint keeps of random numbers.
_GENERATORS: tuple[Function, ...] = (
    devices.accelerator_in_use,
    devices.rng_states,
    devices.set_rng_states,
    checkpoint.generators,
    checkpoint.restore_generators,
)
_MODULES = "copy csv hashlib io os random re signal struct subprocess sys tempfile threading time"


class BatchCode(Struct, frozen=True):
    """The inputs of a batch as expressions.

    `made` computes them from the samples, "" if they are the samples; `inputs` is their name, `fed` the net's input,
    and `target` the loss's target.
    """

    made: str
    inputs: str
    fed: str
    target: str


def context(job: Job, module: str, start_file: str, begin_file: str) -> dict[str, Any]:
    """Return the variables of the template. `start_file` has the start weights, `begin_file` the checkpoint of a job
    that begins with one.

    Raises JobError, DataError or
    ChoiceError.
    """
    training, spec = job.training, read_spec(job.data)
    if job.begin:  # its weights are in the checkpoint
        training = replace(training, start=None)
        job = replace(job, training=training)
    if job.stages:  # its checkpoints would be of several nets
        training = replace(training, save_every=0)
    rows = (
        rows_of(job, spec.known_targets, spec.shape, spec.label)
        if training.losses
        else ()
    )
    batches = _batches(job, spec, rows)
    return {
        "module": module,
        "class_name": f"{job.source.class_name}1"
        if job.stages
        else job.source.class_name,
        "nets": [
            (name, net.class_name, number)
            for number, (name, net) in enumerate(nets_of(job, module), 1)
        ],
        "surgeries": _surgeries(job),
        "recomputed": _recomputed(job),
        "batch_norm": job.source.opened or "BatchNorm" in job.source.text,
        "start_file": start_file,
        "begin_file": begin_file if job.begin else "",
        "settings": fixed_settings(training, job.data),
        "waiting_settings": WAITING,
        "training": training,
        "threads": training.threads or processors.usual_threads(),
        "data": job.data,
        "spec": spec,
        "keeps": (training.save_every > 0 or bool(job.begin)) and not job.stages,
        "sparse": _may_be_sparse(job),
        "closure": training.optimizer.name == CLOSURE,
        "waits": training.accumulate > 1 and training.optimizer.name != CLOSURE,
        "plateau": training.schedule is not None
        and training.schedule.choice.name == PLATEAU,
        "scaled": training.amp == "float16",
        "skips": training.not_finite == "skip" or bool(training.leave_out),
        "skips_not_finite": training.not_finite == "skip",
        "validated": "model" if training.ema is None else "average.module",
        "tells": bool(training.metrics or training.losses),
        "loss": "" if rows else loss_call(training.loss),
        "loss_in_words": losses_in_words(training, job.source, spec.known_targets[0]),
        "optimizer": optimizer_call(training.optimizer, _parameters(job)),
        "schedule": schedule_call(training.schedule)
        if training.schedule is not None
        else "",
        "carried": _carried(job, spec, batches["single"]),
        "launching": (launch.on_loopback, launch.launch),
        "keeping": (
            *_GENERATORS,
            writer.copied,
            checksums.checksums,
            script_recipes.scale_schedule,
            script_recipes.options_of,
            script_recipes.take_options,
        ),
        "checkpoint_version": checkpoint.VERSION,
        **_data(job, spec),
        **batches,
        **_losses(job, spec, rows),
        **_metrics(job),
    }


def _data(job: Job, spec: SourceSpec) -> dict[str, Any]:
    """Return the variables for reading and splitting samples."""
    reading = reading_of(job, spec)
    transformed = job.data.train_transforms or job.data.eval_transforms
    needs = reading.needs
    if transformed and "torchvision" not in needs:
        needs = f"{needs.replace(' and ', ', ')} and torchvision"
    first = _labels(spec, spec.targets[0].name if spec.targets else "")
    return {
        "reading": reading,
        "needs": needs + ", and torchmetrics" * bool(job.training.metrics),
        "samples_in_words": _sample_text(spec),
        "held": "Streamed"
        if is_streamed(spec, job.data)
        else "Fields"
        if spec.inputs
        else "Tensor",
        "labels": "Fields" if spec.targets else "Tensor",
        "streamed": is_streamed(spec, job.data),
        "in_order": _in_order(spec),
        "standardise": options_of(job.data).get("standardise", False),
        "standardise_target": _standardises_target(job, spec),
        "units": _in_units(job, spec),
        "first_target": _labels(spec, _first_target(job, spec)),
        "split_by": first if spec.task == CLASSES else "torch.zeros(len(labels))",
        "train_transforms": calls(job.data.train_transforms),
        "eval_transforms": calls(job.data.eval_transforms),
    }


def _sample_text(spec: SourceSpec) -> str:
    """Describe the shapes of samples and targets."""
    shape = _shape_text(spec.shape)
    if spec.inputs:
        shape = ", ".join(
            f"{field.name} {_shape_text(field.shape)}" for field in spec.inputs
        )
    sizes = "".join(f", {size}" for size in spec.label_shape) or ","
    noun, dtype = (
        ("values to predict", "") if spec.task == VALUES else ("class ids", " int64")
    )
    return f"samples {shape} and {noun} (N{sizes}){dtype}"


def _shape_text(shape: tuple[int, ...]) -> str:
    return f"(N, {', '.join(map(str, shape))})" if shape else "(N,)"


def _in_order(spec: SourceSpec) -> bool:
    """Return whether the split is in order: the first samples for training, the last held out."""
    return spec.key == "file.text" or bool(spec.arguments.get("in_order"))


def _labels(spec: SourceSpec, target: str, of: str = "labels") -> str:
    """Return the expression for the labels of a target; a single target needs no name."""
    return f"{of}[{quoted(target)}]" if spec.targets else of


def _batches(
    job: Job, spec: SourceSpec, rows: tuple[OutputTarget, ...]
) -> dict[str, Any]:
    """Return the variables for a batch. Measurements are those of the first loss, if there are several."""
    training, chief = job.training, _chief(spec, rows[0]) if rows else spec
    has_ids = LOSSES.get(training.loss.name) == CLASS_IDS
    one_hot = not rows and chief.task != VALUES and not has_ids
    answer = (
        f"named(output, FORMS)[{quoted(rows[0].given.output)}]" if rows else "output"
    )
    loss = (training.losses[0].loss if rows else training.loss).name
    single = chief.task == CLASSES and takes_one_output(loss, len(chief.classes))
    if single:
        answer = f"class_scores({answer}, {OF_ONE_OUTPUT[loss]})"
    label = _labels(spec, rows[0].target, "labels[batch]") if rows else "labels[batch]"
    axis = {CLASSES: "1", TOKENS: "-1", VALUES: ""}[chief.task]
    ignore = ignored_label(
        training.losses[0].loss if rows else training.loss, chief.task
    )
    right = f"({answer}.argmax({axis}) == {label})"
    if ignore is not None and ignore >= 0:
        right = f"({right} & ({label} != {ignore}))"

    def batch(prepared: str, mixup: bool = False) -> BatchCode:
        inputs, target = "inputs" if prepared else "samples[batch]", "labels[batch]"
        if one_hot and single:
            target = f"float_targets({target}, 2, output)"
        elif one_hot:
            target = f"F.one_hot({target}, {len(chief.classes)}).float()"
        elif input_is_target(training):
            target = f'with_input({target}, "{INPUT}", {inputs})'
        fed = "mixture" if mixup else inputs
        tensors = {"": (fed, spec.shape)}
        tensors |= {
            name: (_labels(spec, name, "labels[batch]"), field.shape)
            for name, field in target_fields(spec).items()
        }
        tensors |= {
            field.name: (f"{fed}[{quoted(field.name)}]", field.shape)
            for field in spec.inputs
        }
        arguments = [tensors[name] for name in given_fields or ("",)]
        last = (
            ".contiguous(memory_format=torch.channels_last)"
            if training.channels_last
            else ""
        )
        fed = ", ".join(
            code + (last if len(shape) == 3 else "") for code, shape in arguments
        )
        return BatchCode(prepared, inputs, fed, target)

    given_fields = fields_of(job.source, training.inputs, spec)
    stored = "as_floats(samples[batch])" if spec.as_bytes else "samples[batch]"
    learnt = evaluated = stored if spec.as_bytes or given_fields else ""
    if is_random(job.data.train_transforms):
        learnt = f"augmented({stored}, TRAINING, {alone(job.data.train_transforms)!r})"
    elif job.data.train_transforms:
        learnt = f"TRAINING({stored})"
    if job.data.eval_transforms:
        evaluated = f"EVALUATION({stored})"
    return {
        "chief": chief,
        "tokens": chief.task == TOKENS,
        "one_hot": one_hot,
        "single": single,
        "learnt": batch(learnt, training.mixup > 0),
        "seen": batch(evaluated),
        "output": "output.movedim(-1, 1)"
        if chief.task == TOKENS and has_ids and not rows
        else "output",
        "answer": answer,
        "known": label,
        "correct": f"{right}.sum()" if axis else "",
        "ignore": ignore,
        "ignores": ignore is not None,
        "each_label": f" * {prod(chief.label_shape)}" if chief.task == TOKENS else "",
    }


def _chief(spec: SourceSpec, row: OutputTarget) -> SourceSpec:
    """Return the source's metadata for the target of one loss."""
    target = next(
        (info for info in spec.known_targets if info.name == row.target), None
    )
    if target is None:  # the input itself
        return replace(spec, task=row.task.kind, classes=(), label_shape=spec.shape)
    return replace(
        spec, task=row.task.kind, classes=target.classes, label_shape=target.label_shape
    )


def _losses(
    job: Job, spec: SourceSpec, rows: tuple[OutputTarget, ...]
) -> dict[str, Any]:
    """Return the variables for losses, class weights, and each process's share of the batch."""
    balanced, portions = [], []
    if job.data.class_weights and not rows:
        balanced = [("loss_function", "labels", len(spec.classes))]
    for number, row in enumerate(rows):
        loss, output = f"loss_function.losses[{number}]", row.given.output
        if job.data.class_weights and takes_weights(row.given.loss):
            balanced.append((loss, _labels(spec, row.target), row.task.classes))
        if row.given.loss.params.get("reduction") == "sum":
            portions.append((output, "len(every) / len(batch)"))
        elif is_weighed(row.given.loss, job.data.class_weights):
            portions.append(
                (
                    output,
                    f"outweighs({_labels(spec, row.target)}, {loss}.weight, batch, every)",
                )
            )
    return {
        "rows": [(row, _flat(loss_call(row.given.loss))) for row in rows],
        "forms": list(forms(job.source)),
        "balanced": balanced,
        "weighed": not rows and is_weighed(job.training.loss, job.data.class_weights),
        "summed": not rows and job.training.loss.params.get("reduction") == "sum",
        "portions": portions,
        "outweighs": any("outweighs" in portion for _, portion in portions),
    }


def _flat(text: str) -> str:
    """Join a call to one line."""
    return (
        " ".join(text.split()).replace("( ", "(").replace(", )", ")").replace(",)", ")")
    )


def _metrics(job: Job) -> dict[str, Any]:
    """Return the classes of torchmetrics, and how the output is converted to probabilities."""
    training = job.training
    chosen = [SCORES[name] for name in training.metrics]
    modules: dict[str, set[str]] = {"torchmetrics": {"Metric"}} if chosen else {}
    for score in chosen:
        modules.setdefault(score.module, set()).add(score.metric)
    loss = training.losses[0].loss.name if training.losses else training.loss.name
    return {
        "metric_classes": [
            (module, ", ".join(sorted(names)))
            for module, names in sorted(modules.items())
        ],
        "scores": [(score.name, score.call("classes")) for score in chosen],
        "scores_by_class": any(score.by_class for score in chosen),
        "quiet": repr(
            min((score.quiet for score in chosen), key=len, default={})
        ).replace("'", '"'),
        "computed": script_recipes.computed,
        "probabilities": {SOFTMAX: ".softmax(1)", SIGMOID: ".sigmoid()"}.get(
            reading(loss), ""
        ),
    }


def _parameters(job: Job) -> str:
    """Return the expression for the optimizer's parameters."""
    if not _grouped(job):
        return "model.parameters()"
    options = {group.path: dict(group.options) for group in job.training.groups}
    return f"list(parameter_groups(model, {options!r}, {job.training.no_decay!r}).values())"


def _grouped(job: Job) -> bool:
    return bool(job.training.groups) or job.training.no_decay


def _carried(job: Job, spec: SourceSpec, single: bool) -> list[Function]:
    """List the functions and classes of this program that the script contains verbatim; `single` if the main loss may
    take one output a sample."""
    data, training, own_split = (
        job.data,
        job.training,
        spec.own_split and not job.data.test_fraction,
    )
    more: list[tuple[Function, Any]] = [
        (splits.split_in_order, _in_order(spec)),
        (splits.stratified_split, not _in_order(spec) and not own_split),
        (readers.as_floats, spec.as_bytes),
        (transforms.augmented, is_random(data.train_transforms)),
        (splits.column_scale, _standardises(job)),
        (splits.standardised, _standardises(job)),
        (script_recipes.in_units, _in_units(job, spec)),
        (splits.balanced_weights, data.class_weights),
        (fields.Fields, spec.targets or spec.inputs or input_is_target(training)),
        (targets.with_input, input_is_target(training)),
        (multi_output.named, training.losses),
        (script_recipes.class_scores, single),
        (script_recipes.float_targets, single or training.losses),
        (script_recipes.mixed_loss, training.losses),
        (
            script_recipes.OwnLoss,
            any(row.loss.name == OWN_LOSS for row in training.losses),
        ),
        (multi_output.SeveralLosses, training.losses),
        (script_recipes.parameter_groups, _grouped(job) or job.stages),
        (script_recipes.recompute, _recomputed(job)),
        (script_recipes.save_on_cpu, training.save_on_cpu),
        (script_recipes._saving_on_cpu, training.save_on_cpu),
        (
            script_recipes.clippable,
            _may_be_sparse(job) and (training.clip_value or training.clip_norm),
        ),
        (script_recipes.mixed, training.mixup),
        (script_recipes.mixed_loss, training.mixup and not training.losses),
    ]
    carried = [
        *reading_of(job, spec).functions,
        *(function for function, needed in more if needed),
    ]
    if job.stages:
        carried += [
            *_GENERATORS,
            *_defined_in(transfer),
        ]
        carried += [
            operation.surgery_seed,
            operation.Edited,
            operation.groups_of,
            operation.regroup,
        ]
    return carried


def _standardises(job: Job) -> bool:
    options = options_of(job.data)
    return bool(options.get("standardise") or options.get("standardise_target"))


def _standardises_target(job: Job, spec: SourceSpec) -> bool:
    values = any(target.task == VALUES for target in spec.known_targets)
    return values and bool(options_of(job.data).get("standardise_target"))


def _first_target(job: Job, spec: SourceSpec) -> str:
    """Return the name of the target that metrics are measured on."""
    chosen = job.training.losses[0].target if job.training.losses else ""
    return (
        chosen
        if any(chosen == target.name for target in spec.known_targets)
        else spec.known_targets[0].name
    )


def _in_units(job: Job, spec: SourceSpec) -> bool:
    """Return whether metrics convert a standardised target to the units of the data."""
    first = next(
        target
        for target in spec.known_targets
        if target.name == _first_target(job, spec)
    )
    predicts_input = (
        bool(job.training.losses) and job.training.losses[0].target == INPUT
    )
    return (
        bool(job.training.metrics)
        and first.task == VALUES
        and not predicts_input
        and _standardises_target(job, spec)
    )


def _may_be_sparse(job: Job) -> bool:
    """Return whether a parameter may have a sparse gradient, as of `nn.Embedding(..., sparse=True)`."""
    return any(
        stage.source.opened or "sparse=True" in stage.source.text
        for stage in _stages(job)
    )


def _recomputed(job: Job) -> bool:
    return any(stage.training.recompute for stage in _stages(job))


def _defined_in(module: ModuleType) -> list[Function]:
    """List the functions and classes of a module in the order of its text."""
    members = (
        member
        for member in vars(module).values()
        if inspect.isfunction(member) or inspect.isclass(member)
    )
    return [
        definition for definition in members if definition.__module__ == module.__name__
    ]


def _stages(job: Job) -> list[Job]:
    """List the job as it is in each stage."""
    return [job.at_stage(number) for number in range(1, len(job.stages) + 2)]


class SurgeryCode(Struct, frozen=True):
    """A surgery in the script: its number, the class of the edited net, and its moves as literals.

    `before` and `after` are the options of parameter groups by path.
    """

    number: int
    step: int
    net: str
    text: str
    moves: tuple[tuple[str, Any], ...]
    before: dict[str, dict[str, Any]]
    after: dict[str, dict[str, Any]]
    recompute: tuple[str, ...]


def _surgeries(job: Job) -> list[SurgeryCode]:
    stages, surgeries = _stages(job), []
    for number, stage in enumerate(job.stages, 1):
        surgery, training = stage.surgery, stages[number - 1].training
        moves = (
            ("layers", surgery.layers),
            ("starts", surgery.starts),
            ("segments", surgery.segments),
        )
        before, after = (
            {param_group.path: dict(param_group.options) for param_group in groups}
            for groups in (training.groups, surgery.groups)
        )
        name = f"{surgery.source.class_name}{number + 1}"
        surgeries.append(
            SurgeryCode(
                number,
                stage.step,
                name,
                surgery.description,
                moves,
                before,
                after,
                tuple(surgery.recompute),
            )
        )
    return surgeries


def imports_of(text: str) -> list[str]:
    """List the standard-library imports that a script needs, from the names that it uses.

    >>> imports_of("def f(x: Any) -> Path: return Path(os.getcwd())")
    ['import os', 'from pathlib import Path', 'from typing import Any']
    """
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    plain = [f"import {name}" for name in _MODULES.split() if name in used]
    names_by_module = {
        module: [name for name in names.split() if name in used]
        for module, names in _NAMES.items()
    }
    return plain + [
        f"from {module} import {', '.join(names)}"
        for module, names in names_by_module.items()
        if names
    ]
