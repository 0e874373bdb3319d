"""Map backward nodes to lines and modules of a snippet, and capture the tape below any of its tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from time import perf_counter, process_time
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from msgspec.structs import replace as with_values

from app.autograd.capture import record_of, with_leaves_placed
from app.autograd.gradient_norms import measure
from app.autograd.layers import NodeOrigin, OriginRecorder
from app.autograd.memory import SavedReader, StorageTable, is_freed
from app.autograd.playback.gradient_flow import GradientFlow, fan_in
from app.autograd.playback.memory_timeline import held_by_step, released_by_step
from app.autograd.playback.steps import EdgeGrad, FanIn, PassResult, Share, StepRecord
from app.autograd.tape import (
    LEAF,
    Label,
    Tape,
    TapeEdge,
    TapeNode,
    below,
    numbers_below,
)
from app.autograd.walk import LEAF_SEQUENCE, execution_order, is_accumulate, walk
from app.features.snippets.compute.local_names import LocalNames
from app.features.snippets.compute.names import ScopeNames
from app.source.generated import Source
from app.util import torch_calls
from app.util.frozen import FrozenMap
from app.util.torch_calls import FunctionCalls

if TYPE_CHECKING:
    from torch import Tensor

# --- Record every step of a real backward pass while torch runs it, as a `Playback` would report it


class PassWatch:
    """Watches backward passes until `close`; `nodes` are those of `tape`, in its order of numbers."""

    def __init__(self, nodes: Sequence[Any], tape: Tape) -> None:
        self._tape = tape
        self._records: list[StepRecord] = []
        self._flow = GradientFlow(tape, 0)
        self._began = 0.0
        self.stopped = ""
        self._hooks = [node.register_prehook(self._begins) for node in nodes]
        self._hooks += [
            node.register_hook(partial(self._ran, number))
            for number, node in enumerate(nodes)
        ]

    def __enter__(self) -> PassWatch:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.close()
        if error is not None and not self.stopped:
            self.stopped = f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """Remove the hooks, and release the gradients."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._flow.clear()

    def result(self) -> PassResult | None:
        """Return the steps in the tape's order; None if torch ran none of them, or not a contiguous prefix."""
        ran = tuple(record.node for record in self._records)
        return (
            PassResult(tuple(self._records))
            if ran and ran == self._tape.order[: len(ran)]
            else None
        )

    def missing_steps(self) -> str:
        """Explain why steps are missing, "" if none are."""
        ran, every = len(self._records), len(self._tape.order)
        if self.stopped or ran == every:
            return self.stopped
        return f"torch ran {ran:,} of the {every:,} nodes: only the gradients of some tensors were requested."

    def _begins(self, _arriving: Any) -> None:
        self._began = perf_counter()

    def _ran(
        self,
        number: int,
        leaving: tuple[Tensor | None, ...],
        arriving: tuple[Tensor | None, ...],
    ) -> None:
        seconds = perf_counter() - self._began
        if self.stopped:
            return
        try:
            with torch.no_grad():
                self._records.append(self._record(number, leaving, arriving, seconds))
        except (
            Exception
        ) as error:  # an unsupported kind of tensor: the pass continues unrecorded
            self.stopped = f"A gradient of {self._tape.nodes[number].name} cannot be measured: {error}"

    def _record(
        self,
        number: int,
        leaving: tuple[Tensor | None, ...],
        arriving: tuple[Tensor | None, ...],
        seconds: float,
    ) -> StepRecord:
        position, edges = len(self._records), self._tape.outgoing.get(number, ())
        slots = [
            self._flow.slots.get((number, output)) for output in range(len(arriving))
        ]
        left = [
            leaving[edge.slot] if edge.slot < len(leaving) else None for edge in edges
        ]
        stats = measure([*arriving, *left])
        received, rest = stats[: len(arriving)], stats[len(arriving) :]
        sums = tuple(
            fan_in(number, nr, slot)
            for nr, slot in enumerate(slots)
            if slot and slot.count > 1
        )
        for edge, gradient in zip(edges, left, strict=True):
            if gradient is not None:
                self._flow.arrive(
                    (edge.target, edge.output_nr),
                    (number, edge.slot),
                    gradient,
                    position,
                )
        for output in range(len(arriving)):
            self._flow.put((number, output), None)
        steps = len(self._tape.order)
        return StepRecord(
            position=position,
            node=number,
            arriving=tuple(received),
            leaving=tuple(
                EdgeGrad(
                    edge.source, edge.slot, edge.target, edge.output_nr, grad_stats
                )
                for edge, grad_stats in zip(edges, rest, strict=True)
            ),
            fan_ins=sums,
            seconds=seconds,
            released=released_by_step(self._tape)[position] if position < steps else 0,
            held=held_by_step(self._tape)[min(position + 1, steps)],
        )


