"""Tied parameters: one tensor of two modules of a class, under different names.

`lm_head.weight` of a language model is `wte.weight`: `Node.tied` records it, and the constructor contains
`self.lm_head.weight = self.wte.weight`. Names are those of the state_dict, so they may lead into nested blocks.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping

from app.builder.graph import Tie
from app.builder.params import ParamError


def check_ties(tied: Mapping[str, Tie]) -> None:
    """Raise ParamError unless every name is one that a state_dict may have. What passes can be written into source."""
    for name, tie in tied.items():
        for path in (name, tie.name):
            if path and not all(
                _is_name(segment) or segment.isdecimal() for segment in path.split(".")
            ):
                raise ParamError(f"{path!r:.60} is not a parameter name")


def _is_name(segment: str) -> bool:
    return segment.isidentifier() and not keyword.iskeyword(segment)


def place_of(module: str, path: str) -> str:
    """Return the expression for a parameter; `module` is that of its module.

    >>> place_of("self.head", "weight"), place_of("self.encoder", "layers.0.weight")
    ('self.head.weight', 'self.encoder.get_submodule("layers.0").weight')
    """
    owner, _, name = path.rpartition(".")
    if not path:
        return module
    if all(map(_is_name, owner.split("."))) or not owner:
        return f"{module}.{path}"
    return f'{module}.get_submodule("{owner}").{name}'
