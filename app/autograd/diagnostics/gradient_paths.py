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

if TYPE_CHECKING:
    from torch.nn import Parameter
_WHAT = {
    "detach": "detach() returns a tensor that is not part of the graph",
    "data": ".data returns the bare values, outside the graph, and autograd does not notice",
    "item": "{op} turns the tensor into a Python number, which has no graph",
    "numpy": "{op}() turns the tensor into a NumPy array, which has no graph",
    "no_grad": "{op} runs under torch.no_grad(), so its result does not require a gradient",
    "inference_mode": "{op} runs under torch.inference_mode(), so its result can never require a gradient",
    "argmax": "{op} returns integers ({dtype}): a selection, which has no derivative",
    "comparison": "{op} returns booleans ({dtype}), which have no derivative",
    "dtype": "{op} converts it to {dtype}; only floating point and complex tensors can require a gradient",
    "custom": "the custom Function {function} computes with it but does not take it as an argument, so its backward "
    "gives it no gradient",
    "checkpoint": "a reentrant checkpoint computes this part and builds its graph only in backward",
    "no derivative": "{op} has no derivative",
}
_CURES = {
    "detach": "Remove detach() if this part is to be trained.",
    "data": "Use the tensor itself, or detach() where detaching is intended.",
    "item": "Keep the tensor: compute with it, and call {op} only to print it.",
    "numpy": "Use torch functions for this step.",
    "no_grad": "Move the line out of torch.no_grad() if this part is to be trained.",
    "inference_mode": "Run it outside torch.inference_mode() if this part is to be trained.",
    "argmax": "Use softmax, or F.gumbel_softmax where a hard choice is needed; argmax belongs after the loss.",
    "comparison": "Use a smooth step such as sigmoid, or multiply by the mask where the mask needs no gradient.",
    "dtype": "Stay in floating point until after the loss.",
    "custom": "Pass it to {function}.apply() as an argument and return its gradient in backward.",
    "checkpoint": "Use use_reentrant=False, which keeps the path and needs no input that requires a gradient.",
    "no derivative": "Replace it with an operation that has a derivative, or write a custom Function with a backward.",
}
_IN_PLACE = "{op} writes into a tensor under torch.no_grad(), so the written values have no gradient path"


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
        text = f"{name} is frozen: its requires_grad is False, so backward leaves its .grad at None."
        return GradAnswer(
            name,
            "none",
            "frozen",
            text,
            f"Call {name}.requires_grad_() if it is to be trained.",
            used,
        )
    norm = measured.norms.get(name)
    if norm is not None:
        return _reached(name, norm, tape, measured)
    if tape is not None and any(name in node.parameters for node in tape.nodes):
        text = (
            f"A path leads from the loss to {name}, but backward stopped before it: {measured.error}"
            if measured.error
            else f"A path leads from the loss to {name}, but a node on it returns None as gradient."
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
    text = f"{name} is not used: no operation of this forward pass takes it, so no gradient reaches it."
    return GradAnswer(
        name, "none", "unused", text, "Call its layer in forward, or remove the layer."
    )


def _reached(
    name: str, norm: float, tape: Tape | None, measured: Measured
) -> GradAnswer:
    if norm != norm or norm == float("inf"):
        return GradAnswer(
            name,
            "not finite",
            "not finite",
            f"The gradient of {name} is not finite.",
            norm=norm,
        )
    taking = cancelling_norm(tape, measured, name) if tape is not None else None
    if tape is not None and taking is not None:
        title = tape.title_of(taking)
        short = name.rpartition(".")[2]
        text = f"The {short} gets no gradient: {title} subtracts the channel mean, so any bias cancels."
        cure = f"Give {name.rpartition('.')[0] or 'the layer'} bias=False: {title} has its own bias."
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
        where = "" if stop.node is None else _stops(tape, stop.node)
        text = f"The gradient of {name} is exactly zero: {where}{stop.why}."
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
        f"A gradient reaches {name}; its norm is {significant(norm, 3)}.",
        norm=norm,
    )


def _stops(tape: Tape, node: int) -> str:
    return f"{tape.nodes[node].name} in {tape.title_of(tape.nodes[node])} passes no gradient because "


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
    return f"The gradient path of {parameter} is cut {cut.place.where}: {_filled(template, cut)}."


def _cure_of(cut: Cut) -> str:
    """Say how to keep the path attached."""
    return _filled(_CURES[cut.kind], cut)


def _filled(text: str, cut: Cut) -> str:
    return text.format(
        op=cut.place.op, dtype=f"torch.{cut.dtype}", function=cut.function
    )


def _end_of_way(parameter: str, last: PathStep, output: int | None) -> tuple[str, str]:
    """Say why a parameter with an unused result gets no gradient, and how to fix it."""
    if output is not None:
        message = f"The network returns it as output {output + 1}, and the loss is computed from another one."
        return (
            f"{parameter} is not part of the loss. {message}",
            "Add a term for this output to the loss.",
        )
    reason = f"the last that was computed from it is {last.node} {last.place.where}, and nothing uses that result"
    return (
        f"{parameter} is not part of the loss: {reason}.",
        "Use the result, or remove the line.",
    )
