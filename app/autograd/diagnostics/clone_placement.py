"""Suggest where to put `.clone()` to keep a saved tensor unmodified: a line of code before and after."""

from __future__ import annotations

import ast
import copy
from typing import Protocol

from msgspec import Struct

from app.autograd.place import OpLocation
from app.util.language import tr


class LineFix(Struct, frozen=True):
    """A proposed edit: line `line` of the text (or of `file`), and its replacement; `after` is "" if the change is
    elsewhere, as `sentence` explains."""

    line: int
    before: str
    after: str
    sentence: str
    file: str = ""


class _Write(Protocol):
    @property
    def location(self) -> OpLocation: ...
    @property
    def view(self) -> bool: ...
    @property
    def silent(self) -> bool: ...
    @property
    def parameter(self) -> str: ...


def cure_of(write: _Write, saving: OpLocation, saved: str) -> LineFix | None:
    """Suggest a fix for a write into `saved`, which the operation at `saving` saved for backward; None without a line.

    A write through a view is meant to reach the base tensor, so there the saved tensor is cloned instead.
    """
    location = write.location
    if location.line is None:
        return None
    if write.parameter:
        text = tr(
            "{name} is a parameter: change it after backward(), as optimizer.step() does.",
            name=write.parameter,
        )
        return LineFix(location.line, location.code, "", text, location.file)
    if (
        saved in ("result", "output")
        and saving.line is not None
        and (write.view or not location.code)
    ):
        after = cloned_result(saving.code)
        if after:
            text = tr(
                "Continue with a copy of what {op} saves: write `{code}`.",
                op=saving.op,
                code=after,
            )
            return LineFix(saving.line, saving.code, after, text, saving.file)
    after = cloned_target(location.code, location.op, location.layer)
    if after:
        line = after.splitlines()[0]
        text = tr("Write to a copy: `{code}`.", code=line)
        if "\n" in after:
            text = tr("Write to a copy: `{code}` in the line before.", code=line)
        return LineFix(location.line, location.code, after, text, location.file)
    if location.layer:
        text = tr(
            "Set inplace=False in {layer}, or call it with `.clone()` on its input.",
            layer=location.layer,
        )
    else:
        text = tr("Put `.clone()` on the tensor before this line changes it.")
    return LineFix(location.line, location.code, "", text, location.file)


def cloned_result(code: str) -> str:
    """
    >>> cloned_result("h = x.sigmoid()"), cloned_result("a = b + c"), cloned_result("return x")
    ('h = x.sigmoid().clone()', 'a = (b + c).clone()', '')
    """
    statement = _statement(code)
    if not isinstance(statement, ast.Assign):
        return ""
    return ast.unparse(_with(statement, statement.value, _clone(statement.value)))


def cloned_target(code: str, op: str, layer: str = "") -> str:
    """Rewrite a line so that it writes to a clone; "" if the line does not show its target.

    >>> cloned_target("h += 1", "__iadd__")
    'h = h.clone()\\nh += 1'
    >>> cloned_target("h.add_(1)", "add_")
    'h = h.clone().add_(1)'
    >>> cloned_target("h[0].mul_(2)", "mul_")
    'h = h.clone()\\nh[0].mul_(2)'
    >>> cloned_target("y = F.relu(h, inplace=True)", "relu_")
    'y = F.relu(h.clone(), inplace=True)'
    >>> cloned_target("h.data.mul_(2)", "mul_")
    'h = h.clone()\\nh.data.mul_(2)'
    >>> cloned_target("return self.act(self.fc(x)) + x", "relu_", "block.act")
    'return self.act(self.fc(x).clone()) + x'
    """
    statement = _statement(code)
    if statement is None:
        return ""
    if isinstance(statement, ast.AugAssign):
        return _copied_before(statement.target, code)
    if isinstance(statement, ast.Assign) and op == "__setitem__":
        return _copied_before(statement.targets[0], code)
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    methods = [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == op
    ]
    for call in methods:
        assert isinstance(call.func, ast.Attribute)
        target = call.func.value
        if isinstance(target, ast.Name) and target.id in ("torch", "F"):
            continue
        if (
            not isinstance(target, (ast.Name, ast.Attribute))
            or getattr(target, "attr", "") == "data"
        ):
            return _copied_before(target, code)
        cloned = _with(statement, target, _clone(target))
        if isinstance(cloned, ast.Expr):
            return f"{ast.unparse(target)} = {ast.unparse(cloned)}"
        return ast.unparse(cloned)
    functions = [
        call for call in calls if call.args and _writes_to_first(call, op, layer)
    ]
    if len(functions) != 1 or isinstance(functions[0].args[0], ast.Starred):
        return ""
    target = functions[0].args[0]
    return ast.unparse(_with(statement, target, _clone(target)))


def _writes_to_first(call: ast.Call, op: str, layer: str) -> bool:
    """Return whether this call may be the writer: `torch.relu_(x)`, `F.relu(x, inplace=True)`, or the layer itself."""
    owner, _, name = ast.unparse(call.func).rpartition(".")
    if owner == "self":
        return bool(layer) and name == layer.rpartition(".")[2]
    return name == op or any(word.arg == "inplace" for word in call.keywords)


def _statement(code: str) -> ast.stmt | None:
    try:
        body = ast.parse(code).body
    except SyntaxError:  # one line of several
        return None
    return body[0] if len(body) == 1 else None


def _copied_before(target: ast.expr, code: str) -> str:
    """Prepend a line to `code` that clones the variable at the root of its target."""
    while not isinstance(target, ast.Name):
        if isinstance(target, ast.Subscript):
            target = target.value
        elif isinstance(target, ast.Attribute):
            if isinstance(target.value, ast.Name) and target.value.id == "self":
                break
            target = target.value
        elif isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
            target = target.func.value
        else:
            return ""
    name = ast.unparse(target)
    return f"{name} = {name}.clone()\n{code}"


def _clone(value: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(value, "clone", ast.Load()), [], [])


class _Put(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.expr) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else self.generic_visit(node)


def _with(statement: ast.stmt, old: ast.expr, new: ast.expr) -> ast.stmt:
    """Copy a statement with `old` replaced by `new`."""
    memo: dict[int, object] = {id(old): old, id(new): new}
    statement_copy = copy.deepcopy(statement, memo)
    _Put(old, new).visit(statement_copy)  # a statement stays the statement that it is
    return ast.fix_missing_locations(statement_copy)
