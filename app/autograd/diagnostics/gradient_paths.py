"""Explain for every parameter whether a gradient reaches it, and if not, where it stops and how to fix that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.autograd.batch import TrainingBatch
from app.autograd.diagnostics.detached_paths import CutWatcher
from app.autograd.diagnostics.results import Cut, GradAnswer, GradientPaths, PathStep
from app.autograd.diagnostics.zero_gradients import (
    Measured,
    cancelling_norm,
    measure,
    stop_of,
)
from app.autograd.errors import NoGraphError
from app.autograd.place import OpLocation
from app.autograd.tape import Tape
from app.util import module_tree
from app.util.formatting import significant
from app.util.frozen import FrozenMap
from app.util.language import marked, tr

if TYPE_CHECKING:
    from torch.nn import Parameter
_WHAT = {
    "detach": marked("detach() returns a tensor that is not part of the graph"),
    "data": marked(
        ".data returns the bare values, outside the graph, and autograd does not notice"
    ),
    "item": marked("{op} turns the tensor into a Python number, which has no graph"),
    "numpy": marked("{op}() turns the tensor into a NumPy array, which has no graph"),
    "no_grad": marked(
        "{op} runs under torch.no_grad(), so its result does not require a gradient"
    ),
    "inference_mode": marked(
        "{op} runs under torch.inference_mode(), so its result can never require a gradient"
    ),
    "argmax": marked(
        "{op} returns integers ({dtype}): a selection, which has no derivative"
    ),
    "comparison": marked("{op} returns booleans ({dtype}), which have no derivative"),
    "dtype": marked(
        "{op} converts it to {dtype}; only floating point and complex tensors can require a gradient"
    ),
    "custom": marked(
        "the custom Function {function} computes with it but does not take it as an argument, so its backward "
        "gives it no gradient"
    ),
    "checkpoint": marked(
        "a reentrant checkpoint computes this part and builds its graph only in backward"
    ),
    "no derivative": marked("{op} has no derivative"),
}
_CURES = {
    "detach": marked("Remove detach() if this part is to be trained."),
    "data": marked("Use the tensor itself, or detach() where detaching is intended."),
    "item": marked("Keep the tensor: compute with it, and call {op} only to print it."),
    "numpy": marked("Use torch functions for this step."),
    "no_grad": marked(
        "Move the line out of torch.no_grad() if this part is to be trained."
    ),
    "inference_mode": marked(
        "Run it outside torch.inference_mode() if this part is to be trained."
    ),
    "argmax": marked(
        "Use softmax, or F.gumbel_softmax where a hard choice is needed; argmax belongs after the loss."
    ),
    "comparison": marked(
        "Use a smooth step such as sigmoid, or multiply by the mask where the mask needs no gradient."
    ),
    "dtype": marked("Stay in floating point until after the loss."),
    "custom": marked(
        "Pass it to {function}.apply() as an argument and return its gradient in backward."
    ),
    "checkpoint": marked(
        "Use use_reentrant=False, which keeps the path and needs no input that requires a gradient."
    ),
    "no derivative": marked(
        "Replace it with an operation that has a derivative, or write a custom Function with a backward."
    ),
}
_IN_PLACE = marked(
    "{op} writes into a tensor under torch.no_grad(), so the written values have no gradient path"
)


def find_paths(batch: TrainingBatch) -> GradientPaths:
    """Run the net forward and backward once and explain for every parameter whether a gradient reaches it, or why not.

    The net and its `.grad` are left unchanged. Raises `ForwardError` if the forward pass does.
    """
    watcher = CutWatcher(batch.model, batch.source)
    names = _names(batch)
    tape, measured = None, Measured({}, {}, {})
    try:
        try:
            with batch.hold(around=watcher) as graph:
                cuts = watcher.find_cuts(names, graph.ends)
                ways = {
                    key: watcher.last_of(parameter)
                    for key, parameter in _parameters(batch)
                }
                tape = graph.tape
                measured = measure(graph)
        except NoGraphError:
            cuts = watcher.find_cuts(names, watcher.outputs)
            ways = {
                key: watcher.last_of(parameter) for key, parameter in _parameters(batch)
            }
        answers = {}
        for key, parameter in _parameters(batch):
            answer = _answer(
                names[key][0], parameter, tape, measured, cuts, watcher, ways[key]
            )
            answers.update({name: answer for name in names[key]})
        requires, layers = (
            FrozenMap(watcher.requires),
            FrozenMap(watcher.layer_requires),
        )
        return GradientPaths(
            FrozenMap(answers), cuts, requires, layers, tape, measured.error
        )
    finally:
        watcher.forget()


def _parameters(batch: TrainingBatch) -> Iterable[tuple[int, Parameter]]:
    return (
        (id(parameter), parameter) for parameter in module_tree.parameters(batch.model)
    )


def _names(batch: TrainingBatch) -> dict[int, tuple[str, ...]]:
    names: dict[int, tuple[str, ...]] = {}
    for name, parameter in module_tree.named_parameters(
        batch.model, remove_duplicate=False
    ):
        names[id(parameter)] = (*names.get(id(parameter), ()), name)
    return names


def _answer(
    name: str,
    parameter: Parameter,
    tape: Tape | None,
    measured: Measured,
    cuts: tuple[Cut, ...],
    watcher: CutWatcher,
    way: tuple[tuple[PathStep, ...], int | None],
) -> GradAnswer:
    used = watcher.used.get(id(parameter))
    if not parameter.requires_grad:
        text = tr(
            "{name} is frozen: its requires_grad is False, so backward leaves its .grad at None.",
            name=name,
        )
        return GradAnswer(
            name,
            "none",
            "frozen",
            text,
            tr("Call {name}.requires_grad_() if it is to be trained.", name=name),
            used,
        )
    norm = measured.norms.get(name)
    if norm is not None:
        return _reached(name, norm, tape, measured)
    if tape is not None and any(name in node.parameters for node in tape.nodes):
        text = tr(
            "A path leads from the loss to {name}, but a node on it returns None as gradient.",
            name=name,
        )
        if measured.error:
            text = tr(
                "A path leads from the loss to {name}, but backward stopped before it: {error}",
                name=name,
                error=measured.error,
            )
        return GradAnswer(
            name, "unknown" if measured.error else "none", "backward", text
        )
    # Numbers and arrays cannot be tracked: their cut counts if nothing else consumed the last result.
    last = way[0][-1:]
    mine = [cut for cut in cuts if name in cut.parameters]
    mine.sort(key=lambda cut: (not cut.reaches_end, cut.chains[name][-1:] != last))
    if mine and (mine[0].reaches_end or mine[0].chains[name][-1:] == last):
        cut = mine[0]
        return GradAnswer(
            name,
            "none",
            cut.kind,
            _sentence_of(cut, name),
            _cure_of(cut),
            cut.place,
            cut.chains[name],
            others=tuple(mine[1:]),
        )
    if way[0]:
        text, cure = _end_of_way(name, way[0][-1], way[1])
        return GradAnswer(
            name,
            "none",
            "not in the loss",
            text,
            cure,
            way[0][-1].place,
            way[0],
            others=tuple(mine),
        )
    text = tr(
        "{name} is not used: no operation of this forward pass takes it, so no gradient reaches it.",
        name=name,
    )
    cure = tr("Call its layer in forward, or remove the layer.")
    return GradAnswer(name, "none", "unused", text, cure)


def _reached(
    name: str, norm: float, tape: Tape | None, measured: Measured
) -> GradAnswer:
    if norm != norm or norm == float("inf"):
        return GradAnswer(
            name,
            "not finite",
            "not finite",
            tr("The gradient of {name} is not finite.", name=name),
            norm=norm,
        )
    taking = cancelling_norm(tape, measured, name) if tape is not None else None
    if tape is not None and taking is not None:
        title = tape.title_of(taking)
        short = name.rpartition(".")[2]
        text = tr(
            "The {parameter} gets no gradient: {norm} subtracts the channel mean, so any bias cancels.",
            parameter=short,
            norm=title,
        )
        layer = name.rpartition(".")[0] or tr("the layer")
        cure = tr(
            "Give {layer} bias=False: {norm} has its own bias.", layer=layer, norm=title
        )
        return GradAnswer(
            name,
            "cancelled",
            "cancelled",
            text,
            cure,
            _location(tape, taking.id),
            norm=norm,
            tape_node=taking.id,
        )
    if norm == 0 and tape is not None:
        stop = stop_of(tape, measured, name)
        text = tr(
            "The gradient of {name} is exactly zero: {why}.", name=name, why=stop.why
        )
        if stop.node is not None:
            node = tape.nodes[stop.node]
            text = tr(
                "The gradient of {name} is exactly zero: {node} in {layer} passes no gradient because {why}.",
                name=name,
                node=node.name,
                layer=tape.title_of(node),
                why=stop.why,
            )
        location = None if stop.node is None else _location(tape, stop.node)
        return GradAnswer(
            name,
            "zero",
            "zero",
            text,
            stop.cure,
            location,
            norm=norm,
            tape_node=stop.node,
        )
    return GradAnswer(
        name,
        "flows",
        "",
        tr(
            "A gradient reaches {name}; its norm is {norm}.",
            name=name,
            norm=significant(norm, 3),
        ),
        norm=norm,
    )


def _location(tape: Tape, number: int) -> OpLocation:
    node = tape.nodes[number]
    code = tape.code_of(node)
    return OpLocation(
        node.name,
        node.layer,
        node.call,
        node.node,
        node.line,
        code,
        node.file,
        node.in_loss,
    )


def _sentence_of(cut: Cut, parameter: str) -> str:
    """Say why the path of a parameter ends in this cut."""
    template = _IN_PLACE if cut.in_place and cut.kind == "no_grad" else _WHAT[cut.kind]
    return tr(
        "The gradient path of {name} is cut {where}: {reason}.",
        name=parameter,
        where=cut.place.where,
        reason=_filled(template, cut),
    )


def _cure_of(cut: Cut) -> str:
    """Say how to keep the path attached."""
    return _filled(_CURES[cut.kind], cut)


def _filled(text: str, cut: Cut) -> str:
    dtype = f"torch.{cut.dtype}"
    return tr(text, op=cut.place.op, dtype=dtype, function=cut.function)


def _end_of_way(parameter: str, last: PathStep, output: int | None) -> tuple[str, str]:
    """Say why a parameter with an unused result gets no gradient, and how to fix it."""
    if output is not None:
        text = tr(
            "{name} is not part of the loss. The network returns it as output {number}, and the loss is computed from "
            "another one.",
            name=parameter,
            number=output + 1,
        )
        return text, tr("Add a term for this output to the loss.")
    text = tr(
        "{name} is not part of the loss: the last that was computed from it is {node} {where}, and nothing uses that "
        "result.",
        name=parameter,
        node=last.node,
        where=last.place.where,
    )
    return text, tr("Use the result, or remove the line.")
