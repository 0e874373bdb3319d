"""Call one autograd node without torch's engine, and validate its gradients as the engine would.

The engine traverses the graph below a node before it runs it, so that a pass of single steps would be quadratic in the
number of nodes. A direct call is not; but it runs no hooks and does not reduce gradients to the original shape and
dtype, so that is done here. Cases that might differ are left to the engine.

The node of a compiled part runs more than once, although its backward may overwrite what its forward saved: AOTAutograd
donates unshared saved tensors to the compiled backward as buffers, and refuses to run it with `retain_graph`. Those
tensors are restored afterwards.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.autograd.graph import GradientEdge
from torch.nn.modules._functions import BackwardHookFunction

from app.autograd.walk import is_accumulate

if TYPE_CHECKING:
    from torch import Tensor

_Custom: Any = torch._C._FunctionBase
_T = TypeVar("_T")


def is_custom(node: Any) -> bool:
    """Return True for the node of a `torch.autograd.Function` written in Python."""
    return isinstance(node, _Custom)


def can_be_called(node: Any, arriving: list[Tensor | None], hooks: bool = True) -> bool:
    """Return True if a direct call is equivalent to the engine for this node, tensor hooks apart, and without `hooks`
    all others too.

    It is not for nodes with hooks, under `detect_anomaly`, for nested tensors and tensor subclasses, for leaves whose
    `grad_dtype` differs from their dtype, and for torch's own Functions (a reentrant checkpoint, a compiled part). A
    custom Function is called if all its outputs got a gradient (torch does not expose whether it needs zeros for the
    others) and if its results can be matched to edges.
    """
    if hooks and (torch.is_anomaly_enabled() or _has_hooks(node)):
        return False
    if any(
        gradient is not None and type(gradient) is not torch.Tensor
        for gradient in arriving
    ):
        return False
    if is_custom(node) and not (
        all(gradient is not None for gradient in arriving) and _is_clear(node)
    ):
        return False
    return all(
        _is_plain(child, output)
        for child, output in node.next_functions
        if child is not None
    )


def after_tensor_hooks(
    node: Any, arriving: list[Tensor | None], create_graph: bool
) -> list[Tensor | None]:
    """Run the hooks of the node's output tensors, `retain_grad` included, and return the incoming gradients.

    The engine runs them when only incoming gradients are requested, and then visits this node alone.
    """
    active_outputs = [
        output for output, gradient in enumerate(arriving) if gradient is not None
    ]
    roots = [GradientEdge(node, output) for output in active_outputs]
    edges = [GradientEdge(node, output) for output in range(len(arriving))]
    gradients = [arriving[output] for output in active_outputs]
    with torch.autograd.set_multithreading_enabled(False):
        return list(
            torch.autograd.grad(
                roots,
                edges,
                gradients,
                retain_graph=True,
                create_graph=create_graph,
                allow_unused=True,
            )
        )


def called(
    node: Any, received: list[Tensor | None], wait: Callable[[], object]
) -> tuple[list[Tensor | None] | None, float]:
    """Call the node: its gradients by slot and the seconds it took; None to have the engine raise the error."""
    edges = node.next_functions
    wait()
    started = time.perf_counter()
    answer = node.apply(*received) if is_custom(node) else node(*received)
    outputs = list(answer) if isinstance(answer, tuple) else [answer]
    if is_custom(node):
        outputs = _by_slot(node, outputs)
    if len(outputs) != len(edges):
        return None, 0.0
    for slot, (child, output) in enumerate(edges):
        gradient = outputs[slot]
        if child is None or gradient is None:
            outputs[slot] = None
        elif isinstance(gradient, torch.Tensor) and fits(
            gradient, metadata := child._input_metadata[output]
        ):
            outputs[slot] = _match_metadata(gradient, metadata)
        else:
            return None, 0.0
    wait()
    return outputs, time.perf_counter() - started


def fits(gradient: Tensor, metadata: Any) -> bool:
    """Return True if the gradient can be summed and cast to what an input takes."""
    if (
        gradient.device != metadata.device
        or gradient.is_complex()
        and not metadata.dtype.is_complex
    ):
        return False
    expected_shape, shape = metadata.shape, gradient.shape
    if len(shape) < len(expected_shape):
        return False
    ends = shape[len(shape) - len(expected_shape) :]
    return all(
        have == want or want == 1
        for have, want in zip(ends, expected_shape, strict=True)
    )


def _match_metadata(gradient: Tensor, metadata: Any) -> Tensor:
    if list(gradient.shape) != metadata.shape:
        gradient = gradient.sum_to_size(metadata.shape)
    return gradient if gradient.dtype is metadata.dtype else gradient.to(metadata.dtype)


def passes_on(node: Any) -> bool:
    """Return True for the node that carries the backward hooks of a module: it passes on what arrives."""
    return (
        is_custom(node) and getattr(node, "_forward_cls", None) is BackwardHookFunction
    )


def _has_hooks(node: Any) -> bool:
    """Return whether the node has user hooks. A new hook's handle exposes the dictionary of all."""
    for register in (node.register_prehook, node.register_hook):
        handle = register(_nothing)
        hooks = handle.hooks_dict_ref()
        handle.remove()
        if hooks or hooks is None:
            return True
    return False


