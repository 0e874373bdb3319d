"""A graph kept after its forward pass, so that its backward pass can be played."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from app.autograd.tape import Tape

if TYPE_CHECKING:
    from torch import Tensor, nn


class LiveGraph:
    """The autograd nodes behind a `Tape`, with what they were made from.

    `nodes[i]` is torch's node of `tape.nodes[i]`. `ends` are the tensors that backward starts from: the loss, or the
    net's outputs that require a gradient or not, as they came. Holding this object holds every activation: whoever has
    it calls `release()` as soon as it is done (or uses it in a `with`), after which it is empty.
    """

    def __init__(
        self,
        tape: Tape,
        nodes: list[Any],
        ends: list[Tensor],
        model: nn.Module,
        inputs: tuple[Tensor, ...],
        target: Tensor | None,
    ) -> None:
        self.tape = tape
        self.nodes = nodes
        self.ends = ends
        self.model: nn.Module | None = model
        self.inputs = inputs
        self.target = target
        self.undo = ExitStack()
        # The vectors that backward starts with, one for each end, where somebody chose them.
        self.seeds: list[Tensor | None] | None = None

    @property
    def released(self) -> bool:
        """True once the graph was freed."""
        return self.model is None

    def release(self) -> None:
        """Free the graph and restore the model's modes and buffers. Idempotent."""
        self.nodes, self.ends, self.inputs, self.target, self.model = [], [], (), None, None
        self.seeds = None
        self.undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()
