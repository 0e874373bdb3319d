"""Networks with several outputs: match outputs with targets and losses.

`preflight` covers nets with one output. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from app.builder.diagnostics.checks import ACTIVATIONS, SOFTMAXES, plain_name
from app.builder.diagnostics.problems import (
    Cure,
    InsertBefore,
    Problem,
    SetParam,
    SetTraining,
)
from app.builder.graph import Graph, Node
from app.builder.value_types import Dim, TensorType
from app.data.spec import CLASSES, VALUES, SourceSpec, TargetInfo
from app.project.project import Project
from app.source.generated import Source
from app.training.choices import CLASS_IDS, LOSSES, OF_ONE_OUTPUT, takes_one_output
from app.training.config import INPUT, Choice, OutputLoss
from app.training.setup import losses_in_words, weighted_losses
from app.training.setup.losses_in_words import takes
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap
from app.util.language import tr

if TYPE_CHECKING:
    from app.builder.results import Analysis

AUXILIARY = 0.3  # the weight of GoogLeNet's auxiliary heads (Szegedy et al. 2014)
CHIEF = (
    "logits",
    "out",
    "output",
)  # keys of the main output, in dictionaries of several
_KEEPING = SOFTMAXES | ACTIVATIONS  # ops that keep the shape of their input


class NetOutput(Struct, frozen=True):
    """An output of the net: its name in the code, its node, its type if it is known, and whether it always comes."""

    name: str
    node: Node
    type: TensorType | None
    always: bool


def outputs_of(project: Project, analysis: Analysis) -> tuple[NetOutput, ...]:
    """Return the outputs in code order; empty if there are none."""
    nodes = [node for node in project.graph.nodes.values() if node.op == "output"]
    ends = {end.name: end for end in analysis.source.ends}
    net_outputs = []
    for node in nodes:
        edges = project.graph.into(node.id)
        value = (
            analysis.values.get((edges[0].source, edges[0].output)) if edges else None
        )
        name = (
            node.name
            if node.name in ends or len(nodes) != 1 or not ends
            else next(iter(ends))
        )
        kind = value if isinstance(value, TensorType) else None
        net_outputs.append(
            NetOutput(
                name, node, kind, str(node.params.get("when", "always")) == "always"
            )
        )
    order = {name: index for index, name in enumerate(ends)}
    return tuple(
        sorted(net_outputs, key=lambda output: order.get(output.name, len(order)))
    )


def with_chief_loss(project: Project, source: Source) -> Project:
    """Assign the loss to the main output of a net that returns a dictionary, with a remark in the notes.

    It is the only output, or the one with a key in `CHIEF`. Without one the project is unchanged.
    """
    ends = source.ends
    keys = [end.key for end in ends]
    key = next(
        (key for key in CHIEF if key in keys), keys[0] if len(keys) == 1 else None
    )
    chief = next((end for end in ends if key is not None and end.key == key), None)
    if chief is None or chief.when != "always" or project.training.losses:
        return project
    rows = (OutputLoss(chief.name, project.training.loss),)
    others = [end.name for end in ends if end is not chief]
    sentence = f"It returns a dictionary; the training loss uses {chief.name}."
    if others:
        listed = f"{', '.join(others[:3])}{' and others' if len(others) > 3 else ''}"
        sentence = (
            f"{sentence} {listed} {'has' if len(others) == 1 else 'have'} none until you add one "
            "(Training, Loss)."
        )
    notes = "\n".join(filter(None, (project.notes, sentence)))
    return replace(
        project, training=replace(project.training, losses=rows), notes=notes
    )


def need_names(outputs: Sequence[Node]) -> bool:
    """Return whether losses must name their outputs: there are several, or the only one is in a dictionary."""
    return len(outputs) > 1 or any(
        node.params.get("key") is not None for node in outputs
    )


def targets_of(source: SourceSpec) -> tuple[TargetInfo, ...]:
    """Return the possible targets of an output: the data's targets, and the input itself."""
    return (*source.known_targets, TargetInfo(INPUT, VALUES, (), source.shape))


def required_shape(target: TargetInfo) -> tuple[int, ...]:
    """Return the shape that an output needs, without the batch."""
    return (
        target.label_shape
        if target.task == VALUES
        else (*target.label_shape, len(target.classes))
    )


def compares_one_output(loss: str, target: TargetInfo, output: TensorType) -> bool:
    """Return whether a loss compares an output of one value a sample with a target of two classes."""
    return (
        target.task == CLASSES
        and output.per_sample() == 1
        and takes_one_output(loss, len(target.classes))
    )


