"""Record every step of a real backward pass while torch runs it, as a `Playback` would report it.

Hooks on the nodes of this graph pass gradients through unchanged: nothing runs twice, and the user's own hooks run
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from app.autograd.gradient_norms import measure
from app.autograd.playback.gradient_flow import GradientFlow, fan_in
from app.autograd.playback.memory_timeline import held_by_step, released_by_step
from app.autograd.playback.steps import EdgeGrad, PassResult, StepRecord
from app.autograd.tape import Tape

if TYPE_CHECKING:
    from torch import Tensor


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
