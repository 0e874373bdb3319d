"""Run every diagnostic on one batch: problems with its gradients, their location and fix."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from app.autograd.batch import TrainingBatch, preserve_gradients, run_backward
from app.autograd.diagnostics.dead_units import DeadUnits, dead_units
from app.autograd.diagnostics.gradient_gain import GainFinding, Ladder, ladder
from app.autograd.diagnostics.gradient_paths import find_paths
from app.autograd.diagnostics.inplace_changes import BrokenNode, Mutations, find_broken
from app.autograd.diagnostics.nonfinite import ForwardWatch, NonFinite, all_finite
from app.autograd.diagnostics.nonfinite_gradients import arising
from app.autograd.diagnostics.results import (
    Finding,
    Findings,
    GradAnswer,
    GradientPaths,
    by_module,
    first_nodes,
    line_text,
)
from app.autograd.errors import CaptureError, ForwardError
from app.autograd.place import OpLocation
from app.autograd.playback.playback import Playback, StepError
from app.autograd.playback.recording import record
from app.autograd.tape import Tape
from app.autograd.walk import is_accumulate
from app.util import module_tree, shelf
from app.util.language import marked, tr, trn

STAGES = (
    marked("Checking the forward pass for NaN and Inf"),
    marked("Checking for in-place changes that break backward"),
    marked("Tracing the gradient to each parameter"),
    marked("Running backward: norms, gains, dead units"),
)
# What the checks below look for, as the window lists it.
LOOKED_FOR = (
    marked("parameters whose .grad stays None"),
    marked("layers in plain lists, which are not trained"),
    marked("gradients that are exactly zero"),
    marked("in-place changes that break backward"),
    marked("writes through .data"),
    marked("the first NaN or Inf, forward and backward"),
    marked("layers where the gradient vanishes or explodes"),
    marked("dead units"),
)
MANY_DEAD = 0.5  # of a layer's units; at least this share is a warning
RANKS = {marked("error"): 0, marked("warning"): 1, marked("info"): 2}


def find_all(
    batch: TrainingBatch,
    tell: Callable[[str], None] = lambda _words: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Findings:
    """Run the batch a few times and return the findings. The net is left unchanged.

    A failing forward pass is a finding too. Raises CaptureError for a net that cannot be run at all.
    """
    findings: list[Finding] = []
    tape, paths, rungs = None, None, None

    def stage(number: int) -> bool:
        text = tr(
            "{stage} ({number} of {total})",
            stage=tr(STAGES[number]),
            number=number + 1,
            total=len(STAGES),
        )
        tell(text)
        return not cancelled()

    try:
        suspect: NonFinite | None = None
        if stage(0):
            suspect, reached = _forward(batch)
            if reached is not None:
                findings.append(_non_finite(batch, reached))
                suspect = None
        broken: Mutations | None = None
        if stage(1):
            broken = find_broken(batch)
            tape = broken.tape
            findings += _in_place(batch, broken)
        if stage(2):
            paths = find_paths(batch)
            tape = paths.tape or tape
            findings += _of_paths(paths)
            findings += _unregistered(batch)
        if not any(
            finding.severity == "error" and finding.kind in ("in place", "failed")
            for finding in findings
        ) and stage(3):
            tape, rungs, more = _backward(batch)
            if suspect is not None and any(
                finding.kind == "non-finite" for finding in more
            ):
                findings.append(
                    _non_finite(batch, suspect)
                )  # dropped by the forward, and back in the gradients
            findings += more
    except ForwardError as failed:
        where = line_text(failed.line, "") or tr("The network")
        cure = tr("Fix this line: until it runs, there is no graph to inspect.")
        findings.append(
            Finding(
                "failed",
                "error",
                where,
                str(failed),
                cure,
                node=failed.node,
                line=failed.line,
            )
        )
    except CaptureError as error:
        paths = paths or find_paths(batch)  # explains why nothing requires a gradient
        findings += [
            Finding("failed", "error", tr("The network"), str(error)),
            *_of_paths(paths),
        ]
    findings += _of_plugins(batch)
    findings = by_cause(
        sorted(
            findings,
            key=lambda finding: (RANKS[finding.severity], finding.kind != "non-finite"),
        )
    )
    return Findings(tuple(findings), tape, paths, rungs, cancelled())


def _of_plugins(batch: TrainingBatch) -> list[Finding]:
    """Return what the `findings.py` of other packages find, or which of them fails."""
    findings: list[Finding] = []
    for module in shelf.plugin_modules("findings"):
        with shelf.noting(shelf.plugin_of(module.__name__)):
            findings += module.find(batch)
    return findings + [
        Finding("failed", "info", package, error)
        for package, error in shelf.broken().items()
    ]


def _forward(batch: TrainingBatch) -> tuple[NonFinite | None, NonFinite | None]:
    """Return the first NaN or Inf of a forward pass, and the one that reached the net's output, the loss or a buffer.

    A value that was dropped on the way, such as a constant in a `torch.where`, is harmless.
    """
    watch, outputs = (
        ForwardWatch(batch.source, batch.model, batch.own_lines),
        list[Any](),
    )
    sound = [
        buffer for buffer in module_tree.buffers(batch.model) if all_finite([buffer])
    ]
    answer = module_tree.on_call(
        batch.model, lambda _model, _inputs, output: outputs.append(output)
    )
    try:
        with batch.hold(around=watch) as graph:
            reached = watch.reached((outputs, graph.ends))
            if reached is None and not all_finite(sound):
                reached = watch.found
    finally:
        answer.remove()
    return watch.found, reached


def _non_finite(batch: TrainingBatch, non_finite: NonFinite) -> Finding:
    cure = non_finite.cure
    if not cure and non_finite.made_here:
        cure = tr(
            "Check its inputs: a point where it has no finite result or slope, or numbers that are too large."
        )
    elif not cure and not non_finite.reason:
        cure = tr(
            "It was in the inputs: check the data, the weights, or the vector that backward starts with."
        )
    title = (
        "loss"
        if non_finite.in_loss
        else _title(batch, non_finite.layer, non_finite.node)
    )
    severity = "warning" if non_finite.masked_by else "error"
    return Finding(
        "non-finite",
        severity,
        title,
        non_finite.sentence(),
        cure,
        non_finite.layer,
        non_finite.tape_node,
        non_finite.node,
        non_finite.line,
        file=non_finite.file,
    )


def _in_place(batch: TrainingBatch, mutations: Mutations) -> Iterator[Finding]:
    for broken in mutations.broken:
        yield _broken(batch, mutations.tape, broken)
    if mutations.error and "inplace operation" not in mutations.error:
        yield Finding(
            "failed",
            "error",
            "backward",
            _fails(mutations.error.partition("\n")[0]),
        )
    elif mutations.error and mutations.first is None:
        cure = tr(
            "Look for a write into a slice or a view of it, and put .clone() on the tensor that is written to."
        )
        text = _fails(mutations.error)
        yield Finding("in place", "error", "backward", text, cure)


def _fails(error: str) -> str:
    return tr("Backward fails: {error}", error=error)


def _broken(batch: TrainingBatch, tape: Tape, broken: BrokenNode) -> Finding:
    cure = broken.cure
    culprit: OpLocation = broken.writes[0].location if broken.writes else broken.place
    advice = (
        cure.sentence
        if cure is not None
        else tr("Put .clone() on the tensor before it is changed.")
    )
    layer = module_tree.submodule(batch.model, culprit.layer) if culprit.layer else None
    if getattr(layer, "inplace", False) and "inplace" not in advice:
        advice = tr(
            "Set inplace=False in {layer}. Otherwise: {advice}",
            layer=culprit.layer,
            advice=advice,
        )
    unread = any(write.replaced == "unread" for write in broken.writes)
    return Finding(
        "silent" if broken.silent else "in place",
        "warning" if unread else "error",
        tape.title_of(tape.nodes[broken.node]),
        broken.sentence,
        advice,
        broken.place.layer,
        broken.node,
        culprit.node or broken.place.node,
        culprit.line if cure is None else cure.line,
        cure.before if cure else "",
        cure.after if cure else "",
        cure.file if cure else "",
    )


def _of_paths(paths: GradientPaths) -> Iterator[Finding]:
    """Merge parameters of a layer with the same problem at the same location into one finding."""
    alike: dict[tuple[object, ...], list[GradAnswer]] = {}
    for name, answer in paths.answers.items():
        if answer.parameter == name and answer.state in ("none", "zero", "cancelled"):
            key = (name.rpartition(".")[0], answer.kind, answer.place, answer.tape_node)
            alike.setdefault(key, []).append(answer)
    for answers in alike.values():
        yield _of_answers(paths.tape, answers)


def _unregistered(batch: TrainingBatch) -> Iterator[Finding]:
    """One finding for each list or dict of layers that no module registered."""
    lists: dict[str, list[str]] = {}
    for path in module_tree.unregistered(batch.model):
        lists.setdefault(path.partition("[")[0], []).append(path)
    for name, paths in lists.items():
        text = tr(
            "{path} is not registered, as {name} is a plain list or dict: not in parameters() or state_dict(), not "
            "trained.",
            path=paths[0],
            name=name,
        )
        if len(paths) > 1:
            text = tr(
                "{first} to {last} are not registered, as {name} is a plain list or dict: not in parameters() or "
                "state_dict(), not trained.",
                first=paths[0],
                last=paths[-1],
                name=name,
            )
        yield Finding(
            "unregistered",
            "warning",
            name,
            text,
            tr(module_tree.REGISTER),
            name.rpartition(".")[0],
        )


def _of_answers(tape: Tape | None, answers: list[GradAnswer]) -> Finding:
    first = answers[0]
    layer = first.parameter.rpartition(".")[0]
    severity = "info" if first.kind in ("frozen", "cancelled") else "warning"
    location, sentence = first.place, first.sentence
    more = [answer.parameter.rpartition(".")[2] for answer in answers[1:]]
    if more:
        names = ", ".join(more)
        same = tr("The same holds for {names}.", names=names)
        if first.kind == "frozen":
            same = trn("So is {names}.", "So are {names}.", len(more), names=names)
        sentence += f" {same}"
    node = location.node if location is not None else None
    line = location.line if location is not None else None
    tape_node = first.tape_node
    if tape_node is None and tape is not None:
        tape_node = next(
            (
                candidate.id
                for candidate in tape.nodes
                if first.parameter in candidate.parameters
            ),
            None,
        )
    return Finding(
        "zero" if first.state == "zero" else first.state,
        severity,
        layer or first.parameter,
        sentence,
        first.cure,
        layer,
        tape_node,
        node,
        line,
        file=location.file if location is not None else "",
    )


def _backward(batch: TrainingBatch) -> tuple[Tape, Ladder | None, list[Finding]]:
    with batch.hold() as graph:
        tape, model = graph.tape, graph.model
        assert model is not None
        dead = list(dead_units(graph, {}))  # activations, which backward frees
        with preserve_gradients(model):
            with record(graph.ends) as recorder:
                error = run_backward(graph)
            norms = recorder.finish()
            # Masked ones count too: what is dropped on this batch reaches a parameter on the next.
            bad_norm = not all(
                map(
                    math.isfinite,
                    (*norms.node_norms.values(), *norms.edge_norms.values()),
                )
            )
            grads = {
                name: p.grad
                for name, p in module_tree.named_parameters(model)
                if p.grad is not None
            }
            spoiled = bad_norm or not all_finite(
                node.variable.grad for node in graph.nodes if is_accumulate(node)
            )
            if error:
                return (
                    tape,
                    None,
                    [Finding("failed", "error", "backward", _fails(error))],
                )
            dead += [
                dead_layer
                for dead_layer in dead_units(graph, grads)
                if dead_layer.what != "activation"
            ]
    rungs = ladder(by_module(tape), norms)
    findings = [
        _lost_finding(tape, lost) for lost in rungs.lost if lost.kind != "non_finite"
    ]
    findings += _dead(tape, dead)
    if spoiled:
        findings += _arising(batch)
    return tape, rungs, findings


def _arising(batch: TrainingBatch) -> Iterator[Finding]:
    """Play node by node, as even the norm of finite values can be infinite."""
    graph = batch.hold()
    ones = [1.0 if end.requires_grad else None for end in graph.ends]
    playback = Playback(graph, seeds=graph.seeds or ones)
    try:
        yield from [_non_finite(batch, non_finite) for non_finite in arising(playback)]
    except StepError as failed:
        node = playback.tape.nodes[failed.node]
        text = tr("Backward fails here: {error}", error=failed)
        title = playback.tape.title_of(node)
        yield Finding(
            "failed",
            "error",
            title,
            text,
            "",
            node.layer,
            node.id,
            node.node,
            node.line,
            file=node.file,
        )
    finally:
        playback.release()


def _lost_finding(tape: Tape, lost: GainFinding) -> Finding:
    node = tape.nodes[first_nodes(tape)[lost.key]]
    # The net's own operations have no layer to name: the class alone would say nothing.
    where = (
        lost.title
        if node.layer or node.node
        else tr("{op} in the forward of {net}", op=node.name, net=lost.title)
    )
    code = tape.code_of(node) if node.line is not None else ""
    where += f" ({line_text(node.line, '')}: {code})" if code else ""
    if lost.kind == "vanishes":
        text = tr(
            "The gradient vanishes at {where}: {rule}.", where=where, rule=lost.rule
        )
        cure = tr(
            "Put a normalization or a skip connection before it, or use another initialisation (init.kaiming)."
        )
    else:
        text = tr(
            "The gradient explodes at {where}: {rule}.", where=where, rule=lost.rule
        )
        cure = tr(
            "Start from smaller weights, normalize, or clip the gradient's norm under Training."
        )
    location = (node.layer, node.id, node.node, node.line)
    return Finding(
        lost.kind, "warning", lost.title, text, cure, *location, file=node.file
    )


def _dead(tape: Tape, dead: Iterable[DeadUnits]) -> Iterator[Finding]:
    texts = {
        "activation": marked(
            "{dead} of {units} units of {name} output 0 for every sample of this batch ({which})."
        ),
        "output": marked(
            "{dead} of {units} outputs of {name} got no gradient: the weights before them do not change ({which})."
        ),
        "input": marked(
            "{dead} of {units} inputs of {name} got no gradient: the weights after them do not change ({which})."
        ),
    }
    reported: set[tuple[int, ...]] = set()
    for dead_layer in sorted(
        dead, key=lambda candidate: candidate.what != "activation"
    ):
        # Permanently zero units imply zero gradients of their weights, few idle weights are normal, and if all are idle
        # the zero gradient is reported already.
        if dead_layer.what != "activation" and (
            dead_layer.which in reported or not MANY_DEAD <= dead_layer.share < 1
        ):
            continue
        reported.add(dead_layer.which)
        node = tape.nodes[dead_layer.node]
        which = ", ".join(map(str, dead_layer.which[:6])) + (
            ", …" if dead_layer.dead > 6 else ""
        )
        text = tr(
            texts[dead_layer.what],
            dead=dead_layer.dead,
            units=dead_layer.units,
            name=dead_layer.parameter or dead_layer.title,
            which=which,
        )
        severity = "warning" if dead_layer.share >= MANY_DEAD else "info"
        cure = (
            tr(
                "They may be active on a larger batch. Otherwise lower the learning rate or use LeakyReLU."
            )
            if dead_layer.what == "activation"
            else tr("Check their incoming gradients and the activation after them.")
        )
        location = (dead_layer.layer, dead_layer.node, node.node, node.line)
        yield Finding(
            "dead", severity, dead_layer.title, text, cure, *location, file=node.file
        )


def _title(batch: TrainingBatch, layer: str, node: str | None) -> str:
    label = batch.labels.get(node) if node is not None else None
    return (label.title if label else "") or layer or tr("the network")


FEW = 3  # findings of one pattern at different lines, up to which each is listed by itself
NAMED = 6  # layers that the sentence of a merged finding names
_NUMBERS = re.compile(r"\d[\d.,e+-]*")
_LIST = re.compile(r"#(?:, #)+(?:, …)?")


def by_cause(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings whose sentences differ in layer and numbers alone, in the order of their first ones.

    Those of one source line always are; those of different lines if there are more than a few. The first one is shown
    for all, and has the rest as `others`.
    """
    of_line: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        of_line.setdefault((*_pattern(finding), finding.file, finding.line), []).append(
            finding
        )
    of_pattern: dict[tuple[object, ...], list[list[Finding]]] = {}
    for key, alike in of_line.items():
        of_pattern.setdefault(key[:-2], []).append(alike)
    merged: list[Finding] = []
    for groups in of_pattern.values():
        merges_groups = len(groups) > FEW
        merged += (
            [_merged([member for group in groups for member in group])]
            if merges_groups
            else map(_merged, groups)
        )
    return merged


