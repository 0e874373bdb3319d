"""Values of parameters for the form: parsed from text, validated and formatted, for layers and training alike."""

from __future__ import annotations

import ast
import math
from functools import cache
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from app.builder.catalog.catalog import Param
from app.builder.expressions import Expr, expressions
from app.builder.literals import AUTO, DTYPES, DType
from app.builder.params import (
    COMPUTED,
    ParamError,
    check_param,
    expectation,
    format_param,
    parse_expression,
    parse_param,
)
from app.util.formatting import number_text
from app.util.language import tr


class ParamLike(Protocol):
    """The interface of a parameter for the form; those of the catalog and of `training.registry` have it."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def default(self) -> Any: ...
    @property
    def required(self) -> bool: ...
    @property
    def choices(self) -> tuple[Any, ...]: ...
    @property
    def auto(self) -> bool: ...
    @property
    def count(self) -> int: ...
    @property
    def optional(self) -> bool: ...
    @property
    def minimum(self) -> float | None: ...
    def __hash__(self) -> int: ...


class _Differs:
    """What several nodes have that do not have the same."""

    def __repr__(self) -> str:
        return "DIFFERS"


DIFFERS = _Differs()


class BlockScope(Struct):
    """The block around a field, with the parameters that expressions may use."""

    block: str
    names: tuple[str, ...]

    @staticmethod
    def allows(param: ParamLike) -> bool:
        """Return whether a parameter may be an expression."""
        return param.kind in COMPUTED

    def parse(self, param: ParamLike, text: str) -> Any:
        """Parse a value or an expression. Raises ParamError with the expected type."""
        value = (
            parse_expression(_of_catalog(param), text)
            if param.kind in COMPUTED
            else parse(param, text)
        )
        for name in sorted(
            {name for expression in expressions(value) for name in expression.names}
        ):
            if name not in self.names:
                has = (
                    tr("it has {names}", names=", ".join(self.names))
                    if self.names
                    else tr("expose a number to add one")
                )
                text = tr(
                    "{op} has no parameter {name}; {has}",
                    op=self.block,
                    name=name,
                    has=has,
                )
                raise ParamError(text)
        return value


def item_of(param: ParamLike) -> Param:
    """Return a parameter for a single number of one that takes several."""
    return replace(_of_catalog(param), kind="int", count=1, choices=(), auto=False)


def computes(value: Any) -> bool:
    """Return whether a value contains an expression."""
    return any(True for _ in expressions(value))


@cache
def _of_catalog(param: ParamLike) -> Param:
    """Convert a parameter to the builder's class."""
    if isinstance(param, Param):
        return param
    return Param(
        param.name,
        param.kind,
        param.default,
        param.required,
        param.choices,
        param.auto,
        param.count,
        param.optional,
        param.minimum,
        maximum(param),
    )


def maximum(param: ParamLike) -> float | None:
    """Return the upper bound of a number, None for no bound."""
    return getattr(param, "maximum", None)


def equal_values(a: Any, b: Any) -> bool:
    """Return whether values are equal, with equal types throughout: 1 is not True, and (1, 1) is not 1.

    >>> equal_values(1, True), equal_values((1, 2), (1, 2)), equal_values(1, 1.0)
    (False, True, False)
    >>> equal_values(float("nan"), float("nan"))
    True
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(
            equal_values(x, y) for x, y in zip(a, b, strict=True)
        )
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def check(param: ParamLike, value: Any) -> None:
    """Raise ParamError unless the parameter can have the value."""
    if param.kind == "literal":
        _check_literal(param, value)
    elif param.kind == "str":
        if not isinstance(value, str) and not (value is None and param.optional):
            raise ParamError(expected(param))
    else:
        check_param(_of_catalog(param), value)


def fits(param: ParamLike, value: Any) -> bool:
    """Return whether `check` accepts the value."""
    try:
        check(param, value)
    except ParamError:
        return False
    return True


def parse(param: ParamLike, text: str) -> Any:
    """Parse a value. Raises ParamError with the expected type."""
    if param.kind == "str":
        return text or (None if param.optional else "")
    if param.kind == "literal":
        return _parse_literal(param, text)
    return parse_param(_of_catalog(param), text)


def show(value: Any) -> str:
    """Format a value for a field.

    >>> show((0.9, 0.999)), show(None), show((1, -1)), show("same"), show(DType("int64")), show(((1, 2), (3, 4)))
    ('0.9, 0.999', 'None', '1, −1', 'same', 'int64', '[[1, 2], [3, 4]]')
    """
    if value is DIFFERS:
        return ""
    if (
        isinstance(value, tuple)
        and value
        and all(type(item) in (int, float, Expr) for item in value)
    ):
        return ", ".join(map(show, value)) + ("," if len(value) == 1 else "")
    if type(value) in (int, float):
        return number_text(value)
    return format_param(value)


def text_of(param: ParamLike, value: Any) -> str:
    """Format a value for a text field: None as no text, and quoted where it would be parsed as something else.

    >>> text_of(Param("x", "value"), ("a", 1)), text_of(Param("x", "value"), "1"), text_of(Param("x", "value"), "a")
    ("'a', 1", "'1'", 'a')
    """
    if value is None and param.kind == "str":
        return ""
    text = show(value)
    if (
        param.kind != "value"
        or value is DIFFERS
        or (fits(param, value) and _reads(param, text, value))
    ):
        return text
    return repr(value)[1:-1] if isinstance(value, tuple) and value else repr(value)


def _reads(param: ParamLike, text: str, value: Any) -> bool:
    try:
        return equal_values(parse(param, text), value)
    except ParamError:
        return False


def expected(param: ParamLike) -> str:
    """Return what the parameter accepts, as a sentence."""
    if param.kind == "literal":
        requirement = (
            tr("expects {count} numbers", count=param.count)
            if param.count
            else tr("expects numbers with commas between, such as 0.5, 2")
        )
        if param.optional:
            requirement = tr("{expects} or None", expects=requirement)
    elif param.kind == "str":
        requirement = tr("expects a string")
    else:
        requirement = expectation(_of_catalog(param))
    return f"{param.name} {requirement}"


def choices(param: ParamLike) -> tuple[Any, ...]:
    """Return the values of a "choice", a "dtype" or a bool, None first where it is allowed."""
    options: tuple[Any, ...] = param.choices
    if param.kind == "dtype":
        options = tuple(DType(name) for name in (param.choices or DTYPES))
    elif param.kind == "bool":
        options = (True, False)
    return (None, *options) if param.optional else options


def _parse_literal(param: ParamLike, text: str) -> Any:
    plain = text.strip().replace("−", "-").replace("×", ",")
    try:
        value = ast.literal_eval(plain)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        raise ParamError(refusal(param, f"{plain!r:.40}")) from None
    if isinstance(value, list):
        value = tuple(value)
    if value is not None and not isinstance(value, tuple):
        value = (value,)
    _check_literal(param, value)
    return value


def _check_literal(param: ParamLike, value: Any) -> None:
    if value is None and param.optional:
        return
    holes = isinstance(param.default, tuple) and None in param.default
    good = (
        isinstance(value, tuple)
        and bool(value)
        and (not param.count or len(value) == param.count)
    )
    if not good or not all(
        (holes and v is None) or (type(v) in (int, float) and math.isfinite(v))
        for v in value
    ):
        shown = show(value) if value is not AUTO else "auto"
        raise ParamError(refusal(param, shown))


def refusal(param: ParamLike, value: str) -> str:
    """Return what the parameter accepts, and that this is something else."""
    return tr("{expects}, not {value}", expects=expected(param), value=value)
