"""Attribute a score to the values of an input with captum: saliency, integrated gradients, Grad-CAM."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from app.features.interpret.compute.interventions import find_module
from app.features.interpret.compute.subject import Subject, class_axis
from app.features.interpret.values import (
    COMPLETE,
    GRAD_CAM,
    SALIENCY,
    Attribution,
    InterpretError,
    SampleLook,
)
from app.util import module_tree
from tapedeck import devices

STEPS = (50, 200, 800, 3200)  # of integrated gradients, until they are complete
TOGETHER = 16  # steps that are computed at a time


def captum_missing() -> str:
    """Return why nothing can be attributed and how to install it, "" if it can. Imports nothing of it."""
    if find_spec("captum") is not None:
        return ""
    return "Attributions need captum, which is not installed: pip install tapedeck-torch[attribution]"


def attribute(
    subject: Subject,
    sample: SampleLook,
    method: str,
    target: int | None = None,
    layer: str = "",
    argument: int = 0,
) -> Attribution:
    """Attribute the score of a class, the predicted one without `target`, to the input tensor number `argument`.

    `subject` has a batch of one. Token ids are attributed by their embedding. Integrated gradients start at zeros, and
    with token ids at one token everywhere: the first whose embedding is not zero, since a norm of zeros has no
    gradient. Raises InterpretError, also without captum.
    """
    if missing := captum_missing():
        raise InterpretError(missing)
    with subject.quiet(), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # captum says that it sets requires_grad, and PIL what matplotlib does
        value, base, hook = _start(subject, argument)
        others = list(subject.tensors)
        with torch.no_grad(), hook(None):
            scores = subject.scores(subject.run(*others))
        index, label = _target(subject, scores, target)

        def score(tensor: Tensor) -> Tensor:
            """Return the chosen score (n,) of copies of the sample with `tensor` (n, ...) in place of the value."""
            count = len(tensor)
            tensors = [_copies(other, count) for other in others]
            if value is others[argument]:
                tensors[argument] = tensor
            with hook(tensor):
                return _score(subject.scores(subject.run(*tensors)), index)

        if method == SALIENCY:
            attribution = _saliency(score, value)
        elif method == GRAD_CAM:
            attribution = _grad_cam(subject, score, value, layer, others)
        else:
            attribution = _integrated_gradients(score, value, *base)
        before = float(_score(scores, index)[0])
    values, rest = attribution
    if value is not others[argument]:  # over the embedding
        values = values.abs().sum(-1) if method == SALIENCY else values.sum(-1)
    return Attribution(
        sample, method, label, before, values.float().cpu().numpy(), **rest
    )


def _start(
    subject: Subject, argument: int
) -> tuple[Tensor, tuple[Tensor, str], Callable[[Tensor | None], Any]]:
    """Return the tensor that is attributed to, its baseline with a name, and a context in which the model uses another
    in its place."""
    if not 0 <= argument < len(subject.tensors):
        raise InterpretError(
            f"the model takes {len(subject.tensors)} tensors, counted from 0; there is no {argument}"
        )
    tensor = subject.tensors[argument]
    if tensor.is_floating_point():
        return (
            tensor,
            (torch.zeros_like(tensor), "zeros"),
            lambda _value: contextlib.nullcontext(),
        )
    embeddings: list[tuple[nn.Module, Tensor]] = []

    def note(module: nn.Module, args: Any, output: Tensor) -> None:
        if (
            not embeddings
            and args
            and isinstance(args[0], Tensor)
            and args[0].shape == tensor.shape
        ):
            embeddings.append((module, output.detach()))

    hooks = [
        module_tree.on_call(layer, note)
        for layer in module_tree.modules(subject.model)
        if isinstance(layer, nn.Embedding)
    ]
    try:
        with torch.no_grad():
            subject.run(*subject.tensors)
    finally:
        for hook in hooks:
            hook.remove()
    if not embeddings:
        raise InterpretError(
            f"input {argument} is {tensor.dtype} and is not the input of an nn.Embedding, so it has no gradient to "
            "attribute; choose another input"
        )
    module, value = embeddings[0]

    @contextlib.contextmanager
    def replaced(other: Tensor | None) -> Iterator[None]:
        if other is None:
            yield
            return
        first: list[bool] = []

        def put(_module: nn.Module, _args: Any, _output: Any) -> Tensor | None:
            first.append(True)
            return other if len(first) == 1 else None

        hook = module_tree.on_call(module, put)
        try:
            yield
        finally:
            hook.remove()

    return value, _same_token(module, tensor), replaced


def _same_token(module: nn.Module, ids: Tensor) -> tuple[Tensor, str]:
    """Return the embedding of an input of one token, the first whose embedding is not zero as that of padding is."""
    embedding = torch.zeros(())
    for token in (0, 1):
        with torch.no_grad():
            embedding = module(torch.full_like(ids, token)).detach()
        if embedding.any():
            break
    return embedding, f"token {token}"


def _copies(tensor: Tensor, count: int) -> Tensor:
    return (
        tensor.expand(count, *tensor.shape[1:])
        if tensor.ndim and len(tensor) == 1
        else tensor
    )


def _target(
    subject: Subject, scores: Tensor, target: int | None
) -> tuple[tuple[int, ...], str]:
    """Return the index of the score in one sample's, and its name. Raises InterpretError for a class beyond."""
    axis = class_axis(scores, subject.kind)
    if axis is None:
        count = scores[0].numel() if scores.ndim > 1 else 1
        number = target or 0
        index = tuple(
            int(coordinate)
            for coordinate in torch.unravel_index(
                torch.tensor(number % max(count, 1)), scores.shape[1:]
            )
        )
        label = f"output {number}" if count > 1 else "the output"
    else:
        count = scores.shape[axis]
        if scores.ndim == 3:  # of tokens the last
            number = int(scores[0, -1].argmax()) if target is None else target
            index = (scores.shape[1] - 1, number)
        else:
            chosen = scores[0].reshape(count, -1).mean(1)
            number = int(chosen.argmax()) if target is None else target
            index = (number,)
        label = subject.name_of(number)
    if not 0 <= number < count:
        raise InterpretError(
            f"the output has {count} values, counted from 0; there is no {number}"
        )
    return index, label


