"""gradcheck for `tapedeck autograd`: the report as lines of text, and 1 if it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from app.autograd.batch import TrainingBatch
from app.features.gradcheck.compute.gradcheck import (
    check_function,
    check_layer,
    check_net,
)
from app.features.gradcheck.values import Element, GradcheckReport
from app.util.formatting import significant


def of_batch(batch: TrainingBatch, layer: str) -> tuple[list[str], int]:
    """Check a layer, or the whole net for "". Raises CaptureError."""
    report = check_layer(batch, layer) if layer else check_net(batch)
    return list(_lines(report)), int(not report.passed)


def of_function(
    function: Callable[..., Any], inputs: tuple[Any, ...], name: str
) -> tuple[list[str], int]:
    """Check a function of tensors. Raises CaptureError."""
    report = check_function(function, *inputs, name=name)
    return list(_lines(report)), int(not report.passed)


def _lines(report: GradcheckReport) -> Iterator[str]:
    """Format the verdict, and a line for each checked input."""
    yield from report.sentences
    for tensor in report.inputs:
        verdict = "fine" if tensor.fine else "WRONG"
        elements = f"{tensor.checked:,} of {tensor.elements:,}"
        if tensor.checked == tensor.elements:
            elements = f"all {tensor.elements:,}"
        compared = filter(None, (tensor.worst, tensor.direction))
        worst = max(compared, key=_error, default=None)
        yield f"    {verdict}: {tensor.name}, {elements} elements{_worst(worst)}"
    yield f"    {report.evaluations:,} forward passes"


def _error(element: Element) -> tuple[bool, float]:
    return element.kink is None, element.error


def _worst(element: Element | None) -> str:
    if element is None:
        return ""
    where = (
        f"at [{', '.join(map(str, element.index))}]"
        if element.index
        else "along a random direction"
    )
    kink = ", where it is not differentiable" if element.kink is not None else ""
    analytic, numeric = (
        significant(element.analytic, 6),
        significant(element.numeric, 6),
    )
    return f"; worst {where}: backward{element.of_output} {analytic}, finite differences {numeric}{kink}"
