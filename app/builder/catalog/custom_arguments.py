"""Arguments of custom classes: parameters with an editor, or ports, from annotations and defaults.

Only the syntax tree is read.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.builder.catalog.catalog import Param, Port
from app.builder.literals import DTYPES, DType, LiteralError, encode
from app.builder.params import ParamError, check_param
from app.util.errors import CodedError

_PLAIN = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "builtins.int": "int",
    "typing.Any": "value",
    "object": "value",
    "numbers.Number": "float",
    "numbers.Real": "float",
    "torch.dtype": "dtype",
}
_ROWS = re.compile(
    r"(builtins\.)?(tuple|list)|typing\.(Tuple|List|Sequence|Iterable)"
    r"|collections\.abc\.(Sequence|Iterable)|torch\.Size"
)
_SIZES = re.compile(r"_size_(\d|any)(_opt)?_t")
_TENSOR = (
    "torch.Tensor",
    "torch.FloatTensor",
    "torch.LongTensor",
    "torch.nn.Parameter",
)
_NUMBERS = {
    "math.inf": math.inf,
    "math.pi": math.pi,
    "math.e": math.e,
    "math.nan": math.nan,
    "torch.inf": math.inf,
    "torch.pi": math.pi,
    "torch.nan": math.nan,
    "numpy.inf": math.inf,
    "numpy.pi": math.pi,
}


class UnusableLayerError(CodedError, ValueError):
    """A class that cannot be a layer; the text says why."""


class _Unknown:
    """An expression whose value is known only by running the file."""


UNKNOWN = _Unknown()


class Scope(Struct, frozen=True):
    """What names of the file mean: `imported` by dotted name, `constants` by expression, `stars` are whole modules."""

    imported: dict[str, str]
    constants: dict[str, ast.expr] = {}
    stars: tuple[str, ...] = ()

    def dotted(self, node: ast.expr) -> str:
        """Return the qualified name of an expression, "" for other expressions."""
        if isinstance(node, ast.Attribute):
            outer = self.dotted(node.value)
            return f"{outer}.{node.attr}" if outer else ""
        if not isinstance(node, ast.Name):
            return ""
        if node.id in self.imported:
            return self.imported[node.id]
        return (
            f"torch.nn.{node.id}"
            if "torch.nn" in self.stars and node.id[:1].isupper()
            else node.id
        )

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Return the value of a literal, of a name assigned once to one, or of a dtype; else UNKNOWN."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand, depth)
            return -inner if type(inner) in (int, float) else UNKNOWN
        if isinstance(node, ast.Tuple | ast.List):
            items = tuple(self.value(item, depth) for item in node.elts)
            return (
                UNKNOWN if any(item is UNKNOWN for item in items) else _storable(items)
            )
        if isinstance(node, ast.Constant):
            return _storable(node.value)
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "float"
            and len(node.args) == 1
        ):
            inner = self.value(node.args[0], depth)
            return _float(inner)
        name = self.dotted(node)
        if name in self.constants and depth < 8:
            return self.value(self.constants[name], depth + 1)
        if name.startswith("torch.") and name.removeprefix("torch.") in DTYPES:
            return DType(name.removeprefix("torch."))
        return _NUMBERS.get(name, UNKNOWN)


def _storable(value: Any) -> Any:
    """Return the value if a project can store it, else UNKNOWN."""
    try:
        encode(value)
    except LiteralError:
        return UNKNOWN
    return value


def _float(value: Any) -> Any:
    try:
        return float(value) if type(value) in (str, int, float) else UNKNOWN
    except ValueError:
        return UNKNOWN


class Given(Struct, frozen=True):
    """One argument of a function as written. `keyword` arguments come after `*`, `bare` ones before `/`."""

    name: str
    annotation: ast.expr | None
    default: ast.expr | None
    keyword: bool = False
    bare: bool = False


def arguments(function: ast.FunctionDef, skip: int) -> tuple[Given, ...]:
    """List the arguments of a function after the first `skip` (`self`, `ctx`). Raises UnusableLayerError for `*args` of
    `forward`."""
    spec = function.args
    if spec.vararg and function.name == "forward":
        raise UnusableLayerError(f"forward takes *{spec.vararg.arg}; name its inputs")
    plain = [*spec.posonlyargs, *spec.args]
    defaults = [*[None] * (len(plain) - len(spec.defaults)), *spec.defaults]
    positional = [
        Given(arg.arg, arg.annotation, default, bare=number < len(spec.posonlyargs))
        for number, (arg, default) in enumerate(zip(plain, defaults, strict=True))
    ][skip:]
    pairs = zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    return (
        *positional,
        *(
            Given(arg.arg, arg.annotation, default, keyword=True)
            for arg, default in pairs
        ),
    )


def constructor_params(
    signature: tuple[Given, ...], scope: Scope
) -> tuple[tuple[Param, ...], tuple[str, ...]]:
    """Return the constructor's parameters, and the arguments that keep a default because no form can show it. Raises
    Unusable."""
    params: list[Param] = []
    defaulted = []
    for argument in signature:
        param = _param(argument, scope)
        if param is None:
            if argument.default is None:
                annotation = (
                    f": {ast.unparse(argument.annotation)}"
                    if argument.annotation
                    else ""
                )
                raise UnusableLayerError(
                    f"{argument.name}{annotation} of __init__ cannot be edited here; give it a default"
                )
            defaulted.append(argument.name)
        else:
            leading = (
                param.required
                and not argument.keyword
                and not defaulted
                and all(p.positional for p in params)
            )
            params.append(replace(param, positional=leading))
    return tuple(params), tuple(defaulted)


def forward_ports(
    signature: tuple[Given, ...],
    scope: Scope,
    constructor_names: frozenset[str],
    by_name: bool = True,
) -> tuple[tuple[Port, ...], tuple[Param, ...], tuple[str, ...]]:
    """Return ports, call parameters, and arguments that keep their default. `constructor_names` are the
    constructor's parameters.

    With `by_name` arguments after the first parameter are passed by keyword. Raises UnusableLayerError.
    """
    ports: list[Port] = []
    params: list[Param] = []
    defaulted = []
    for argument in signature:
        param, required = _call_param(argument, scope), argument.default is None
        clash = argument.name in constructor_names
        if param is not None and not clash and not (argument.bare and by_name):
            params.append(replace(param, call=True, positional=False))
        elif param is not None and required:
            raise UnusableLayerError(
                f"{argument.name} is an argument of both __init__ and forward; rename one"
            )
        elif not required and (
            clash or (argument.bare and by_name) or param is not None
        ):
            defaulted.append(argument.name)
        else:
            named = by_name and (argument.keyword or bool(params) or not required)
            if clash and named:
                raise UnusableLayerError(
                    f"{argument.name} is an argument of both __init__ and forward; rename one"
                )
            name = f"{argument.name}_" if clash else argument.name
            ports.append(
                Port(name, _port_kind(argument, scope), required=required, named=named)
            )
    if not by_name and _gap(signature, ports):
        raise UnusableLayerError(
            "an input of forward without a default follows one with a default"
        )
    return tuple(ports), tuple(params), tuple(defaulted)


def _gap(signature: tuple[Given, ...], ports: list[Port]) -> bool:
    """Python itself refuses that; ports that are optional must not leave holes in the row."""
    names = {port.name for port in ports}
    optional = False
    for argument in signature:
        if argument.name in names and argument.default is not None:
            optional = True
        elif optional and argument.default is None:
            return True
    return False


def _call_param(argument: Given, scope: Scope) -> Param | None:
    """Return the parameter for an argument of `forward`, if its annotation or default implies a plain value."""
    default = scope.value(argument.default) if argument.default is not None else UNKNOWN
    if argument.annotation is None and (default is UNKNOWN or default is None):
        return None
    if argument.annotation is not None:
        facts = _facts(argument.annotation, scope)
        if facts is None and (default is None or default is UNKNOWN):
            return None
        if _port_kind(argument, scope) != "any":
            return None
    return _param(argument, scope)


def _port_kind(argument: Given, scope: Scope) -> str:
    if argument.annotation is None:
        return "any"
    members = _members(argument.annotation, scope)
    if any(scope.dotted(member) in _TENSOR for member in members):
        return "tensor"
    rows = [member for member in members if isinstance(member, ast.Subscript)]
    texts = (
        scope.dotted(subexpression)
        for row in rows
        for subexpression in ast.walk(row)
        if isinstance(subexpression, ast.Name | ast.Attribute)
    )
    return "tuple" if rows and any(text in _TENSOR for text in texts) else "any"


def _param(argument: Given, scope: Scope) -> Param | None:
    """Return the parameter with its editor; None if its default cannot be stored as a literal."""
    required = argument.default is None
    default = None if argument.default is None else scope.value(argument.default)
    if default is UNKNOWN:
        return None
    facts = (
        _facts(argument.annotation, scope)
        if argument.annotation is not None
        else _guess(default, required)
    )
    if facts is None:
        if required or default is None:
            return None
        facts = _guess(default, required)
    if facts.get("kind") == "float" and type(default) is int:
        default = float(default)
    facts = {
        **facts,
        "optional": facts.get("optional", False) or (default is None and not required),
    }
    param = Param(argument.name, default=default, required=required, **facts)
    if not required and not _fits(param, default):
        param = Param(argument.name, "value", default=default, optional=default is None)
    return param if required or _fits(param, default) else None


def _fits(param: Param, value: Any) -> bool:
    try:
        check_param(param, value)
    except ParamError:
        return False
    return True


def _guess(default: Any, required: bool) -> dict[str, Any]:
    """Guess the kind of an argument without annotation."""
    if required or default is None:
        return {"kind": "value"}
    if isinstance(default, DType):
        return {"kind": "dtype"}
    if isinstance(default, tuple):
        all_integers = bool(default) and all(type(item) is int for item in default)
        return {"kind": "ints", "count": 0} if all_integers else {"kind": "value"}
    return {"kind": type(default).__name__}


def _members(annotation: ast.expr, scope: Scope) -> list[ast.expr]:
    """List the members of a union, including quoted and `Annotated` ones."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return _members(ast.parse(annotation.value, mode="eval").body, scope)
        except SyntaxError:
            return [annotation]
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return [*_members(annotation.left, scope), *_members(annotation.right, scope)]
    if isinstance(annotation, ast.Subscript):
        outer = scope.dotted(annotation.value).rpartition(".")[2]
        inner = (
            annotation.slice.elts
            if isinstance(annotation.slice, ast.Tuple)
            else [annotation.slice]
        )
        if outer == "Optional":
            return [*_members(inner[0], scope), ast.Constant(None)]
        if outer == "Union":
            return [
                member
                for member_annotation in inner
                for member in _members(member_annotation, scope)
            ]
        if outer in ("Annotated", "Final") and inner:
            return _members(inner[0], scope)
    if (
        isinstance(annotation, ast.Name) and annotation.id in scope.constants
    ):  # Size = int | tuple[int, int]
        named = scope.constants[annotation.id]
        if (
            isinstance(named, ast.BinOp | ast.Subscript | ast.Name)
            and ast.unparse(named) != annotation.id
        ):
            return _members(named, Scope(scope.imported, {}, scope.stars))
    return [annotation]


