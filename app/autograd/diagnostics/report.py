"""The findings of a batch as lines of text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from app.autograd.batch import TrainingBatch
from app.autograd.diagnostics.findings import LOOKED_FOR, find_all
from app.autograd.diagnostics.results import Finding, Findings
from app.util.language import tr

BAD = ("error", "warning")


def findings(batch: TrainingBatch) -> tuple[list[str], int]:
    """Return the findings as lines, and how many are errors or warnings. Raises CaptureError."""
    return lines_of(find_all(batch))


def lines_of(report: Findings) -> tuple[list[str], int]:
    """Return findings as lines, and how many are errors or warnings."""
    lines = list(of_findings(report.found))
    if not report.found:
        checked = "; ".join(map(tr, LOOKED_FOR))
        lines.append(tr("Nothing found. Checked for: {list}.", list=checked))
    return lines, sum(finding.severity in BAD for finding in report.found)


def of_findings(findings: Iterable[Finding]) -> Iterator[str]:
    """Format findings as lines: place and sentence, the edit of the line of code, and the cure."""
    for finding in findings:
        where = (
            f"{finding.location_text} ({finding.file})"
            if finding.file
            else finding.location_text
        )
        yield f"{tr(finding.severity)}: {where}: {finding.sentence}"
        yield from (
            f"    - {line}"
            for line in textwrap.dedent(finding.before).strip().splitlines()
        )
        yield from (
            f"    + {line}"
            for line in textwrap.dedent(finding.after).strip().splitlines()
        )
        if finding.cure:
            yield f"    {finding.cure}"
