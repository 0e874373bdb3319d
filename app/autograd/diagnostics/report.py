"""Run diagnostics or a gradcheck and return their report as lines of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.autograd.batch import TrainingBatch
from app.autograd.diagnostics.findings import find_all
from app.autograd.diagnostics.report_text import of_findings, of_gradcheck
from app.autograd.diagnostics.results import LOOKED_FOR, Findings
from app.autograd.gradcheck.gradcheck import check_function, check_layer, check_net

BAD = ("error", "warning")


def findings(batch: TrainingBatch) -> tuple[list[str], int]:
    """Return the findings as lines, and how many are errors or warnings. Raises CaptureError."""
    return lines_of(find_all(batch))


def lines_of(report: Findings) -> tuple[list[str], int]:
    """Return findings as lines, and how many are errors or warnings."""
    found = report.found
    lines = list(of_findings(found))
    if not found:
        lines.append(f"Nothing found. Checked for: {'; '.join(LOOKED_FOR)}.")
    return lines, sum(one.severity in BAD for one in found)


def gradcheck(batch: TrainingBatch, layer: str = "") -> tuple[list[str], int]:
    """Gradcheck a layer, or the whole net without one: the report as lines, and 1 if it failed. Raises CaptureError."""
    report = check_layer(batch, layer) if layer else check_net(batch)
    return list(of_gradcheck(report)), int(not report.passed)


def gradcheck_function(
    function: Callable[..., Any], inputs: tuple[Any, ...], name: str
) -> tuple[list[str], int]:
    """Gradcheck a function of tensors; the report as of `gradcheck`."""
    report = check_function(function, *inputs, name=name)
    return list(of_gradcheck(report)), int(not report.passed)
