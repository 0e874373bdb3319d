"""Gradcheck of a net, a layer, a custom Function or a backward node: backward against finite differences.

Everything runs on copies, in double precision and once in single; the net is not modified. Large tensors are checked
along random directions and at sampled elements, so that the cost stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from app.autograd.batch import TrainingBatch
from app.autograd.capture import OwnLoss, loss_of
from app.autograd.errors import CaptureError
from app.autograd.source_locations import SourceLocations
from app.autograd.tape import Tape, TapeNode
from app.features.gradcheck.compute.finite_differences import Function, check
from app.features.gradcheck.compute.operation_inputs import (
    RecordedCall,
    call_of_layer,
    call_of_node,
)
from app.features.gradcheck.values import GradcheckReport, upper
from app.util import module_tree

# How many forward passes a check may take.
BUDGET = 400
Cancelled = Callable[[], bool]


def check_net(
    batch: TrainingBatch, *, budget: int = BUDGET, cancelled: Cancelled = lambda: False
) -> GradcheckReport:
    """Check the whole net with its loss, with respect to each parameter and its inputs."""
    model, loss = batch.model, batch.loss
    if isinstance(loss, OwnLoss) and loss.place is None:
        batch.hold().release()  # finds which output it is

    def run(owned: Any, arguments: Any) -> Any:
        inputs, kwargs, target = arguments
        output = owned[0](*inputs, **kwargs)
        if owned[1] is None:
            return output
        value = loss_of(owned[1], output, target)
        return output if value is None else value

    kwargs = dict(batch.kwargs)
    inputs, targets = (
        sum(isinstance(leaf, Tensor) for leaf in tree_leaves(tree))
        for tree in ((batch.inputs, kwargs), batch.target)
    )
    names = ("",) * inputs + (None,) * targets
    function = Function(
        (model, loss), run, (batch.inputs, kwargs, batch.target), batch.train, names
    )
    return _checked("the whole network", function, batch, budget, cancelled)


def check_layer(
    batch: TrainingBatch,
    path: str,
    *,
    call: int = 1,
    budget: int = BUDGET,
    cancelled: Cancelled = lambda: False,
    note: str = "",
) -> GradcheckReport:
    """Check the module at `path` with the inputs of its `call`-th call. Raises CaptureError if it was not called."""
    recorded_call = call_of_layer(batch, path, call)
    function = Function(
        (module_tree.submodule(batch.model, path),),
        lambda owned, g: owned[0](*g[0], **g[1]),
        (recorded_call.args, recorded_call.kwargs),
        batch.train,
        state=recorded_call.state,
    )
    return _checked(
        f"layer {path}" if path else "the network",
        function,
        batch,
        budget,
        cancelled,
        note,
    )


def check_function(
    function: Callable[..., Any],
    *args: Any,
    name: str = "",
    seed: int = 0,
    budget: int = BUDGET,
    cancelled: Cancelled = lambda: False,
    **kwargs: Any,
) -> GradcheckReport:
    """Any function of tensors, such as a custom Function's `apply`: by its floating point arguments that require a
    gradient, or by all of them if none does."""
    requires_grad = [
        leaf.requires_grad
        for leaf in tree_leaves((args, kwargs))
        if isinstance(leaf, Tensor)
    ]
    names = tuple(
        "" if required or not any(requires_grad) else None for required in requires_grad
    )
    title = name or getattr(
        getattr(function, "__self__", function), "__name__", "the function"
    )
    checked = Function(
        (), lambda _own, g: function(*g[0], **g[1]), (args, kwargs), names=names
    )
    return _checked(title, checked, None, budget, cancelled, seed=seed)


def check_node(
    batch: TrainingBatch,
    tape: Tape,
    node: TapeNode,
    *,
    budget: int = BUDGET,
    cancelled: Cancelled = lambda: False,
) -> GradcheckReport:
    """Check the operation that created a node of the tape, run again on its inputs.

    If it was not observed (inside torch's own code), the innermost layer around it is checked, and `note` says so.
    Raises CaptureError for a leaf, which computes nothing, and if there is neither.
    """
    if node.is_leaf:
        raise CaptureError(
            f"{node.name} only adds to .grad: there is nothing to check."
        )
    call = call_of_node(batch, node)
    if call is not None:
        title = (
            f"custom Function {call.name}"
            if call.custom
            else f"{call.name} ({node.name})"
        )
        run = _again(call)
        function = Function(
            (), run, (call.args, call.kwargs), batch.train, call.names, call.state
        )
        return _checked(
            title,
            function,
            batch,
            budget,
            cancelled,
            ""
            if not call.several
            else f"{call.name} created {call.several} nodes; they are checked together.",
        )
    if not node.layer:
        raise CaptureError(
            f"{node.name} was created by code that cannot be run again. Check the whole network instead."
        )
    note = f"The operation of {node.name} cannot be run again alone, so the layer that created it is checked."
    return check_layer(
        batch,
        node.layer,
        call=max(node.call, 1),
        budget=budget,
        cancelled=cancelled,
        note=note,
    )


def _again(call: RecordedCall) -> Callable[[Any, Any], Any]:
    def run(_own: Any, arguments: Any) -> Any:
        result = call.function(*arguments[0], **arguments[1])
        return (
            arguments[0][0] if result is None else result
        )  # __setitem__ returns None and modifies its first argument

    return run


def _checked(
    title: str,
    function: Function,
    batch: TrainingBatch | None,
    budget: int,
    cancelled: Cancelled,
    note: str = "",
    seed: int = 0,
) -> GradcheckReport:
    for owned in function.owned:
        if isinstance(owned, nn.Module) and any(
            isinstance(module, torch.jit.ScriptModule)
            for module in module_tree.modules(owned)
        ):
            raise CaptureError(
                f"{upper(title)} contains TorchScript, which cannot be converted to double precision here."
            )
    locations = SourceLocations(None, batch.source if batch is not None else None)
    state = batch.seed if batch is not None else seed
    try:
        with torch.inference_mode(False), torch.enable_grad():
            return check(title, function, locations, state, budget, cancelled, note)
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, CaptureError):
            raise
        raise CaptureError(f"{upper(title)} could not be checked: {error}") from None
