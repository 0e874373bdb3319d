"""Explain for every parameter whether a gradient reaches it, and if not, where it stops and how to fix that."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from app.autograd.batch import TrainingBatch, preserve_gradients, run_backward
from app.autograd.diagnostics.detached_paths import CutWatcher
from app.autograd.diagnostics.results import Cut, GradAnswer, GradientPaths, PathStep
from app.autograd.errors import NoGraphError
from app.autograd.gradient_norms import measure as measured
from app.autograd.place import OpLocation
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.tape import Tape, TapeEdge, TapeNode
from app.util import module_tree
from app.util.formatting import significant
from app.util.frozen import FrozenMap
from app.util.language import marked, tr
from tapedeck.norms import values_of

if TYPE_CHECKING:
    from torch.nn import Parameter

# --- Watch a backward pass for gradients of exactly zero, and find the node where they begin

# Relative bound below which a gradient is mere rounding, compared with that of the weight. Single precision has 7
# digits.
_CANCELLED = 1e-4

# Causes of zero gradients by torch's node name, and their remedies.
_STOPS = (
    (
        r"^(Relu|Threshold)Backward",
        marked(
            "its input was at or below 0 wherever a gradient arrived: a dead ReLU on this batch"
        ),
        marked(
            "Lower the learning rate, use another initialisation, or replace it with LeakyReLU, whose gradient is "
            "never 0."
        ),
    ),
    (
        r"^(Hardtanh|Clamp\w*|Hardsigmoid|Hardswish|HardtanhBackward)Backward",
        marked("its input was outside its bounds wherever a gradient arrived"),
        marked("Widen the bounds, or scale the input."),
    ),
    (
        r"^(Round|Floor|Ceil|Trunc|Sign|Sgn|Heaviside|Fix)\w*Backward",
        marked("a step function has derivative 0 everywhere"),
        marked(
            "Leave the step out of training, or pass the gradient straight through it with a custom Function."
        ),
    ),
    (
        r"^MulBackward",
        marked("the other factor was 0 wherever a gradient arrived"),
        marked("Check the factor: a mask or a scale of 0."),
    ),
    (
        r"^\w*DropoutBackward",
        marked("no kept element received a gradient, or all were dropped"),
        marked("Lower the dropout's p, or use a larger batch."),
    ),
    (
        r"^(Addmm|Mm|Bmm|Baddbmm|Mv|Convolution|Linear|Dot)\w*Backward",
        marked("the other factor was 0 wherever a gradient arrived"),
        marked(
            "Check the other factor of the product: an input of zeros, or weights that start at 0."
        ),
    ),
    (
        r"^(Softmax|LogSoftmax|Sigmoid|Tanh|LogSigmoid|Softplus|Gelu|Silu|Elu|Mish)Backward",
        marked("it is saturated: its derivative rounds to 0 in this precision"),
        marked(
            "Make the input smaller with a norm before it or smaller weights, or use the loss that takes logits."
        ),
    ),
    (
        r"^(Mse|SmoothL1|L1|HuberLoss|BinaryCrossEntropy|NllLoss|Nll)\w*Backward",
        marked("the loss is constant"),
        marked(
            "The output meets the target, or every target is ignored (ignore_index)."
        ),
    ),
    (
        r"^(Slice|Select|Index|Gather|Where|MaskedFill|MaskedSelect|Narrow|Split|Unbind|Max\w*|Min\w*)\w*Backward",
        marked("no part of the tensor that affects the loss was selected"),
        marked("Check the index or the mask at this line."),
    ),
)


class ZeroCause(Struct, frozen=True):
    """The node at which gradients that are not zero became exactly zero: `why` explains it, and what helps."""

    node: int | None
    why: str
    cure: str


class Measured(Struct, frozen=True):
    """The gradients of one backward pass. `norms` has the Euclidean norm by parameter's name, None without a gradient.

    `arrived[i]` tells whether a nonzero gradient arrived at node `i`, `left[i]` whether it passed one on, by slot.
    `error` is torch's error, "" if none.
    """

    norms: dict[str, float | None]
    arrived: dict[int, bool]
    left: dict[int, tuple[bool | None, ...]]
    error: str = ""


def measure(graph: LiveGraph) -> Measured:
    """Run backward from the graph's ends, with ones where an end is not a scalar; `.grad` is as before afterwards."""
    model = graph.model
    assert model is not None
    arrived: dict[int, bool] = {}
    left: dict[int, tuple[bool | None, ...]] = {}

    def note(index: int) -> Any:
        def hook(grad_inputs: Any, grad_outputs: Any) -> None:
            arrived[index] = any(_any(grad) for grad in grad_outputs)
            left[index] = tuple(
                None if grad is None else _any(grad) for grad in grad_inputs
            )

        return hook

    hooks = [node.register_hook(note(index)) for index, node in enumerate(graph.nodes)]
    with preserve_gradients(model):
        try:
            error = run_backward(graph)
        finally:
            for hook in hooks:
                hook.remove()
        grads = {
            name: parameter.grad
            for name, parameter in module_tree.named_parameters(
                model, remove_duplicate=False
            )
        }
        stats = measured(
            list(grads.values())
        )  # as playback measures them, so that one gradient has one norm
        norms = {
            name: None if measurement is None else measurement.norm
            for name, measurement in zip(grads, stats, strict=True)
        }
    return Measured(norms, arrived, left, error)


