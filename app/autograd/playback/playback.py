"""Play a backward pass node by node in torch's order, forwards and back again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch
from msgspec import Struct

from app.autograd.gradient_norms import describe_gradient, measure
from app.autograd.playback.direct_call import is_custom, rerunnable
from app.autograd.playback.gradient_edits import GradEdit, edited
from app.autograd.playback.gradient_flow import (
    AccumulatedGradient,
    GradientFlow,
    Slot,
    fan_in,
)
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.playback.memory_timeline import held_by_step, released_by_step
from app.autograd.playback.node_call import (
    Called,
    call,
    forget_recomputed,
    may_use_rng,
    own_grads,
    undone,
)
from app.autograd.playback.root_gradients import seeded
from app.autograd.playback.steps import (
    Breaks,
    EdgeGrad,
    FanIn,
    GradientLook,
    GradStats,
    PassResult,
    StepRecord,
    Stop,
    stops_at,
)
from app.source import raised
from app.util import module_tree, rng
from app.util.errors import CodedError

if TYPE_CHECKING:
    from torch import Tensor

# Bytes of gradients stored for stepping back. Beyond them the pass is replayed from its start.
KEEP = 1 << 30


class StepError(CodedError, RuntimeError):
    """A node raised. `node` and `position` identify it, `layer` and `line` locate its origin."""

    def __init__(
        self, message: str, position: int, node: int, layer: str, line: int | None
    ) -> None:
        super().__init__(message)
        self.position, self.node, self.layer, self.line = position, node, layer, line


class _Edited(Struct, frozen=True):
    """An edit made at `position`; `before` is the previous state of the slot, `after` the gradient that replaced it."""

    position: int
    slot: Slot
    before: AccumulatedGradient | None
    after: Tensor


class Playback:
    """torch's backward over a live graph, one node at a time. `position` nodes have run; used by one thread at a time.

    Gradients of leaves are collected here (`gradients`); no parameter's `.grad` is modified, and hooks of tensors and
    nodes run as in a real backward (of parameters too, except post-accumulate hooks; none of a lent graph). `seeds` are
    the vectors that backward starts with, one for each of `graph.ends`: a tensor of its shape, a number for all its
    elements, or None (1 for a single element, else nothing); the graph's own by default. `scale` is the loss scale of a
    gradient scaler. With `create_graph` the gradients themselves can be differentiated.

    The owner has to call `release()`, which releases the graph as well.
    """

    def __init__(
        self,
        graph: LiveGraph,
        *,
        seeds: Sequence[Tensor | float | None] | None = None,
        create_graph: bool = False,
        scale: float = 1.0,
        keep: int = KEEP,
    ) -> None:
        self.graph, self.tape = graph, graph.tape
        self.create_graph, self.scale = create_graph, scale
        self.position = 0
        self.leaf_gradients: dict[int, Tensor] = {}
        self._cancelled = threading.Event()
        self._inside: dict[int, dict[str, Tensor]] = {}
        self._records: list[StepRecord] = []
        self._edits: list[_Edited] = []
        self._draws: dict[int, bool] = {}
        self._told: dict[tuple[int, int], GradStats] = {}
        self._flow = GradientFlow(self.tape, keep)
        self._released = released_by_step(self.tape)
        self.curve = tuple(
            held_by_step(self.tape)
        )  # bytes of activations held where 0, 1, ... nodes have run
        self._seeds = seeded(graph, graph.seeds if seeds is None else seeds, scale)
        self._rewind()

    # -- where it is ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.tape.order)

    @property
    def next_node(self) -> int | None:
        """The node that runs next; None at the end."""
        return self.tape.order[self.position] if self.position < len(self) else None

    @property
    def held_bytes(self) -> int:
        """Bytes of activations that a real backward would still hold at this position."""
        return self.curve[self.position]

    @property
    def stored_bytes(self) -> int:
        """Approximate bytes that this playback keeps alive: all activations, and the computed gradients."""
        return (
            0 if self.graph.released else self.tape.held_bytes + self._flow.stored_bytes
        )

    @property
    def records(self) -> tuple[StepRecord, ...]:
        """The steps that were played and not stepped back, in order."""
        return tuple(self._records)

    @property
    def edits(self) -> tuple[tuple[int, int, int], ...]:
        """The edits that hold, as (position, node, output number)."""
        return tuple((edit.position, *edit.slot) for edit in self._edits)

    @property
    def gradients(self) -> dict[str, Tensor]:
        """Gradients that a real backward would have added to `.grad` by now, by name (the first of tied ones)."""
        gradients: dict[str, Tensor] = {}
        for node, gradient in self.leaf_gradients.items():
            if names := self.tape.nodes[node].parameters:
                gradients[names[0]] = gradient
        for inside in self._inside.values():
            for name, gradient in inside.items():
                gradients[name] = (
                    gradients[name] + gradient if name in gradients else gradient
                )
        return gradients

    def result(self) -> PassResult:
        """Return the steps played so far, with the norms on nodes and edges."""
        return PassResult(self.records)

    # -- going ---------------------------------------------------------------------------------------------------------

    def step(self) -> StepRecord | None:
        """Run the next node; None at the end. Raises StepError, leaving the position unchanged."""
        if self.next_node is None:
            return None
        record = self._advance()
        self._records.append(record)
        return record

    def back(self) -> bool:
        """Undo the last step, and edits made after it; False at the start."""
        if not self.position:
            return False
        self.seek(self.position - 1)
        return True

    def seek(self, position: int) -> Stop:
        """Go to where `position` nodes have run, in either direction; a cancel ends it early."""
        position = max(0, min(position, len(self)))
        if position < self.position:
            self._go_back(position)
        while self.position < position and not self._cancelled.is_set():
            self.step()
        return self._stopped("end" if self.position == len(self) else "node")

    def run_to(self, node: int) -> Stop:
        """Go to where `node` runs next, in either direction."""
        return self.seek(self.tape.steps[node])

    def run(
        self,
        until: Breaks | None = None,
        on_step: Callable[[StepRecord], object] | None = None,
    ) -> Stop:
        """Play until the end, a break or a `cancel()`. A break at the next node is ignored.

        `on_step` is called after each step; returning False cancels.
        """
        until = until or Breaks()
        before, first = stops_at(self.tape, until), True
        while (node := self.next_node) is not None and not self._cancelled.is_set():
            if not first and node in before:
                return Stop(before[node], self.position, node)
            first, record = False, self.step()
            assert record is not None
            go_on = on_step is None or on_step(record) is not False
            if stop := _break_at(record, until):
                return stop
            if not go_on:
                self._cancelled.set()
        return self._stopped("end")

    def cancel(self) -> None:
        """Have a `run` or `seek` end after the step it is at; may be called from any thread."""
        self._cancelled.set()

    def _stopped(self, reason: str) -> Stop:
        if self._cancelled.is_set():
            self._cancelled.clear()
            reason = "cancelled" if self.next_node is not None else reason
        return Stop(reason, self.position, self.next_node)

    # -- inspecting and editing ---------------------------------------------------------------------------------------

    def gradient(self, node: int, output_nr: int = 0) -> Tensor | None:
        """Return the gradient accumulated before an output of a node; None if nothing has arrived or it is not
        stored."""
        arrived = self._flow.slots.get((node, output_nr))
        return arrived.sum() if arrived else None

    def edge_gradient(self, source: int, slot: int) -> Tensor | None:
        """Return the gradient of one edge; None if there is none, or only the sum is stored."""
        edge = next(
            (edge for edge in self.tape.outgoing.get(source, ()) if edge.slot == slot),
            None,
        )
        arrived = self._flow.slots.get((edge.target, edge.output_nr)) if edge else None
        return arrived.part((source, slot)) if arrived else None

    def inspect(
        self, node: int, output_nr: int = 0, at: tuple[int, ...] = ()
    ) -> GradientLook | None:
        """Return numbers, histogram and picture of an incoming gradient. `at` are leading indices, such as the
        sample."""
        gradient = self.gradient(node, output_nr)
        return None if gradient is None else describe_gradient(gradient, at, self.scale)

    def waiting(self) -> tuple[tuple[GradStats | None, ...], tuple[FanIn, ...]]:
        """Measure what has arrived before the next node, by output number, and how it adds up."""
        number = self.next_node
        if number is None or self.graph.released:
            return (), ()
        slots = [
            self._flow.slots.get((number, nr))
            for nr in range(len(self.graph.nodes[number]._input_metadata))
        ]
        arriving = measure([slot.sum() if slot else None for slot in slots], self.scale)
        sums = tuple(
            fan_in(number, nr, slot)
            for nr, slot in enumerate(slots)
            if slot and slot.count > 1
        )
        return tuple(arriving), sums

    def edit(self, node: int, output_nr: int, change: GradEdit | Tensor) -> GradStats:
        """Replace the gradient accumulated so far at an output of a node that has not run; later ones are added to it.

        Raises ValueError if nothing has arrived, the node has run, or the tensor has another shape.
        """
        if self.tape.steps[node] < self.position:
            raise ValueError(
                f"Node {node} has run already. Step back before it to edit its gradient."
            )
        slot, arrived = (node, output_nr), self._flow.slots.get((node, output_nr))
        gradient = arrived.sum() if arrived else None
        if isinstance(change, GradEdit):
            if gradient is None:
                raise ValueError(
                    f"No gradient has arrived at node {node} yet. Step to just before it."
                )
            with torch.set_grad_enabled(self.create_graph):
                after = edited(gradient, change)
        else:
            after = _as_gradient(
                change, self.graph.nodes[node]._input_metadata[output_nr]
            )
        self._apply(slot, after)
        (stats,) = measure([after], self.scale)
        assert stats is not None
        return stats

    def undo_edit(self) -> bool:
        """Undo the last edit made at this position; False if there is none."""
        if not self._edits or self._edits[-1].position != self.position:
            return False
        edit = self._edits.pop()
        self._flow.put(edit.slot, edit.before)
        return True

    def release(self) -> None:
        """Free everything, the graph too. Idempotent."""
        self.leaf_gradients, self._inside, self._edits, self._seeds = {}, {}, [], []
        self._flow.clear()
        self._cancelled.set()
        self.graph.release()

    # -- how -----------------------------------------------------------------------------------------------------------

    def _advance(self, measured: bool = True) -> StepRecord:
        """Run the next node. Without `measured` the numbers of the record that is there already hold."""
        if self.graph.released:
            raise RuntimeError(
                "This graph was freed. Capture it again to play its backward pass."
            )
        position = self.position
        number = self.tape.order[position]
        node, before = self.graph.nodes[number], torch._C._autograd._get_sequence_nr()
        with torch.inference_mode(False), torch.set_grad_enabled(self.create_graph):
            slots = [
                self._flow.slots.get((number, nr))
                for nr in range(len(node._input_metadata))
            ]
            arriving = [arrived.sum() if arrived else None for arrived in slots]
            called = self._call(number, arriving)
            for edge in self.tape.outgoing.get(number, ()):
                gradient = called.computed[edge.slot]
                if gradient is not None:
                    self._flow.arrive(
                        (edge.target, edge.output_nr),
                        (number, edge.slot),
                        gradient,
                        position,
                    )
        if self.tape.nodes[number].is_leaf and called.received[0] is not None:
            self.leaf_gradients[number] = called.received[0]
        created = torch._C._autograd._get_sequence_nr() - before - called.aside
        record = (
            self._record(number, slots, arriving, called, created)
            if measured
            else self._records[position]
        )
        self.position += 1
        self._flow.trim(self.position)
        return record

    def _call(self, number: int, arriving: list[Tensor | None]) -> Called:
        node = self.graph.nodes[number]
        draws = self._draws.get(number)
        if draws is None:
            draws = self._draws[number] = may_use_rng(node)
        try:
            if not draws:
                return call(
                    node, arriving, self.create_graph, hooks=not self.graph.lent
                )
            with ExitStack() as around:
                around.enter_context(rng.borrowed(number))
                around.callback(forget_recomputed, node)
                model = self.graph.model
                inside = {}
                around.enter_context(rerunnable(node))
                if self.graph.lent:
                    around.enter_context(
                        undone(
                            node,
                            module_tree.buffers(model) if model is not None else (),
                        )
                    )
                if is_custom(node) and model is not None:
                    inside = around.enter_context(
                        own_grads(dict(module_tree.named_parameters(model)))
                    )
                called = call(
                    node,
                    arriving,
                    self.create_graph,
                    recomputes=True,
                    hooks=not self.graph.lent,
                )
        except Exception as error:
            where = self.tape.nodes[number]
            message = (
                f"{where.name} of {self.tape.title_of(where)}: {raised.sentence(error)}"
            )
            raise StepError(
                message, self.position, number, where.layer, where.line
            ) from None
        if inside:
            self._inside[number] = inside
        return called

    def _record(
        self,
        number: int,
        slots: list[AccumulatedGradient | None],
        arriving: list[Tensor | None],
        called: Called,
        created: int,
    ) -> StepRecord:
        edges = self.tape.outgoing.get(number, ())
        inside = self._inside.get(number, {})
        pairs = list(zip(arriving, called.received, strict=True))
        # A gradient from a single edge was measured when it left.
        edge_stats = [
            self._told.get(slot.only(got)) if slot else None
            for slot, (_, got) in zip(slots, pairs, strict=True)
        ]
        new = [
            None if cached else got
            for cached, got in zip(edge_stats, called.received, strict=True)
        ]
        stats = measure(
            [*new, *(called.computed[edge.slot] for edge in edges), *inside.values()],
            self.scale,
        )
        received = [
            cached or fresh for cached, fresh in zip(edge_stats, stats, strict=False)
        ]
        rest = stats[len(received) :]
        self._told.update(
            {
                (e.source, e.slot): grad_stats
                for e, grad_stats in zip(edges, rest, strict=False)
                if grad_stats
            }
        )
        return StepRecord(
            position=self.position,
            node=number,
            arriving=tuple(received),
            leaving=tuple(
                EdgeGrad(
                    edge.source, edge.slot, edge.target, edge.output_nr, grad_stats
                )
                for edge, grad_stats in zip(edges, rest, strict=False)
            ),
            fan_ins=tuple(
                fan_in(number, nr, slot)
                for nr, slot in enumerate(slots)
                if slot and slot.count > 1
            ),
            seconds=called.seconds,
            released=self._released[self.position],
            held=self.curve[self.position + 1],
            made=created,
            edited=tuple(
                sorted({edit.slot[1] for edit in self._edits if edit.slot[0] == number})
            ),
            hooked=tuple(
                nr
                for nr, (incoming, got) in enumerate(pairs)
                if incoming is not got and got is not None
            ),
            inside=tuple(
                (name, grad_stats)
                for name, grad_stats in zip(inside, rest[len(edges) :], strict=True)
                if grad_stats
            ),
        )

    def _rewind(self) -> None:
        """Forget all that came by playing; records and edits are the caller's."""
        self.position, self.leaf_gradients, self._inside = 0, {}, {}
        self._flow.clear()
        for slot, seed in self._seeds:
            self._flow.seed(slot, seed)

    def _go_back(self, target: int) -> None:
        """Step back to `target`; replay the pass with its edits if gradients needed for that were released."""
        while self.position > max(target, self._flow.floor):
            self._undo_step()
        if self.position == target:
            return
        again = [edit for edit in self._edits if edit.position <= target]
        self._edits = []
        self._rewind()
        while True:
            while again and again[0].position == self.position:
                edit = again.pop(0)
                self._apply(edit.slot, edit.after)
            if self.position == target:
                break
            self._advance(measured=False)
        del self._records[target:]

    def _undo_step(self) -> None:
        while self.undo_edit():
            continue
        self.position -= 1
        number = self.tape.order[self.position]
        self._flow.take_back(number)
        self.leaf_gradients.pop(number, None)
        self._inside.pop(number, None)
        self._records.pop()

    def _apply(self, slot: Slot, gradient: Tensor) -> None:
        self._edits.append(
            _Edited(self.position, slot, self._flow.replace(slot, gradient), gradient)
        )