def _facts(annotation: ast.expr, scope: Scope) -> dict[str, Any] | None:
    """Return kind, count, choices and whether None is allowed; None if the annotation is no plain value."""
    members = _members(annotation, scope)
    nothing = [m for m in members if isinstance(m, ast.Constant) and m.value is None]
    member_facts = [_one(member, scope) for member in members if member not in nothing]
    if not member_facts or None in member_facts:
        return None
    merged = _merged([facts for facts in member_facts if facts is not None])
    return {
        **merged,
        "optional": bool(nothing)
        or any(facts and facts.get("optional") for facts in member_facts),
    }


def _one(member: ast.expr, scope: Scope) -> dict[str, Any] | None:
    name = scope.dotted(member.value if isinstance(member, ast.Subscript) else member)
    if sizes := _SIZES.fullmatch(name.rpartition(".")[2]):
        return (
            {"kind": "value"}
            if sizes[1] == "any"
            else {"kind": "ints", "count": int(sizes[1])}
        )
    if not isinstance(member, ast.Subscript):
        return (
            {"kind": "value"}
            if _ROWS.fullmatch(name)
            else {"kind": _PLAIN[name]}
            if name in _PLAIN
            else None
        )
    inner = member.slice.elts if isinstance(member.slice, ast.Tuple) else [member.slice]
    if name.rpartition(".")[2] == "Literal":
        values = [scope.value(item) for item in inner]
        strings = tuple(value for value in values if type(value) is str)
        if strings and all(type(value) is str or value is None for value in values):
            return {"kind": "choice", "choices": strings, "optional": None in values}
        return None if UNKNOWN in values else {"kind": "value"}
    if not _ROWS.fullmatch(name):
        return None
    parts = [
        _facts(item, scope)
        for item in inner
        if not (isinstance(item, ast.Constant) and item.value is Ellipsis)
    ]
    if not parts or None in parts:
        return None
    if any(
        facts is None or facts["kind"] != "int" or facts["optional"] for facts in parts
    ):
        return {"kind": "value"}
    fixed = "uple" in name and len(parts) == len(inner)
    return {"kind": "ints", "count": len(parts) if fixed else 0}


def _merged(member_facts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one editor for all members of a union."""
    kinds = [facts["kind"] for facts in member_facts]
    if len(member_facts) == 1:
        return member_facts[0]
    if set(kinds) == {"int", "float"}:
        return {"kind": "float"}
    rows = [facts for facts in member_facts if facts["kind"] == "ints"]
    if (
        len(rows) == 1
        and len(member_facts) == 2
        and "int" in kinds
        and rows[0]["count"]
    ):
        return {"kind": "ints", "count": rows[0]["count"]}
    return {"kind": "value"}