def _score(scores: Tensor, index: tuple[int, ...]) -> Tensor:
    picked = scores
    for position in index:
        picked = picked.select(1, position)
    return picked.reshape(len(picked), -1).mean(1)  # of a class at every pixel the mean


def _saliency(
    score: Callable[[Tensor], Tensor], value: Tensor
) -> tuple[Tensor, dict[str, Any]]:
    from captum.attr import Saliency

    return Saliency(score).attribute(value.detach().clone(), abs=True)[0].detach(), {}


def _integrated_gradients(
    score: Callable[[Tensor], Tensor], value: Tensor, start: Tensor, against: str
) -> tuple[Tensor, dict[str, Any]]:
    """Take steps until the attributions sum to the difference of the scores to 1 %, or there are too many."""
    from captum.attr import IntegratedGradients

    with torch.no_grad():
        difference = float(
            devices.doubled(score(value)[0]) - devices.doubled(score(start)[0])
        )
        base = float(score(start)[0])
    attributions, total, steps, remark = start, math.nan, 0, ""
    for steps in STEPS:
        method = IntegratedGradients(score)
        attributions = method.attribute(
            value.detach().clone(), start, n_steps=steps, internal_batch_size=TOGETHER
        ).detach()
        total = float(devices.doubled(attributions).sum())
        if abs(total - difference) <= COMPLETE / 2 * abs(difference):
            break
    else:
        remark = f"after {steps:,} steps they do not sum to the difference of the scores to 1 %"
    return attributions[0], {
        "total": total,
        "baseline": base,
        "steps": steps,
        "against": against,
        "remark": remark,
    }


def _grad_cam(
    subject: Subject,
    score: Callable[[Tensor], Tensor],
    value: Tensor,
    layer: str,
    others: list[Tensor],
) -> tuple[Tensor, dict[str, Any]]:
    """Weight the channels of a layer (N, C, H, W) by their mean gradients, and resize the sum to the input's picture.

    The layer is the last that gives (N, C, H, W) of more than one pixel, where none is named.
    """
    from captum.attr import LayerAttribution, LayerGradCam

    if value.ndim != 4:
        raise InterpretError(
            f"Grad-CAM needs images (N, C, H, W), and the input is {tuple(value.shape)}"
        )
    shapes = _pictured(subject, others)
    if layer:
        find_module(subject.model, layer)
    chosen = layer or next(reversed(shapes), "")
    if chosen not in shapes:
        there = ", ".join([*shapes][-8:]) or "none"
        raise InterpretError(
            f"{f'{layer} gives no pictures' if layer else 'no layer gives pictures'} (N, C, H, W) of more than one "
            f"pixel; layers that do: {there}"
        )
    module = module_tree.submodule(subject.model, chosen)
    heat_map = LayerGradCam(score, module).attribute(
        value.detach().clone(), relu_attributions=True
    )
    grown = LayerAttribution.interpolate(heat_map, tuple(value.shape[-2:]), "bilinear")
    return grown[0, 0].detach(), {"layer": chosen}


def _pictured(subject: Subject, others: list[Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the modules with output (N, C, H, W), in the order in which they return, with that shape."""
    shapes: dict[str, tuple[int, ...]] = {}
    hooks: list[Any] = []
    for path, module in module_tree.named_modules(subject.model):

        def note(_module: nn.Module, _args: Any, output: Any, path: str = path) -> None:
            if (
                path
                and isinstance(output, Tensor)
                and output.ndim == 4
                and min(output.shape[2:]) > 1
            ):
                shapes.pop(path, None)
                shapes[path] = tuple(output.shape)

        hooks.append(module_tree.on_call(module, note))
    try:
        with torch.no_grad():
            subject.run(*others)
    finally:
        for hook in hooks:
            hook.remove()
    return shapes
