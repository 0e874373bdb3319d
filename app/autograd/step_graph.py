"""Describe the graph below what a script calls `backward` on, which the script's own backward uses afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from torch import Tensor

from app.autograd.capture import record_of, with_leaves_placed
from app.autograd.errors import CaptureError, NoGraphError
from app.autograd.memory import SavedReader, StorageTable
from app.autograd.playback.direct_call import is_compiled, passes_on
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.step_recorder import StepRecorder
from app.autograd.tape import Tape
from app.autograd.walk import LEAF_SEQUENCE, execution_order, is_accumulate, walk
from app.util import gc_pause
from app.util.frozen import FrozenMap


class StepGraph:
    """What a backward that is about to run starts from, and all below it. `tensors` and `gradients` are the arguments
    of `backward`; `name_of` names parameters that no model holds. `notes` are sentences shown with it.

    Raises CaptureError for a call that cannot be described.
    """

    def __init__(
        self,
        tensors: Any,
        gradients: Any,
        recorder: StepRecorder,
        name_of: Callable[[Tensor], str],
        notes: Iterable[str] = (),
    ) -> None:
        ends: list[Any] = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if not all(isinstance(tensor, Tensor) for tensor in ends):
            raise CaptureError(
                "backward was called on an edge of the graph instead of a tensor, such as the loss."
            )
        if not any(tensor.requires_grad for tensor in ends):
            raise NoGraphError(
                "backward was called on a tensor that requires no gradient."
            )
        self._ends: list[Tensor] = ends
        self._seeds = _seeds(gradients, len(ends))
        self._whole = recorder.whole
        with gc_pause.put_off():
            self._nodes, edges, roots = walk(ends)
            self.tape = _tape(self._nodes, edges, roots, ends, recorder, name_of)
        self.notes = (*notes, *_notes(self._nodes))

    def hold(self) -> LiveGraph:
        """Return the graph to be played; releasing it frees nothing of the script's."""
        graph = LiveGraph(
            self.tape,
            list(self._nodes),
            list(self._ends),
            self._whole,
            (),
            None,
            lent=True,
        )
        graph.seeds = None if self._seeds is None else list(self._seeds)
        graph.undo = ExitStack()
        return graph


def _notes(nodes: Sequence[Any]) -> Iterator[str]:
    """Say what of the graph is played in another way than the script's own backward runs it."""
    if hooked := sum(map(_is_hooked, nodes)):
        subject = (
            "hook of the script is"
            if hooked == 1
            else f"{hooked} hooks of the script are"
        )
        yield f"{'A' if hooked == 1 else 'The'} {subject} not run while it is played"
    if any(map(is_compiled, nodes)):
        yield "compiled parts are one node each, and have no layers"


def _seeds(gradients: Any, count: int) -> list[Tensor | None] | None:
    if gradients is None:
        return None
    vectors = [gradients] if isinstance(gradients, Tensor) else list(gradients)
    return (
        vectors
        if len(vectors) == count and any(vector is not None for vector in vectors)
        else None
    )


def _tape(
    nodes: list[Any],
    edges: Any,
    roots: tuple[int, ...],
    ends: Sequence[Tensor],
    recorder: StepRecorder,
    name_of: Callable[[Tensor], str],
) -> Tape:
    sequences = [node._sequence_nr() for node in nodes]
    numbers = [number for number in sequences if number != LEAF_SEQUENCE]
    started = min(numbers, default=0)
    inside = [number for number in numbers if recorder.origin(number).call]
    answered = (
        max(inside) + 1 if inside else LEAF_SEQUENCE
    )  # the loss is what comes after the last layer
    order = execution_order(sequences, edges, roots)
    names = recorder.names_of_parameters()
    leaves = [node.variable for node in nodes if is_accumulate(node)]
    names |= {
        id(leaf): (name,)
        for leaf in leaves
        if id(leaf) not in names and (name := name_of(leaf))
    }
    table = StorageTable()
    table.mark((leaf for leaf in leaves if id(leaf) in names), "parameter")
    table.mark(recorder.buffers(), "buffer")
    table.mark(recorder.inputs, "input")
    reader = SavedReader(table)
    records = [
        record_of(index, node, recorder, (started, answered), reader, names)
        for index, node in enumerate(nodes)
    ]
    value = ends[0] if len(ends) == 1 and ends[0].numel() == 1 else None
    return Tape(
        nodes=with_leaves_placed(records, edges, recorder),
        edges=tuple(edges),
        roots=roots,
        order=order,
        storages=table.storages({node: step for step, node in enumerate(order)}),
        loss=float(value.detach()) if value is not None else None,
        train=any(model.training for model in recorder.models.values()),
        input_shapes=tuple(tuple(tensor.shape) for tensor in recorder.inputs),
        layers=FrozenMap(recorder.layers()),
        codes=recorder.codes(records),
    )


def _is_hooked(node: Any) -> bool:
    """Return whether a leaf has hooks of the script's own, or a node carries those of a module. Hooks on
    other nodes cannot be detected without registering one there."""
    return passes_on(node) or (
        is_accumulate(node) and bool(node.variable._backward_hooks)
    )