LONGEST = 34  # characters of a line that name a group
KEPT = 64  # graphs recorded before a backward pass
PATIENCE = 3.0  # seconds that recording them may take
MOST_NODES = 20_000  # of a graph that is recorded there
MOST_PLAYED = 2_000  # of one whose backward pass is measured step by step
BACKWARD = {torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad}
BETWEEN = {
    str(module.__file__)
    for module in (torch._tensor, torch.overrides, torch.autograd, torch_calls)
} | {__file__}


class SnippetSource(Source, frozen=True):
    """The text of a snippet under the name that its tracebacks show."""

    name: str = "snippet"

    @property
    def filename(self) -> str:
        return self.name


class Before(Struct, frozen=True):
    """A graph as it was right before `line` started a backward pass; `watch` has that pass, if it was watched.

    Where the pass began above this graph, `number` has the number here of each of its nodes that lies in the graph.
    """

    tape: Tape
    line: int
    watch: PassWatch | None = None
    number: Mapping[int, int] | None = None

    @property
    def played(self) -> tuple[PassResult | None, str]:
        """Return the recorded backward pass, and why it is incomplete or missing ("" if it is complete)."""
        if self.watch is None:
            return None, ""
        passed, reason = self.watch.result(), self.watch.missing_steps()
        if passed is not None and self.number is not None:
            passed = _part_of(passed, self.number, self.tape)
            reason = (
                ""
                if passed is not None and len(passed.records) == len(self.tape.order)
                else reason
            )
        return passed, reason


