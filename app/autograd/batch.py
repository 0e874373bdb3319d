"""A model, one batch and a loss: captured, played back and diagnosed repeatedly without changing the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

from app.autograd import capture
from app.autograd.errors import CaptureError
from app.autograd.forward_modes import PLAIN, Special
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.tape import Label, Tape
from app.source.compiled import make_module
from app.source.generated import Source
from app.util import module_tree, rng
from app.util.frozen import FrozenMap
from app.util.late_dataclass import dataclass

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class TrainingBatch:
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
    labels: Mapping[str, Label] = field(default_factory=FrozenMap)
    special: Special = PLAIN
    seeds: Callable[[Sequence[Tensor]], list[Tensor | None]] | None = None
    kwargs: Mapping[str, Any] = field(default_factory=FrozenMap)
    own_lines: bool = False
    remark: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, tuple):
            object.__setattr__(self, "inputs", (self.inputs,))

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor among the arguments."""
        return capture.tensors_of((self.inputs, dict(self.kwargs)))

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

    def hold(self, around: AbstractContextManager[object] | None = None, special: Special | None = None) -> LiveGraph:
        """Like `capture`, but keep the graph: `release()` it, or use it in a `with`.

        `around` is entered around the forward pass and the loss, `special` is taken in place of this one's. Raises
        CaptureError too where the outputs have no such vector as backward is to start with.
        """
        modes = special if special is not None else self.special
        with rng.borrowed(self.seed):
            graph = capture.failing_forward(self.source, lambda: capture.hold(self, around, modes), self.own_lines)
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
        value = capture.loss_of(self.loss, output, self.target) if self.loss is not None else None
        return capture.tensors_of(output) if value is None else [value]


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

    model = capture.failing_forward(source, construct)
    return TrainingBatch(model, inputs, loss, target, source, seed=seed)  # type: ignore[arg-type]


@contextmanager
def preserve_gradients(model: nn.Module) -> Iterator[None]:
    """Clear the `.grad` of all parameters, and restore them afterwards."""
    kept = [(parameter, parameter.grad) for parameter in module_tree.parameters(model)]
    try:
        for parameter, _ in kept:
            parameter.grad = None
        yield
    finally:
        for parameter, grad in kept:
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


def backward_of(ends: list[Tensor], seeds: Sequence[Tensor | None] | None = None) -> None:
    """Backward from those that require a gradient, with ones, or with `seeds` of which each end has one or None."""
    import torch

    given = [torch.ones_like(end) for end in ends] if seeds is None else seeds
    pairs = [(end, seed) for end, seed in zip(ends, given, strict=True) if end.requires_grad and seed is not None]
    torch.autograd.backward([end for end, _ in pairs], [seed for _, seed in pairs])
