"""A model, one batch and a loss: captured, played back and diagnosed repeatedly without changing the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from msgspec.structs import force_setattr

from app.autograd.capture import (
    ReadyLoss,
    failing_forward,
    first_tensor,
    loss_of,
    parameter_names,
    record_of,
    storage_table,
    tensors_of,
    why_no_graph,
    with_leaves_placed,
)
from app.autograd.errors import CaptureError, NoGraphError
from app.autograd.forward_modes import PLAIN, SecondOrder, Special, device_of
from app.autograd.layers import FileRecorder, OriginRecorder
from app.autograd.memory import SavedReader
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.tape import Label, Tape
from app.autograd.walk import execution_order, walk
from app.source.compiled import make_module
from app.source.generated import Source
from app.util import gc_pause, module_tree, rng
from app.util.frozen import FrozenMap
from app.util.module_tree import temporary_mode

if TYPE_CHECKING:
    from torch import Tensor, nn


class TrainingBatch(Struct, frozen=True, eq=False):
    """`loss(output, target)` below `model(*inputs, **kwargs)`; without `loss` the graph starts at all outputs.

    A single tensor for `inputs` is one input; other arguments may be anything. Of several outputs the loss gets the
    first, or all of them if it has a true attribute `whole`; then the target may be a dictionary of tensors. `source`
    maps lines of the generated text to nodes of the drawing; without one, operations get the lines of the files that
    called them if `own_lines`. `special` are the forward modes; `seeds` computes the vectors that backward starts with
    from the outputs, ones by default. Every run reseeds with `seed` (dropout), or begins with the states in it, and
    torch's generators are restored afterwards. `remark` says what was guessed of the arguments.
    """

    model: nn.Module
    inputs: tuple[Any, ...]
    loss: Callable[[Any, Any], Any] | None = None
    target: Any = None
    source: Source | None = None
    train: bool = True
    seed: int | rng.Generators = 0
    labels: Mapping[str, Label] = FrozenMap()
    special: Special = PLAIN
    seeds: Callable[[Sequence[Tensor]], list[Tensor | None]] | None = None
    kwargs: Mapping[str, Any] = FrozenMap()
    own_lines: bool = False
    remark: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, tuple):
            force_setattr(self, "inputs", (self.inputs,))

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor among the arguments."""
        return tensors_of((self.inputs, dict(self.kwargs)))

    def call(self) -> Any:
        """Call the model with its arguments."""
        return self.model(*self.inputs, **self.kwargs)

    def capture(self) -> Tape:
        """Run one forward pass and describe its autograd graph as plain data; the graph is freed.

        Raises NoGraphError if nothing requires a gradient, and ForwardError if the net or the loss raises and there is
        a `source` or lines are recorded; else the error itself.
        """
        with self.hold() as graph:
            return graph.tape

    def hold(
        self,
        around: AbstractContextManager[object] | None = None,
        special: Special | None = None,
    ) -> LiveGraph:
        """Like `capture`, but keep the graph: `release()` it, or use it in a `with`.

        `around` is entered around the forward pass and the loss, `special` is taken in place of this one's. Raises
        CaptureError too where the outputs have no such vector as backward is to start with.
        """
        modes = special if special is not None else self.special
        with rng.borrowed(self.seed):
            graph = failing_forward(
                self.source, lambda: _hold(self, around, modes), self.own_lines
            )
        refused = ""
        try:
            graph.seeds = self.seeds(graph.ends) if self.seeds is not None else None
        except ValueError as error:
            refused = str(error)
        if refused:  # raised out here: a traceback through the graph's own frames would keep it alive
            graph.release()
            raise CaptureError(refused)
        return graph

    def forward(self) -> list[Tensor]:
        """Run the net and its loss without instrumentation; return the loss, or all outputs without one."""
        output = self.call()
        value = (
            loss_of(self.loss, output, self.target) if self.loss is not None else None
        )
        return tensors_of(output) if value is None else [value]


def _hold(
    batch: TrainingBatch,
    around: AbstractContextManager[object] | None,
    special: Special,
) -> LiveGraph:
    """Run a batch forward, describe its graph and keep it: `release()` it, or use it in a `with`.

    Until then the model stays in the mode it ran in (a checkpointed part computes again while backward runs) and its
    buffers as the forward left them (BatchNorm saves its running statistics, and changing them would be an in-place
    change). Afterwards both are as before; the parameters' `.grad` is not touched. `around` is entered around the
    forward pass and the loss.
    """
    with ExitStack() as undo:
        undo.enter_context(temporary_mode(batch.model, batch.train))
        undo.enter_context(special.applied(batch.model))
        with around if around is not None else nullcontext():
            graph = _capture(batch, special)
        graph.undo = undo.pop_all()
    return graph


