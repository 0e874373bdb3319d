"""The difference of two models as text, and as plain data for JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from app.features.compare.values import (
    Added,
    Apart,
    Changed,
    Difference,
    Distance,
    First,
    Layer,
    finite,
)
from app.util.formatting import counted, significant
from app.util.user_frames import GENERATED

MOST = 20  # lines of a list
_NUMBER = re.compile(r"\d+")


def to_plain(found: Difference) -> dict[str, Any]:
    """Return it for JSON; numbers that are infinite are null."""
    structure = found.structure
    return {
        "a": found.name_a,
        "b": found.name_b,
        "first": _first(found.first) if found.first is not None else None,
        "layers": [_layer(one) for one in found.layers],
        "structure": {
            "added": [{"path": one.path, "class": one.kind} for one in structure.added],
            "removed": [
                {"path": one.path, "class": one.kind} for one in structure.removed
            ],
            "changed": [
                {
                    "a": one.a,
                    "b": one.b,
                    "settings": {each.name: [each.a, each.b] for each in one.settings},
                }
                for one in structure.changed
            ],
            "moved": [
                {"a": one.a, "b": one.b, "class": one.kind} for one in structure.moved
            ],
            "matched": len(structure.pairs),
        },
        "weights": [
            {
                "a": one.a,
                "b": one.b,
                "distance": finite(one.distance),
                "relative": finite(one.relative),
                "differing": one.differing,
                "count": one.count,
            }
            for one in found.distances
        ],
        "settings": [
            {"name": one.name, "a": one.a, "b": one.b} for one in found.settings
        ],
        "mode": found.mode,
        "remarks": list(found.remarks),
        "differs": found.differs,
    }


def _first(first: First) -> dict[str, Any]:
    return {
        "a": first.a,
        "b": first.b,
        "line_a": first.line_a,
        "line_b": first.line_b,
        "pass": first.direction,
        "file_a": first.file_a,
        "file_b": first.file_b,
        "operation_a": first.operation_a,
        "operation_b": first.operation_b,
        "mode": first.mode,
        "why": first.why,
    }


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        "a": layer.a,
        "b": layer.b,
        "class": layer.kind,
        "call": layer.call,
        **_numbers(layer.forward, layer.added),
        "line_a": layer.line_a,
        "line_b": layer.line_b,
        "backward": _numbers(layer.backward, layer.backward_added),
    }


def _numbers(apart: Apart | None, added: Added | None) -> dict[str, float | None]:
    return {
        "relative_error": finite(apart.relative) if apart is not None else None,
        "cosine": finite(apart.cosine) if apart is not None else None,
        "ulp": finite(apart.ulp) if apart is not None else None,
        "added": finite(added.error) if added is not None else None,
        "bound": finite(added.bound) if added is not None else None,
    }


def to_text(found: Difference) -> list[str]:
    """Return it as lines: the first layer that differs, the layers that add to the error, structure, weights."""
    lines = [
        *_first_lines(found),
        *_layer_lines(found),
        *_structure_lines(found),
        *_distance_lines(found),
    ]
    differing = [one for one in found.settings if one.a != one.b]
    if differing:
        lines += ["", "Settings that differ:"]
        lines += [f"  {one.text}" for one in differing]
    if found.remarks:
        lines += ["", *found.remarks]
    return lines


def _first_lines(found: Difference) -> Iterator[str]:
    first = found.first
    if not found.ran:
        yield (
            "Nothing was run." if found.differs else "Nothing differs; nothing was run."
        )
        return
    if first is None:
        yield f"Nothing differs beyond rounding, forward and backward, in {counted(len(found.layers), 'layer call')}."
        return
    name = first.a or "the model"
    other = "" if first.b == first.a else f" ({first.b or 'the model'} in B)"
    yield f"They first differ at {name}{other}, in the {first.direction} pass in {first.mode} mode: {first.why}."
    for side, file, line, operation in (
        ("A", first.file_a, first.line_a, first.operation_a),
        ("B", first.file_b, first.line_b, first.operation_b),
    ):
        name = "generated code" if file.startswith(GENERATED) else Path(file).name
        where = f"{name}:{line}" if line else "no line known"
        yield f"  {side}: {where}{f', {operation}' if operation else ''}"


def _layer_lines(found: Difference) -> Iterator[str]:
    shown = [one for one in found.layers if _adds(one)]
    if not shown:
        return
    yield ""
    yield "Layers that add more than rounding explains (relative error: in all, added):"
    for one in shown[:MOST]:
        both = (
            ("forward", one.forward, one.added),
            ("backward", one.backward, one.backward_added),
        )
        parts = [
            f"{name} {_share(apart.relative if apart else None)}, {_share(added.error)}"
            for name, apart, added in both
            if added is not None and added.exceeds
        ]
        yield f"  {one.a or 'the model'}  {'  '.join(parts)}"
    yield from _rest(len(shown))


def _adds(layer: Layer) -> bool:
    return any(
        one is not None and one.exceeds for one in (layer.added, layer.backward_added)
    )


def _structure_lines(found: Difference) -> Iterator[str]:
    structure = found.structure
    if structure.same and not structure.moved:
        return
    yield ""
    yield f"Structure: {len(structure.pairs):,} modules match."
    for title, lines in (
        ("Only in A", _folded((one.path, one.kind) for one in structure.removed)),
        ("Only in B", _folded((one.path, one.kind) for one in structure.added)),
        ("Moved", [f"{one.a} → {one.b}  {one.kind}" for one in structure.moved]),
        (
            "Changed",
            _folded((_places(one), _settings_text(one)) for one in structure.changed),
        ),
    ):
        if lines:
            yield f"{title}:"
            yield from (f"  {one}" for one in lines[:MOST])
            yield from _rest(len(lines))


def _places(one: Changed) -> str:
    return (
        one.a or "the model"
        if one.a == one.b
        else f"{one.a or 'the model'} ({one.b or 'the model'} in B)"
    )


def _settings_text(one: Changed) -> str:
    return ", ".join(each.text for each in one.settings)


def _folded(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Join rows that differ in the numbers of their paths alone.

    >>> _folded([("layers.0.norm", "eps"), ("layers.1.norm", "eps"), ("head", "bias")])
    ['layers.{0–1}.norm ×2  eps', 'head  bias']
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for path, words in rows:
        groups.setdefault((_NUMBER.sub("#", path), words), []).append(path)
    return [f"{_pattern(paths)}  {words}" for (_, words), paths in groups.items()]


def _pattern(paths: list[str]) -> str:
    if len(paths) == 1:
        return paths[0] or "the model"
    columns = [
        sorted({*map(int, column)})
        for column in zip(*(_NUMBER.findall(path) for path in paths), strict=True)
    ]
    texts = iter(
        [
            f"{column[0]}" if len(column) == 1 else f"{{{column[0]}–{column[-1]}}}"
            for column in columns
        ]
    )
    return f"{_NUMBER.sub(lambda _found: next(texts), paths[0])} ×{len(paths)}"


def _distance_lines(found: Difference) -> Iterator[str]:
    moved = sorted(
        (one for one in found.distances if one.distance), key=lambda one: -one.relative
    )
    if not found.distances:
        return
    yield ""
    if not moved:
        yield f"The weights of all {counted(len(found.distances), 'layer')} are equal."
        return
    yield f"Weights differ in {len(moved)} of {counted(len(found.distances), 'layer')} (‖b−a‖, relative to ‖a‖):"
    for one in moved[:MOST]:
        yield f"  {one.a or 'the model'}  {_distance(one)}"
    yield from _rest(len(moved))


def _distance(one: Distance) -> str:
    if math.isinf(one.distance):
        return "has other shapes"
    return f"{significant(one.distance, 4)}  {_share(one.relative)}  {one.differing:,} of {one.count:,} numbers"


def _rest(count: int) -> Iterator[str]:
    if count > MOST:
        yield f"  and {count - MOST:,} more; --json lists them all"


def _share(value: float | None) -> str:
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else significant(value, 2)
