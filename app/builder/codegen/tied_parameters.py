"""Tied parameters: one tensor that two modules of a class have, each under a name of its own.

`lm_head.weight` of a language model is `wte.weight`: `Node.tied` of the one says so, and its class is written with
`self.lm_head.weight = self.wte.weight`. Names are those of the state_dict, so a block is looked into as
deep as it takes.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import TYPE_CHECKING

from app.builder.graph import Tie
from app.builder.params import ParamError

if TYPE_CHECKING:
    from app.builder.plan import Step
    from app.builder.results import Inside, StepResult

Shape = tuple[int, ...]


def check_ties(tied: Mapping[str, Tie]) -> None:
    """Raise ParamError unless every name is one that a state_dict may have. What passes can be written into source."""
    for name, tie in tied.items():
        for path in (name, tie.name):
            if path and not all(_is_name(part) or part.isdecimal() for part in path.split(".")):
                raise ParamError(f"{path!r:.60} is not a parameter name")


def _is_name(part: str) -> bool:
    return part.isidentifier() and not keyword.iskeyword(part)


def place_of(module: str, path: str) -> str:
    """How a parameter of a module is written; `module` is how that is.

    >>> place_of("self.head", "weight"), place_of("self.encoder", "layers.0.weight")
    ('self.head.weight', 'self.encoder.get_submodule("layers.0").weight')
    """
    owner, _, name = path.rpartition(".")
    if not path:
        return module
    if all(map(_is_name, owner.split("."))) or not owner:
        return f"{module}.{path}"
    return f'{module}.get_submodule("{owner}").{name}'


def shape_of(step: Step, result: StepResult, path: str) -> Shape | None:
    """The shape of a parameter that the modules of a step have under this name; None if they have none."""
    from app.builder.catalog.init_checks import parameter_shapes

    kind, resolved = step.spec.kind, result.resolved
    number, _, rest = path.partition(".") if step.node.repeat > 1 else ("0", "", path)
    if not number.isdecimal() or int(number) >= step.node.repeat:
        return None
    if kind in ("parameter", "module"):
        turn = result.turns[min(int(number), len(result.turns) - 1)].resolved if result.turns else resolved
        return parameter_shapes(step.spec, turn).get(rest) if not _open(turn) else None
    inside = result.turns[min(int(number), len(result.turns) - 1)].inside if result.turns else None
    return _shape_inside(inside, rest) if inside is not None else None


def _open(resolved: Mapping[str, object]) -> bool:
    from app.builder.literals import AUTO

    return any(value is AUTO for value in resolved.values())


def _shape_inside(inside: Inside, path: str) -> Shape | None:
    """Of what stands in a block, by the names of its nodes; of a chain by the number of the module in it."""
    for step in inside.plan.steps:
        name = step.node.name
        if not step.live or step.spec.kind not in ("module", "parameter", "block") or step.node.id != step.module:
            continue
        rest = path.removeprefix(f"{name}.") if path.startswith(f"{name}.") else "" if path == name else None
        first, _, behind = path.partition(".")
        if rest is None and step.node.repeat > 1 and name.isdecimal() and first.isdecimal():
            number = int(first) - int(name)  # repetitions of a chain are numbered with the rest of it
            rest = f"{number}.{behind}" if 0 < number < step.node.repeat else None
        elif rest is not None and step.node.repeat > 1 and name.isdecimal():
            rest = f"0.{rest}"
        if rest is not None:
            found = shape_of(step, inside.results[step.id], rest)
            if found is not None:
                return found
    return None
