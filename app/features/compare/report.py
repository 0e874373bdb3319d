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


def to_plain(diff: Difference) -> dict[str, Any]:
    """Return it for JSON; numbers that are infinite are null."""
    structure = diff.structure
    return {
        "a": diff.name_a,
        "b": diff.name_b,
        "first": _first(diff.first) if diff.first is not None else None,
        "layers": [_layer(layer) for layer in diff.layers],
        "structure": {
            "added": [
                {"path": module.path, "class": module.kind}
                for module in structure.added
            ],
            "removed": [
                {"path": module.path, "class": module.kind}
                for module in structure.removed
            ],
            "changed": [
                {
                    "a": module.a,
                    "b": module.b,
                    "settings": {
                        setting.name: [setting.a, setting.b]
                        for setting in module.settings
                    },
                }
                for module in structure.changed
            ],
            "moved": [
                {"a": module.a, "b": module.b, "class": module.kind}
                for module in structure.moved
            ],
            "matched": len(structure.pairs),
        },
        "weights": [
            {
                "a": distance.a,
                "b": distance.b,
                "distance": finite(distance.distance),
                "relative": finite(distance.relative),
                "differing": distance.differing,
                "count": distance.count,
            }
            for distance in diff.distances
        ],
        "settings": [
            {"name": setting.name, "a": setting.a, "b": setting.b}
            for setting in diff.settings
        ],
        "mode": diff.mode,
        "remarks": list(diff.remarks),
        "differs": diff.differs,
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


def to_text(diff: Difference) -> list[str]:
    """Return it as lines: the first layer that differs, the layers that add to the error, structure, weights."""
    lines = [
        *_first_lines(diff),
        *_layer_lines(diff),
        *_structure_lines(diff),
        *_distance_lines(diff),
    ]
    differing = [setting for setting in diff.settings if setting.a != setting.b]
    if differing:
        lines += ["", "Settings that differ:"]
        lines += [f"  {setting.text}" for setting in differing]
    if diff.remarks:
        lines += ["", *diff.remarks]
    return lines


def _first_lines(diff: Difference) -> Iterator[str]:
    first = diff.first
    if not diff.ran:
        yield (
            "Nothing was run." if diff.differs else "Nothing differs; nothing was run."
        )
        return
    if first is None:
        yield f"Nothing differs beyond rounding, forward and backward, in {counted(len(diff.layers), 'layer call')}."
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


def _layer_lines(diff: Difference) -> Iterator[str]:
    shown = [layer_call for layer_call in diff.layers if _adds(layer_call)]
    if not shown:
        return
    yield ""
    yield "Layers that add more than rounding explains (relative error: in all, added):"
    for layer in shown[:MOST]:
        both = (
            ("forward", layer.forward, layer.added),
            ("backward", layer.backward, layer.backward_added),
        )
        parts = [
            f"{name} {_share(apart.relative if apart else None)}, {_share(added.error)}"
            for name, apart, added in both
            if added is not None and added.exceeds
        ]
        yield f"  {layer.a or 'the model'}  {'  '.join(parts)}"
    yield from _rest(len(shown))


def _adds(layer: Layer) -> bool:
    return any(
        addition is not None and addition.exceeds
        for addition in (layer.added, layer.backward_added)
    )


def _structure_lines(diff: Difference) -> Iterator[str]:
    structure = diff.structure
    if structure.same and not structure.moved:
        return
    yield ""
    yield f"Structure: {len(structure.pairs):,} modules match."
    for title, lines in (
        (
            "Only in A",
            _folded((module.path, module.kind) for module in structure.removed),
        ),
        (
            "Only in B",
            _folded((module.path, module.kind) for module in structure.added),
        ),
        (
            "Moved",
            [f"{module.a} → {module.b}  {module.kind}" for module in structure.moved],
        ),
        (
            "Changed",
            _folded(
                (_places(module), _settings_text(module))
                for module in structure.changed
            ),
        ),
    ):
        if lines:
            yield f"{title}:"
            yield from (f"  {line}" for line in lines[:MOST])
            yield from _rest(len(lines))


def _places(changed: Changed) -> str:
    return (
        changed.a or "the model"
        if changed.a == changed.b
        else f"{changed.a or 'the model'} ({changed.b or 'the model'} in B)"
    )


def _settings_text(changed: Changed) -> str:
    return ", ".join(setting.text for setting in changed.settings)


def _folded(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Join rows that differ in the numbers of their paths alone.

    >>> _folded([("layers.0.norm", "eps"), ("layers.1.norm", "eps"), ("head", "bias")])
    ['layers.{0–1}.norm ×2  eps', 'head  bias']
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for path, description in rows:
        groups.setdefault((_NUMBER.sub("#", path), description), []).append(path)
    return [f"{_pattern(paths)}  {text}" for (_, text), paths in groups.items()]


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


def _distance_lines(diff: Difference) -> Iterator[str]:
    moved = sorted(
        (entry for entry in diff.distances if entry.distance),
        key=lambda entry: -entry.relative,
    )
    if not diff.distances:
        return
    yield ""
    if not moved:
        yield f"The weights of all {counted(len(diff.distances), 'layer')} are equal."
        return
    yield f"Weights differ in {len(moved)} of {counted(len(diff.distances), 'layer')} (‖b−a‖, relative to ‖a‖):"
    for distance in moved[:MOST]:
        yield f"  {distance.a or 'the model'}  {_distance(distance)}"
    yield from _rest(len(moved))


def _distance(tensor: Distance) -> str:
    if math.isinf(tensor.distance):
        return "has other shapes"
    return (
        f"{significant(tensor.distance, 4)}  {_share(tensor.relative)}  {tensor.differing:,} of "
        f"{tensor.count:,} numbers"
    )


def _rest(count: int) -> Iterator[str]:
    if count > MOST:
        yield f"  and {count - MOST:,} more; --json lists them all"


def _share(value: float | None) -> str:
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else significant(value, 2)