class SnippetRecorder(OriginRecorder):
    """A context in which a snippet runs. `names()` returns its current bindings.

    Modules are unknown before it runs, so all module calls are recorded; their paths are resolved when a tape is
    created. The graph is recorded right before a line of the snippet starts a backward pass.

    With `deaf` nothing is recorded, and lines and layers stay unknown: torch.compile is inactive under a function mode.
    With `watch` each step of such a pass is measured while torch runs it.
    """

    def __init__(
        self,
        source: SnippetSource,
        names: Callable[[], ScopeNames],
        deaf: bool = False,
        watch: bool = False,
    ) -> None:
        super().__init__(torch.nn.Module(), source)
        self._deaf, self._watches = deaf, watch
        # Nothing is compiled while frames are traced.
        self.local_names: Any = (
            LocalNames(source.filename) if not deaf else nullcontext()
        )
        self._text, self._look = source, names
        self._started = torch._C._autograd._get_sequence_nr()
        self._numbers = _Numbers()
        self._paths: dict[str, str] = {}
        self._backward: Any = None
        self._spent = 0.0
        self._earlier: deque[Before] = deque(maxlen=KEPT)
        self.begun: list[int] = []
        self.unread: list[str] = []

    def __enter__(self) -> SnippetRecorder:
        if self._deaf:
            return self
        super().__enter__()
        self._names = self._numbers
        everywhere = torch.nn.modules.module
        self._hooks.append(everywhere.register_module_forward_pre_hook(self._before))
        self._hooks.append(
            everywhere.register_module_forward_hook(self._after, always_call=True)
        )
        self._backward = _backward_mode(self)
        self._backward.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._deaf:
            return
        self._backward.__exit__(*error)
        self._names = {}
        super().__exit__(*error)

    def origin(self, number: int) -> NodeOrigin:
        origin = super().origin(number)
        return (
            replace(origin, layer=self._paths.get(origin.layer, ""))
            if origin.layer
            else origin
        )

    def starts_backward(
        self, tensors: Sequence[Any], frame: FrameType | None
    ) -> PassWatch | None:
        """Record the graph before a backward pass from these tensors, if a line of the snippet started it.

        Returns a watch of the pass, which the caller has to close.
        """
        while frame is not None and frame.f_code.co_filename in BETWEEN:
            frame = frame.f_back
        if frame is None or frame.f_code.co_filename != self._text.filename:
            return None
        watch = None
        began = process_time()
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                self.begun.append(tensor.grad_fn._sequence_nr())
                if self._spent < PATIENCE:
                    watch = self._keep(
                        tensor, frame.f_lineno, self._watches and len(tensors) == 1
                    )
        self._spent += process_time() - began
        return watch

    def _keep(self, tensor: torch.Tensor, line: int, watches: bool) -> PassWatch | None:
        watch = None
        try:
            tape, freed = self.tape_of(tensor)
            if watches and not freed and len(tape.nodes) <= MOST_PLAYED:
                watch = PassWatch(walk([tensor], shapes=False)[0], tape)
        except (
            Exception
        ) as error:  # must not end the snippet; reported when the graph is read again
            self.unread.append(str(error))
        else:
            if not freed:
                self._earlier.append(Before(tape, line, watch))
        return watch

    def before_backward(self, tensor: torch.Tensor) -> Before | None:
        """Return the graph of a tensor before the last backward pass through it."""
        assert tensor.grad_fn is not None
        number = tensor.grad_fn._sequence_nr() - self._started
        for earlier in reversed(self._earlier):
            node = next(
                (
                    candidate.id
                    for candidate in earlier.tape.nodes
                    if candidate.sequence == number
                ),
                None,
            )
            if node is not None:
                inside = (
                    None
                    if node == earlier.tape.roots[0]
                    else numbers_below(earlier.tape, node)
                )
                return Before(
                    below(earlier.tape, node, _number(tensor)),
                    earlier.line,
                    earlier.watch,
                    inside,
                )
        return None

    def last_backward(self) -> Before | None:
        """Return the graph of the newest backward pass that a line started, as it was before it."""
        return self._earlier[-1] if self._earlier else None

    def tape_of(
        self, tensor: torch.Tensor, names: ScopeNames | None = None
    ) -> tuple[Tape, bool]:
        """Return the graph of a tensor with a grad_fn, and whether a backward pass has freed part of it."""
        names = self._look() if names is None else names
        self._learn_paths(names)
        self._known.clear()
        nodes, edges, roots = walk([tensor])
        order = execution_order([node._sequence_nr() for node in nodes], edges, roots)
        table = StorageTable()
        leaves = [node.variable for node in nodes if is_accumulate(node)]
        parameters = [*leaves, *(parameter for _, parameter in names.parameters())]
        table.mark(filter(_has_storage, parameters), "parameter")
        table.mark((buffer for _, buffer in names.buffers()), "buffer")
        table.mark(
            (
                named_tensor
                for named_tensor in names.tensors.values()
                if named_tensor.is_leaf and _has_storage(named_tensor)
            ),
            "input",
        )
        reader, called = SavedReader(table, may_be_freed=True), names.of_tensors()
        span = (self._started, LEAF_SEQUENCE)
        records = [
            record_of(index, node, self, span, reader, called)
            for index, node in enumerate(nodes)
        ]
        results = names.of_results()
        records = [
            with_values(
                record,
                variables=results.get(node) or self._local_name(node),
                line=self._caller(node) or record.line,
                parameters=record.parameters or self._leaf_name(node),
            )
            for record, node in zip(records, nodes, strict=True)
        ]
        records, labels = _by_line(records, self._text.text)
        placed, labels = _apart(with_leaves_placed(records, edges, self), edges, labels)
        tape = Tape(
            nodes=placed,
            edges=tuple(edges),
            roots=roots,
            order=order,
            storages=table.storages({node: step for step, node in enumerate(order)}),
            loss=_number(tensor),
            train=True,
            layers=FrozenMap(
                {path: type(module).__name__ for module, path in names.paths().items()}
            ),
            labels=labels,
            text=self._text.text,
        )
        return tape, any(map(is_freed, nodes))

    def _local_name(self, node: Any) -> tuple[str, ...]:
        """Return the names that a result had in a function, or before its variable was bound again."""
        return () if self._deaf else self.local_names.of_result(node)

    def _leaf_name(self, node: Any) -> tuple[str, ...]:
        if self._deaf or not is_accumulate(node):
            return ()
        name = self.local_names.of_leaf(node.variable)
        return (name,) if name else ()

    def _caller(self, node: Any) -> int | None:
        """Return the line that applied a custom Function of the snippet, not those inside its forward.

        None for other nodes.
        """
        forward = getattr(getattr(type(node), "_forward_cls", None), "forward", None)
        code = getattr(forward, "__code__", None)
        if code is None or code.co_filename != self._text.filename:
            return None
        within = {line for _, _, line in code.co_lines()}
        lines = self._lines_at(node._sequence_nr())
        inner = max(
            (index for index, line in enumerate(lines) if line in within), default=-1
        )
        return lines[inner + 1] if inner + 1 < len(lines) else None

    def _learn_paths(self, names: ScopeNames) -> None:
        """Note the paths of the called modules; one without a name gets that of its class."""
        paths = names.paths()
        for module, number in self._numbers.items():
            path = paths.get(module)
            if path is not None or number not in self._paths:
                self._paths[number] = path or type(module).__name__


def _number(tensor: torch.Tensor) -> float | None:
    """Return the value of a one-element tensor; None for others, and for one without values."""
    if tensor.is_meta or tensor.is_complex() or tensor.numel() != 1:
        return None
    return float(tensor.detach())


