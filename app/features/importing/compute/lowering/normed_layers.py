"""Layers of torch with spectral or weight norm: the statements that apply it in a generated layer's constructor."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

KEEPS_STATE = "its spectral norm changes buffers in training"
_PARAMETRIZED = (
    "Parametrized"  # what torch puts before the name of a class with parametrizations
)


def plain_class(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module before torch replaced it by one with parametrizations."""
    kind = type(module)
    return (
        kind.__bases__[0]
        if is_parametrized(module) and kind.__name__.startswith(_PARAMETRIZED)
        else kind
    )


def plain_name(name: str) -> str:
    """Return the name of a class without the prefix that parametrizations add.

    >>> plain_name("ParametrizedLinear"), plain_name("Linear")
    ('Linear', 'Linear')
    """
    return name.removeprefix(_PARAMETRIZED)


def has_power_iteration(module: nn.Module) -> bool:
    """Return whether a hook of `nn.utils.spectral_norm` computes a weight of a module at each call."""
    return any(
        isinstance(hook, SpectralNorm) for hook in module._forward_pre_hooks.values()
    )


def computed_at_each_call(module: nn.Module) -> frozenset[str]:
    """Return the attributes that a hook of `spectral_norm` or `weight_norm` sets before each call."""
    hooks = module._forward_pre_hooks.values()
    return frozenset(
        hook.name for hook in hooks if isinstance(hook, SpectralNorm | WeightNorm)
    )


def statements(module: nn.Module) -> tuple[str, ...]:
    """Return the statements of a constructor that norm a layer of torch as `module` is; () if it is not, or also has
    other hooks or parametrizations."""
    hooks = [_hooked(hook) for hook in module._forward_pre_hooks.values()]
    lists: Any = module.parametrizations if is_parametrized(module) else {}
    lines = [
        *hooks,
        *(
            _parametrized(name, parametrization)
            for name, several in lists.items()
            for parametrization in several
        ),
    ]
    return tuple(map(str, lines)) if all(lines) else ()


def _hooked(hook: Any) -> str:
    if isinstance(hook, SpectralNorm):
        more = f"n_power_iterations={hook.n_power_iterations}, eps={hook.eps!r}, dim={hook.dim}"
        return f'nn.utils.spectral_norm(self, "{hook.name}", {more})'
    return (
        f'nn.utils.weight_norm(self, "{hook.name}", dim={hook.dim})'
        if isinstance(hook, WeightNorm)
        else ""
    )


def _parametrized(name: str, parametrization: nn.Module) -> str:
    if isinstance(parametrization, parametrizations._SpectralNorm):
        turns = getattr(
            parametrization, "n_power_iterations", 1
        )  # of a vector there are none
        more = f"n_power_iterations={turns}, eps={parametrization.eps!r}, dim={parametrization.dim}"
        return f'nn.utils.parametrizations.spectral_norm(self, "{name}", {more})'
    if isinstance(parametrization, parametrizations._WeightNorm):
        return f'nn.utils.parametrizations.weight_norm(self, "{name}", dim={parametrization.dim})'
    return ""
