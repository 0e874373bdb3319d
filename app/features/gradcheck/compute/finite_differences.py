"""Compare derivatives by backward with finite differences, for any function of tensors, element by element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from app.autograd.source_locations import SourceLocations
from app.autograd.sparse import at_places_of, values_of
from app.features.gradcheck.compute.nondifferentiable import KinkWatch, crossed
from app.features.gradcheck.compute.precision import (
    Wide,
    cast,
    in_precision,
    modules_in,
)
from app.features.gradcheck.values import (
    CheckedInput,
    Element,
    EpsRow,
    GradcheckReport,
    Kink,
)
from app.util import module_tree, rng
from app.util.errors import CodedError

# The step and the tolerances of torch.autograd.gradcheck: |analytic - numeric| <= ATOL + RTOL * |numeric|.
EPS, ATOL, RTOL = 1e-6, 1e-5, 1e-3
TABLE = tuple(10.0**-power for power in range(1, 11))
# Gradients smaller than this fraction of the largest are compared with the fraction: a bias before a norm has mere
# rounding.
_SMALL = 1e-3
# Outputs that are differentiated one by one; later ones are summed with the last of them.
_MOST_OUTPUTS = 8
# Rounding that a difference of two sums may show.
_ROUNDING = 20 * torch.finfo(torch.float64).eps
# A difference above it that ATOL alone allows is worth a sentence: rounding and truncation are seldom so large.
_FLOOR = 1e-9


class Function(Struct, frozen=True, eq=False):
    """A function to check: `run(own, given)` on copies of the modules `owned` (None and plain callables are passed as
    they are) and of the tensors in `given`, in train or eval mode. `names` are those of the tensors in `given`: "" for
    "input 0", None for one that is not checked. `state` is the CPU generator's state for each call, if the function ran
    in the middle of a net that had drawn numbers."""

    owned: tuple[Any, ...]
    run: Callable[[Any, Any], Any]
    given: Any
    train: bool = True
    names: tuple[str | None, ...] = ()
    state: Tensor | None = None


class GradcheckCancelledError(CodedError):
    """The check was cancelled by its caller."""


class Copy:
    """The function in one precision: `leaves` are the checked tensors, by name. Counts its `evaluations`.

    Of each leaf the real numbers are checked (`stored`): the stored values of a sparse one, real and imaginary parts of
    a complex one.
    """

    def __init__(
        self,
        function: Function,
        dtype: torch.dtype,
        seed: int | rng.Generators,
        cancelled: Callable[[], bool],
    ) -> None:
        self.dtype, self._seed, self._cancelled = dtype, seed, cancelled
        self._run, self._state = function.run, function.state
        self._own = tuple(
            in_precision(owned, dtype, function.train) for owned in function.owned
        )
        self._given = tree_map(lambda value: cast(value, dtype), function.given)
        self._buffers = [
            (b, b.clone())
            for owned in self._own
            for module in modules_in(owned)
            for b in module_tree.buffers(module)
        ]
        self._weights: tuple[Tensor, ...] = ()
        self._differentiable: tuple[bool, ...] = ()
        self.leaves = dict(self._named(function.names))
        self.evaluations = 0
        for leaf in self.leaves.values():
            leaf.requires_grad_()

    def _named(self, names: tuple[str | None, ...]) -> Iterator[tuple[str, Tensor]]:
        for index, leaf in enumerate(
            t for t in tree_leaves(self._given) if isinstance(t, Tensor)
        ):
            name = names[index] if index < len(names) else ""
            if name is not None and (leaf.is_floating_point() or leaf.is_complex()):
                yield name or f"input {index}", leaf
        for owned in self._own:
            for module in modules_in(owned):
                yield from (
                    (name, p)
                    for name, p in module_tree.named_parameters(module)
                    if p.requires_grad
                )

    def outputs(self) -> list[Tensor]:
        """Call the function; each call draws the same random numbers. Raises Cancelled."""
        if self._cancelled():
            raise GradcheckCancelledError
        self.evaluations += 1
        with torch.no_grad():
            for buffer, before in self._buffers:
                buffer.copy_(before)
        with rng.borrowed(self._seed):
            if self._state is not None:
                torch.set_rng_state(self._state)
            # A copy, since in-place operations overwrite it.
            arguments = tree_map(
                lambda value: value.clone() if isinstance(value, Tensor) else value,
                self._given,
            )
            with Wide() if self.dtype is torch.float64 else nullcontext():
                result = self._run(self._own, arguments)
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        tensors = [
            torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf
            for leaf in tensors
        ]
        return [
            leaf if leaf.layout is torch.strided else leaf.to_dense()
            for leaf in tensors
            if leaf.is_floating_point()
        ]

    def _derived(self) -> list[Tensor]:
        """Return the differentiable outputs; all of them if torch marks none."""
        outputs = self.outputs()
        if len(self._differentiable) != len(outputs):
            marked = tuple(out.requires_grad for out in outputs)
            self._differentiable = marked if any(marked) else (True,) * len(outputs)
        return list(itertools.compress(outputs, self._differentiable))

    def values(self) -> tuple[list[Tensor], list[float]]:
        """Return each output's weighted sum with fixed random weights, and the sums of absolute values.

        One number per output, since errors of single outputs may cancel in a sum.
        """
        outputs = self._derived()
        if not self._weights:
            generator = torch.Generator().manual_seed(1)
            self._weights = tuple(
                torch.ones_like(out)
                if out.numel() == 1 and len(outputs) == 1
                else torch.randn(
                    out.shape, generator=generator, dtype=torch.float64
                ).to(out)
                for out in outputs
            )
        terms = [
            (out * weight) for out, weight in zip(outputs, self._weights, strict=True)
        ]
        totals = [term.sum() for term in terms] or [torch.zeros(())]
        sizes = [float(term.detach().abs().sum()) for term in terms] or [0.0]
        few = _MOST_OUTPUTS - 1
        if len(totals) > few + 1:
            totals, sizes = (
                [*totals[:few], torch.stack(totals[few:]).sum()],
                [*sizes[:few], sum(sizes[few:])],
            )
        return totals, sizes

    def analytic(self) -> dict[str, Tensor]:
        """Backward's gradient of each output by every leaf, in shape (outputs, *leaf); zeros where none arrives."""
        totals, _ = self.values()
        gradients: dict[str, list[Tensor]] = {name: [] for name in self.leaves}
        for index, total in enumerate(totals):
            for leaf in self.leaves.values():
                leaf.grad = None
            if total.requires_grad:
                with rng.borrowed(self._seed):  # a checkpoint inside runs forward again
                    total.backward(retain_graph=index + 1 < len(totals))
            for name, leaf in self.leaves.items():
                none = torch.zeros_like(stored(leaf))
                gradients[name].append(
                    none if leaf.grad is None else stored(leaf.grad, like=leaf)
                )
        return {name: torch.stack(grads) for name, grads in gradients.items()}

    def evaluate_at(
        self, steps: Mapping[str, Tensor], eps: float, run: Callable[[], Any]
    ) -> Any:
        """Call `run()` with `eps` times a step added to each named leaf; the leaves are restored."""
        values = {name: stored(self.leaves[name]) for name in steps}
        before = {name: value.clone() for name, value in values.items()}
        try:
            for name, step in steps.items():
                values[name].add_(step, alpha=eps)
            return (
                run()
            )  # with gradients enabled, as some nets compute differently without
        finally:
            for name, value in before.items():
                values[name].copy_(value)

    def numeric(
        self, steps: Mapping[str, Tensor], eps: float
    ) -> list[tuple[float, float]]:
        """Return for each output the derivative along `steps` by central differences, (f(x + εd) − f(x − εd)) / 2ε, and
        its rounding error."""
        above, sizes = self.evaluate_at(steps, eps, self.values)
        below, _ = self.evaluate_at(steps, -eps, self.values)
        return [
            (float(up.detach() - down.detach()) / (2 * eps), size * _ROUNDING / eps)
            for up, down, size in zip(above, below, sizes, strict=True)
        ]

    def sides(
        self, locations: SourceLocations, steps: Mapping[str, Tensor], eps: float
    ) -> KinkWatch:
        """Record on which sides of their kinks the operations are, one step away."""
        watch = KinkWatch(locations)
        with watch:
            self.evaluate_at(steps, eps, self.outputs)
        return watch


