"""Calls that draw random numbers, as the ops that draw the same ones from the same seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from app.builder.importer.tracing.proxies import PROXIES, ValueProxy


def _normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, **named: Any) -> Any:
    if size is None or not all(type(number) in (int, float) for number in (mean, std)):
        return None
    return _moved(torch.randn(size, **named), std, mean)


def _filled_normal(x: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    return _moved(torch.randn_like(x), std, mean)


def _filled_uniform(x: Any, *given: Any, **named: Any) -> Any:
    low = named.get("from", given[0] if given else 0.0)
    high = named.get("to", given[1] if len(given) > 1 else 1.0)
    return _moved(torch.rand_like(x), high - low, low)


def _filled_by_chance(x: Any, p: Any = 0.5) -> Any:
    return (
        (torch.rand_like(x) < p).type_as(x) if not isinstance(p, torch.Tensor) else None
    )


def _by_chance(x: Any) -> Any:
    return (torch.rand_like(x) < x).type_as(x)


def _moved(drawn: Any, factor: float, shift: float) -> Any:
    drawn = drawn if factor == 1 else drawn * factor
    return drawn if shift == 0 else drawn + shift


# Of what learns these give gradients of zero, and the ops give none.
_METHODS: dict[str, Callable[..., Any]] = {
    "normal_": _filled_normal,
    "uniform_": _filled_uniform,
    "bernoulli_": _filled_by_chance,
    "bernoulli": _by_chance,
}
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.normal: _normal,
    torch.bernoulli: _by_chance,
}


def drawn(kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rewrite a call that draws random numbers in terms of ops; None to leave it as it is."""
    way = (
        _METHODS.get(target)
        if kind == "call_method"
        else _FUNCTIONS.get(target)
        if callable(target)
        else None
    )
    if way is None or any(type(arg) in PROXIES and _learns(arg) for arg in args[:1]):
        return None
    return way(*args, **kwargs)


def _learns(x: ValueProxy) -> bool:
    tracer = x.tracer
    return bool(tracer.gradients.learns(tracer.latest(x.node), tracer.root))
