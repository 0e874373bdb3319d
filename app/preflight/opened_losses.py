"""The loss that an opened model is trained on: its own first, then what was chosen, then what fits its data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from app.builder.diagnostics.problems import Cure, Problem, SetTraining
from app.data.spec import CLASSES, VALUES, FieldInfo, SourceSpec, TargetInfo
from app.preflight import multi_output
from app.project.project import Project
from app.source.interface import LABELS, Argument, Returned
from app.sources.opened import OpenedModel
from app.training.choices import (
    CLASS_IDS,
    LOSSES,
    OF_LOGITS,
    OF_ONE_OUTPUT,
    OWN_LOSS,
    takes_one_output,
)
from app.training.config import (
    BY_DATA,
    BY_MODEL,
    INPUT,
    TARGET,
    Choice,
    OutputLoss,
    TrainingConfig,
)
from app.training.inputs import target_fields
from app.training.setup.losses_in_words import takes, usual_loss
from app.util.formatting import shape_text
from app.util.language import marked, tr, trn

# --- How an output of an opened model is laid out for its loss, as its shape in one call tells

Shape = tuple[int, ...]


class Layout(Struct, frozen=True):
    """`code` follows the output in an expression that is laid out as the loss takes it, "" if it is so already.

    `misfit` is a sentence about why it cannot be, `exact` says that each number has its counterpart in the target.
    """

    code: str = ""
    misfit: str = ""
    exact: bool = False


def layout_of(
    output: Returned,
    target: TargetInfo,
    loss: Choice,
    called: Argument | None,
    field: Shape,
) -> Layout:
    """Compare an output with its target; `called` is the argument that got samples of the shape `field` in that call.

    Where they had another shape, sizes that follow from them are not compared.
    """
    sample_shape = called.shape[1:] if called is not None and called.dtype else field
    ids = LOSSES.get(loss.name) == CLASS_IDS
    if target.task == VALUES:
        if (
            target.name == INPUT and sample_shape != field
        ):  # what comes out follows what goes in, or is flat
            fits = _of_values(output, sample_shape, True)
            return fits if fits.misfit else Layout(_reshaped(field), exact=True)
        return _of_values(output, target.label_shape, sample_shape == field)
    if target.task == CLASSES:
        return _of_classes(output, len(target.classes), loss.name)
    return _of_places(output, target, sample_shape, field, ids)


def _of_values(output: Returned, target_shape: Shape, certain: bool) -> Layout:
    have = output.shape[1:]
    if have == target_shape:
        return Layout(exact=True)
    plain = [
        tuple(size for size in shape if size != 1) for shape in (have, target_shape)
    ]
    flat = 1 in (len(have), len(target_shape)) and prod(have) == prod(target_shape)
    if plain[0] == plain[1] or flat:
        return Layout(_reshaped(target_shape), exact=True)
    if not certain:
        return Layout()
    reason = tr(
        "{name} is {shape}, and its target {target}: the loss compares them number by number.",
        name=output.name,
        shape=_text(have),
        target=_text(target_shape),
    )
    if len(have) == len(target_shape) and have[:-1] == target_shape[:-1]:
        reason += trn(
            " Give the last layer {count} output (out_features={size}).",
            " Give the last layer {count} outputs (out_features={size}).",
            target_shape[-1],
            size=target_shape[-1],
        )
    return Layout(misfit=reason)


def _reshaped(label: Shape) -> str:
    return f".reshape(-1, {', '.join(map(str, label))})" if label else ".flatten()"


def _of_classes(output: Returned, classes: int, loss: str) -> Layout:
    have, ids = output.shape[1:], LOSSES.get(loss) == CLASS_IDS
    if prod(have) == 1 and takes_one_output(loss, classes):
        return Layout("" if have == (1,) else ".flatten()", exact=True)
    plain = tuple(size for size in have if size != 1) or have[:1]
    enough = len(plain) == 1 and (plain[0] >= classes if ids else plain[0] == classes)
    if enough:
        return Layout(".flatten(1)" if len(have) > 1 else "", exact=plain[0] == classes)
    reason = tr(
        "{name} is {shape}, and the loss expects one value for each of {classes} classes.",
        name=output.name,
        shape=_text(have),
        classes=classes,
    )
    if len(have) == 1:
        reason += trn(
            " Give the last layer {count} output (out_features={size}).",
            " Give the last layer {count} outputs (out_features={size}).",
            classes,
            size=classes,
        )
    if classes == 2 and prod(have) == 1:
        reason += tr(
            " Or choose {loss}, which takes one value of two classes.",
            loss=OF_LOGITS,
        )
    return Layout(misfit=reason)


def _of_places(
    output: Returned, target: TargetInfo, sample_shape: Shape, field: Shape, ids: bool
) -> Layout:
    """Return the layout of an output with a value of each class for each place of a target, such as of each token."""
    have, classes, rank = output.shape[1:], len(target.classes), len(target.label_shape)
    follows = target.label_shape == field[-rank:]
    positions = sample_shape[-rank:] if follows else target.label_shape
    if not follows and sample_shape != field:
        return Layout()

    def enough(count: int) -> bool:
        return count >= classes if ids else count == classes

    last = len(have) == rank + 1 and have[:-1] == positions and enough(have[-1])
    second = len(have) == rank + 1 and have[1:] == positions and enough(have[0])
    if last and second:
        return Layout(
            misfit=tr(
                "{name} is {shape}: either axis may be that of the {classes:,} classes. Open the model with an "
                "example of another length (--input).",
                name=output.name,
                shape=_text(have),
                classes=classes,
            )
        )
    if last or second:
        return Layout("" if last else ".movedim(1, -1)", exact=True)
    if (
        len(have) == 1 and output.shape[0] % prod(positions) == 0 and enough(have[0])
    ):  # (N·T, classes)
        return Layout(
            f".unflatten(0, (-1, {', '.join(map(str, target.label_shape))}))",
            exact=True,
        )
    reason = tr(
        "{name} is {shape}, and the loss expects a value of each class for each of the {places} places of a sample.",
        name=output.name,
        shape=_text(have),
        places=shape_text(positions),
    )
    if have[:-1] == positions or have[1:] == positions:
        text = marked(
            "{name} is {shape}, and the loss expects a value of each class for each of the {places} places of a "
            "sample: there are {classes:,} classes in the data, and it has {size:,}. Give the last layer {classes:,} "
            "outputs."
        )
        if ids:
            text = marked(
                "{name} is {shape}, and the loss expects a value of each class for each of the {places} places of a "
                "sample: there are {classes:,} classes in the data, and it has {size:,}. Give the last layer "
                "{classes:,} outputs or more."
            )
        reason = tr(
            text,
            name=output.name,
            shape=_text(have),
            places=shape_text(positions),
            classes=classes,
            size=have[-1] if have[:-1] == positions else have[0],
        )
    return Layout(misfit=reason)


def _text(shape: Shape) -> str:
    return shape_text(("N", *shape))


MOST = 12  # outputs for which a loss is suggested
_SHIFTS = (
    "CausalLM",
    "LMHeadModel",
)  # classes whose own loss compares each place with the next label


_CASTS = {
    "float16": ".half()",
    "bfloat16": ".bfloat16()",
    "float32": ".float()",
    "float64": ".double()",
}


# --- The rule


def with_own_losses(project: Project) -> Project:
    """Return a project that trains on the losses that its model computes itself, if it does and no losses are set."""
    opened, training = project.opened, project.training
    assert opened is not None
    chosen = training.loss.name == OWN_LOSS
    model_losses = opened.interface.own_losses if chosen else own_losses(opened)
    if training.losses or not model_losses:
        return project
    loss = TrainingConfig().loss if chosen else training.loss
    rows = tuple(
        OutputLoss(returned.name, Choice(OWN_LOSS)) for returned in model_losses
    )
    training = replace(
        training, losses=rows, loss=loss, loss_by="" if chosen else BY_MODEL
    )
    return replace(project, training=training)


def with_fitting_loss(project: Project, source: SourceSpec, chosen: bool) -> Project:
    """Return a project whose loss fits data that are read, if no losses are set: with what is `chosen`, the settings'
    loss, against the target or the input; else the usual loss of the target, or of the input where the output has its
    shape and not that of the target."""
    opened, training = project.opened, project.training
    assert opened is not None
    output = opened.interface.chief
    if training.losses or output is None or len(source.known_targets) > 1:
        return project
    target, fits = source.known_targets[0], dict[str, Layout]()
    again = _input_target(source)
    for candidate in (target, *again):
        loss = (
            training.loss if chosen else usual_loss(candidate, prod(output.shape[1:]))
        )
        fits[candidate.name] = (
            _layout(project, source, output, candidate, loss)
            if takes(loss, candidate)
            else Layout(misfit=" ")
        )
    if again and fits[INPUT].exact and not fits[target.name].exact:
        loss = training.loss if chosen else usual_loss(again[0])
        rows = (OutputLoss(output.name, loss, 1.0, INPUT),)
        return replace(
            project,
            training=replace(training, losses=rows, loss_by="" if chosen else BY_DATA),
        )
    if chosen:
        return project
    loss = usual_loss(target, prod(output.shape[1:]))
    return replace(project, training=replace(training, loss=loss, loss_by=BY_DATA))


def own_losses(opened: OpenedModel) -> tuple[Returned, ...]:
    """Return the losses that a model computes itself and that can be had: one that was None needs a target."""
    losses = opened.interface.own_losses
    if opened.interface.model.endswith(_SHIFTS):
        return ()
    return (
        losses
        if label_of(opened) is not None or all(loss.dtype for loss in losses)
        else ()
    )


def label_of(opened: OpenedModel) -> Argument | None:
    """Return the argument of forward, or the tensor in one, that is for the target of a batch, by its name."""
    return next(
        (
            argument
            for argument in opened.interface.takes
            if argument.name in LABELS
            and not argument.way.startswith("[*]")  # of each sample, such as its boxes
            and not argument.other
        ),
        None,
    )


def with_target_passed(project: Project, source: SourceSpec | None = None) -> Project:
    """Return a project that passes the target to the argument of forward that is for it, if the model needs it: without
    a default, or for its own loss."""
    opened, training = project.opened, project.training
    assert opened is not None
    label = label_of(opened)
    loss_rows = [row for row in training.losses if row.loss.name == OWN_LOSS]
    if (
        label is None
        or label.name in training.inputs
        or not (label.needed or (loss_rows and _asks(opened, label)))
    ):
        return project
    targets = target_fields(source) if source is not None else {TARGET: None}
    if source is not None and label.name in {info.name for info in source.inputs}:
        return project
    field = label.name if label.name in targets else next(iter(targets), "")
    if len(targets) > 1 and field != label.name:
        return project
    return replace(
        project,
        training=replace(training, inputs=training.inputs.set(label.name, field)),
    )


def _asks(opened: OpenedModel, label: Argument) -> bool:
    """Return whether the model got a target in the call that showed its loss, or would have needed one."""
    return bool(label.dtype) or not all(
        loss.dtype for loss in opened.interface.own_losses
    )


def conversions(
    opened: OpenedModel, fields: Mapping[str, FieldInfo], source: SourceSpec
) -> dict[str, str]:
    """Return the code that makes the floats that an argument got in its call: of numbers in another precision, and of
    labels of two classes. The field of each argument is in `fields`."""
    two_classes = {
        target.name or TARGET
        for target in source.known_targets
        if target.task == CLASSES and len(target.classes) == 2
    }
    by_argument = {}
    for argument in opened.given:
        field = fields.get(argument.name)
        if field is None or argument.dtype not in _CASTS:
            continue
        cast = _CASTS[argument.dtype]
        if field.dtype in _CASTS:
            if field.dtype != argument.dtype:
                by_argument[argument.name] = cast
        elif field.name in two_classes and prod(argument.shape[1:]) == 1:
            column = ".reshape(-1, 1)" if argument.shape[1:] else ""
            by_argument[argument.name] = cast + column
    return by_argument


# --- Layouts


def _input_target(source: SourceSpec) -> tuple[TargetInfo, ...]:
    """Return the input as a target, of data with one input of numbers."""
    able = not source.inputs and source.dtype.startswith("float")
    return (TargetInfo(INPUT, VALUES, (), source.shape),) * able


def layouts(project: Project, source: SourceSpec) -> dict[str, Layout]:
    """Return how each output that a loss compares with a target is laid out for it."""
    opened = project.opened
    assert opened is not None
    returned = {output.name: output for output in opened.interface.returns}
    chief, rows = opened.interface.chief, project.training.losses
    if not rows and chief is not None and len(source.known_targets) == 1:
        rows = (OutputLoss(chief.name, project.training.loss),)
    targets = {
        target_info.name: target_info
        for target_info in (*source.known_targets, *_input_target(source))
    }
    by_output = {}
    for row in rows:
        target = targets.get(row.target) or (
            source.known_targets[0] if not row.target else None
        )
        uses_model_loss = row.loss.name == OWN_LOSS
        if (
            not uses_model_loss
            and row.output in returned
            and target is not None
            and takes(row.loss, target)
        ):
            by_output[row.output] = _layout(
                project, source, returned[row.output], target, row.loss
            )
    return by_output


def _layout(
    project: Project,
    source: SourceSpec,
    output: Returned,
    target: TargetInfo,
    loss: Choice,
) -> Layout:
    opened = project.opened
    assert opened is not None
    called = next(
        (
            argument
            for argument in opened.given
            if argument.name not in LABELS and not argument.way
        ),
        None,
    )
    return layout_of(output, target, loss, called, source.shape)


# --- What is proposed, and what is wrong


def suggested(project: Project, source: SourceSpec) -> tuple[OutputLoss, ...]:
    """Suggest a loss for each output that could have one: the model's own losses first, then the main output, then
    others that have the batch first."""
    opened = project.opened
    assert opened is not None
    chief, target = opened.interface.chief, source.known_targets[0]
    rows = [
        OutputLoss(model_loss.name, Choice(OWN_LOSS), 1.0, target.name)
        for model_loss in opened.interface.own_losses
    ]
    covered = {row.output for row in rows}
    for output in opened.interface.returns:
        if output.is_float and output.shape and output.name not in covered:
            loss = multi_output.usual_loss(
                target, project.training.loss, prod(output.shape[1:])
            )
            rows.append(OutputLoss(output.name, loss, 1.0, target.name))
    ranks = {**dict.fromkeys(covered, 0), chief.name if chief is not None else "": 1}
    return tuple(sorted(rows, key=lambda row: ranks.get(row.output, 2)))[:MOST]


def measured(project: Project, source: SourceSpec) -> OutputLoss | None:
    """Return the main output as one to be measured beside a loss of the model's own, with the weight 0, if it has a
    value for each class of a target."""
    assert project.opened is not None
    chief, target = project.opened.interface.chief, source.known_targets[0]
    if chief is None or target.task != CLASSES:
        return None
    loss = multi_output.usual_loss(target, project.training.loss, prod(chief.shape[1:]))
    if chief.shape[1:] != (len(target.classes),) and loss.name not in OF_ONE_OUTPUT:
        return None
    return OutputLoss(chief.name, loss, 0.0, target.name)


def problems(project: Project, source: SourceSpec) -> Iterator[Problem]:
    """Report losses that the model does not compute, and outputs that do not fit their targets."""
    opened, training = project.opened, project.training
    assert opened is not None
    model_losses = {
        model_loss.name: model_loss for model_loss in opened.interface.own_losses
    }
    if training.loss.name == OWN_LOSS and not training.losses:
        reason = tr(
            "It returns no number that depends on its weights. Choose a loss for an output (Training, Loss)."
        )
        yield Problem(
            "error",
            None,
            tr("The model computes no loss of its own"),
            reason,
            code="no-own-loss",
        )
    targets = target_fields(source)
    passed, label = (
        any(field in targets for field in training.inputs.values()),
        label_of(opened),
    )
    for row in training.losses:
        loss = model_losses.get(row.output) if row.loss.name == OWN_LOSS else None
        if loss is not None and loss.shape:
            reason = tr(
                "It returned {shape} numbers. Return their mean.",
                shape="×".join(map(str, loss.shape)),
            )
            yield Problem(
                "error",
                None,
                tr(
                    "The model's own loss, {output}, must be one number",
                    output=row.output,
                ),
                reason,
                code="own-loss-not-one-number",
            )
        elif (
            loss is not None
            and not passed
            and (not loss.dtype or (label is not None and _asks(opened, label)))
        ):
            yield _without_target(project, row)
    for name, layout in layouts(project, source).items():
        if layout.misfit:
            yield Problem(
                "error",
                None,
                tr("{name} does not fit its loss", name=name),
                layout.misfit,
                cures=_cures(project, source),
                code="loss-does-not-fit",
            )


def _without_target(project: Project, row: OutputLoss) -> Problem:
    """Return the problem of a loss that the model computes from a target alone, which it does not get."""
    assert project.opened is not None
    label = label_of(project.opened)
    cures: tuple[Cure, ...] = ()
    if label is not None:
        inputs = project.training.inputs.set(label.name, TARGET)
        cures = (
            Cure(
                tr("Pass it as {name}", name=label.name),
                (SetTraining("", "inputs", inputs),),
            ),
        )
    reason = tr(
        "The model computes {output} from its target: choose it for an argument (Training, Data).",
        output=row.output,
    )
    return Problem(
        "error",
        None,
        tr("The model does not receive the target"),
        reason,
        cures=cures,
        code="target-not-passed",
    )


def _cures(project: Project, source: SourceSpec) -> tuple[Cure, ...]:
    """Offer the loss of the rule in place of one that does not fit."""
    plain = replace(
        project,
        training=replace(project.training, losses=(), loss=TrainingConfig().loss),
    )
    fitting = with_fitting_loss(plain, source, chosen=False)
    if any(layout.misfit for layout in layouts(fitting, source).values()):
        return ()
    if fitting.training.losses:
        return (
            Cure(
                tr("Compare with the input"),
                (SetTraining("", "losses", fitting.training.losses),),
            ),
        )
    edits = (
        SetTraining("", "losses", ()),
        SetTraining("", "loss", fitting.training.loss),
    )
    return (
        (Cure(tr("Use {name}", name=fitting.training.loss.name), edits),)
        if fitting.training != project.training
        else ()
    )