def _capture(batch: TrainingBatch, special: Special) -> LiveGraph:
    model, inputs, loss, target, source = (
        batch.model,
        batch.tensors,
        batch.loss,
        batch.target,
        batch.source,
    )
    recorder = FileRecorder(model) if batch.own_lines else OriginRecorder(model, source)
    started = torch._C._autograd._get_sequence_nr()
    eager = (
        nullcontext()
        if special.compile or not batch.own_lines
        else torch.compiler.set_stance("force_eager")
    )
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        special.casting(device_of(inputs)),
        eager,
    ):
        with (
            nullcontext() if special.compile else recorder
        ):  # hooks would break a compiled graph into pieces
            output = batch.call()
        answered = torch._C._autograd._get_sequence_nr()
        if isinstance(
            loss, ReadyLoss
        ):  # its target is the one that backward may have saved
            output, target = loss.ready(first_tensor(output), target)
            loss = loss.loss
        value = None if loss is None else loss_of(loss, output, target)
    ends = special.chosen(tensors_of(output)) if value is None else [value]
    if not any(tensor.requires_grad for tensor in ends):
        raise NoGraphError(why_no_graph(model))
    second = (
        SecondOrder(ends, module_tree.parameters(model), walk(ends)[0])
        if special.second_order
        else None
    )
    if second is not None:
        if second.value is None:
            raise NoGraphError(
                "The gradient of this network does not depend on the weights, so it has no graph."
            )
        ends = [second.value]
    with gc_pause.put_off():
        nodes, edges, roots = walk(ends)
        sequences = [node._sequence_nr() for node in nodes]
        order = execution_order(sequences, edges, roots)
        table = storage_table(model, (*inputs, *tensors_of(target)), loss)
        reader = SavedReader(table)
        names = parameter_names(model)
        records = [
            record_of(index, node, recorder, (started, answered), reader, names)
            for index, node in enumerate(nodes)
        ]
        if second is not None:
            pairs = zip(records, nodes, strict=True)
            records = [
                second.with_location(record, node, recorder, answered)
                for record, node in pairs
            ]
        tape = Tape(
            nodes=with_leaves_placed(records, edges, recorder),
            edges=tuple(edges),
            roots=roots,
            order=order,
            storages=table.storages({node: step for step, node in enumerate(order)}),
            loss=float(value.detach())
            if value is not None and value.numel() == 1
            else None,
            train=batch.train,
            input_shapes=tuple(tuple(tensor.shape) for tensor in inputs),
            layers=FrozenMap(
                {
                    name: type(module).__name__
                    for name, module in module_tree.named_modules(model)
                }
            ),
            labels=FrozenMap(batch.labels),
            text=source.text if source is not None else "",
            codes=recorder.codes(records)
            if isinstance(recorder, FileRecorder)
            else FrozenMap(),
        )
    return LiveGraph(tape, nodes, ends, model, tuple(inputs), target)


def compile_batch(
    source: Source,
    inputs: Tensor | tuple[Tensor, ...],
    target: Any,
    loss: Callable[[Any, Any], Tensor] | None,
    seed: int,
    state_dict: Mapping[str, Tensor] | None = None,
) -> TrainingBatch:
    """Compile the text to a module, with a batch on the CPU.

    `state_dict` has the weights, else they are initialised with `seed`; torch's generators are restored afterwards.
    Raises ForwardError if constructing the module raises.
    """

    def construct() -> nn.Module:
        with rng.borrowed(seed):
            model = make_module(source)
        if state_dict is not None:
            model.load_state_dict(dict(state_dict))
        return model

    model = failing_forward(source, construct)
    return TrainingBatch(model, inputs, loss, target, source, seed=seed)  # type: ignore[arg-type]


@contextmanager
def preserve_gradients(model: nn.Module) -> Iterator[None]:
    """Clear the `.grad` of all parameters, and restore them afterwards."""
    gradients = [
        (parameter, parameter.grad) for parameter in module_tree.parameters(model)
    ]
    try:
        for parameter, _ in gradients:
            parameter.grad = None
        yield
    finally:
        for parameter, grad in gradients:
            parameter.grad = grad


def run_backward(graph: LiveGraph) -> str:
    """Run the backward pass of a graph, from ones if an output is no scalar; return torch's error, "" if none.

    Gradients accumulate in `.grad`; see `gradients_kept`.
    """
    try:
        backward_of(graph.ends, graph.seeds)
    except RuntimeError as error:
        return str(error)
    return ""


def backward_of(
    ends: list[Tensor], seeds: Sequence[Tensor | None] | None = None
) -> None:
    """Backward from those that require a gradient, with ones, or with `seeds` of which each end has one or None."""
    vectors = [torch.ones_like(end) for end in ends] if seeds is None else seeds
    pairs = [
        (end, seed)
        for end, seed in zip(ends, vectors, strict=True)
        if end.requires_grad and seed is not None
    ]
    torch.autograd.backward([end for end, _ in pairs], [seed for _, seed in pairs])