def usual_loss(target: TargetInfo, choice: Choice, values: int | None = None) -> Choice:
    """Return a loss that fits a target and an output of so many `values` a sample: the current one if it does."""
    usual = losses_in_words.usual_loss(target, values)
    if target.task != VALUES and usual.name in OF_ONE_OUTPUT:
        return choice if choice.name in OF_ONE_OUTPUT else usual
    fits = takes(choice, target) and (
        target.task == VALUES or LOSSES.get(choice.name) == CLASS_IDS
    )
    return choice if fits else usual


def suggested(
    project: Project, analysis: Analysis, source: SourceSpec
) -> tuple[OutputLoss, ...]:
    """Suggest a loss for every output: each with the target of its shape, always-returned outputs first.

    Several outputs of one target are a head and its auxiliary ones, which count less.
    """
    outputs = sorted(
        outputs_of(project, analysis), key=lambda net_output: not net_output.always
    )
    targets, used, rows = targets_of(source), set(), []
    for output in outputs:
        fits = [
            t
            for t in targets
            if output.type is not None
            and tuple(output.type.shape[1:]) == required_shape(t)
        ]
        fits = fits or list(targets[:1])
        target = next((t for t in fits if t.name == output.name), None)
        target = target or next((t for t in fits if t.name not in used), fits[0])
        weight = AUXILIARY if target.name in used else 1.0
        used.add(target.name)
        values = output.type.per_sample() if output.type is not None else None
        loss = usual_loss(target, project.training.loss, values)
        rows.append(OutputLoss(output.name, loss, weight, target.name))
    return tuple(rows)


def without_losses(
    project: Project, analysis: Analysis, source: SourceSpec
) -> Problem | None:
    """Report several outputs or targets without assigned losses."""
    outputs = [node for node in project.graph.nodes.values() if node.op == "output"]
    targets = source.known_targets
    if len(outputs) <= 1 and len(targets) <= 1:
        return None
    rows = suggested(project, analysis, source)
    cures = (
        (Cure(tr("Give each output a loss"), (SetTraining("", "losses", rows),)),)
        if rows
        else ()
    )
    if len(outputs) > 1:
        reason = tr(
            "The network has {count} outputs. Choose a target for each under Training, Loss.",
            count=len(outputs),
        )
        return Problem(
            "error",
            outputs[1].id,
            tr("One loss takes one output"),
            reason,
            cures=cures,
            code="outputs-without-losses",
        )
    names = ", ".join(target.name for target in targets)
    reason = tr(
        "{label} has {names}. Choose the target of the output under Training, Loss.",
        label=source.label,
        names=names,
    )
    node = outputs[0].id if outputs else None
    return Problem(
        "error",
        node,
        tr("The loss takes one target"),
        reason,
        cures=cures,
        code="targets-without-losses",
    )


def problems(project: Project, analysis: Analysis, source: SourceSpec) -> list[Problem]:
    """Report mismatches between the losses of the outputs, the network and the data."""
    outputs = {output.name: output for output in outputs_of(project, analysis)}
    targets = {target.name: target for target in targets_of(source)}
    rows, findings = project.training.losses, []
    again = Cure(
        tr("Give each output a loss"),
        (SetTraining("", "losses", suggested(project, analysis, source)),),
    )
    for row in rows:
        output = outputs.get(row.output)
        target = targets.get(row.target) or (
            source.known_targets[0] if not row.target else None
        )
        if output is None:
            reason = tr(
                "It has: {names}. Set the losses again under Training, Loss.",
                names=", ".join(outputs) or tr("none"),
            )
            findings.append(
                Problem(
                    "error",
                    None,
                    tr("The network has no output {output}", output=row.output),
                    reason,
                    cures=(again,),
                    code="loss-without-output",
                )
            )
        elif target is None:
            named = ", ".join(name for name in targets if name not in (INPUT, ""))
            reason = tr(
                "{label} has: {names}.",
                label=source.label,
                names=named or tr("one, without a name"),
            )
            message = tr(
                "There is no target {target} for {output}",
                target=row.target,
                output=row.output,
            )
            findings.append(
                Problem(
                    "error",
                    output.node.id,
                    message,
                    reason,
                    cures=(again,),
                    code="loss-without-target",
                )
            )
        else:
            findings += _against(project, row, output, target)
    if rows and (first := outputs.get(rows[0].output)) is not None and not first.always:
        reason = tr(
            "Accuracy and metrics use the first loss. Put a loss first whose output is always returned."
        )
        message = tr("{name} is returned in one mode only", name=first.name)
        findings.append(
            Problem(
                "error",
                first.node.id,
                message,
                reason,
                cures=(again,),
                code="output-in-one-mode",
            )
        )
    if project.data.class_weights and (
        refusal := weighted_losses.refusal(project.training.loss, rows)
    ):
        row_targets = (
            next((t for t in targets.values() if t.name == row.target), None)
            for row in rows
        )
        able = tuple(
            replace(row, loss=Choice("CrossEntropyLoss"))
            if target is not None and target.task != VALUES
            else row
            for row, target in zip(rows, row_targets, strict=True)
        )
        cures = (
            (
                Cure(
                    tr("Use CrossEntropyLoss for classes"),
                    (SetTraining("", "losses", able),),
                ),
            )
            if able != rows
            else ()
        )
        reason = tr(
            "{refusal} Choose another loss, or disable class_weights (Training, Data).",
            refusal=refusal,
        )
        findings.append(
            Problem(
                "error",
                None,
                tr("No loss supports class weights"),
                reason,
                cures=cures,
                code="class-weights-unsupported",
            )
        )
    return findings