def _pattern(finding: Finding) -> tuple[object, ...]:
    sentence = finding.sentence
    for name in sorted(
        filter(None, {finding.layer, finding.title}), key=len, reverse=True
    ):
        sentence = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", "·", sentence)
    sentence = _LIST.sub("#", _NUMBERS.sub("#", sentence))
    return (
        finding.kind,
        finding.severity,
        sentence,
        finding.cure.replace(finding.layer or "\0", "·"),
        finding.before,
        finding.after,
    )


def _merged(alike: list[Finding]) -> Finding:
    first, others = alike[0], tuple(alike[1:])
    if not others:
        return first
    one_line = all(
        (other.file, other.line) == (first.file, first.line) for other in others
    )
    shown = others if len(others) <= NAMED + 1 else others[:NAMED]
    named = [other.title if one_line else other.location_text for other in shown]
    if rest := len(others) - len(shown):
        named.append(tr("and {number} more", number=rest))
    same = trn(
        "The same is found in {count} other place: {places}.",
        "The same is found in {count} other places: {places}.",
        len(others),
        places="; ".join(named),
    )
    more = tr("{number} more", number=len(others))
    if len(others) == 1:
        more = others[0].title
    return replace(
        first,
        title=tr("{title} and {more}", title=first.title, more=more),
        sentence=f"{first.sentence} {same}",
        others=others,
        line=first.line if one_line else None,
        file=first.file if one_line else "",
    )