def _has_storage(tensor: torch.Tensor) -> bool:
    """Not that of a lazy parameter, nor of a tensor within vmap."""
    try:
        return (
            tensor.layout is not torch.strided or tensor.untyped_storage() is not None
        )
    except (RuntimeError, NotImplementedError):
        return False


class _Numbers(dict):
    """Assigns a name to every module on first access."""

    def __missing__(self, module: torch.nn.Module) -> str:
        self[module] = name = f"#{len(self)}"
        return name


def _backward_mode(recorder: SnippetRecorder) -> FunctionCalls:
    def called(func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        if func in BACKWARD and recorder.listening:
            of = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
            watch = recorder.starts_backward(
                of if isinstance(of, (list, tuple)) else (of,), frame
            )
            if watch is not None:
                with watch:
                    return func(*args, **kwargs)
        return func(*args, **kwargs)

    return FunctionCalls(called)


def _by_line(
    records: list[TapeNode], text: str
) -> tuple[list[TapeNode], FrozenMap[str, Label]]:
    """Label nodes outside modules by their line; a line that runs again gets a new label."""
    lines = text.splitlines()
    runs: dict[int, int] = {}
    labels: dict[str, Label] = {}
    marked = list(records)
    previous: int | None = None
    for record in sorted(
        (node for node in records if not node.is_leaf),
        key=lambda node: node.sequence or 0,
    ):
        line = None if record.layer else record.line
        if line is not None:
            if line != previous:
                runs[line] = runs.get(line, 0) + 1
            key = f"line:{line}" + (f"#{runs[line]}" if runs[line] > 1 else "")
            labels[key] = Label(_title(lines, line, runs[line]))
            marked[record.id] = with_values(record, node=key)
        previous = line
    return marked, FrozenMap(labels)


def _apart(
    nodes: tuple[TapeNode, ...],
    edges: Sequence[TapeEdge],
    labels: FrozenMap[str, Label],
) -> tuple[tuple[TapeNode, ...], FrozenMap[str, Label]]:
    """Label a leaf that several lines use separately: it belongs to none of them."""
    users: dict[int, set[str | None]] = {}
    for edge in edges:
        if nodes[edge.target].is_leaf and not nodes[edge.target].layer:
            users.setdefault(edge.target, set()).add(nodes[edge.source].node)
    apart = {leaf: f"{LEAF}{leaf}" for leaf, lines in users.items() if len(lines) > 1}
    titles = {
        key: Label((*nodes[leaf].parameters, "leaf tensor")[0])
        for leaf, key in apart.items()
    }
    placed = tuple(
        with_values(node, node=apart[node.id]) if node.id in apart else node
        for node in nodes
    )
    return placed, FrozenMap({**labels, **titles})


def _title(lines: list[str], line: int, run: int) -> str:
    """Return the abbreviated code of a line, with the number of its run."""
    code = lines[line - 1].strip() if line <= len(lines) else f"line {line}"
    code = code.partition("  #")[0].rstrip()
    code = code if len(code) <= LONGEST else f"{code[: LONGEST - 1]}…"
    return code if run == 1 else f"{code} · {run}"


def _part_of(
    passed: PassResult, number: Mapping[int, int], tape: Tape
) -> PassResult | None:
    """Extract the steps of `tape`; `number` maps node ids to those in it. None if they ran in another order.

    Gradients at its first node are those of the whole pass; a gradient from outside counts as a seed.
    """
    live_bytes, released = held_by_step(tape), released_by_step(tape)
    records: list[StepRecord] = []
    for record in passed.records:
        if record.node not in number:
            continue
        position = len(records)
        leaving = tuple(
            with_values(edge, source=number[edge.source], target=number[edge.target])
            for edge in record.leaving
        )
        records.append(
            with_values(
                record,
                position=position,
                node=number[record.node],
                leaving=leaving,
                fan_ins=tuple(
                    _fan_in(gradient_sum, number) for gradient_sum in record.fan_ins
                ),
                released=released[position],
                held=live_bytes[position + 1],
            )
        )
    ran = tuple(record.node for record in records)
    return PassResult(tuple(records)) if ran and ran == tape.order[: len(ran)] else None


def _fan_in(fan_in: FanIn, number: Mapping[int, int]) -> FanIn:
    shares = tuple(_share(share, number) for share in fan_in.shares)
    return with_values(fan_in, node=number[fan_in.node], shares=shares)


def _share(share: Share, number: Mapping[int, int]) -> Share:
    if share.source in number:
        return with_values(share, source=number[share.source])
    return with_values(share, source=-1, slot=-1)
