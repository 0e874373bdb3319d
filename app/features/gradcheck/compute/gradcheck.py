"""Gradcheck of a net, a layer, a custom Function or a backward node: backward against finite differences.

Everything runs on copies, in double precision and once in single; the net is not modified. Large tensors are checked
along random directions and at sampled elements, so that the cost stays bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from app.autograd.batch import TrainingBatch
from app.autograd.capture import OwnLoss, loss_of
from app.autograd.errors import CaptureError
from app.autograd.source_locations import SourceLocations
from app.autograd.tape import Tape, TapeNode
from app.features.gradcheck.compute.finite_differences import Function, check
from app.features.gradcheck.values import GradcheckReport, upper
from app.util import module_tree
from app.util.language import tr
from app.util.torch_calls import FunctionCalls

# --- Record the inputs of one operation or layer in a forward pass, to run it again in isolation


class RecordedCall(Struct, frozen=True, eq=False):
    """A call with copies of its arguments, none of which requires a gradient.

    `names` are those of the parameters among the tensors, in order: "" for others, None for tensors that did not
    require grad. `custom` means that `function` is a custom Function's `apply`; `several` is the number of nodes that
    it created, 0 for just one. `state` is the CPU generator's state before the call.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = {}
    names: tuple[str | None, ...] = ()
    name: str = ""
    custom: bool = False
    several: int = 0
    state: torch.Tensor | None = None


def call_of_layer(batch: TrainingBatch, path: str, number: int = 1) -> RecordedCall:
    """Return the arguments of the `number`-th call of the module at `path`.

    Raises CaptureError if the net has no such module or did not call it as often.
    """
    try:
        module = module_tree.submodule(batch.model, path)
    except AttributeError:
        raise CaptureError(f"The network has no layer {path}.") from None
    recorded_calls: list[RecordedCall] = []
    calls = 0

    def note(_module: nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            call = _copied(batch, module, args, kwargs, path)
            recorded_calls.append(replace(call, names=("",) * len(call.names)))

    hook = module_tree.before_call(module, note, with_kwargs=True)
    try:
        batch.hold().release()
    finally:
        hook.remove()
    if not recorded_calls:
        times = "once" if calls == 1 else f"{calls} times"
        raise CaptureError(
            f"Layer {path} was called {times if calls else 'never'} in this forward pass."
        )
    return recorded_calls[0]


def call_of_node(batch: TrainingBatch, node: TapeNode) -> RecordedCall | None:
    """Find the call of a torch function, or custom Function, that created a node of the batch's tape.

    None if it was created inside torch's own code. Reruns the forward pass: with the same seed it creates the same
    nodes in the same order.
    """
    assert node.sequence is not None
    seeker = _Seeker(batch, node.sequence)
    with _forwards_watched(seeker):
        batch.hold(around=seeker).release()
    return seeker.custom or seeker.found


class _Seeker(FunctionCalls):
    """Captures the call that created the node of a sequence number; a custom Function rather than calls inside it."""

    def __init__(self, batch: TrainingBatch, wanted: int) -> None:
        super().__init__()
        self._batch, self._wanted = batch, wanted
        self._began = 0
        self.found: RecordedCall | None = None
        self.custom: RecordedCall | None = None

    def __enter__(self) -> _Seeker:
        self._began = _sequence()
        super().__enter__()
        return self

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        started = _sequence() - self._began
        if (
            self.found is not None
            or started > self._wanted
            or getattr(func, "__name__", "") == "__get__"
        ):
            return func(*args, **kwargs)
        # Copied before the call, since in-place operations overwrite it; calls far before the target are skipped.
        near = self._wanted - started < 64
        with torch._C.DisableTorchFunction():
            call = (
                _copied(self._batch, func, args, kwargs, getattr(func, "__name__", ""))
                if near
                else None
            )
        result = func(*args, **kwargs)
        self._note(started, _sequence() - self._began, call)
        return result

    def _note(self, started: int, ended: int, call: RecordedCall | None) -> None:
        if call is not None and started <= self._wanted < ended:
            node_count = ended - started
            self.found = replace(call, several=node_count if node_count > 1 else 0)

    def forward(self, kind: Any, args: Any) -> None:
        """Handle the start of a custom Function's forward, whose node has its sequence number already."""
        needed = any(
            leaf.requires_grad
            for leaf in tree_leaves(args)
            if isinstance(leaf, torch.Tensor)
        )
        if (
            self.custom is None
            and needed
            and _sequence() - self._began == self._wanted + 1
        ):
            with torch._C.DisableTorchFunction():
                self.custom = replace(
                    _copied(self._batch, kind.apply, args, {}, kind.__name__),
                    custom=True,
                )


@contextmanager
def _forwards_watched(seeker: _Seeker) -> Iterator[None]:
    """Patch the forward of every custom Function to notify the seeker of calls on this thread."""
    thread = threading.get_ident()
    kinds = [
        kind
        for kind in _subclasses(torch.autograd.Function)
        if kind.__module__.partition(".")[0] != "torch"
    ]

    def watched(kind: Any, forward: Callable[..., Any]) -> Any:
        with_context = kind.setup_context is torch.autograd.Function.setup_context

        def run(*args: Any) -> Any:
            if threading.get_ident() == thread:
                seeker.forward(kind, args[1:] if with_context else args)
            return forward(*args)

        return staticmethod(run)

    before = [
        (kind, kind.__dict__["forward"], kind.forward)
        for kind in kinds
        if "forward" in kind.__dict__
    ]
    try:
        for kind, _, forward in before:
            kind.forward = watched(kind, forward)
        yield
    finally:
        for kind, descriptor, _ in before:
            kind.forward = descriptor


def _subclasses(kind: Any) -> Iterator[Any]:
    for child in type.__subclasses__(kind):
        yield child
        yield from _subclasses(child)


def _copied(
    batch: TrainingBatch, function: Any, args: Any, kwargs: Any, name: str
) -> RecordedCall:
    names = {
        id(parameter): path
        for path, parameter in module_tree.named_parameters(batch.model)
    }
    leaves = [
        leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
    ]
    copied_args, copied_kwargs = tree_map(_clone, (tuple(args), dict(kwargs)))
    leaf_names = tuple(
        names.get(id(leaf), "") if leaf.requires_grad else None for leaf in leaves
    )
    return RecordedCall(
        function,
        copied_args,
        copied_kwargs,
        leaf_names,
        name,
        state=torch.get_rng_state(),
    )


def _clone(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _sequence() -> int:
    return torch._C._autograd._get_sequence_nr()


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
    return _checked(tr("the whole network"), function, batch, budget, cancelled)


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
