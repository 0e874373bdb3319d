"""Losses that a model returns in train mode alone, with a target alone, or that only look like one for one sample."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from app.observe.observe import call_interface, interface_in_training
from app.source.interface import LABELS, Interface
from app.util import module_tree

Call = tuple[tuple[Any, ...], dict[str, Any]]


def interface_with_losses(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    targets: Mapping[str, Any],
    interface: Interface,
) -> Interface:
    """Return the description of the call that shows the model's own loss; `interface`, of its call in eval mode, if
    that shows it or no other call does.

    `targets` are inputs of train mode. A model with an argument for a target is called with guesses of one.
    """
    if any(returned.dtype for returned in interface.own_losses):
        return _of_two_samples(model, args, kwargs, interface)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of guesses that do not fit
        for more in _targets(model, kwargs, targets, interface):
            train_interface = interface_in_training(model, args, {**kwargs, **more})
            if train_interface is not None:
                return train_interface
        for call_args, call_kwargs in _labelled_batches(model, args, kwargs, interface):
            train_interface = interface_in_training(model, call_args, call_kwargs)
            if train_interface is not None:
                return train_interface
    return interface


def _of_two_samples(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    interface: Interface,
) -> Interface:
    """Return the description of a call with two samples where one has a single one: what it returned may be a value of
    the sample, squeezed, and no loss."""
    tensors = [
        leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, Tensor)
    ]
    if (
        any(
            returned.name
            for returned in interface.own_losses
            if "loss" in returned.name
        )
        or not tensors
    ):
        return interface
    if any(not tensor.ndim or tensor.shape[0] != 1 for tensor in tensors):
        return interface
    both, named = tree_map_only(
        Tensor, lambda tensor: torch.cat((tensor, tensor)), (tuple(args), dict(kwargs))
    )
    pair_interface = call_interface(model, both, named, train=False)
    return (
        pair_interface
        if pair_interface is not None
        and pair_interface.own_losses != interface.own_losses
        else interface
    )


def _targets(
    model: nn.Module,
    kwargs: Mapping[str, Any],
    targets: Mapping[str, Any],
    interface: Interface,
) -> Iterator[dict[str, Any]]:
    """Yield what a call in train mode may get beside the inputs."""
    if targets or any(argument.way.startswith("[*]") for argument in interface.takes):
        yield dict(targets)
    if _reads(model, "self.training"):
        yield {}
    label = next(
        (
            argument.name
            for argument in interface.takes
            if argument.name in LABELS and not (argument.dtype or argument.other)
        ),
        None,
    )
    if label is not None and label not in kwargs:
        for guess in target_guesses(interface):
            yield {label: guess}


def _labelled_batches(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    interface: Interface,
) -> Iterator[Call]:
    """Yield calls with a guess of a target in an argument that is a dictionary, under a name that the code reads."""
    if not any(isinstance(value, dict) for value in (*args, *kwargs.values())):
        return
    labels = [name for name in LABELS if _reads(model, f'"{name}"', f"'{name}'")]
    for label, guess in product(labels, target_guesses(interface)):
        yield (
            tuple(_labelled(value, label, guess) for value in args),
            {name: _labelled(value, label, guess) for name, value in kwargs.items()},
        )


def _labelled(value: Any, label: str, target: Tensor) -> Any:
    """Return an argument, with a target if it is a dictionary that has none."""
    is_without = isinstance(value, dict) and label not in value
    return {**value, label: target} if is_without else value


def _reads(model: nn.Module, *texts: str) -> bool:
    """Return whether one of the texts stands in the forward of a module that is not torch's own."""
    kinds = {
        type(module)
        for module in module_tree.modules(model)
        if not type(module).__module__.startswith("torch.")
    }
    for kind in kinds:
        try:
            source = inspect.getsource(kind.forward)
        except (OSError, TypeError, AttributeError):
            continue
        if any(text in source for text in texts):
            return True
    return False


def target_guesses(interface: Interface) -> Iterator[Tensor]:
    """Yield targets that the loss of a model may take: class ids, ids of places, values of its output or input."""
    called = [
        argument.shape
        for argument in interface.takes
        if argument.dtype and argument.shape
    ]
    ids = next(
        (
            argument.shape
            for argument in interface.takes
            if argument.dtype.startswith("int") and argument.shape
        ),
        None,
    )
    output = interface.chief.shape if interface.chief is not None else ()
    if ids is not None:
        yield torch.zeros(ids, dtype=torch.int64)
    if called:
        yield torch.zeros(called[0][0], dtype=torch.int64)
    if len(output) > 2:
        yield torch.zeros((output[0], *output[2:]), dtype=torch.int64)
        yield torch.zeros(output[:-1], dtype=torch.int64)
    if output:
        yield torch.zeros(output)
        yield torch.zeros(output[0])
    yield from (torch.zeros(shape) for shape in called[:1])
