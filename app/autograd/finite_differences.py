"""The derivative of any function of tensors, by backward and by finite differences, element by element."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from app import rng
from app.autograd.capture import ReadyLoss
from app.autograd.gradcheck_report import CheckedInput, Element, EpsRow, GradcheckReport
from app.autograd.kinks import Kink, Watch, crossed
from app.autograd.places import Places

# Central differences in double precision are at their best about the cube root of its 16 digits.
EPS = 1e-6
TABLE = tuple(10.0**-power for power in range(1, 11))
RTOL = 1e-4
# A gradient so much smaller than the largest one is compared with this part of it: a bias that a norm takes away has
# rounding alone.
_SMALL = 1e-3
# How many digits' worth of rounding a difference of two sums may show.
_ROUNDING = 20 * torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class Function:
    """`run(own, given)` on copies of the modules `owned` (None and plain callables go as they are) and of the tensors
    in `given`, with the modules in train or eval mode. `names` are those of the tensors in `given`: "" for "input 0",
    None for one that is not looked at."""

    owned: tuple[Any, ...]
    run: Callable[[Any, Any], Any]
    given: Any
    train: bool = True
    names: tuple[str | None, ...] = ()


class Cancelled(Exception):
    """The one who asked does not want to know any more."""


class Copy:
    """The function in one precision: `leaves` are the tensors it is looked at by, by name. Counts its `evaluations`."""

    def __init__(self, function: Function, dtype: torch.dtype, seed: int, cancelled: Callable[[], bool]) -> None:
        self.dtype, self._seed, self._cancelled = dtype, seed, cancelled
        self._run = function.run
        self._own = tuple(_in_precision(owned, dtype, function.train) for owned in function.owned)
        self._given = tree_map(lambda value: _cast(value, dtype), function.given)
        self._buffers = [(b, b.clone()) for part in self._own for module in _modules(part) for b in module.buffers()]
        self._weights: tuple[Tensor, ...] = ()
        self.leaves = dict(self._named(function.names))
        self.evaluations = 0
        for leaf in self.leaves.values():
            leaf.requires_grad_()

    def _named(self, names: tuple[str | None, ...]) -> Iterator[tuple[str, Tensor]]:
        for place, leaf in enumerate(t for t in tree_leaves(self._given) if isinstance(t, Tensor)):
            name = names[place] if place < len(names) else ""
            if name is not None and leaf.is_floating_point() and leaf.numel():
                yield name or f"input {place}", leaf
        for part in self._own:
            for module in _modules(part):
                yield from ((name, p) for name, p in module.named_parameters() if p.requires_grad and p.numel())

    def outputs(self, seed: int | None = None) -> list[Tensor]:
        """The function once, its random numbers drawn from `seed`. Raises Cancelled."""
        if self._cancelled():
            raise Cancelled
        self.evaluations += 1
        with torch.no_grad():
            for buffer, before in self._buffers:
                buffer.copy_(before)
        with rng.borrowed(self._seed if seed is None else seed):
            # A copy, so that an operation in place has something to write to.
            given = tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, self._given)
            with _Wide() if self.dtype is torch.float64 else nullcontext():
                result = self._run(self._own, given)
        found = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        found = [torch.view_as_real(leaf) if leaf.is_complex() else leaf for leaf in found]
        return [leaf for leaf in found if leaf.is_floating_point()]

    def value(self) -> tuple[Tensor, float]:
        """The outputs times fixed random weights, summed; and the sum of the absolute values."""
        outputs = self.outputs()
        if not self._weights:
            generator = torch.Generator().manual_seed(1)
            self._weights = tuple(
                torch.ones_like(out) if out.numel() == 1 and len(outputs) == 1
                else torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out)
                for out in outputs
            )  # fmt: skip
        terms = [(out * weight) for out, weight in zip(outputs, self._weights, strict=True)]
        total = torch.stack([term.sum() for term in terms]).sum() if terms else torch.zeros(())
        return total, sum(float(term.detach().abs().sum()) for term in terms)

    def analytic(self) -> dict[str, Tensor]:
        """Backward's gradient by every leaf; zeros where none arrives."""
        total, _ = self.value()
        for leaf in self.leaves.values():
            leaf.grad = None
        if total.requires_grad:
            with rng.borrowed(self._seed):  # a checkpoint inside runs forward again
                total.backward()
        return {
            name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.to_dense()
            for name, leaf in self.leaves.items()
        }

    def at(self, steps: Mapping[str, Tensor], eps: float, look: Callable[[], Any]) -> Any:
        """`look()` with `eps` times a step added to each leaf named; the leaves are put back."""
        before = {name: self.leaves[name].detach().clone() for name in steps}
        try:
            with torch.no_grad():
                for name, step in steps.items():
                    self.leaves[name].add_(step, alpha=eps)
            return look()  # with gradients on, for some nets compute in another way without
        finally:
            with torch.no_grad():
                for name, value in before.items():
                    self.leaves[name].copy_(value)

    def numeric(self, steps: Mapping[str, Tensor], eps: float) -> tuple[float, float]:
        """The derivative along `steps` by central differences, and how much of it may be rounding."""
        above, size = self.at(steps, eps, self.value)
        below, _ = self.at(steps, -eps, self.value)
        return float(above.detach() - below.detach()) / (2 * eps), size * _ROUNDING / eps

    def sides(self, places: Places, steps: Mapping[str, Tensor], eps: float) -> Watch:
        """On which sides of their kinks the operations are, one step away."""
        watch = Watch(places)
        with watch:
            self.at(steps, eps, self.outputs)
        return watch