def _nothing(*_gradients: Any) -> None:
    """Do nothing: a no-op hook."""


def _is_clear(node: Any) -> bool:
    """Return whether a Function's results, one per forward argument, can be matched to its edges, which exist for
    tensors only: by `needs_input_grad`, or if all arguments or none are tensors."""
    kind, needs, edges = node._forward_cls, node.needs_input_grad, node.next_functions
    if kind.__module__.partition(".")[0] == "torch" or getattr(
        kind, "boxed_grads_call", False
    ):
        return False
    needed = sum(child is not None for child, _ in edges)
    return sum(needs) == needed and len(edges) in (len(needs), needed)


def _by_slot(node: Any, answers: list[Any]) -> list[Any]:
    """Select the results of a Function that belong to edges; empty if they are invalid."""
    needs, edges = node.needs_input_grad, node.next_functions
    answers, beyond = answers[: len(needs)], answers[len(needs) :]
    if len(answers) < len(needs) or any(answer is not None for answer in beyond):
        return []
    if len(edges) == len(needs):
        return answers
    if any(
        answer is not None
        for answer, need in zip(answers, needs, strict=True)
        if not need
    ):
        return []
    return [answer for answer, need in zip(answers, needs, strict=True) if need]


def _is_plain(child: Any, output: int) -> bool:
    metadata = child._input_metadata[output]
    if metadata.is_nested_tensor or metadata.is_cpp_nested_tensor:
        return False
    if not is_accumulate(child):
        return True
    leaf = child.variable
    return getattr(leaf, "grad_dtype", leaf.dtype) is leaf.dtype


class _Inside(torch.autograd.Function):
    """Runs a function when a gradient comes."""

    @staticmethod
    def forward(ctx: Any, start: Tensor, run: Callable[[], object]) -> Tensor:
        ctx.run = run
        return start.clone()

    @staticmethod
    def backward(ctx: Any, _gradient: Tensor) -> tuple[None, None]:
        ctx.run()
        return None, None


def inside_engine(run: Callable[[], _T]) -> _T:
    """Call `run` within a dummy backward pass, in which a checkpoint recomputes only once.

    That pass has two nodes; one of them increments the sequence number.
    """
    results: list[_T] = []
    graded = torch.is_grad_enabled()

    def once() -> None:
        with torch.set_grad_enabled(graded):
            results.append(run())

    with torch.enable_grad():
        end = _Inside.apply(torch.zeros((), requires_grad=True), once)
    with torch.autograd.set_multithreading_enabled(False):
        torch.autograd.backward(end, torch.ones(()))
    return results[0]


def is_compiled(node: Any) -> bool:
    """Return whether torch.compile made this node of a part of the forward pass."""
    return type(node).__name__.startswith("CompiledFunction")


def donates(node: Any) -> bool:
    """Return whether the backward of a compiled node may overwrite its saved tensors."""
    metadata = (
        getattr(getattr(node, "_forward_cls", None), "metadata", None)
        if is_compiled(node)
        else None
    )
    return bool(getattr(metadata, "bw_donated_idxs", None))


@contextmanager
def rerunnable(node: Any) -> Iterator[None]:
    """Restore the saved tensors that running a node overwrites; of any other node than a compiled one none are."""
    config: Any = sys.modules.get("torch._functorch.config")
    if not is_custom(node) or config is None or not donates(node):
        yield
        return
    saved = [*node.saved_tensors, *getattr(node, "_tensors_no_vc_check", ())]
    backups = [(tensor, tensor.detach().clone()) for tensor in saved]
    try:
        with config.patch(donated_buffer=False):  # which refuses a second run
            yield
    finally:
        for saved_tensor, before in backups:
            saved_tensor.data.copy_(
                before
            )  # `data` leaves the version alone that saved tensors are checked by
