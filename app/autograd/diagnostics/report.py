"""The detectives and the gradient check asked at once, answered in lines: for a terminal, and for another process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.autograd.batch import TrainingBatch
from app.autograd.diagnostics.findings import find_all
from app.autograd.diagnostics.report_text import of_findings, of_gradcheck
from app.autograd.diagnostics.results import LOOKED_FOR
from app.autograd.gradcheck.gradcheck import check_function, check_layer, check_net

BAD = ("error", "warning")


def findings(subject: TrainingBatch) -> tuple[list[str], int]:
    """What was found, and how much of it is an error or a warning. Raises CaptureError."""
    found = find_all(subject).found
    lines = list(of_findings(found))
    if not found:
        lines.append(f"Nothing was found. Looked for: {'; '.join(LOOKED_FOR)}.")
    return lines, sum(one.severity in BAD for one in found)


def gradcheck(subject: TrainingBatch, layer: str = "") -> tuple[list[str], int]:
    """The report on a layer, on the whole net without one, and whether it did not pass. Raises CaptureError."""
    report = check_layer(subject, layer) if layer else check_net(subject)
    return list(of_gradcheck(report)), int(not report.passed)


def gradcheck_function(function: Callable[..., Any], inputs: tuple[Any, ...], name: str) -> tuple[list[str], int]:
    """The same for a function of tensors."""
    report = check_function(function, *inputs, name=name)
    return list(of_gradcheck(report)), int(not report.passed)
