"""Random numbers drawn outside the graph: by Python, numpy, or torch calls that tracing does not see."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from app.builder.importer.tracing import source_lines

if TYPE_CHECKING:
    from app.builder.importer.tracing.tracing import Tracer

_SEEDS = ("manual_seed", "seed", "set_rng_state")
_NUMPY = """
    beta binomial bytes chisquare choice dirichlet exponential f gamma geometric gumbel hypergeometric laplace logistic
    lognormal multinomial multivariate_normal normal pareto permutation poisson power rand randint randn random
    random_integers random_sample ranf rayleigh sample seed shuffle standard_cauchy standard_exponential standard_gamma
    standard_normal standard_t triangular uniform vonmises wald weibull zipf
""".split()


def state() -> tuple[Any, ...]:
    """Return the random state of Python, torch and numpy."""
    numpy = sys.modules.get("numpy")
    states: tuple[Any, ...] = (
        random.getstate(),
        bytes(torch.get_rng_state().numpy().data),
    )
    if numpy is not None:
        kind, keys, *more = numpy.random.get_state(legacy=True)
        states += (kind, keys.tobytes(), *more)
    return states


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore the random generators afterwards, so that draws inside do not shift later random numbers."""
    numpy, python = sys.modules.get("numpy"), random.getstate()
    theirs = numpy.random.get_state(legacy=True) if numpy is not None else None
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(theirs)


def drawn_by(before: tuple[Any, ...], after: tuple[Any, ...]) -> str:
    """Name the library whose state differs, "" if none."""
    if before[0] != after[0]:
        return "Python's random module"
    if before[1] != after[1]:
        return "torch"
    return "numpy" if before[2:] != after[2:] and len(before) == len(after) else ""


@contextlib.contextmanager
def watched(tracer: Tracer) -> Iterator[None]:
    """Patch Python's and numpy's generators and torch's seeding so that the model's use of them raises TraceError."""

    def instead(function: Any, reason: str) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if tracer.following and source_lines.called_by_theirs():
                raise tracer.refused(reason)
            return function(*args, **kwargs)

        return called

    changed: list[tuple[ModuleType, str, Any]] = []

    def put(module: ModuleType | None, name: str, reason: str) -> None:
        function = getattr(module, name, None)
        if module is not None and callable(function):
            changed.append((module, name, function))
            setattr(module, name, instead(function, reason))

    numpy = sys.modules.get("numpy")
    for name in random.__all__:
        if name[:1].islower() and name not in ("getstate",):
            put(random, name, f"it draws random numbers with Python's random.{name}")
    for name in _NUMPY:
        put(
            getattr(numpy, "random", None),
            name,
            f"it draws random numbers with numpy.random.{name}",
        )
    for name in _SEEDS:
        for module in (torch, torch.random):
            put(
                module,
                name,
                f"it sets the state of torch's random number generator (torch.{name})",
            )
    try:
        yield
    finally:
        for module, name, function in reversed(changed):
            setattr(module, name, function)