@torch.no_grad()
def stored(tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """Return the real numbers that a tensor stores, as a view: a sparse one's values, a complex one's parts.

    With `like` the numbers of a gradient, dense or sparse, at the indices where the tensor `like` has values.
    """
    numbers = tensor.detach()
    if like is None:
        numbers = values_of(numbers)
    elif like.layout is not torch.strided:
        numbers = at_places_of(like.detach(), numbers)
    elif numbers.layout is not torch.strided:
        numbers = numbers.to_dense()
    return (
        torch.view_as_real(numbers.resolve_conj()) if numbers.is_complex() else numbers
    )


def check(
    title: str,
    function: Function,
    locations: SourceLocations,
    seed: int | rng.Generators,
    budget: int,
    cancelled: Callable[[], bool],
    note: str,
) -> GradcheckReport:
    """Run the whole comparison. Raises what the function raises."""
    double, single = (
        Copy(function, dtype, seed, cancelled)
        for dtype in (torch.float64, torch.float32)
    )
    inputs: list[CheckedInput] = []
    table: list[EpsRow] = []
    watch, changes, stopped = KinkWatch(locations), False, False
    try:
        watch = double.sides(locations, {}, 0.0)
        changes = not _equal(double.outputs(), double.outputs())
        if not changes and double.leaves:
            analytic, rough = double.analytic(), _roughly(single)
            for row in _table(double, single, analytic, rough):
                table.append(row)
            left = max(0, budget - double.evaluations - single.evaluations)
            for checked_input in _inputs(
                double, analytic, rough, left, locations, watch
            ):
                inputs.append(checked_input)
    except GradcheckCancelledError:
        stopped = True
    kinks = {
        element.kink
        for input_report in inputs
        for element in (input_report.worst, input_report.direction)
        if element is not None and element.kink
    }
    return GradcheckReport(
        title,
        tuple(inputs),
        tuple(table),
        tuple(sorted(kinks, key=lambda kink: kink.place.line or 0)),
        tuple(watch.random),
        changes,
        double.evaluations + single.evaluations,
        stopped,
        note,
    )


def _roughly(single: Copy) -> dict[str, Tensor]:
    """Backward's gradient in single precision; empty where the function holds on to double."""
    try:
        return single.analytic()
    except (RuntimeError, TypeError, ValueError):
        return {}


def _table(
    double: Copy,
    single: Copy,
    analytic: Mapping[str, Tensor],
    rough: Mapping[str, Tensor],
) -> Iterator[EpsRow]:
    generator = torch.Generator().manual_seed(2)
    step = {
        name: _direction(stored(leaf), generator)
        for name, leaf in double.leaves.items()
    }
    for function_copy, grads in ((single, rough), (double, analytic)):
        if not grads:
            continue
        steps = {name: value.to(function_copy.dtype) for name, value in step.items()}
        expected = sum(
            float((grads[name] * value).sum()) for name, value in steps.items()
        )
        for eps in TABLE:
            numeric = sum(
                derivative for derivative, _ in function_copy.numeric(steps, eps)
            )
            yield EpsRow(
                str(function_copy.dtype).removeprefix("torch."),
                eps,
                numeric,
                expected,
                _relative(expected, numeric),
            )


def _inputs(
    double: Copy,
    analytic: Mapping[str, Tensor],
    rough: Mapping[str, Tensor],
    budget: int,
    locations: SourceLocations,
    base: KinkWatch,
) -> Iterator[CheckedInput]:
    """Check each input in turn; they share the evaluation budget, and small ones leave the rest to the others."""
    generator = torch.Generator().manual_seed(3)
    pairs, waiting = budget // 2, len(double.leaves)
    largest = max((_largest(grad) for grad in analytic.values()), default=0.0)
    ordered = sorted(
        ((name, stored(leaf)) for name, leaf in double.leaves.items()),
        key=lambda item: item[1].numel(),
    )
    for name, leaf in ordered:
        share, waiting = pairs // max(waiting, 1), waiting - 1
        grad, worst, direction = analytic[name], None, None
        scale = max(_largest(grad), largest * _SMALL)
        complete = leaf.numel() <= share
        chosen = (
            range(leaf.numel())
            if complete
            else _chosen(grad.abs().amax(0), max(0, share - 1), generator)
        )
        for position in chosen:
            step = torch.zeros_like(leaf).flatten()
            step[position] = 1.0
            index = _index(position, tuple(leaf.shape))
            steps = {name: step.view_as(leaf)}
            expected = grad.reshape(len(grad), -1)[:, position].tolist()
            element = _compared(
                double, name, index, expected, steps, scale, locations, base
            )
            worst = element if worst is None or _rank(element) > _rank(worst) else worst
        if not complete and share:
            step = _direction(leaf, generator)
            step /= torch.linalg.vector_norm(
                step
            )  # unit length, so that the tolerance of one element applies
            expected = (grad * step).reshape(len(grad), -1).sum(1).tolist()
            direction = _compared(
                double, name, (), expected, {name: step}, scale, locations, base
            )
        pairs -= len(chosen) + (direction is not None)
        apart = (
            _largest(rough[name].double() - grad) / scale if scale and rough else None
        )
        yield CheckedInput(
            name, tuple(leaf.shape), leaf.numel(), len(chosen), worst, direction, apart
        )


def _compared(
    double: Copy,
    name: str,
    index: tuple[int, ...],
    expected: Sequence[float],
    steps: Mapping[str, Tensor],
    scale: float,
    locations: SourceLocations,
    base: KinkWatch,
) -> Element:
    """Compare all outputs and return the worst; `expected` has backward's derivative of each."""
    several = len(expected) > 1
    elements = [
        _element(name, index, output if several else None, analytic, *numeric, scale)
        for output, (analytic, numeric) in enumerate(
            zip(expected, double.numeric(steps, EPS), strict=True)
        )
    ]
    worst = max(elements, key=lambda side: side.error)
    if worst.error <= 1:
        return worst
    above, below = (
        double.sides(locations, steps, EPS),
        double.sides(locations, steps, -EPS),
    )
    location = crossed(above.sides, below.sides)
    if location is None:
        return worst
    return replace(
        worst,
        kink=Kink(location, sum(ties for at, _, ties in base.sides if at == location)),
    )


def _element(
    name: str,
    index: tuple[int, ...],
    output: int | None,
    analytic: float,
    numeric: float,
    rounding: float,
    scale: float,
) -> Element:
    difference = abs(analytic - numeric)
    error = difference / (ATOL + RTOL * abs(numeric) + rounding)
    if not math.isfinite(difference):  # equal Infs agree, NaN never does
        error = 0.0 if analytic == numeric else math.inf
    tiny = difference > RTOL * abs(numeric) + 10 * rounding + _FLOOR
    return Element(
        name,
        index,
        analytic,
        numeric,
        error,
        _relative(analytic, numeric, scale),
        None,
        tiny,
        output,
    )


def _index(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Unravel a flat index. (`torch.unravel_index` imports sympy, which takes a second.)"""
    indices: list[int] = []
    for size in reversed(shape):
        position, at = divmod(position, size)
        indices.append(at)
    return tuple(reversed(indices))


def _rank(element: Element) -> tuple[bool, float]:
    return element.kink is None and element.error > 1, element.error


def _chosen(grad: Tensor, count: int, generator: torch.Generator) -> list[int]:
    """Choose the element with the largest gradient, and others at random."""
    if not count:
        return []
    others = torch.randint(grad.numel(), (count - 1,), generator=generator).tolist()
    return list(dict.fromkeys([int(grad.abs().argmax()), *others]))


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def _direction(leaf: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(leaf.shape, generator=generator, dtype=torch.float64).to(leaf)


def _relative(derivative: float, other: float, scale: float = 0.0) -> float:
    largest = max(abs(derivative), abs(other), scale)
    return abs(derivative - other) / largest if largest else 0.0


def _equal(outputs: list[Tensor], other: list[Tensor]) -> bool:
    return all(
        torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(outputs, other, strict=True)
    )
