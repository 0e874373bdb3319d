"""An assumption of compiled code that failed, in the words of a person: where it is made, for what, and what was met.

A guard is a Python expression over the locals of a frame. It is read, never evaluated: attributes and items are looked
up, and sizes and lengths are taken.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace
from torch import Tensor, nn

from app.features.compile import guard_text
from app.features.compile.guard_text import FailedGuard, plain
from app.util.formatting import shape_text

LONGEST = 80  # characters of a value
_SIZES = ("size", "stride", "storage_offset", "dim")


def read(
    reason: str, local: Mapping[str, Any], world: Mapping[str, Any]
) -> FailedGuard:
    """Parse a reason of torch's log, with the locals and globals of the frame that was to be run."""
    guard = guard_text.read(reason)
    if guard.now:
        return guard
    was, now = _sides(guard.was, local, world)
    return replace(guard, was=was, now=now)


def _sides(
    text: str, local: Mapping[str, Any], world: Mapping[str, Any]
) -> tuple[str, str]:
    """Return what a guard held for, and what was met; the whole guard and "" if it cannot be read."""
    try:
        tree = ast.parse(text.split(", type=")[0], mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return plain(text), ""
    names = _Names(local, world)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return "empty", _shown(*names.value(tree.operand))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.args:
        known, value = names.value(tree.args[0])
        if tree.func.id == "___check_type_id":
            kind = text.partition(", type=")[2] or "another type"
            return kind, str(type(value)) if known else ""
        if tree.func.id.startswith("___"):
            return "another object", _shown(known, value)
    if isinstance(tree, ast.Compare):
        sides = [tree.left, *tree.comparators]
        readable = [
            side
            for side in sides
            if not isinstance(side, ast.Constant) and names.value(side)[0]
        ]
        if readable:
            now = _shown(*names.value(readable[0]))
            simple = len(sides) == 2 and isinstance(tree.ops[0], ast.Eq | ast.Is)
            others = [side for side in sides if side is not readable[0]]
            was = ast.unparse(others[0]) if simple else ast.unparse(tree)
            return plain(was), now
    return plain(text), _shown(*names.value(tree))


def _shown(known: bool, value: Any) -> str:
    """Return a short text of a value, "" if it is not known."""
    if not known:
        return ""
    if isinstance(value, Tensor):
        return f"a tensor {shape_text(tuple(value.shape))}"
    if isinstance(value, nn.Module):
        return f"a {type(value).__name__}"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)[:LONGEST]
    if isinstance(value, list | tuple | dict | set):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


class _Names:
    """Looks up what an expression of a guard names."""

    def __init__(self, local: Mapping[str, Any], world: Mapping[str, Any]) -> None:
        self._roots: dict[str, Any] = {**local, "L": local, "G": world}
        self._world = world

    def value(self, node: ast.expr) -> tuple[bool, Any]:
        """Return whether an expression can be read, and its value."""
        try:
            return True, self._read(node)
        except Exception:  # whatever a user's attribute raises
            return False, None

    def _read(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            roots = self._roots if node.id in self._roots else self._world
            return roots[node.id]
        if isinstance(node, ast.Attribute):
            return getattr(self._read(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            return self._read(node.value)[self._read(node.slice)]
        if isinstance(node, ast.Call) and not node.keywords:
            return self._called(node)
        raise ValueError(type(node).__name__)

    def _called(self, node: ast.Call) -> Any:
        arguments = [self._read(argument) for argument in node.args]
        if isinstance(node.func, ast.Name) and node.func.id == "len":
            return len(*arguments)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SIZES:
            tensor = self._read(node.func.value)
            if isinstance(tensor, Tensor):
                return getattr(tensor, node.func.attr)(*arguments)
        raise ValueError("a call")