def _break_at(record: StepRecord, until: Breaks) -> Stop | None:
    """Return the break that this step's gradients trigger, if any."""
    after = record.position + 1
    if until.non_finite:
        every = (*record.arriving, *(edge.stats for edge in record.leaving))
        bad = sum(stats.nonfinite for stats in every if stats)
        if bad:
            return Stop("non_finite", after, record.node, float(bad))
    if until.norm_above is not None and not record.worst() <= until.norm_above:
        return Stop("norm", after, record.node, record.worst())
    return None


def _as_gradient(tensor: Tensor, metadata: object) -> Tensor:
    shape = tuple(metadata.shape)  # type: ignore[attr-defined]
    if tuple(tensor.shape) != shape:
        raise ValueError(
            f"The gradient there has shape {shape}; the given tensor has {tuple(tensor.shape)}."
        )
    return tensor.detach().to(metadata.device, metadata.dtype)  # type: ignore[attr-defined]


def play_through(graph: LiveGraph, ones: bool = False) -> tuple[PassResult, str]:
    """Play the backward pass; return its steps, and why it ended early, "" if it did not.

    It starts with the graph's seeds; without any at a scalar, or with `ones` from ones. The graph is released
    afterwards. Raises ValueError if there is nothing to start with.
    """
    seeds = (
        [1.0 if end.requires_grad else None for end in graph.ends]
        if ones and graph.seeds is None
        else None
    )
    try:
        playback = Playback(graph, seeds=seeds)
        try:
            playback.run()
            return playback.result(), ""
        except StepError as failed:
            return playback.result(), str(failed)
        finally:
            playback.release()
    finally:
        graph.release()