def stop_of(tape: Tape, measured: Measured, parameter: str) -> ZeroCause:
    """Find where a gradient that is exactly zero became so."""
    leaf = next(node for node in tape.nodes if parameter in node.parameters)
    visited, row = {leaf.id}, [leaf.id]
    while row:
        above = [edge for node in row for edge in tape.incoming.get(node, ())]
        for edge in sorted(
            above, key=lambda e: tape.steps.get(e.source, 0), reverse=True
        ):
            if measured.arrived.get(edge.source):
                why, cure = _explained(tape, edge)
                return ZeroCause(edge.source, why, cure)
        row = [
            source
            for source in dict.fromkeys(edge.source for edge in above)
            if source not in visited
        ]
        visited.update(row)
    return ZeroCause(
        None,
        tr("the gradient that backward starts from is zero"),
        tr("Check the loss itself."),
    )


def _explained(tape: Tape, edge: TapeEdge) -> tuple[str, str]:
    if _adds_bias(tape, edge.source, edge.slot):
        return (
            tr("its incoming gradients sum to zero"),
            tr("Check the loss: it does not change with this bias."),
        )
    for pattern, why, cure in _STOPS:
        if re.match(pattern, tape.nodes[edge.source].name):
            return tr(why), tr(cure)
    return (
        tr("every gradient that it passes on is 0"),
        tr("Check its saved tensors: an input of zeros, or a derivative of 0."),
    )


def cancelling_norm(tape: Tape, measured: Measured, parameter: str) -> TapeNode | None:
    """Return the batch norm that subtracts a bias along with the mean, so that the bias has no effect.

    Only if the measured gradient is mere rounding, compared with that of its weight.
    """
    leaf = next((node for node in tape.nodes if parameter in node.parameters), None)
    makers = tape.incoming.get(leaf.id, ()) if leaf else ()
    if not makers or not all(
        _adds_bias(tape, edge.source, edge.slot) for edge in makers
    ):
        return None
    norms = [_norm_above(tape, edge.source) for edge in makers]
    weights = [
        measured.norms.get(name) or 0.0
        for edge in makers
        for name in _names_below(tape, edge.source)
        if name != parameter
    ]
    most = max(weights, default=0.0)
    small = most > 0 and (measured.norms.get(parameter) or 0.0) <= _CANCELLED * most
    return norms[0] if small and all(norms) else None


def _adds_bias(tape: Tape, node: int, slot: int) -> bool:
    name = tape.nodes[node].name
    return (name.startswith("ConvolutionBackward") and slot == 2) or (
        name.startswith("AddmmBackward") and slot == 0
    )


def _norm_above(tape: Tape, node: int) -> TapeNode | None:
    """Return the batch norm that is the only consumer of `node`, directly or through views."""
    while True:
        users = {edge.source for edge in tape.incoming.get(node, ())}
        if len(users) != 1:
            return None
        node = users.pop()
        user = tape.nodes[node]
        if re.search("BatchNormBackward", user.name):
            return user if user.values.get("training", tape.train) else None
        if not re.match(
            r"(Unsafe)?(View|Reshape|Squeeze|Unsqueeze|Transpose|Permute)\w*Backward",
            user.name,
        ):
            return None


def _names_below(tape: Tape, node: int) -> list[str]:
    """List the parameters that a node takes, directly or transposed."""
    names: list[str] = []
    for edge in tape.outgoing.get(node, ()):
        target = tape.nodes[edge.target]
        if target.name == "TBackward0":
            target = tape.nodes[tape.outgoing[target.id][0].target]
        names += target.parameters[:1]
    return names


def _any(grad: Any) -> bool:
    if grad is None:
        return False
    return bool(values_of(grad).any())


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
