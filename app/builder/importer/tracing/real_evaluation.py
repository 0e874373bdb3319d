"""What a module gives that is not followed: run by itself, on real tensors where those on meta do not do."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from app.builder.catalog.catalog import OpSpec
from app.builder.importer.state import unseen_random

SEED = 20011


def copy_of(module: nn.Module) -> nn.Module:
    """A copy, too of a module that keeps what it computed last in an attribute."""
    computed = (
        value for one in module.modules() for value in one.__dict__.values()
        if isinstance(value, torch.Tensor) and not value.is_leaf
    )  # fmt: skip
    known: dict[int, Any] = {id(value): value.detach().clone() for value in computed}
    return copy.deepcopy(module, known)


def alone(on_meta: nn.Module, real: nn.Module, args: Any, kwargs: Any) -> Any:
    """What a module gives for meta tensors; where those do not do, what it gives for real ones of the same shapes."""
    try:
        return on_meta(*args, **kwargs)
    except Exception:  # whatever it is, real tensors tell what the module itself says
        return run_alone(real, args, kwargs)


def run_alone(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """What a copy of a real module gives for tensors of these shapes, back on meta. Raises what the module raises."""
    real, named = tree_map(_positive, tree_map(real_like, (args, kwargs)))
    found, failed = None, None
    # In training some layers want more than one sample, and a hook on a value wants a gradient to be asked for.
    for training, recorded in ((module.training, False), (module.training, True), (False, False)):
        with unseen_random.restored(), torch.set_grad_enabled(recorded):
            torch.manual_seed(SEED)
            try:
                found, failed = copy_of(module).train(training)(*real, **named), None
                break
            except Exception as error:
                failed = failed or error
    if failed is not None:
        raise failed
    return tree_map(lambda leaf: leaf.detach().to("meta") if isinstance(leaf, torch.Tensor) else leaf, found)


def real_like(value: Any) -> Any:
    """A real tensor like one on meta: small normal numbers, zeros where numbers are whole."""
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return torch.zeros(value.shape, dtype=value.dtype)
    return torch.randn(value.shape, generator=torch.Generator().manual_seed(SEED)).to(value.dtype)


def _positive(value: Any) -> Any:
    """Loops go on while something is large, or while it is small; from a little above zero most come to their end."""
    return value.abs() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def port_name(spec: OpSpec, name: str) -> str:
    """The port for an argument of `forward`; one that its constructor has too was given an underscore."""
    renamed = f"{name}_"
    return renamed if renamed in spec.input_names and name not in spec.input_names else name
