"""Explain why `.grad` of a given tensor is None or zero, after user code has run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from app.autograd.diagnostics.detached_paths import CutWatcher
from app.autograd.diagnostics.detached_text import cure_of, end_of_way, sentence_of
from app.autograd.diagnostics.results import GradAnswer

if TYPE_CHECKING:
    from torch import Tensor


def explain_grad(tensor: Tensor, name: str, watcher: CutWatcher, ends: Iterable[Any] = ()) -> GradAnswer:
    """Explain the `.grad` of a tensor after code that ran under `watcher`.

    `ends` are the tensors on which backward was or would be called: they rank the cuts. `kind` of the answer is that of
    a cut, or "no requires_grad", "integer", "not a leaf", "backward not called", "set to none", "zeroed", "not in the
    loss", "unused"; "" if there is a gradient.
    """
    if not tensor.requires_grad:
        return _without(tensor, name)
    if not tensor.is_leaf and not tensor.retains_grad:
        maker = tensor.grad_fn.name().rpartition("::")[2] if tensor.grad_fn is not None else "an operation"
        text = (
            f"{name} is not a leaf: {maker} computed it. Backward passes its gradient on and keeps none, so its .grad "
            "is None."
        )
        return GradAnswer(name, "none", "not a leaf", text, f"Call {name}.retain_grad() before backward().")
    grad = tensor.grad
    if grad is not None:
        return _with(tensor, name, watcher)
    place = watcher.cleared.get(tensor)
    if place is not None:
        text = f"The .grad of {name} was set to None {place.where}: zero_grad() does so (set_to_none=True)."
        cure = "Look at it before zero_grad(), or call zero_grad(set_to_none=False) to have zeros."
        return GradAnswer(name, "none", "set to none", text, cure, place)
    cuts = [cut for cut in watcher.find_cuts({id(tensor): (name,)}, ends) if name in cut.parameters]
    way, _ = watcher.last_of(tensor)
    cuts.sort(key=lambda cut: (not cut.reaches_end, cut.chains[name][-1:] != way[-1:]))
    if cuts and (cuts[0].reaches_end or cuts[0].chains[name][-1:] == way[-1:]):
        cut = cuts[0]
        return GradAnswer(name, "none", cut.kind, sentence_of(cut, name), cure_of(cut), cut.place, cut.chains[name],
                          others=tuple(cuts[1:]))  # fmt: skip
    if not watcher.backwards:
        text = f"backward() has not been called, so {name} has no gradient yet."
        return GradAnswer(name, "none", "backward not called", text, "Call loss.backward().")
    if way:
        text, cure = end_of_way(name, way[-1], None)
        return GradAnswer(name, "none", "not in the loss", text, cure, way[-1].place, way)
    text = f"{name} is not used: no operation takes it, so no gradient reaches it."
    return GradAnswer(name, "none", "unused", text, "Compute the loss from it.")


def _without(tensor: Tensor, name: str) -> GradAnswer:
    dtype = str(tensor.dtype)
    if not (tensor.is_floating_point() or tensor.is_complex()):
        text = f"{name} is {dtype}: only tensors of floating point and complex dtype can require gradients."
        return GradAnswer(name, "none", "integer", text, f"Use {name}.float() where a gradient is wanted.")
    text = f"{name} has requires_grad=False, so backward computes no gradient for it and its .grad stays None."
    return GradAnswer(name, "none", "no requires_grad", text, f"Call {name}.requires_grad_() before it is used.")


def _with(tensor: Tensor, name: str, watcher: CutWatcher) -> GradAnswer:
    grad = tensor.grad
    assert grad is not None
    norm = float(grad.detach().double().norm())
    place = watcher.zeroed.get(grad)
    if norm == 0 and place is not None:
        text = f"The gradient of {name} was filled with zeros {place.where}: zero_grad(set_to_none=False) does so."
        return GradAnswer(name, "zero", "zeroed", text, "Look at it before zero_grad().", place, norm=norm)
    if norm == 0:
        text = f"The gradient of {name} exists and is exactly zero: the loss does not change with it at this point."
        return GradAnswer(name, "zero", "zero", text, "Look at what stands between: a dead ReLU, a product with 0, "
                          "a step function.", norm=norm)  # fmt: skip
    return GradAnswer(name, "flows", "", f"{name} has a gradient; its norm is {norm:.3g}.", norm=norm)
