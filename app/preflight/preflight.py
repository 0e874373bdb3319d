"""Preflight checks: whether network, data and loss match, before a run starts.

Combines the net's shapes, the data's shapes and the loss's requirements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import Catalog, catalog
from app.builder.diagnostics.problems import (
    Cure,
    Problem,
    SetData,
    SetParam,
    SetTraining,
    Thaw,
)
from app.builder.diagnostics.training_checks import loss_problems as misfits
from app.builder.diagnostics.training_checks import training
from app.builder.graph import Graph, Node
from app.builder.literals import DType
from app.builder.value_types import Dim, TensorType
from app.data.sample_counts import training_count
from app.data.sources import DataError, SourceSpec, spec_of
from app.data.spec import CLASSES, TOKENS, VALUES, FieldInfo
from app.preflight import multi_output, opened, synthetic_data
from app.preflight.cpu_threads import for_net
from app.preflight.setting_checks import problems as knob_problems
from app.project.project import Project
from app.project.weights.model_buffers import lost_buffers
from app.training.choices import CLASS_IDS, LOSSES, OF_LOGITS, OPTIMIZERS, OWN_LOSS
from app.training.config import Choice
from app.training.inputs import InputError, chosen_fields
from app.training.job import Job, JobError, check_data
from app.training.setup import weighted_losses
from app.training.setup.losses_in_words import takes, usual_loss
from app.util.formatting import shape_text
from app.util.language import marked, tr, trn

UNREAD = marked("The data have not been read yet")

if TYPE_CHECKING:
    from app.builder.results import Analysis


def problems(
    project: Project, analysis: Analysis, started: tuple[Problem, ...] = ()
) -> tuple[Problem, ...]:
    """Report what prevents a valid network from training on the project's data.

    `started` are the problems of the start weights, `start_weights.problems`.
    """
    try:
        check_data(project.data)
        source = spec_of(project.data)
    except (JobError, DataError) as error:
        return (
            Problem(
                "error",
                None,
                tr("The data cannot be used"),
                str(error),
                code="data-unusable",
            ),
        )
    if not source.is_read:
        return (
            Problem(
                "error",
                None,
                tr(UNREAD),
                tr("They are read under Training, Data, and by the command line."),
                code="data-unread",
            ),
        )
    if project.opened is not None:
        samples = training_count(project.data)
        return (
            *_choices(project),
            *_data(project, source),
            *opened.problems(project, source),
            *opened.single_samples(project, _batched_count(project)),
            *knob_problems(project, analysis, samples, source),
            *started,
        )
    return (
        *_choices(project),
        *_data(project, source),
        *_ends(project, analysis, source),
        *_learning(project.graph, analysis),
        *_training(project, analysis),
        *knob_problems(project, analysis, training_count(project.data), source),
        *started,
        *(lost_buffers(project, analysis.source) if analysis.runnable else ()),
    )


class Fit(Struct, frozen=True):
    """Shapes of the data and of the network, the problems between them, and their fixes."""

    data: str
    net: str
    problems: tuple[Problem, ...]


def fit(project: Project, analysis: Analysis) -> Fit | None:
    """Compare data and network; None while either is unknown."""
    try:
        source = spec_of(project.data)
    except DataError:
        return None
    if project.opened is not None:
        return (
            Fit(*opened.fit(project, source), tuple(opened.problems(project, source)))
            if source.is_read
            else None
        )
    inputs = input_nodes(project, analysis)
    if not source.is_read or not inputs:
        return None
    provided = [(field.name, field.shape, field.dtype) for field in source.inputs] or [
        ("", source.shape, source.dtype)
    ]
    gives = ", ".join(
        f"{name} {shape_text(('N', *shape))} {dtype}".strip()
        for name, shape, dtype in provided
    )
    kind = analysis.output_type()
    loss, target = project.training.loss.name, source.known_targets[0]
    single = kind is not None and multi_output.compares_one_output(loss, target, kind)
    labels = shape_text(("N", *((1,) if single else wanted_output(source))))
    descriptions = {
        CLASSES: tr("one value for two classes")
        if single
        else tr("one value per class"),
        VALUES: tr("the values to predict"),
        TOKENS: tr("one value per token"),
    }
    wants = tr(
        "the loss expects {labels}: {meaning}",
        labels=labels,
        meaning=descriptions[source.task],
    )
    if project.training.losses:
        wants = tr("each output has its own loss")
    expected = [
        (
            node,
            node.params.get("shape") or (),
            node.params.get("dtype", DType("float32")),
        )
        for node in inputs
    ]
    takes = ", ".join(
        f"{node.name if len(inputs) > 1 else ''} {shape_text(('N', *shape))} {dtype.name}".strip()
        for node, shape, dtype in expected
    )
    ends = multi_output.outputs_of(project, analysis)
    returned = (
        ", ".join(f"{end.name} {end.type or '?'}" for end in ends)
        if len(ends) > 1
        else ""
    )
    return Fit(
        tr("{inputs}, and {targets}.", inputs=gives, targets=wants),
        tr(
            "{takes}, and it returns {returned}.",
            takes=takes,
            returned=returned or kind or tr("nothing yet"),
        ),
        _ends(project, analysis, source),
    )


def _ends(
    project: Project, analysis: Analysis, source: SourceSpec
) -> tuple[Problem, ...]:
    """Report mismatches of the data with inputs and outputs. An output is computed from the input, so what mends the
    input may mend the output too."""
    inputs, ends = (
        _inputs(project, analysis, source),
        outputs(project, analysis, source),
    )
    if not inputs and not ends:
        return ()
    mend_inputs = tuple(cure for problem in inputs for cure in problem.cures)
    others = synthetic_data.cures(project, analysis)
    return (
        *(replace(p, cures=(*p.cures, *others)) for p in inputs),
        *(replace(p, cures=(*mend_inputs, *p.cures, *others)) for p in ends),
    )


def _data(project: Project, source: SourceSpec) -> list[Problem]:
    """Report unreadable samples, and losses of another kind than the data."""
    findings, loss, several = (
        [],
        project.training.loss.name,
        bool(project.training.losses),
    )
    if source.bad and project.data.bad == "stop":
        more = (
            " " + tr("and {number} more", number=len(source.bad) - 3)
            if len(source.bad) > 3
            else ""
        )
        reason = tr(
            "Skip them (Training, Data), or fix them: {samples}{more}.",
            samples="; ".join(source.bad[:3]),
            more=more,
        )
        message = tr(
            "{count:,} samples of {label} cannot be read",
            count=len(source.bad),
            label=source.label,
        )
        findings.append(
            Problem(
                "error",
                None,
                message,
                reason,
                cures=(Cure(tr("Skip them"), (SetData("", "bad", "skip"),)),),
                code="unreadable-samples",
            )
        )
    if source.task == CLASSES and len(source.classes) == 1:
        reason = tr(
            "All samples are {name}, so there is nothing to classify. Check it under Training, Data.",
            name=source.classes[0],
        )
        findings.append(
            Problem(
                "warning",
                None,
                tr("{label} has only one class", label=source.label),
                reason,
                code="one-class",
            )
        )
    if several:
        return findings
    target = source.known_targets[0]
    if not takes(project.training.loss, target):
        other = usual_loss(target)
        reason = tr(
            "{label} has values to predict. Choose a regression loss under Training, such as {name}.",
            label=source.label,
            name=other.name,
        )
        cure = Cure(
            tr("Use {name}", name=other.name), (SetTraining("", "loss", other),)
        )
        findings.append(
            Problem(
                "error",
                None,
                tr("{loss} expects class labels", loss=loss),
                reason,
                cures=(cure,),
                code="loss-needs-classes",
            )
        )
    if project.data.class_weights and (
        refusal := weighted_losses.refusal(project.training.loss, ())
    ):
        reason = tr(
            "{refusal} Choose one of these, or disable class_weights (Training, Data).",
            refusal=refusal,
        )
        findings.append(
            Problem(
                "error",
                None,
                tr("{loss} does not support class weights", loss=loss),
                reason,
                code="class-weights-unsupported",
            )
        )
    return findings


def _learning(graph: Graph, analysis: Analysis) -> list[Problem]:
    """Report networks without trainable parameters."""
    able = [
        node
        for node, count in analysis.parameters.items()
        if count and node in analysis.live
    ]
    if any(
        not graph.nodes[node].frozen
        and graph.nodes[node].params.get("requires_grad", True)
        for node in able
    ):
        return []
    if not able:
        reason = tr(
            "No layer has parameters. Add a trainable layer, such as Linear or Conv2d."
        )
        return [
            Problem(
                "error",
                None,
                tr("There is nothing to train"),
                reason,
                code="nothing-to-train",
            )
        ]
    last = graph.nodes[able[-1]]
    reason = tr(
        "Every layer with parameters is frozen: {names}.",
        names=", ".join(graph.nodes[node].name for node in able[:6]),
    )
    cure = Cure(tr("Unfreeze {name}", name=last.name), (Thaw(last.id),))
    return [
        Problem(
            "error",
            last.id,
            tr("There is nothing to train"),
            reason,
            cures=(cure,),
            code="nothing-to-train",
        )
    ]


def _training(project: Project, analysis: Analysis) -> list[Problem]:
    """Report conflicts of loss and batch size with the layers of a runnable net."""
    settings = project.training
    if not analysis.runnable:
        return []
    ops = _ops(project, analysis)
    return training(
        analysis,
        ops,
        "" if settings.losses else settings.loss.name,
        settings.batch_size,
        _batched_count(project),
        Choice,
    )


def _batched_count(project: Project) -> int | None:
    """Return how many training samples an epoch has in its batches, None if unknown before reading."""
    settings, samples = project.training, training_count(project.data)
    if samples is None:
        return None
    if settings.one_batch:
        return min(samples, settings.batch_size)
    if project.data.drop_last and samples > settings.batch_size:
        return samples - samples % settings.batch_size
    return samples


def loss_problems(project: Project, analysis: Analysis) -> list[Problem]:
    """Report a loss that does not fit the last layer of a runnable net; nothing for several losses."""
    if not analysis.runnable or project.training.losses or project.opened is not None:
        return []
    return misfits(analysis, _ops(project, analysis), project.training.loss.name)


def job(project: Project, analysis: Analysis, data_root: str | None = None) -> Job:
    """Return the job of the project, with one CPU thread if unspecified and the network is small.

    Whether it is small is taken from `analysis.cost`, see `net_cost.with_cost`.
    """
    training = project.training
    if not training.threads and analysis.cost is not None:
        training = replace(
            training, threads=for_net(analysis.cost, training.batch_size)
        )
    return Job(analysis.source, project.data, training, data_root)


def _ops(project: Project, analysis: Analysis) -> Catalog:
    """Return the catalog of the net, with its blocks and custom layers."""
    ops_catalog = analysis.walk.catalog if analysis.walk else None
    return ops_catalog or with_blocks(catalog(), project.blocks)


def _choices(project: Project) -> list[Problem]:
    findings = []
    loss_rows = tuple(
        ("loss", row.loss.name, tuple(LOSSES)) for row in project.training.losses
    )
    for setting, name, names in (
        *(loss_rows or (("loss", project.training.loss.name, tuple(LOSSES)),)),
        ("optimizer", project.training.optimizer.name, OPTIMIZERS),
    ):
        if name not in names and not (
            name == OWN_LOSS and project.opened is not None
        ):  # `opened_losses` reports it
            reason = tr("Choose one under Training: {names}.", names=", ".join(names))
            findings.append(
                Problem(
                    "error",
                    None,
                    tr("Unknown {setting} {name!r}", setting=setting, name=name),
                    reason,
                    code="unknown-choice",
                )
            )
    return findings


def _inputs(project: Project, analysis: Analysis, source: SourceSpec) -> list[Problem]:
    inputs = input_nodes(project, analysis)
    if not inputs:
        return []
    if len(inputs) > 1 and not source.inputs:
        names = ", ".join(node.name for node in inputs)
        reason = tr(
            "Remove all of {names} but one, or choose data with several inputs (Training, Data).",
            names=names,
        )
        return [
            Problem(
                "error",
                inputs[1].id,
                tr(
                    "{label} provides one input, the network has {net_inputs}",
                    label=source.label,
                    net_inputs=len(inputs),
                ),
                reason,
                code="too-many-inputs",
            )
        ]
    if not source.inputs:
        return _input(
            inputs[0], FieldInfo("", source.shape, source.dtype), source.label
        )
    try:
        chosen = chosen_fields(
            [node.name for node in inputs], project.training.inputs, source
        )
    except InputError as error:
        message = tr(
            "{label} has {count} inputs, which are not all matched",
            label=source.label,
            count=len(source.inputs),
        )
        return [
            Problem("error", inputs[0].id, message, str(error), code="inputs-unmatched")
        ]
    fields = {field.name: field for field in source.inputs}
    pairs = zip(inputs, chosen, strict=True)
    return [
        problem
        for node, name in pairs
        for problem in _input(node, fields[name], f"{name} of {source.label}")
    ]


def taken_fields(
    project: Project, analysis: Analysis
) -> tuple[tuple[str, ...], tuple[FieldInfo, ...], tuple[str, ...]]:
    """Return the net's inputs, the fields of data with several, and the field that each input takes, if all match."""
    names = tuple(node.name for node in input_nodes(project, analysis))
    try:
        source = spec_of(project.data)
        field_names = (
            chosen_fields(names, project.training.inputs, source)
            if source.inputs
            else ()
        )
    except DataError:
        return names, (), ()
    except InputError:
        return names, source.inputs, ()
    return names, source.inputs, field_names


