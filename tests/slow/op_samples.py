"""Hold the findings and the gradient check of the Autograd room against torch, over the samples of torch's own tests.

`findings`: every operator with its sample inputs as a net of one operation. Where outputs and gradients are finite, no
finding may be called non-finite; and none may raise.
`gradcheck`: the verdict of the gradient check beside that of `torch.autograd.gradcheck` on the same function.

    python -m tests.slow.op_samples findings --samples 3
    python -m tests.slow.op_samples gradcheck --samples 2
    python -m tests.slow.op_samples gradcheck --planted 1.01
    python -m tests.slow.op_samples gradcheck --ops linalg.svd,nn.functional.ctc_loss

With `--planted` the gradient of each operator is multiplied by that number, so that both checks have something to find.

Each prints what differs, and a closing line with the counts; the exit status is 1 where something differs.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from app.autograd.batch import TrainingBatch
from app.autograd.diagnostics.findings import find_all
from app.autograd.errors import CaptureError
from app.util import rng

LARGEST = 120  # elements that require a gradient: a full comparison of more takes long


# Each has an Inf or a NaN inside and none outside, sparse tensors, empty ones, complex numbers, outputs that have no
# derivative or a wrong one alone, or a gradient so small that rounding is most of it.
SHORT = (
    "logdet",
    "nn.functional.ctc_loss",
    "linalg.det",
    "linalg.slogdet",
    "sparse.mm.reduce",
    "sparse.sampled_addmm",
    "native_group_norm",
    "native_layer_norm",
    "nn.functional.batch_norm",
    "nn.functional.prelu",
    "fft.ifft",
    "angle",
    "roll",
    "fmod",
    "softmax",
    "__rpow__",
    "xlogy",
    "to_sparse",
    "nn.functional.scaled_dot_product_attention",
)


@dataclass(frozen=True, eq=False)
class Sample:
    """One call of an operator: `function(*leaves)` with the tensors that require a gradient in front of the rest.

    `number` counts the operator's samples from 0, `nondet_tol` is how far two passes of it may differ.
    """

    op: str
    number: int
    function: Callable[..., Any]
    leaves: tuple[Tensor, ...]
    nondet_tol: float = 0.0

    def __str__(self) -> str:
        return f"{self.op}[{self.number}]"


class OneOperation(nn.Module):
    """A sample as a net: what requires a gradient is a parameter."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self.function = sample.function
        self.leaves = nn.ParameterList(
            nn.Parameter(leaf.detach().clone()) for leaf in sample.leaves
        )

    def forward(self) -> Any:
        return self.function(*self.leaves)


class Planted(torch.autograd.Function):
    """The identity, with a gradient that is wrong by a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad * ctx.factor, None


def planted(sample: Sample, factor: float) -> Sample:
    """The sample with a gradient that is wrong by a factor."""

    def function(*leaves: Tensor) -> Any:
        return tree_map(
            lambda leaf: Planted.apply(leaf, factor) if _differentiable(leaf) else leaf,
            sample.function(*leaves),
        )

    return replace(sample, function=function)


def _differentiable(leaf: Any) -> bool:
    return (
        isinstance(leaf, Tensor) and leaf.requires_grad and leaf.layout is torch.strided
    )


@dataclass
class Counts:
    """How many samples came to what, and what is to be looked at."""

    told: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


Ask = Callable[[Sample, Counts], None]


def operators(names: Sequence[str] = ()) -> list[Any]:
    """torch's table of operators with a derivative in double precision, of the given names or all of them."""
    if "expecttest" not in sys.modules:
        try:
            import expecttest  # noqa: F401
        except (
            ImportError
        ):  # torch's test helpers import it; the table of operators does not use it
            stand_in = types.ModuleType("expecttest")
            stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
            sys.modules["expecttest"] = stand_in
    with mock.patch.object(
        torch.backends, "disable_global_flags"
    ):  # else no run of this process can set cuDNN's
        from torch.testing._internal.common_methods_invocations import op_db

    wanted = set(names)
    return [
        op
        for op in op_db
        if op.supports_autograd
        and torch.float64 in op.supported_backward_dtypes("cpu")
        and (not wanted or _name(op) in wanted)
    ]


def _name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def samples(op: Any, most: int) -> Iterator[Sample]:
    """Up to `most` samples of an operator that have a tensor to differentiate by."""
    found = 0
    with rng.borrowed(0), _outside_a_test_case():
        given = list(
            itertools.islice(
                op.sample_inputs("cpu", torch.float64, requires_grad=True), 40
            )
        )
    for number, one in enumerate(given):
        if found == most:
            return
        sample = _sample(op, number, one)
        if sample.leaves and sum(leaf.numel() for leaf in sample.leaves) <= LARGEST:
            found += 1
            yield sample


@contextlib.contextmanager
def _outside_a_test_case() -> Iterator[None]:
    """Tell torch so: for each sample it would look through the whole stack, with all sources, for a case of its own."""
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    with mock.patch.object(common_utils, "extract_test_fn", none := lambda: None):
        with mock.patch.object(core, "extract_test_fn", none):
            yield