_NARROW = frozenset((torch.float32, torch.float16, torch.bfloat16))
_NARROWING = frozenset(("float", "half", "bfloat16"))


class _Wide(TorchFunctionMode):
    """Tensors that the function makes itself (`torch.zeros`) and casts (`.float()`) are double too, on this thread.

    A cast is changed before it is made, for digits that are lost would look like a wrong gradient.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _NARROWING and args:
            return args[0].double()
        args = tuple(torch.float64 if _is_narrow(value) else value for value in args)
        kwargs = {key: torch.float64 if _is_narrow(value) else value for key, value in kwargs.items()}
        result = func(*args, **kwargs)
        return result.double() if isinstance(result, Tensor) and result.dtype in _NARROW else result


def _is_narrow(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in _NARROW


def check(
    what: str, function: Function, places: Places, seed: int, budget: int, cancelled: Callable[[], bool], note: str
) -> GradcheckReport:  # fmt: skip
    """The whole comparison. Raises what the function raises."""
    double, single = (Copy(function, dtype, seed, cancelled) for dtype in (torch.float64, torch.float32))
    inputs: list[CheckedInput] = []
    table: list[EpsRow] = []
    watch, changes, stopped = Watch(places), False, False
    try:
        watch = double.sides(places, {}, 0.0)
        changes = not _same(double.outputs(), double.outputs())
        if not changes and double.leaves:
            analytic, rough = double.analytic(), single.analytic()
            for row in _table(double, single, analytic, rough):
                table.append(row)
            left = max(0, budget - double.evaluations - single.evaluations)
            for found in _inputs(double, analytic, rough, left, places, watch):
                inputs.append(found)
    except Cancelled:
        stopped = True
    kinks = {one.kink for given in inputs for one in (given.worst, given.direction) if one is not None and one.kink}
    return GradcheckReport(
        what, tuple(inputs), tuple(table), tuple(sorted(kinks, key=lambda kink: kink.place.line or 0)),
        tuple(watch.random), changes, double.evaluations + single.evaluations, stopped, note,
    )  # fmt: skip


def _table(double: Copy, single: Copy, analytic: Mapping[str, Tensor], rough: Mapping[str, Tensor]) -> Iterator[EpsRow]:
    generator = torch.Generator().manual_seed(2)
    step = {name: _direction(leaf, generator) for name, leaf in double.leaves.items()}
    for own, grads in ((single, rough), (double, analytic)):
        steps = {name: value.to(own.dtype) for name, value in step.items()}
        expected = sum(float((grads[name] * value).sum()) for name, value in steps.items())
        for eps in TABLE:
            numeric, _ = own.numeric(steps, eps)
            yield EpsRow(str(own.dtype).removeprefix("torch."), eps, numeric, expected, _relative(expected, numeric))


def _inputs(double: Copy, analytic: Mapping[str, Tensor], rough: Mapping[str, Tensor], budget: int, places: Places,
            base: Watch) -> Iterator[CheckedInput]:  # fmt: skip
    """Each input in turn; all share what may be evaluated, and small ones leave the rest to those that follow."""
    generator = torch.Generator().manual_seed(3)
    pairs, waiting = budget // 2, len(double.leaves)
    largest = max((float(grad.abs().max()) for grad in analytic.values()), default=0.0)
    ordered = sorted(double.leaves.items(), key=lambda item: item[1].numel())
    for name, leaf in ordered:
        share, waiting = pairs // max(waiting, 1), waiting - 1
        grad, worst, direction = analytic[name], None, None
        scale = max(float(grad.abs().max()), largest * _SMALL)
        whole = leaf.numel() <= share
        chosen = range(leaf.numel()) if whole else _chosen(grad, max(0, share - 1), generator)
        for place in chosen:
            step = torch.zeros_like(leaf).flatten()
            step[place] = 1.0
            index = _index(place, tuple(leaf.shape))
            steps = {name: step.view_as(leaf)}
            found = _compared(double, name, index, float(grad.flatten()[place]), steps, scale, places, base)
            worst = found if worst is None or _rank(found) > _rank(worst) else worst
        if not whole and share:
            step = _direction(leaf, generator)
            direction = _compared(double, name, (), float((grad * step).sum()), {name: step}, scale, places, base)
        pairs -= len(chosen) + (direction is not None)
        apart = float((rough[name].double() - grad).abs().max()) / scale if scale else None
        yield CheckedInput(name, tuple(leaf.shape), leaf.numel(), len(chosen), worst, direction, apart)


def _compared(double: Copy, name: str, index: tuple[int, ...], expected: float, steps: Mapping[str, Tensor],
              scale: float, places: Places, base: Watch) -> Element:  # fmt: skip
    numeric, rounding = double.numeric(steps, EPS)
    difference = abs(expected - numeric)
    allowed = RTOL * max(abs(expected), abs(numeric)) + rounding
    error = difference / allowed if allowed else (math.inf if difference else 0.0)
    kink = None
    if not error <= 1:
        above, below = double.sides(places, steps, EPS), double.sides(places, steps, -EPS)
        place = crossed(above.sides, below.sides)
        if place is not None:
            kink = Kink(place, sum(ties for at, _, ties in base.sides if at == place))
    return Element(name, index, expected, numeric, error, _relative(expected, numeric, scale), kink)


def _index(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Where the element of this number is. (`torch.unravel_index` loads sympy, which takes a second.)"""
    found: list[int] = []
    for size in reversed(shape):
        place, at = divmod(place, size)
        found.append(at)
    return tuple(reversed(found))


