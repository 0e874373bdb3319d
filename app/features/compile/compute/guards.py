"""An assumption of compiled code that failed, in the words of a person: where it is made, for what, and what was met.

A guard is a Python expression over the locals of a frame. It is read, never evaluated: attributes and items are looked
up, and sizes and lengths are taken.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from torch import Tensor, nn

from app.util.formatting import shape_text

LONGEST = 80  # characters of a value
_NUMBER = re.compile(r"^\d+/[\d_]+: ")
_TENSOR = re.compile(
    r"tensor '(?P<name>.*)' (?P<what>.*?)(?P<index> at index \d+)?\.? expected (?P<was>.*?),? actual (?P<now>.*)"
)
_AT = re.compile(r"# (?:.*# )?(\S+):(\d+) in ")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_CHILD = re.compile(r"_modules\['([^']+)'\]|_modules\[\"([^\"]+)\"\]")
_VALUE = "___stack"  # how dynamo names what a graph break has left
_SIZES = ("size", "stride", "storage_offset", "dim")


class FailedGuard(Struct, frozen=True):
    """`locations` are file and line from the outermost call inwards, `children` the modules on the way from the frame's
    own."""

    text: str
    was: str
    now: str
    locations: tuple[tuple[str, int], ...]
    children: tuple[str, ...]


def read(
    reason: str, local: Mapping[str, Any], world: Mapping[str, Any]
) -> FailedGuard:
    """Parse a reason of torch's log, with the locals and globals of the frame that was to be run."""
    line, _, stack = _NUMBER.sub("", reason).partition("\n")
    text, _, comment = line.partition("  # ")
    text = text.strip()
    at = _AT.search(f"# {comment}")
    locations = [(file, int(number)) for file, number in _FRAME.findall(stack)]
    if not locations and at is not None:
        locations = [(at[1], int(at[2]))]
    children = tuple(first or second for first, second in _CHILD.findall(text))
    if tensor := _TENSOR.match(text):
        name = f"{_plain(tensor['name'])}{tensor['index'] or ''}: {tensor['what']}"
        return FailedGuard(
            name, tensor["was"], tensor["now"].rstrip("."), tuple(locations), children
        )
    was, now = _sides(text, local, world)
    return FailedGuard(_plain(text), was, now, tuple(locations), children)


def _plain(text: str) -> str:
    """Return a guard without dynamo's own names: `L['x']` is x, `_modules['fc']` is fc.

    >>> _plain("L['self']._modules['c']._modules['0'].calls == 0")
    'self.c[0].calls == 0'
    """
    text = re.sub(r"\b[LG]\['(\w+)'\]", r"\1", text)
    text = re.sub(r"\._modules\['(\d+)'\]", r"[\1]", text)
    text = re.sub(r"\._modules\['(\w+)'\]", r".\1", text)
    return re.sub(rf"{_VALUE}\d+", "the value of a graph break", text)


def _sides(
    text: str, local: Mapping[str, Any], world: Mapping[str, Any]
) -> tuple[str, str]:
    """Return what a guard held for, and what was met; the whole guard and "" if it cannot be read."""
    try:
        tree = ast.parse(text.split(", type=")[0], mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return _plain(text), ""
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
            return _plain(was), now
    return _plain(text), _shown(*names.value(tree))


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
