"""Parameters that are wired in part: `size[0]`, `index[1].stop`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from app.builder.catalog.catalog import Param, Port
from app.builder.literals import Slice, slice_text


def with_part(literal: Any, port: Port, value: Any) -> Any:
    """Insert a wired value into a literal at the position that the port names; slices become Python's own.

    Raises ValueError if the literal has no such position.
    """
    position = port.name.removeprefix(port.param)
    if not position:
        return value
    item, _, bound_name = position.partition(".")
    number = int(item.strip("[]")) if item else None
    element = literal
    if number is not None:
        if not isinstance(literal, tuple) or number >= len(literal):
            raise ValueError(f"{port.param} has no element {number} for a wire to set")
        element = literal[number]
    if bound_name:
        if not isinstance(element, slice | Slice):
            raise ValueError(
                f"{port.name.rpartition('.')[0]} is not a slice, and a wire gives its {bound_name}"
            )
        parts = {
            "start": element.start,
            "stop": element.stop,
            "step": element.step,
            bound_name: value,
        }
        value = slice(*parts.values())
    if number is None:
        return value
    return (*literal[:number], value, *literal[number + 1 :])


def with_parts(param: Param, text: str, wires: Mapping[str, str]) -> str:
    """Format a tuple or an index with variables in place of wired parts.

    >>> with_parts(Param("index", "index"), ":, 1:3, 0", {"index[1].stop": "n", "index[2]": "i"})
    ':, 1:n, i'
    """
    subscript = ast.parse(f"_[{text}]", mode="eval").body
    assert isinstance(subscript, ast.Subscript)
    tree = subscript.slice
    if not isinstance(tree, ast.Tuple):
        return _with_part(tree, param.name, wires)
    items = [
        _with_part(item, f"{param.name}[{i}]", wires)
        for i, item in enumerate(tree.elts)
    ]
    inner = ", ".join(items) + ("," if len(items) == 1 else "")
    return inner if param.kind == "index" else f"({inner})"


def _with_part(tree: ast.expr, name: str, wires: Mapping[str, str]) -> str:
    if not isinstance(tree, ast.Slice):
        return wires.get(name) or ast.unparse(tree)
    parts = {"start": tree.lower, "stop": tree.upper, "step": tree.step}
    return slice_text(
        *(
            wires.get(f"{name}.{key}")
            or (ast.unparse(bound) if bound is not None else "")
            for key, bound in parts.items()
        )
    )