def _against(
    project: Project, row: OutputLoss, output: NetOutput, target: TargetInfo
) -> list[Problem]:
    """Report mismatches of one loss with its output and target."""
    if not takes(row.loss, target):
        reason = tr(
            "{target} has values to predict. Choose a regression loss, such as MSELoss.",
            target=target_label(target.name),
        )
        other = replace(row, loss=usual_loss(target, row.loss))
        rows = tuple(
            other if loss_row is row else loss_row
            for loss_row in project.training.losses
        )
        cure = Cure(
            tr("Use {name}", name=other.loss.name), (SetTraining("", "losses", rows),)
        )
        message = tr(
            "{name} of {output} expects class labels",
            name=row.loss.name,
            output=row.output,
        )
        return [
            Problem(
                "error",
                output.node.id,
                message,
                reason,
                cures=(cure,),
                code="loss-needs-classes",
            )
        ]
    shape = required_shape(target)
    more = target.task != VALUES and LOSSES.get(row.loss.name) == CLASS_IDS
    if output.type is None or compares_one_output(row.loss.name, target, output.type):
        return []
    have = tuple(output.type.shape[1:])
    enough = (
        more
        and have[:-1] == shape[:-1]
        and isinstance(have[-1], int)
        and have[-1] >= shape[-1]
    )
    if have == shape or (enough and len(have) == len(shape)):
        return []
    expected = shape_text(("N", *shape))
    reason = tr(
        "Its loss compares it with {target} and expects {expected}.",
        target=target_label(target.name),
        expected=expected,
    )
    cures = (
        class_cures(project.graph, output.node.id, output.type, shape)
        if target.name != INPUT
        else ()
    )
    return [
        Problem(
            "error",
            output.node.id,
            tr("{name} is {shape}", name=output.name, shape=output.type),
            reason,
            cures=cures,
            code="output-does-not-match-data",
        )
    ]


def target_label(target: str) -> str:
    """Return the display name of a target."""
    return tr("the input itself") if target == INPUT else target or tr("the target")


def class_cures(
    graph: Graph, output: str, kind: TensorType, target_shape: tuple[int, ...]
) -> tuple[Cure, ...]:
    """Fix the number of features of the last Linear, or add one."""
    classes = target_shape[-1]
    if kind.shape[:1] != (Dim(1),) or len(kind.shape) < 2:
        return ()
    if len(target_shape) > 1 and kind.shape[1:-1] != target_shape[:-1]:
        return ()
    port = "input"
    linear = InsertBefore(output, port, "nn.Linear", FrozenMap(out_features=classes))
    if len(kind.shape) > 2 and len(target_shape) == 1:
        flatten = InsertBefore(output, port, "nn.Flatten")
        if kind.per_sample() == classes:
            return (Cure(tr("Insert {layer}", layer="Flatten"), (flatten,)),)
        return (
            Cure(
                tr("Insert Flatten and Linear to {classes}", classes=classes),
                (flatten, linear),
            ),
        )
    last = _last_linear(graph, output)
    if last is None:
        return (Cure(tr("Insert Linear to {classes}", classes=classes), (linear,)),)
    return (
        Cure(
            tr("Set {name}={value}", name="out_features", value=classes),
            (SetParam(last, "out_features", classes),),
        ),
    )


def _last_linear(graph: Graph, output: str) -> str | None:
    """Return the Linear that produces the output, followed only by shape-preserving nodes."""
    at = output
    while True:
        edges = graph.into(at)
        if len(edges) != 1:
            return None
        node = graph.owner(edges[0].source)
        if node.op == "nn.Linear" and node.repeat == 1:
            return edges[0].source
        if plain_name(node.op) not in _KEEPING and not plain_name(node.op).endswith(
            "dropout"
        ):
            return None
        at = edges[0].source
