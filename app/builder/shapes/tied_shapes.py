"""The shapes of parameters by the names that a state_dict has for them, as deep in blocks as it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from app.builder.catalog.init_checks import parameter_shapes
from app.builder.literals import AUTO

if TYPE_CHECKING:
    from app.builder.plan import Step
    from app.builder.results import Inside, StepResult

Shape = tuple[int, ...]


def shape_of(step: Step, result: StepResult, path: str) -> Shape | None:
    """Return the shape of a parameter of a step's modules by name; None if they have none."""
    kind, resolved = step.spec.kind, result.resolved
    number, _, rest = path.partition(".") if step.node.repeat > 1 else ("0", "", path)
    if not number.isdecimal() or int(number) >= step.node.repeat:
        return None
    if kind in ("parameter", "module"):
        turn = (
            result.turns[min(int(number), len(result.turns) - 1)].resolved
            if result.turns
            else resolved
        )
        return parameter_shapes(step.spec, turn).get(rest) if not _open(turn) else None
    inside = (
        result.turns[min(int(number), len(result.turns) - 1)].inside
        if result.turns
        else None
    )
    return _shape_inside(inside, rest) if inside is not None else None


def _open(resolved: Mapping[str, object]) -> bool:
    return any(value is AUTO for value in resolved.values())


def _shape_inside(inside: Inside, path: str) -> Shape | None:
    """Return the shape of a parameter inside a block, by node names; of a chain by module number."""
    for step in inside.plan.steps:
        name = step.node.name
        if (
            not step.live
            or step.spec.kind not in ("module", "parameter", "block")
            or step.node.id != step.module
        ):
            continue
        rest = (
            path.removeprefix(f"{name}.")
            if path.startswith(f"{name}.")
            else ""
            if path == name
            else None
        )
        first, _, behind = path.partition(".")
        if (
            rest is None
            and step.node.repeat > 1
            and name.isdecimal()
            and first.isdecimal()
        ):
            number = int(first) - int(
                name
            )  # repetitions of a chain are numbered with the rest of it
            rest = f"{number}.{behind}" if 0 < number < step.node.repeat else None
        elif rest is not None and step.node.repeat > 1 and name.isdecimal():
            rest = f"0.{rest}"
        if rest is not None:
            shape = shape_of(step, inside.results[step.id], rest)
            if shape is not None:
                return shape
    return None