def input_nodes(project: Project, analysis: Analysis) -> list[Node]:
    """Return the input nodes in the order of forward's arguments, as far as the code is known."""
    order = {spec.name: index for index, spec in enumerate(analysis.source.inputs)}
    nodes = [node for node in project.graph.nodes.values() if node.op == "input"]
    return sorted(nodes, key=lambda node: order.get(node.name, len(order)))


def _input(node: Node, source: FieldInfo, label: str) -> list[Problem]:
    if node.params.get("batch", 0) != 0:
        reason = tr(
            "Set it to 0, and insert a torch.transpose after the input if the network needs another order."
        )
        cure = Cure(
            tr("Set {name} to {value}", name="batch", value=0),
            (SetParam(node.id, "batch", 0),),
        )
        message = tr(
            "{label} has the batch first, {name} does not", label=label, name=node.name
        )
        return [
            Problem(
                "error", node.id, message, reason, cures=(cure,), code="batch-dimension"
            )
        ]
    shape, dtype = node.params.get("shape"), node.params.get("dtype", DType("float32"))
    if shape == source.shape and dtype == DType(source.dtype):
        return []
    edits = (
        SetParam(node.id, "shape", source.shape),
        SetParam(node.id, "dtype", DType(source.dtype)),
    )
    expected = shape_text(source.shape)
    have = shape_text(shape or (), tr("nothing"))
    reason = tr(
        "{label} has samples of {expected} {dtype}; {name} expects {have} {net_dtype}.",
        label=label,
        expected=expected,
        dtype=source.dtype,
        name=node.name,
        have=have,
        net_dtype=dtype.name,
    )
    cure = Cure(tr("Set {name} to {value}", name="shape", value=expected), edits)
    return [
        Problem(
            "error",
            node.id,
            tr("{name} does not match the data", name=node.name),
            reason,
            cures=(cure,),
            code="input-does-not-match-data",
        )
    ]


