"""Format findings and gradcheck reports as lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from app.autograd.gradcheck.report import Element, GradcheckReport
from app.util.formatting import significant

if TYPE_CHECKING:
    from app.autograd.diagnostics.results import Finding


def of_findings(found: Iterable[Finding]) -> Iterator[str]:
    """Format findings as lines: place and sentence, the edit of the line of code, and the cure."""
    for one in found:
        where = f"{one.location_text} ({one.file})" if one.file else one.location_text
        yield f"{one.severity}: {where}: {one.sentence}"
        yield from (
            f"    - {line}" for line in textwrap.dedent(one.before).strip().splitlines()
        )
        yield from (
            f"    + {line}" for line in textwrap.dedent(one.after).strip().splitlines()
        )
        if one.cure:
            yield f"    {one.cure}"


def of_gradcheck(report: GradcheckReport) -> Iterator[str]:
    """Format the verdict, and a line for each checked input."""
    yield from report.sentences
    for given in report.inputs:
        verdict = "fine" if given.fine else "WRONG"
        whole = given.checked == given.elements
        looked = (
            f"all {given.elements:,}"
            if whole
            else f"{given.checked:,} of {given.elements:,}"
        )
        worst = max(
            filter(None, (given.worst, given.direction)), key=_error, default=None
        )
        yield f"    {verdict}: {given.name}, {looked} elements{_worst(worst)}"
    yield f"    {report.evaluations:,} forward passes"


def _error(one: Element) -> tuple[bool, float]:
    return one.kink is None, one.error


def _worst(one: Element | None) -> str:
    if one is None:
        return ""
    where = (
        f"at [{', '.join(map(str, one.index))}]"
        if one.index
        else "along a random direction"
    )
    kink = ", where it is not differentiable" if one.kink is not None else ""
    analytic, numeric = significant(one.analytic, 6), significant(one.numeric, 6)
    return f"; worst {where}: backward{one.of_output} {analytic}, finite differences {numeric}{kink}"