def _rank(element: Element) -> tuple[bool, float]:
    return element.kink is None and element.error > 1, element.error


def _chosen(grad: Tensor, count: int, generator: torch.Generator) -> list[int]:
    """The element with the largest gradient, and others at random."""
    if not count:
        return []
    others = torch.randint(grad.numel(), (count - 1,), generator=generator).tolist()
    return list(dict.fromkeys([int(grad.abs().argmax()), *others]))


def _direction(leaf: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(leaf.shape, generator=generator, dtype=torch.float64).to(leaf)


def _relative(one: float, other: float, scale: float = 0.0) -> float:
    largest = max(abs(one), abs(other), scale)
    return abs(one - other) / largest if largest else 0.0


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(one, other, strict=True))


def _in_precision(part: Any, dtype: torch.dtype, train: bool) -> Any:
    if isinstance(part, nn.Module):
        return copy.deepcopy(part).to(dtype).train(train)
    if isinstance(part, ReadyLoss):
        return replace(part, loss=_in_precision(part.loss, dtype, train))
    return part


def _modules(part: Any) -> list[nn.Module]:
    """The module in an owned part."""
    inner = part.loss if isinstance(part, ReadyLoss) else part
    return [inner] if isinstance(inner, nn.Module) else []


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().to(dtype if value.is_floating_point() else value.dtype, copy=True)
