"""Find the non-deterministic operation: the first whose output differs when a step is run twice from one state."""

from __future__ import annotations

import linecache
import warnings
from types import FrameType
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch.utils._pytree import tree_leaves

from app.features.revisit.values import Parted
from app.source import layer_files
from app.source.generated import Source
from app.training.job import Job
from app.training.recomputing.hashes import hash_of
from app.training.recomputing.recompute_steps import Parting, RecomputeWatcher
from app.training.recomputing.snapshot import Snapshot
from app.training.stepper import Stepper
from app.util import module_tree, user_frames
from app.util.torch_calls import KernelCalls

TIMES = 3  # that the step is compared with its first run
# Their memory is not written yet.
_UNWRITTEN = (
    "empty",
    "new_empty",
    "empty_like",
    "empty_strided",
    "new_empty_strided",
    "resize_",
    "empty_permuted",
)


class Place(Struct, frozen=True):
    """Where an operation was called: the module's path, the node of the drawing, and the line."""

    layer: str = ""
    node: str | None = None
    line: str = ""


class Operation(Struct, frozen=True):
    """An operation that is not deterministic. `reason` is a sentence about it; `backward` if it is of that pass."""

    name: str
    place: Place
    reason: str
    backward: bool = False


class _Call(Struct, frozen=True):
    name: str
    inputs: tuple[int, ...]
    others: str
    outputs: tuple[int, ...]
    place: Place
    backward: bool


def find_operation(
    stepper: Stepper, snapshot: Snapshot, source: Source
) -> Operation | None:
    """Run a step's forward and backward pass several times from its state; return the first operation whose outputs
    differ for equal inputs, or whose input no operation made. Else the one that torch warns of; None without either.

    Weights, buffers, gradients and generators are those of the snapshot afterwards.
    """
    try:
        first = _traced(stepper, snapshot, source)
        for _ in range(TIMES):
            if operation := _difference(first, _traced(stepper, snapshot, source)):
                return operation
        return _warned(stepper, snapshot)
    finally:
        snapshot.restore()


def _difference(first: list[_Call], second: list[_Call]) -> Operation | None:
    for first_call, other in zip(first, second, strict=False):
        reason = ""
        if first_call.name != other.name:
            reason = f"{first_call.name} is called in one run and {other.name} in the other: "
            reason += "Python code decides by something else than torch's generators"
        elif first_call.inputs != other.inputs or first_call.others != other.others:
            reason = "its input differs, and no operation of torch made it: it comes from Python code, such as NumPy, "
            reason += "the time or os.urandom, or from memory that was never written"
        elif (
            first_call.outputs != other.outputs
            and first_call.name.split(".")[1] not in _UNWRITTEN
        ):
            reason = "it returns different values for equal inputs"
        if reason:
            return Operation(
                first_call.name, first_call.place, reason, first_call.backward
            )
    if len(first) != len(second):
        last = max(first, second, key=len)[min(len(first), len(second))]
        return Operation(
            last.name,
            last.place,
            "it is called in only one of the two runs",
            last.backward,
        )
    return None


def _run(stepper: Stepper, snapshot: Snapshot) -> None:
    """Run forward and backward as the step did."""
    step_inputs, accumulate = snapshot.given, stepper.config.accumulate
    snapshot.restore()
    output = stepper.output(stepper.model, step_inputs.inputs)
    loss = stepper.measured(
        output, step_inputs.labels, step_inputs.others, step_inputs.share
    )
    (loss / accumulate * snapshot.scale).backward()


def _warned(stepper: Stepper, snapshot: Snapshot) -> Operation | None:
    """Return the operation that torch itself warns of."""
    before, warned = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.use_deterministic_algorithms(True, warn_only=True)
            _run(stepper, snapshot)
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warned)
    for warning in caught:
        text = str(warning.message)
        if "deterministic" in text:
            name = text.partition(" does not have")[0].split(" ")[-1]
            return Operation(name, Place(), f"torch warns: {text.partition('. ')[0]}")
    return None


