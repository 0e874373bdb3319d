"""What is looked into: a net, one batch, a loss. Detectives run it as often as they need, and leave it as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.autograd.capture import (
    CaptureError,
    ForwardFailed,
    LossChoice,
    failure_of,
    hold,
    loss_of,
    made_ready,
    tensors_of,
)
from app.autograd.forward_modes import PLAIN, Special
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.tape import Label
from app.source.generated import Source
from app.util import rng
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Subject:
    """`loss(output, target)` below `model(*inputs)`; without `loss` all outputs are the end.

    `source` maps lines to nodes of the drawing. `special` says what differs from a plain forward pass; `seeds` makes of
    the ends the vectors that backward starts with, ones without it. Every run draws its random numbers (dropout)
    from `seed`.
    """

    model: nn.Module
    inputs: tuple[Tensor, ...]
    loss: Callable[[Any, Any], Tensor] | None = None
    target: Tensor | None = None
    source: Source | None = None
    train: bool = True
    seed: int = 0
    labels: Mapping[str, Label] = field(default_factory=FrozenMap)
    special: Special = PLAIN
    seeds: Callable[[Sequence[Tensor]], list[Tensor | None]] | None = None

    def hold(self, **options: Any) -> LiveGraph:
        """`capture.hold` of this net; `options` are its keyword arguments, `special` this one's if not given.

        Raises `NoGraph`, and `ForwardFailed` for what the text or the loss raises where there is a `source`.
        """
        failure: ForwardFailed
        options.setdefault("special", self.special)
        try:
            with rng.borrowed(self.seed):
                graph = hold(
                    self.model, self.inputs, self.loss, self.target,
                    source=self.source, train=self.train, labels=self.labels, **options,
                )  # fmt: skip
            graph.seeds = self.seeds(graph.ends) if self.seeds is not None else None
            return graph
        except CaptureError:
            raise
        except (Exception, SystemExit) as error:  # a layer of a person's own may call sys.exit
            if self.source is None:
                raise
            failure = failure_of(error, self.source)
        raise failure

    def forward(self) -> list[Tensor]:
        """Run the net and its loss as they are, with nobody looking: the loss, or all outputs without one."""
        output = self.model(*self.inputs)
        return tensors_of(output) if self.loss is None else [loss_of(self.loss, output, self.target)]


def prepare(
    source: Source,
    x: Tensor | tuple[Tensor, ...],
    y: Tensor | None,
    loss: LossChoice | None,
    seed: int,
    *,
    state_dict: Mapping[str, Tensor] | None = None,
    train: bool = True,
    device: str = "cpu",
    labels: Mapping[str, Label] | None = None,
    ready: Callable[[Tensor], Tensor] | None = None,
    special: Special = PLAIN,
    seeds: Callable[[Sequence[Tensor]], list[Tensor | None]] | None = None,
) -> Subject:
    """The subject that a text and a choice of loss make; arguments as those of `capture.hold_source`.

    Raises `ForwardFailed` for what the text raises while its module is made.
    """
    failure: ForwardFailed
    try:
        with rng.borrowed(seed):
            model, given, function, target = made_ready(source, x, y, loss, state_dict, device, ready)
        return Subject(
            model, given, function, target, source, train, seed, FrozenMap(labels or {}), special, seeds
        )  # fmt: skip
    except CaptureError:
        raise
    except (Exception, SystemExit) as error:
        failure = failure_of(error, source)
    raise failure


@contextmanager
def gradients_kept(model: nn.Module) -> Iterator[None]:
    """Parameters have no `.grad` within, and afterwards the one that they had."""
    kept = [(parameter, parameter.grad) for parameter in model.parameters()]
    try:
        for parameter, _ in kept:
            parameter.grad = None
        yield
    finally:
        for parameter, grad in kept:
            parameter.grad = grad


def run_backward(graph: LiveGraph) -> str:
    """Run the backward pass of a graph, from ones where an end is no scalar: what torch raised, "" if nothing.

    Gradients are added to `.grad`; see `gradients_kept`.
    """
    try:
        backward_of(graph.ends, graph.seeds)
    except RuntimeError as error:
        return str(error)
    return ""


def backward_of(ends: list[Tensor], seeds: Sequence[Tensor | None] | None = None) -> None:
    """Backward from those that require a gradient, with ones, or with `seeds` of which each end has one or None."""
    import torch

    given = [torch.ones_like(end) for end in ends] if seeds is None else seeds
    pairs = [(end, seed) for end, seed in zip(ends, given, strict=True) if end.requires_grad and seed is not None]
    torch.autograd.backward([end for end, _ in pairs], [seed for _, seed in pairs])
