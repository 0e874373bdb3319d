"""Where a nan or an infinity came from: the batch is run once more, and every operation's output is looked at."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.rng import borrowed
from app.source import Source
from app.training.failures import NotFinite
from app.training.live import preserved

if TYPE_CHECKING:
    from torch import Tensor, nn


def not_finite(
    model: nn.Module, source: Source, inputs: Tensor, state: Tensor | None, value: float, step: int
) -> NotFinite:
    """The error for a loss of `value` at `step`, naming the first thing that is not finite.

    `inputs` is the batch. `state` is the CPU generator's state before the step, so that dropout falls as it did;
    None where the step is over, and the weights may be spoilt already.
    """
    head = f"The loss of step {step} is {value}"
    if not inputs.isfinite().all():
        return NotFinite(f"{head}: the batch holds numbers that are not finite.")
    spoilt = next((name for name, tensor in model.named_parameters() if not _is_finite(tensor)), None)
    if spoilt:
        node = _owner(spoilt, source)
        return NotFinite(f"{head}: the weights of {spoilt} were not finite any more after the step before.", node)
    found = first_not_finite(model, source, inputs, state)
    if found is None:
        return NotFinite(f"{head}. Every layer's output is finite; it is the loss itself that leaves its range.")
    first = f"{found.operation} was the first to leave the finite numbers, {found.line}"
    return NotFinite(f"{head}: {first}.", found.node)


def first_not_finite(model: nn.Module, source: Source, inputs: Tensor, state: Tensor | None = None) -> Origin | None:
    """The operation of a forward from which the non-finite numbers of the output came; None if the output is finite.

    A mask of -inf that a softmax takes away again is none. Buffers, train flags, gradients and generators are left as
    they were.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    origins: dict[int, Origin] = {}
    # While the tensors live, their ids are theirs alone.
    alive: list[Any] = []
    order = itertools.count()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = [origins[id(t)] for t in _tensors((args, kwargs)) if id(t) in origins]
            out = func(*args, **(kwargs or {}))
            for tensor in _tensors(out):
                if _is_finite(tensor):
                    origins.pop(id(tensor), None)
                else:
                    own = Origin(bool(tensor.isnan().any()), next(order), str(func.overloadpacket), *_line(source))
                    # nan tells more than an infinity, which may be a mask; then the earlier tells more.
                    origins[id(tensor)] = min(before, default=own)
                alive.append(tensor)
            return out

    with borrowed(), preserved(model), torch.no_grad():
        if state is not None:
            torch.set_rng_state(state)
        with Watch():
            output = model(inputs)
    return min((origins[id(t)] for t in _tensors(output) if id(t) in origins), default=None)


@dataclass(frozen=True)
class Origin:
    """Where numbers stopped being finite: the operation, and the node and line of the net's text that called it."""

    is_nan: bool
    order: int
    operation: str
    node: str | None
    line: str

    def __lt__(self, other: Origin) -> bool:
        return (not self.is_nan, self.order) < (not other.is_nan, other.order)


def _tensors(value: Any) -> list[Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list):
        return []
    return [tensor for item in value for tensor in _tensors(item)]


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(tensor.detach().isfinite().all())


def _line(source: Source) -> tuple[str | None, str]:
    """The node and the line of the net's text that is being run now."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != source.filename:
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return None, "outside the net's text"
    text = source.text.splitlines()[frame.f_lineno - 1].strip()
    return source.node_at(frame.f_lineno), f"in the line “{text}”"


def _owner(parameter: str, source: Source) -> str | None:
    """The node whose module holds a parameter, or that is the parameter."""
    owners = (node for node, path in source.modules.items() if not path or f"{parameter}.".startswith(f"{path}."))
    return next(owners, None)
