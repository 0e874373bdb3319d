"""Watch a backward pass for gradients of exactly zero, and find the node where they begin."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from app.autograd.batch import preserve_gradients, run_backward
from app.autograd.gradient_norms import measure as measured
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.tape import Tape, TapeEdge, TapeNode
from app.util import module_tree
from app.util.language import marked, tr
from tapedeck.norms import values_of

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
