"""Locate the origin of a NaN or infinity: repeat the batch and check every operation's output."""

from __future__ import annotations

import itertools
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from app.data.fields import Fields
from app.source.generated import Source
from app.training.error_messages import NotFinite
from app.training.monitoring.live_model import preserved
from app.util.rng import borrowed
from app.util.torch_calls import KernelCalls

if TYPE_CHECKING:
    from torch import Tensor

    from app.training.stepper import Stepper

_READ_EARLIER = "With not_finite set to skip, the loss is read at every step and the layer is named."


def not_finite(
    stepper: Stepper, source: Source, value: float, step: int, later: Any = None
) -> NotFinite:
    """Build the error for a loss of `value` at `step`, naming the first non-finite tensor.

    Reruns the forward with the same inputs. After the step, when the weights may be non-finite already, `later` are
    other samples to use instead.
    """
    head = f"The loss of step {step} is {value}"
    fed = stepper.fed if later is None else (later, None)
    assert fed is not None, "the loss is read after the forward pass"
    inputs, state = fed
    if not all(map(_is_finite, _tensors(inputs))):
        subject = "the batch contains" if later is None else "the data contain"
        return NotFinite(f"{head}: {subject} non-finite values.")
    spoilt = next(
        (
            name
            for name, tensor in stepper.model.named_parameters()
            if not _is_finite(tensor)
        ),
        None,
    )
    if spoilt and later is not None:
        return NotFinite(
            f"{head}. It was read after the step, which made the weights non-finite too. {_READ_EARLIER}"
        )
    if spoilt:
        node = _owner(spoilt, source)
        return NotFinite(
            f"{head}: the weights of {spoilt} became non-finite in the previous step.",
            node,
        )
    origin = first_not_finite(stepper, source, inputs, state)
    amp = stepper.config.amp
    where = f" in {amp}" if amp else ""
    if origin is not None:
        ends = ", whose largest value is 65504" if amp == "float16" else ""
        first = f"{origin.operation} produced the first non-finite values{where}{ends}, {origin.line}"
        return NotFinite(f"{head}: {first}.", origin.node)
    if later is not None:
        return NotFinite(
            f"{head}. It was read after the step, when its batch was gone; for {len(later)} other samples every "
            f"layer's output is finite{where}. {_READ_EARLIER}"
        )
    if state is None:
        return NotFinite(
            f"{head}. When repeated{where}, every layer's output is finite; the loss itself overflows, or a random "
            "operation such as dropout differs."
        )
    return NotFinite(
        f"{head}. Every layer's output is finite{where}; the loss itself overflows."
    )


def first_not_finite(
    stepper: Stepper, source: Source, inputs: Any, state: Tensor | None = None
) -> NonFiniteOrigin | None:
    """Return the operation that produced the first non-finite value of a forward pass; None if the output is finite.

    The forward is that of a step, in its precision. `state` is the CPU generator's state before it, to reproduce the
    dropout masks. A mask of -inf that a softmax removes does not count. Buffers, train flags, gradients and generators
    are restored.
    """
    origins: dict[int, NonFiniteOrigin] = {}
    # Keeps the tensors alive, so that their ids stay unique.
    alive: list[Any] = []
    order = itertools.count()

    def called(func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        before = [origins[id(t)] for t in _tensors((args, kwargs)) if id(t) in origins]
        out = func(*args, **kwargs)
        for tensor in _tensors(out):
            if _is_finite(tensor):
                origins.pop(id(tensor), None)
            else:
                origin = NonFiniteOrigin(
                    bool(tensor.isnan().any()),
                    next(order),
                    str(func.overloadpacket),
                    *_line(source, frame),
                )
                # nan is more significant than an infinity, which may be a mask; then the earlier one is.
                origins[id(tensor)] = min(before, default=origin)
            alive.append(tensor)
        return out

    with borrowed(), preserved(stepper.model), torch.no_grad():
        if state is not None:
            torch.set_rng_state(state)
        with KernelCalls(called):
            output = stepper.output(stepper.model, inputs)
    return min(
        (origins[id(t)] for t in _tensors(output) if id(t) in origins), default=None
    )


class NonFiniteOrigin(Struct, frozen=True):
    """The operation that produced the first non-finite value, with its node and source line."""

    is_nan: bool
    order: int
    operation: str
    node: str | None
    line: str

    def __lt__(self, other: NonFiniteOrigin) -> bool:
        return (not self.is_nan, self.order) < (not other.is_nan, other.order)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    value = value.parts if isinstance(value, Fields) else value
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list):
        return []
    return [tensor for item in value for tensor in _tensors(item)]


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(tensor.detach().isfinite().all())


def _line(source: Source, frame: FrameType | None) -> tuple[str | None, str]:
    """Return the node and line of the generated source that is executing."""
    while frame is not None and frame.f_code.co_filename != source.filename:
        frame = frame.f_back
    if frame is None:
        return None, "outside the network's source"
    text = source.text.splitlines()[frame.f_lineno - 1].strip()
    return source.node_at(frame.f_lineno), f"in the line “{text}”"


def _owner(parameter: str, source: Source) -> str | None:
    """Return the node that owns a parameter."""
    owners = (
        node
        for node, path in source.modules.items()
        if not path or f"{parameter}.".startswith(f"{path}.")
    )
    return next(owners, None)
