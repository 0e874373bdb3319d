"""A live graph: kept after its forward pass, so that its backward pass can be played."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from app.autograd.tape import Tape

if TYPE_CHECKING:
    from torch import Tensor, nn


class LiveGraph:
    """The autograd nodes behind a `Tape`, with their model, inputs and outputs.

    `nodes[i]` is torch's node of `tape.nodes[i]`. `ends` are the tensors that backward starts from: the loss, or all of
    the net's outputs, whether they require grad or not. It keeps every activation alive until `release()`, which the
    owner has to call (or use it in a `with`).

    One that is `lent` belongs to a script that runs its own backward over it afterwards, and finds everything as it
    was: hooks of its tensors and nodes are not run, and what a node leaves in a buffer or a `ctx` is undone.
    """

    def __init__(
        self,
        tape: Tape,
        nodes: list[Any],
        ends: list[Tensor],
        model: nn.Module,
        inputs: tuple[Tensor, ...],
        target: Tensor | None,
        lent: bool = False,
    ) -> None:
        self.tape = tape
        self.nodes = nodes
        self.ends = ends
        self.model: nn.Module | None = model
        self.inputs = inputs
        self.target = target
        self.lent = lent
        self.undo = ExitStack()
        # The vectors that backward starts with, one for each end, if specified.
        self.seeds: list[Tensor | None] | None = None

    @property
    def released(self) -> bool:
        """True once the graph was freed."""
        return self.model is None

    def release(self) -> None:
        """Free the graph and restore the model's modes and buffers. Idempotent."""
        self.nodes, self.ends, self.inputs, self.target, self.model = (
            [],
            [],
            (),
            None,
            None,
        )
        self.seeds = None
        self.undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()