def _traced(stepper: Stepper, snapshot: Snapshot, source: Source) -> list[_Call]:
    """Run a step and return its operations, forward and backward, with hashes of their inputs and outputs."""
    calls: list[_Call] = []
    locations = _Places(stepper, source)

    def called(func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        place, backward = locations.here(frame)
        if _is_view(func):
            return func(*args, **kwargs)
        read, written = _arguments(func, args, kwargs)
        inputs, others = _hashes(read)
        result = func(*args, **kwargs)
        outputs, _ = _hashes((result, written))
        name = str(func.overloadpacket)
        calls.append(_Call(name, inputs, others, outputs, place, backward))
        return result

    with locations, KernelCalls(called):
        _run(stepper, snapshot)
    return calls


def _is_view(func: Any) -> bool:
    """Return whether an operation only returns a view: its output shares the memory of an input."""
    return any(
        returned.alias_info is not None and not returned.alias_info.is_write
        for returned in func._schema.returns
    )


def _arguments(func: Any, args: Any, kwargs: Any) -> tuple[list[Any], list[Any]]:
    """Return the arguments that an operation reads, and those that it overwrites, whose old values do not matter."""
    named_arguments = {
        **dict(
            zip(
                (argument.name for argument in func._schema.arguments),
                args,
                strict=False,
            )
        ),
        **kwargs,
    }
    writes = {
        argument.name
        for argument in func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    return [v for name, v in named_arguments.items() if name not in writes], [
        v for n, v in named_arguments.items() if n in writes
    ]


class _Places:
    """Knows which module runs, and at which line; in backward those of the operation that it is the backward of."""

    def __init__(self, stepper: Stepper, source: Source) -> None:
        self._modules, self._source = (
            dict(module_tree.named_modules(stepper.model)),
            source,
        )
        self._stack: list[str] = []
        self._hooks: list[Any] = []
        self._made: dict[
            int, Place
        ] = {}  # by the sequence number of the node that an operation made

    def __enter__(self) -> _Places:

        for path, module in self._modules.items():

            def before(_module: Any, _args: Any, path: str = path) -> None:
                self._stack.append(path)

            def after(_module: Any, _args: Any, _output: Any) -> None:
                if self._stack:
                    self._stack.pop()

            self._hooks.append(module_tree.before_call(module, before, prepend=True))
            self._hooks.append(module_tree.on_call(module, after, always_call=True))
        return self

    def __exit__(self, *_exception: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def here(self, frame: Any) -> tuple[Place, bool]:
        """Return the place of the operation that is called from a frame, and whether it is in backward."""
        node = torch._C._current_autograd_node()
        if node is not None:
            return self._made.get(node._sequence_nr(), Place()), True
        file, number = user_frames.location(frame, generated=True)
        layer = self._stack[-1] if self._stack else ""
        generated = file == self._source.filename
        text = (
            self._source.text.splitlines()[number - 1]
            if generated and number
            else linecache.getline(file, number)
        )
        name = "the code" if generated else layer_files.display_name(file)
        where = f"line {number} of {name}: {text.strip()}" if number else ""
        location = Place(
            layer, self._source.node_at(number) if generated else None, where
        )
        self._made[torch._C._autograd._get_sequence_nr() - 1] = location
        return location, False


def _hashes(values: Any) -> tuple[tuple[int, ...], str]:
    """Return the hash of each tensor in nested containers, and the text of everything else."""
    tensor_hashes, others = [], []
    for leaf in tree_leaves(values):
        if not isinstance(leaf, torch.Tensor):
            others.append(
                repr(leaf)
                if isinstance(leaf, bool | int | float | complex | str)
                else type(leaf).__name__
            )
        elif (
            leaf.is_meta
            or leaf.layout not in (torch.strided, torch.sparse_coo)
            or leaf.is_quantized
        ):
            tensor_hashes.append(0)
        else:
            tensor_hashes.append(int(hash_of(leaf)))
    return tuple(tensor_hashes), " ".join(others)


def parted_at(
    parting: Parting, stepper: Stepper, watcher: RecomputeWatcher, job: Job
) -> Parted:
    """Return where re-living parted, with the operation that is not deterministic if it can be found."""
    assert watcher.snapshot is not None
    first = (
        parting.layers[-1] if parting.layers else ""
    )  # backward begins with the last
    operation = find_operation(stepper, watcher.snapshot, job.source)
    parted = Parted(parting.step, parting.what, first, parting.layers)
    if operation is None:
        reason = "the step gives the same gradients each time it is run from this state, so it is not the network that "
        return replace(
            parted,
            reason=f"{reason}differs: look for data, files or an environment that changed",
        )
    where = operation.place
    name = f"{operation.name} (backward)" if operation.backward else operation.name
    return replace(
        parted,
        layer=where.layer or first,
        operation=name,
        node=where.node,
        line=where.line,
        reason=operation.reason,
    )