def _sample(op: Any, number: int, given: Any) -> Sample:
    parts, shape = tree_flatten(((given.input, *given.args), dict(given.kwargs)))
    places = [
        place
        for place, part in enumerate(parts)
        if isinstance(part, Tensor) and part.requires_grad
    ]
    process = given.output_process_fn_grad

    def function(*leaves: Tensor) -> Any:
        filled = list(parts)
        for place, leaf in zip(places, leaves, strict=True):
            filled[place] = leaf
        args, kwargs = tree_unflatten(filled, shape)
        with rng.borrowed(0):
            result = op.gradcheck_wrapper(op.get_op(), *args, **kwargs)
        return process(result) if process is not None else result

    leaves = tuple(parts[place].detach().clone().requires_grad_() for place in places)
    return Sample(_name(op), number, function, leaves, op.gradcheck_nondet_tol)


def finite(sample: Sample) -> bool | None:
    """Whether outputs and gradients of a sample are finite; None where it cannot be differentiated."""
    leaves = [leaf.detach().clone().requires_grad_() for leaf in sample.leaves]
    try:
        ends = [
            end
            for end in tree_leaves(sample.function(*leaves))
            if isinstance(end, Tensor)
        ]
        wanted = [end for end in ends if end.requires_grad]
        if not wanted:
            return None
        grads = torch.autograd.grad(
            wanted, leaves, [torch.ones_like(end) for end in wanted], allow_unused=True
        )
    except (RuntimeError, NotImplementedError):
        return None
    return all(_is_finite(value) for value in (*ends, *grads) if value is not None)


def _is_finite(tensor: Tensor) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    values = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    return bool(values.isfinite().all())


def look(sample: Sample, counts: Counts) -> None:
    """Ask every detective of a sample."""
    expected = finite(sample)
    if expected is None:
        counts.told["without a gradient"] += 1
        return
    try:
        found = find_all(TrainingBatch(OneOperation(sample), ())).found
    except Exception as error:
        counts.told["raised"] += 1
        counts.wrong.append(f"{sample}: findings raise {type(error).__name__}: {error}")
        return
    said = [one for one in found if one.kind == "non-finite"]
    counts.told["finite" if expected else "not finite"] += 1
    if expected and said:
        counts.wrong.append(f"{sample}: {said[0].sentence}")
    elif not expected and not said:
        counts.wrong.append(f"{sample}: not finite, and nothing said")
    failed = [one for one in found if one.kind == "failed"]
    if failed:
        counts.wrong.append(f"{sample}: {failed[0].sentence}")


def compare(sample: Sample, counts: Counts) -> None:
    """Hold the gradient check's verdict against torch's."""
    from app.features.gradcheck.compute.gradcheck import check_function

    theirs, why = torch_says(sample)
    try:
        report = check_function(sample.function, *sample.leaves, name=sample.op)
    except CaptureError as error:
        ours, said = "refused", str(error)
    else:
        ours = "right" if report.passed else "wrong"
        said = " ".join(report.sentences[:1])
        if report.passed and report.kinks:
            ours = "kink"
        elif not report.inputs and not report.changes:
            ours = "nothing to check"
    if theirs == "wrong" and ours == "right" and narrows(sample):
        counts.told["casts, checked in double here alone"] += 1
        return
    counts.told[f"{theirs}/{ours}"] += 1
    if theirs != ours:
        counts.wrong.append(f"{sample}: torch {theirs} ({why}), here {ours} ({said})")


def narrows(sample: Sample) -> bool:
    """Whether an operation gives fewer digits than double for double: no step of finite differences survives that."""
    ends = tree_leaves(sample.function(*sample.leaves))
    return any(
        isinstance(end, Tensor)
        and end.dtype in (torch.float32, torch.float16, torch.bfloat16)
        for end in ends
    )


def torch_says(sample: Sample) -> tuple[str, str]:
    """ "right", "wrong" or "refused", and torch's first lines."""
    leaves = [leaf.detach().clone().requires_grad_() for leaf in sample.leaves]
    masked = any(
        leaf.layout is not torch.strided for leaf in leaves
    )  # by the values that are stored, as we do

    def function(*given: Tensor) -> Any:
        result = sample.function(*given)
        sparse = isinstance(result, Tensor) and result.layout is not torch.strided
        return result.to_dense(masked_grad=True) if sparse else result

    try:
        torch.autograd.gradcheck(
            function, leaves, nondet_tol=sample.nondet_tol, masked=masked or None
        )
    except GradcheckError as error:
        return "wrong", " ".join(str(error).split())[:160]
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return "refused", " ".join(str(error).split())[:160]
    return "right", ""


def ask_each(names: tuple[str, ...], ask: Ask, counts: Counts) -> None:
    """Ask of a sample of each of these operators."""
    for op in operators(names):
        for sample in samples(op, 1):
            ask(sample, counts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the two tables; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("findings", "gradcheck"))
    parser.add_argument(
        "--samples", type=int, default=2, help="samples of each operator (2)"
    )
    parser.add_argument(
        "--planted",
        type=float,
        default=1.0,
        help="the factor by which gradients are wrong (1)",
    )
    parser.add_argument(
        "--ops", default="", help="names with commas between; all without"
    )
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    counts, ops = Counts(), operators(tuple(filter(None, options.ops.split(","))))
    ask: Ask = look if options.what == "findings" else compare
    for op in ops:
        before = len(counts.wrong)
        for sample in samples(op, options.samples):
            ask(
                sample if options.planted == 1 else planted(sample, options.planted),
                counts,
            )
        for line in counts.wrong[before:]:
            print(line, flush=True)
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.told.items()))
    total = sum(counts.told.values())
    print(
        f"{options.what}: {total} samples of {len(ops)} operators: {told}; {len(counts.wrong)} differ"
    )
    return int(bool(counts.wrong))


if __name__ == "__main__":
    raise SystemExit(main())
