"""Merge findings that have one cause: the same problem of many layers is one finding."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from app.autograd.diagnostics.results import Finding
from app.util.formatting import counted

FEW = 3  # findings of one pattern at different lines, up to which each is listed by itself
NAMED = 6  # layers that the sentence of a merged finding names
_NUMBERS = re.compile(r"\d[\d.,e+-]*")
_LIST = re.compile(r"#(?:, #)+(?:, …)?")


def by_cause(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings whose sentences differ in layer and numbers alone, in the order of their first ones.

    Those of one source line always are; those of different lines if there are more than a few. The first one is shown
    for all, and has the rest as `others`.
    """
    of_line: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        of_line.setdefault((*_pattern(finding), finding.file, finding.line), []).append(
            finding
        )
    of_pattern: dict[tuple[object, ...], list[list[Finding]]] = {}
    for key, alike in of_line.items():
        of_pattern.setdefault(key[:-2], []).append(alike)
    merged: list[Finding] = []
    for groups in of_pattern.values():
        merges_groups = len(groups) > FEW
        merged += (
            [_merged([member for group in groups for member in group])]
            if merges_groups
            else map(_merged, groups)
        )
    return merged


def _pattern(finding: Finding) -> tuple[object, ...]:
    sentence = finding.sentence
    for name in sorted(
        filter(None, {finding.layer, finding.title}), key=len, reverse=True
    ):
        sentence = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", "·", sentence)
    sentence = _LIST.sub("#", _NUMBERS.sub("#", sentence))
    return (
        finding.kind,
        finding.severity,
        sentence,
        finding.cure.replace(finding.layer or "\0", "·"),
        finding.before,
        finding.after,
    )


def _merged(alike: list[Finding]) -> Finding:
    first, others = alike[0], tuple(alike[1:])
    if not others:
        return first
    one_line = all(
        (other.file, other.line) == (first.file, first.line) for other in others
    )
    shown = others if len(others) <= NAMED + 1 else others[:NAMED]
    named = [other.title if one_line else other.location_text for other in shown]
    rest = f"; and {len(others) - len(shown)} more" if len(others) > len(shown) else ""
    text = f"{first.sentence} The same is found in {counted(len(others), 'other place')}: {'; '.join(named)}{rest}."
    more = others[0].title if len(others) == 1 else f"{len(others)} more"
    return replace(
        first,
        title=f"{first.title} and {more}",
        sentence=text,
        others=others,
        line=first.line if one_line else None,
        file=first.file if one_line else "",
    )