def outputs(project: Project, analysis: Analysis, source: SourceSpec) -> list[Problem]:
    """Report mismatches between losses and outputs."""
    if project.training.losses:
        return multi_output.problems(project, analysis, source)
    problem = multi_output.without_losses(project, analysis, source)
    return [problem] if problem is not None else _outputs(project, analysis, source)


def _outputs(project: Project, analysis: Analysis, source: SourceSpec) -> list[Problem]:
    graph = project.graph
    outputs = [node for node in graph.nodes.values() if node.op == "output"]
    if outputs and (special := _special_output(outputs[0])):
        rows = multi_output.suggested(project, analysis, source)
        give = Cure(
            tr("Give {output} a loss", output=outputs[0].name),
            (SetTraining("", "losses", rows),),
        )
        always = outputs[0].params.get("when", "always") == "always"
        return [
            replace(special, cures=(give, *special.cures))
            if always and rows
            else special
        ]
    kind = analysis.output_type()
    expected_shape = wanted_output(source)
    if kind is None or not outputs or kind.shape == (Dim(1), *expected_shape):
        return []
    target = source.known_targets[0]
    if multi_output.compares_one_output(project.training.loss.name, target, kind):
        return []
    if (
        source.task == TOKENS
        and _has_more_tokens(kind, expected_shape)
        and LOSSES[project.training.loss.name] == CLASS_IDS
    ):
        return []
    meaning = {
        CLASSES: tr("one value for each class of {label}", label=source.label),
        VALUES: tr("the values of {label} to predict", label=source.label),
        TOKENS: tr(
            "one value for each of the {classes} tokens at each position of {label}",
            classes=len(source.classes),
            label=source.label,
        ),
    }[source.task]
    reason = tr(
        "The loss expects N×{shape}, {meaning}.",
        shape=shape_text(expected_shape),
        meaning=meaning,
    )
    if (
        len(expected_shape) == 1
        and len(kind.shape) != 2
        and kind.per_sample() != expected_shape[0]
    ):
        reason += tr(" Add a Flatten and a Linear layer.")
    count = expected_shape[-1]
    values, classes = (
        trn("{count} value to predict", "{count} values to predict", count),
        trn("{count} class", "{count} classes", count),
    )
    data = values if source.task == VALUES else classes
    message = tr(
        "{output} is {kind}, the data have {data}",
        output=outputs[0].name,
        kind=kind,
        data=data,
    )
    cures = multi_output.class_cures(graph, outputs[0].id, kind, expected_shape)
    if multi_output.compares_one_output(OF_LOGITS, target, kind):
        reason += tr(
            " Or choose {loss}, which takes one value of two classes.",
            loss=OF_LOGITS,
        )
        cures += (
            Cure(
                tr("Use {name}", name=OF_LOGITS),
                (SetTraining("", "loss", Choice(OF_LOGITS)),),
            ),
        )
    return [
        Problem(
            "error",
            outputs[0].id,
            message,
            reason,
            cures=cures,
            code="output-does-not-match-data",
        )
    ]


def _has_more_tokens(kind: TensorType, expected_shape: tuple[int, ...]) -> bool:
    """Return whether an output has a value for each token of the data and more, as for a vocabulary."""
    last = kind.shape[-1] if kind.shape else None
    return (
        kind.shape[:-1] == (Dim(1), *expected_shape[:-1])
        and isinstance(last, int)
        and last > expected_shape[-1]
    )


def wanted_output(source: SourceSpec) -> tuple[int, ...]:
    """Return the output shape that the loss needs, without the batch."""
    if source.task == VALUES:
        return source.label_shape
    return (*source.label_shape, len(source.classes))


def _special_output(output: Node) -> Problem | None:
    """Report mismatches of a loss with an output in a dictionary, or in one mode only."""
    plain = {"key": None, "when": "always"}
    edits = tuple(
        SetParam(output.id, name, value)
        for name, value in plain.items()
        if output.params.get(name, value) != value
    )
    if not edits:
        return None
    reason = tr(
        "With a key it is returned in a dictionary, and an output of one mode only is missing in the other."
    )
    cure = Cure(tr("Return it always, without a key"), edits)
    return Problem(
        "error",
        output.id,
        tr("The loss takes {name} as a tensor, always", name=output.name),
        reason,
        cures=(cure,),
        code="output-not-a-tensor",
    )
