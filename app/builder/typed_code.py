"""Lines, calls and classes in Python as nodes: parsed with `ast`, never run.

`nn.Conv2d(10, 20, 5)`, statements of `__init__` and `forward`, an `nn.Sequential`, or a class with the classes that it
is made of. A loop over a list of modules is unrolled, a method of the class is followed, and what depends on values of
tensors is refused with its line.
"""

from __future__ import annotations

import ast
import operator
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.builder.catalog.catalog import Catalog, OpSpec, Param
from app.builder.catalog.spellings import FUNCTIONS, METHODS
from app.builder.graph import Edge, Graph, Node
from app.builder.literals import DTYPES, DType
from app.builder.params import ParamError, check_param, parse_param
from app.util.errors import CodedError
from app.util.frozen import FrozenMap

MOST_STEPS = 20_000  # statements and calls that are followed
LONGEST = 200_000  # characters
PLACEHOLDER = 1  # of a number that a wire gives
# Arguments about device and memory layout, which the run decides.
DROPPED = frozenset("device layout memory_format non_blocking generator".split())
_TENSOR_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "operator.add",
    ast.Sub: "operator.sub",
    ast.Mult: "operator.mul",
    ast.Div: "operator.truediv",
    ast.FloorDiv: "operator.floordiv",
    ast.Mod: "operator.mod",
    ast.Pow: "operator.pow",
    ast.MatMult: "torch.matmul",
    ast.USub: "operator.neg",
}
_NUMBER_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda value, members: value in members,
    ast.NotIn: lambda value, members: value not in members,
}
_BUILTINS: dict[str, Callable[..., Any]] = {
    "len": len,
    "range": range,
    "int": int,
    "float": float,
    "tuple": tuple,
    "list": list,
    "max": max,
    "min": min,
    "enumerate": enumerate,
    "zip": zip,
    "reversed": lambda items: list(reversed(items)),
}
_FILLS = {
    "zeros": "zeros",
    "ones": "ones",
    "randn": "normal",
    "rand": "uniform",
    "empty": "zeros",
}
_PREFIXES = ("torch.nn.functional.", "nn.functional.", "functional.", "torch.nn.")


class TypedCodeError(CodedError, ValueError):
    """Code that cannot be drawn without running it; the message says why and in which line."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"Line {line}: {message}" if line else message)
        self.reason, self.line = message, line


class TypedGraph(Struct, frozen=True):
    """The graph that some code defines, and the statements that are not drawn."""

    graph: Graph
    left_out: tuple[str, ...] = ()


class _Value(Struct, frozen=True):
    """An output of a node, or the size of a dimension of it, whose node is made where it is used."""

    node: str
    output: int = 0
    dim: int | None = None


class _Several(Struct, frozen=True):
    """The outputs of a call with several."""

    items: tuple[Any, ...]


class _Sizes(Struct, frozen=True):
    """The shape of a tensor."""

    of: _Value


class _Unknown(Struct, frozen=True):
    """A name of another place: what takes it stays unconnected."""


class _Training(Struct, frozen=True):
    """`self.training`."""


class _Module(Struct):
    """A layer that was constructed. `node` is that of its first call."""

    spec: OpSpec
    params: dict[str, Any]
    name: str = ""
    node: str = ""


class _Chain(Struct):
    """An `nn.Sequential`, an `nn.ModuleList` or a list of modules."""

    items: list[Any]
    called: bool = False

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


class _Instance(Struct):
    """An object of a class in the text."""

    of: ast.ClassDef
    attributes: dict[str, Any] = {}


class _Function(Struct):
    """A function in the text, with the names around it."""

    of: ast.FunctionDef
    around: Mapping[str, Any]


class _Parameter(Struct):
    """An `nn.Parameter`; `node` is made where it is used first."""

    params: dict[str, Any]
    name: str = ""
    node: str = ""


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


def call_of(text: str, ops: Catalog) -> tuple[OpSpec, FrozenMap[str, Any]] | None:
    """Return the op and the parameters of a typed call: `conv2d 20 5` or `nn.Conv2d(10, 20, 5)`; None if it is none.

    Sizes that are inferred from the input may be left out. Raises TypedCodeError for arguments that do not fit.
    """
    text = text.strip().rstrip(";")
    name, space, values = text.partition(" ")
    if "(" not in text and space and ops_named(name, ops):
        items = values.replace(",", " ").split()
        text = f"{name}({', '.join(items)})"
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(tree, ast.Call):
        return None
    keys = ops_named(ast.unparse(tree.func), ops)
    if not keys:
        return None
    spec = ops[keys[0]]
    reader = _Reader(ops)
    return spec, FrozenMap(reader.arguments_alone(spec, tree))


def ops_named(name: str, ops: Catalog) -> list[str]:
    """Return the keys of the ops that a name can mean, a layer before a function: `conv2d`, `nn.Conv2d`, `F.relu`."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            name = ("F." if "functional" in prefix else "nn.") + name.removeprefix(
                prefix
            )
    if name in ops:
        return [name]
    if name in FUNCTIONS:
        return [FUNCTIONS[name]]
    if "." in name:
        return []
    plain = name.lower().replace("_", "")
    layers = [key for key in ops if key.startswith("nn.") and key[3:].lower() == plain]
    others = [f"{module}.{name}" for module in ("F", "torch", "Tensor")]
    return layers + [key for key in others if key in ops]


def nodes_of(text: str, ops: Catalog) -> TypedGraph:
    """Return the nodes of lines, of a call, or of the last module class in some text. Raises TypedCodeError."""
    if len(text) > LONGEST:
        raise TypedCodeError(
            "This is too much code to paste: use File > Import a model."
        )
    try:
        tree = ast.parse(textwrap.dedent(text).strip("\n"))
    except SyntaxError as error:
        raise TypedCodeError(f"{error.msg}.", error.lineno or 0) from None
    except (ValueError, RecursionError, MemoryError):
        raise TypedCodeError("This is no Python code.") from None
    try:
        return _Reader(ops).read(tree)
    except RecursionError:
        raise TypedCodeError("The code calls itself without an end.") from None


def looks_like_code(text: str, ops: Catalog) -> bool:
    """Return whether some text has a statement that makes or calls a layer."""
    try:
        tree = ast.parse(textwrap.dedent(text).strip("\n"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return any(word in text for word in ("nn.", "def forward", "torch."))
    return any(
        isinstance(node, ast.ClassDef)
        or (isinstance(node, ast.Call) and bool(ops_named(ast.unparse(node.func), ops)))
        for node in ast.walk(tree)
    )


class _Reader:
    """Interprets statements symbolically: a call of a layer becomes a node, its result an output of that node."""

    def __init__(self, ops: Catalog) -> None:
        self._ops = ops
        self._graph = Graph()
        self._classes: dict[str, ast.ClassDef] = {}
        self._left_out: list[str] = []
        self._steps = 0
        self._globals: dict[str, Any] = {}

    # --- Texts

    def read(self, tree: ast.Module) -> TypedGraph:
        self._classes = {
            node.name: node for node in tree.body if isinstance(node, ast.ClassDef)
        }
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        methods = [node for node in functions if node.name in ("__init__", "forward")]
        for function in functions:
            if function not in methods:
                self._globals[function.name] = _Function(function, self._globals)
        rest = [
            node
            for node in tree.body
            if not isinstance(
                node, ast.ClassDef | ast.FunctionDef | ast.Import | ast.ImportFrom
            )
        ]
        modules = [
            node
            for node in self._classes.values()
            if any(_is_function(item, "forward") for item in node.body)
        ]
        if modules:
            self._draw_class(modules[-1], rest)
        else:
            self._draw_lines(rest, methods)
        if not self._graph.nodes:
            raise TypedCodeError("There is no layer in this code.")
        return TypedGraph(self._graph, tuple(self._left_out))

    def _draw_class(self, cls: ast.ClassDef, rest: Sequence[ast.stmt]) -> None:
        """Draw a class, constructed as the rest of the text does, else with its defaults."""
        call = next(
            (
                node
                for statement in rest
                for node in ast.walk(statement)
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == cls.name
            ),
            None,
        )
        for statement in rest:
            if isinstance(statement, ast.Assign) and not any(
                isinstance(node, ast.Call) for node in ast.walk(statement)
            ):
                self._assign(
                    statement.targets[0],
                    self._eval(statement.value, self._globals),
                    self._globals,
                )
        args = [self._eval(arg, self._globals) for arg in call.args] if call else []
        named = (
            {
                word.arg: self._eval(word.value, self._globals)
                for word in call.keywords
                if word.arg
            }
            if call
            else {}
        )
        instance = self._construct(cls, args, named, cls)
        forward = next(item for item in cls.body if _is_function(item, "forward"))
        assert isinstance(forward, ast.FunctionDef)
        names = [arg.arg for arg in forward.args.args[1:]]
        defaults = forward.args.defaults
        required = names[: len(names) - len(defaults)]
        inputs = [self._input(name) for name in required]
        self._output(self._call_method(instance, forward, inputs, {}, forward), forward)

    def _draw_lines(
        self, statements: Sequence[ast.stmt], functions: Sequence[ast.FunctionDef]
    ) -> None:
        """Draw statements, of `__init__`, of `forward` or of both; modules that nothing calls are a chain."""
        bodies = [function.body for function in functions]
        instance = _Instance(ast.ClassDef("", [], [], [], []))
        env: dict[str, Any] = {"self": instance}
        value: Any = None
        for statement in [*statements, *(line for body in bodies for line in body)]:
            try:
                value = self._do(statement, env)
            except _Return as returned:
                value = returned.value
        uncalled = [
            module
            for module in _modules(
                [*instance.attributes.values(), value, *env.values()]
            )
            if not module.node
        ]
        before: Any = _Unknown()
        for module in uncalled:
            if not module.node:
                before = self._call_module(module, [before], {}, ast.Pass(lineno=0))
                if isinstance(before, _Several):
                    before = before.items[0]

    # --- Statements

    def _do(self, statement: ast.stmt, env: dict[str, Any]) -> Any:
        self._count(statement)
        match statement:
            case (
                ast.Expr(value=ast.Constant())
                | ast.Pass()
                | ast.Import()
                | ast.ImportFrom()
                | ast.Assert()
            ):
                return None
            case ast.Expr(value=value):
                return self._expression_statement(value, env)
            case ast.Assign(targets=targets, value=tree):
                value = self._eval(tree, env)
                for target in targets:
                    self._assign(target, value, env)
                return value
            case ast.AnnAssign(target=target, value=tree):
                if tree is not None:
                    self._assign(target, self._eval(tree, env), env)
            case ast.AugAssign(target=target, op=op, value=tree):
                before = self._eval(_loaded(target), env)
                after = self._eval(tree, env)
                self._assign(target, self._operate(op, [before, after], statement), env)
            case ast.Return(value=tree):
                raise _Return(self._eval(tree, env) if tree is not None else None)
            case ast.If(test=test, body=body, orelse=orelse):
                branch = body if self._truth(test, env) else orelse
                for inner in branch:
                    self._do(inner, env)
            case ast.For(target=target, iter=tree, body=body, orelse=[]):
                for item in self._items(self._eval(tree, env), tree):
                    self._assign(target, item, env)
                    for inner in body:
                        self._do(inner, env)
            case ast.With(items=[ast.withitem(context_expr=context)], body=body):
                raise TypedCodeError(
                    f"`with {ast.unparse(context)}` is not drawn from pasted code.",
                    statement.lineno,
                )
            case ast.FunctionDef(name=name):
                env[name] = _Function(statement, env)
            case _:
                kind = type(statement).__name__.lower()
                raise TypedCodeError(
                    f"A `{kind}` statement cannot be drawn without running it.",
                    statement.lineno,
                )
        return None

    def _expression_statement(self, tree: ast.expr, env: dict[str, Any]) -> Any:
        """Follow an expression whose value is dropped; initialisations and prints are left out."""
        text = ast.unparse(tree)
        if text.startswith(
            ("super(", "super().__init__", "print(", "nn.Module.__init__")
        ):
            return None
        if text.startswith(
            ("nn.init.", "init.", "torch.nn.init.", "self.apply(", "torch.manual_seed")
        ):
            self._left_out.append(f"line {tree.lineno}, {_short(text)}")
            return None
        return self._eval(tree, env)

    def _assign(self, target: ast.expr, value: Any, env: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                env[name] = value
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if isinstance(
                env.get(owner), _Instance
            ):
                env[owner].attributes[name] = value
                if isinstance(value, _Module | _Parameter) and not value.name:
                    value.name = name
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                items = self._unpacked(value, len(targets), target)
                for inner, item in zip(targets, items, strict=True):
                    self._assign(inner, item, env)
            case _:
                raise TypedCodeError(
                    f"{_short(ast.unparse(target))} cannot be assigned to here.",
                    target.lineno,
                )

    def _unpacked(self, value: Any, count: int, at: ast.expr) -> Sequence[Any]:
        if isinstance(value, _Sizes):
            return [_Value(value.of.node, value.of.output, dim) for dim in range(count)]
        if isinstance(
            value, _Value | _Unknown
        ):  # a tuple that one output carries, as LSTM's (h, c)
            return [_Unknown()] * count
        items = value.items if isinstance(value, _Several) else value
        if not isinstance(items, tuple | list) or len(items) != count:
            raise TypedCodeError(
                f"{_short(ast.unparse(at))} are not as many as the values.", at.lineno
            )
        return items

    # --- Expressions

    def _eval(self, tree: ast.expr, env: Mapping[str, Any]) -> Any:
        self._count(tree)
        match tree:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._name(name, env)
            case ast.Tuple(elts=items):
                return tuple(self._spread(items, env))
            case ast.List(elts=items):
                return list(self._spread(items, env))
            case ast.Dict(keys=keys, values=values):
                return {
                    self._eval(key, env): self._eval(value, env)
                    for key, value in zip(keys, values, strict=True)
                    if key is not None
                }
            case ast.ListComp(
                elt=element,
                generators=[ast.comprehension(target=target, iter=items, ifs=[])],
            ):
                inner = dict(env)
                made = []
                for item in self._items(self._eval(items, env), items):
                    self._assign(target, item, inner)
                    made.append(self._eval(element, inner))
                return made
            case ast.GeneratorExp(elt=element, generators=generators):
                return self._eval(
                    ast.copy_location(ast.ListComp(element, generators), tree), env
                )
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._eval(body if self._truth(test, env) else orelse, env)
            case ast.BoolOp(op=op, values=values):
                result: Any = None
                for each in values:
                    result = self._eval(each, env)
                    if bool(result) is isinstance(op, ast.Or):
                        break
                return result
            case ast.UnaryOp(op=op, operand=operand):
                return self._operate(op, [self._eval(operand, env)], tree)
            case ast.BinOp(left=left, op=op, right=right):
                return self._operate(
                    op, [self._eval(left, env), self._eval(right, env)], tree
                )
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._operate(
                    op, [self._eval(left, env), self._eval(right, env)], tree
                )
            case ast.Attribute():
                return self._attribute(tree, env)
            case ast.Subscript(value=value, slice=index):
                return self._subscript(self._eval(value, env), index, tree, env)
            case ast.Call():
                return self._call(tree, env)
            case ast.Starred():
                raise TypedCodeError("A star is not drawn here.", tree.lineno)
        raise TypedCodeError(
            f"{_short(ast.unparse(tree))} cannot be drawn without running it.",
            tree.lineno,
        )

    def _name(self, name: str, env: Mapping[str, Any]) -> Any:
        if name in env:
            return env[name]
        if name in self._globals:
            return self._globals[name]
        return _Unknown()

    def _spread(
        self, items: Iterable[ast.expr], env: Mapping[str, Any]
    ) -> Iterator[Any]:
        for item in items:
            if isinstance(item, ast.Starred):
                yield from self._items(self._eval(item.value, env), item)
            else:
                yield self._eval(item, env)

    def _items(self, value: Any, at: ast.AST) -> list[Any]:
        if isinstance(value, _Several):
            return list(value.items)
        if isinstance(value, _Chain | list | tuple | range | dict | enumerate | zip):
            return [tuple(item) if isinstance(item, tuple) else item for item in value]
        raise TypedCodeError(
            "A loop over values that depend on tensors cannot be drawn.",
            getattr(at, "lineno", 0),
        )

    def _truth(self, tree: ast.expr, env: Mapping[str, Any]) -> bool:
        value = self._eval(tree, env)
        if isinstance(value, _Value | _Sizes | _Several | _Unknown | _Training):
            raise TypedCodeError(
                f"Which way `if {_short(ast.unparse(tree))}` goes is known only when the code runs.",
                tree.lineno,
            )
        return bool(value)

    def _operate(self, op: ast.AST, values: list[Any], at: ast.stmt | ast.expr) -> Any:
        kind = type(op)
        if any(isinstance(value, _Value | _Unknown | _Parameter) for value in values):
            if any(value is None for value in values) and kind in (ast.Is, ast.IsNot):
                return kind is ast.IsNot
            key = _TENSOR_OPERATORS.get(kind)
            if key is None:
                raise TypedCodeError(
                    f"{_short(ast.unparse(at))} is known only when the code runs.",
                    at.lineno,
                )
            return self._call_op(self._ops[key], values, {}, at)
        if kind is ast.Add and any(
            isinstance(value, list | _Chain) for value in values
        ):
            return [item for value in values for item in self._items(value, at)]
        function = _NUMBER_OPERATORS.get(kind)
        if kind is ast.Pow and all(abs(value) < 1000 for value in values):
            function = operator.pow
        try:
            if function is None:
                raise TypeError
            result = function(*values)
        except (TypeError, ValueError, ArithmeticError):
            raise TypedCodeError(
                f"{_short(ast.unparse(at))} is not a value.", at.lineno
            ) from None
        if isinstance(result, list | tuple | str) and len(result) > MOST_STEPS:
            raise TypedCodeError(f"{_short(ast.unparse(at))} is too long.", at.lineno)
        return result

    def _attribute(self, tree: ast.Attribute, env: Mapping[str, Any]) -> Any:
        dotted = ast.unparse(tree)
        if dotted.startswith("torch.") and tree.attr in DTYPES:
            return DType(tree.attr)
        owner = self._eval(tree.value, env)
        if isinstance(owner, _Instance):
            if tree.attr == "training":
                return _Training()
            if tree.attr not in owner.attributes:
                if any(_is_function(item, tree.attr) for item in owner.of.body):
                    return (owner, tree.attr)
                if not owner.of.name:
                    return _Unknown()
                raise TypedCodeError(
                    f"self.{tree.attr} is not assigned before.", tree.lineno
                )
            return owner.attributes[tree.attr]
        if isinstance(owner, _Value) and tree.attr == "shape":
            return _Sizes(owner)
        if isinstance(owner, _Module) and tree.attr in owner.params:
            return owner.params[tree.attr]
        raise TypedCodeError(
            f"{_short(dotted)} cannot be drawn without running it.", tree.lineno
        )

    def _subscript(
        self, value: Any, index: ast.expr, at: ast.expr, env: Mapping[str, Any]
    ) -> Any:
        if isinstance(value, _Value):
            param = self._ops["operator.getitem"].param("index")
            assert param is not None
            text = ast.unparse(index).removeprefix("(").removesuffix(")")
            try:
                parsed = parse_param(param, text)
            except ParamError as error:
                raise TypedCodeError(str(error), at.lineno) from None
            return self._make(
                self._ops["operator.getitem"], {"input": [value]}, {"index": parsed}
            )
        if isinstance(value, _Unknown):
            return value
        if isinstance(index, ast.Slice):
            ends = [
                self._eval(end, env) if end is not None else None
                for end in (index.lower, index.upper, index.step)
            ]
            key: Any = slice(*ends)
        else:
            key = self._eval(index, env)
        if isinstance(value, _Sizes) and isinstance(key, int):
            return _Value(value.of.node, value.of.output, key)
        if isinstance(value, _Several | _Chain):
            picked = value.items[key]
            return (
                _Chain(list(picked), value.called)
                if isinstance(value, _Chain) and isinstance(key, slice)
                else picked
            )
        try:
            return value[key]
        except (TypeError, LookupError):
            raise TypedCodeError(
                f"{_short(ast.unparse(at))} is not there.", at.lineno
            ) from None

    # --- Calls

    def _call(self, tree: ast.Call, env: Mapping[str, Any]) -> Any:
        name = (
            ast.unparse(tree.func)
            if isinstance(tree.func, ast.Name | ast.Attribute)
            else ""
        )
        first = name.partition(".")[0]
        is_local = first in env or first in self._globals
        if not is_local and (made := self._construction(name, tree, env)) is not None:
            return made
        if isinstance(tree.func, ast.Attribute):
            method = self._method_call(tree.func, tree, env)
            if method is not None:
                return method
        args, named = self._arguments(tree, env)
        if not is_local and name in _BUILTINS:
            return self._builtin(name, args, tree)
        function = self._eval(tree.func, env)
        return self._call_value(function, args, named, tree)

    def _arguments(
        self, tree: ast.Call, env: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        named = {
            word.arg: self._eval(word.value, env) for word in tree.keywords if word.arg
        }
        return list(self._spread(tree.args, env)), named

    def _construction(self, name: str, tree: ast.Call, env: Mapping[str, Any]) -> Any:
        """Return what a call of a class or function of torch, or of a class in the text, makes; None for another."""
        plain = name.removeprefix("torch.").removeprefix("nn.")
        if plain in ("Sequential", "ModuleList"):
            args, _ = self._arguments(tree, env)
            items = (
                args[0]
                if len(args) == 1 and isinstance(args[0], list | dict | _Chain)
                else args
            )
            members = (
                items.values() if isinstance(items, dict) else self._items(items, tree)
            )
            return _Chain(
                [item[1] if isinstance(item, tuple) else item for item in members],
                plain == "Sequential",
            )
        if plain in ("OrderedDict", "collections.OrderedDict", "ModuleDict"):
            args, _ = self._arguments(tree, env)
            return dict(args[0]) if args else {}
        if name in self._classes:
            args, named = self._arguments(tree, env)
            return self._construct(self._classes[name], args, named, tree)
        if plain == "Parameter":
            return self._parameter(tree, env)
        is_lazy = plain.startswith("Lazy")
        name = name.replace("Lazy", "", 1) if is_lazy else name
        keys = ops_named(name, self._ops)
        if not keys or ("." not in name and self._ops[keys[0]].kind != "module"):
            if name.startswith(("nn.", "torch.", "F.")):
                raise TypedCodeError(f"{name} is not among the layers.", tree.lineno)
            return None
        spec = self._ops[keys[0]]
        args, named = self._arguments(tree, env)
        if spec.kind == "module":
            return _Module(spec, self._bound_params(spec, args, named, tree, is_lazy))
        return self._call_op(spec, args, named, tree)

    def _parameter(self, tree: ast.Call, env: Mapping[str, Any]) -> _Parameter:
        """Return the parameter that `nn.Parameter(torch.zeros(...))` makes, with the same distribution."""
        match tree.args:
            case [ast.Call(func=ast.Attribute(attr=fill)) as made] if fill in _FILLS:
                shape, _ = self._arguments(made, env)
                if len(shape) == 1 and isinstance(shape[0], tuple | list):
                    shape = list(shape[0])
                params = {"shape": tuple(shape), "fill": _FILLS[fill]}
                if all(isinstance(size, int) for size in shape):
                    return _Parameter(params)
        raise TypedCodeError(
            "A parameter is drawn of torch.zeros, ones, rand or randn of a shape.",
            tree.lineno,
        )

    def _method_call(
        self, function: ast.Attribute, tree: ast.Call, env: Mapping[str, Any]
    ) -> Any:
        """Follow a method of a tensor, of the class, or of a list; None for another call."""
        if isinstance(function.value, ast.Name) and function.value.id in (
            "nn",
            "F",
            "torch",
        ):
            return None
        owner = self._eval(function.value, env)
        name = function.attr
        if isinstance(owner, _Value) and owner.dim is None:
            args, named = self._arguments(tree, env)
            return self._tensor_method(owner, name, args, named, tree)
        if isinstance(owner, _Unknown):
            args, named = self._arguments(tree, env)
            return self._tensor_method(owner, name, args, named, tree)
        if isinstance(owner, _Instance):
            method = next(
                (item for item in owner.of.body if _is_function(item, name)), None
            )
            if method is not None and name not in owner.attributes:
                assert isinstance(method, ast.FunctionDef)
                args, named = self._arguments(tree, env)
                return self._call_method(owner, method, args, named, tree)
            if name == "add_module":
                args, _ = self._arguments(tree, env)
                owner.attributes[args[0]] = args[1]
                return ()
            return None
        if isinstance(owner, list | _Chain) and name in ("append", "extend", "insert"):
            args, _ = self._arguments(tree, env)
            items = owner.items if isinstance(owner, _Chain) else owner
            getattr(items, name)(*args)
            return ()
        if isinstance(owner, dict) and name in ("items", "keys", "values"):
            return list(getattr(owner, name)())
        return None

    def _tensor_method(
        self,
        owner: Any,
        name: str,
        args: list[Any],
        named: dict[str, Any],
        at: ast.Call,
    ) -> Any:
        if name == "size":
            if isinstance(owner, _Value) and not args and not named:
                return _Sizes(owner)
            if isinstance(owner, _Value) and args and isinstance(args[0], int):
                return _Value(owner.node, owner.output, args[0])
        plain = (
            name.rstrip("_")
            if not name.startswith("_") and name != "requires_grad_"
            else name
        )
        keys = (
            METHODS.get(plain, ""),
            f"Tensor.{plain}",
            f"torch.{plain}",
            FUNCTIONS.get(f"torch.{plain}", ""),
            f"F.{plain}",
        )
        key = next((key for key in keys if key in self._ops), None)
        if key is None:
            raise TypedCodeError(
                f"{_short(ast.unparse(at.func))} is not among the layers.", at.lineno
            )
        if plain == "t":
            args = [0, 1]
        return self._call_op(self._ops[key], [owner, *args], named, at)

    def _builtin(self, name: str, args: list[Any], at: ast.Call) -> Any:
        if any(isinstance(value, _Value | _Several | _Unknown) for value in args):
            if name in ("int", "float"):
                return args[0]
            raise TypedCodeError(
                f"{name}(...) of what is known only when the code runs cannot be drawn.",
                at.lineno,
            )
        if name == "range" and any(
            abs(value) > MOST_STEPS for value in args if isinstance(value, int)
        ):
            raise TypedCodeError("This loop is too long to be drawn.", at.lineno)
        try:
            return _BUILTINS[name](*args)
        except (TypeError, ValueError):
            raise TypedCodeError(
                f"{_short(ast.unparse(at))} is not a value.", at.lineno
            ) from None

    def _call_value(
        self, function: Any, args: list[Any], named: dict[str, Any], at: ast.Call
    ) -> Any:
        match function:
            case _Module():
                return self._call_module(function, args, named, at)
            case _Function(of=definition, around=around):
                names = [arg.arg for arg in definition.args.args]
                return self._run(definition, names, dict(around), args, named, at)
            case _Chain(called=True):
                value: Any = args[0] if args else _Unknown()
                for item in function.items:
                    value = self._call_value(item, [value], {}, at)
                return value
            case _Instance():
                forward = next(
                    (
                        item
                        for item in function.of.body
                        if _is_function(item, "forward")
                    ),
                    None,
                )
                if isinstance(forward, ast.FunctionDef):
                    return self._call_method(function, forward, args, named, at)
        text = _short(ast.unparse(at.func))
        if isinstance(function, _Unknown) and text.startswith("self."):
            self._left_out.append(
                f"line {at.lineno}, {text}, which is not in this code"
            )
            return function
        if isinstance(function, _Unknown):
            raise TypedCodeError(
                f"{_short(ast.unparse(at.func))} is not defined in this code.",
                at.lineno,
            )
        raise TypedCodeError(
            f"{_short(ast.unparse(at.func))} cannot be called here.", at.lineno
        )

    def _construct(
        self, cls: ast.ClassDef, args: list[Any], named: dict[str, Any], at: ast.AST
    ) -> _Instance:
        instance = _Instance(cls)
        init = next((item for item in cls.body if _is_function(item, "__init__")), None)
        if isinstance(init, ast.FunctionDef):
            self._call_method(instance, init, args, named, at)
        return instance

    def _call_method(
        self,
        instance: _Instance,
        method: ast.FunctionDef,
        args: list[Any],
        named: dict[str, Any],
        at: ast.AST,
    ) -> Any:
        first, *names = [arg.arg for arg in method.args.args] or ["self"]
        return self._run(method, names, {first: instance}, args, named, at)

    def _run(
        self,
        function: ast.FunctionDef,
        names: list[str],
        env: dict[str, Any],
        args: list[Any],
        named: dict[str, Any],
        at: ast.AST,
    ) -> Any:
        """Interpret the body of a function with the parameters `names`; return its return value."""
        signature = function.args
        defaults = dict(
            zip(reversed(names), reversed(signature.defaults), strict=False)
        )
        for arg, default in zip(
            signature.kwonlyargs, signature.kw_defaults, strict=True
        ):
            names = [*names, arg.arg]
            if default is not None:
                defaults[arg.arg] = default
        if signature.vararg is not None:
            env[signature.vararg.arg] = tuple(args[len(names) :])
        values = dict(zip(names, args, strict=False)) | named
        for name in names:
            if name in values:
                env[name] = values[name]
            elif name in defaults:
                env[name] = self._eval(defaults[name], self._globals)
            elif function.name == "__init__":
                raise TypedCodeError(
                    f"No line says with which {name} the class is constructed: paste one that does, too, such as "
                    f"net = Net({name}=16).",
                    getattr(at, "lineno", 0),
                )
            else:
                env[name] = _Unknown()
        try:
            for statement in function.body:
                self._do(statement, env)
        except _Return as returned:
            return returned.value
        return None

    # --- Nodes

    def _input(self, name: str) -> _Value:
        node = self._add(self._ops["input"], name, {})
        return _Value(node)

    def _output(self, value: Any, at: ast.FunctionDef) -> None:
        """Add an output for each value that forward returns."""
        items: Iterable[tuple[str, Any]]
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, _Several | tuple | list):
            members = value.items if isinstance(value, _Several) else value
            items = (("", item) for item in members)
        else:
            items = (("", value),)
        for key, item in items:
            source = self._materialised(item)
            if not isinstance(source, _Value):
                raise TypedCodeError(
                    "forward returns something that is no tensor.", at.lineno
                )
            node = self._add(
                self._ops["output"], key or "output", {"key": key} if key else {}
            )
            self._wire(source, node, "input")

    def _call_module(
        self, module: _Module, args: list[Any], named: dict[str, Any], at: ast.AST
    ) -> Any:
        ports, params = self._bound(module.spec, args, named, at, at_call=True)
        params = module.params | params
        shares = module.node
        value = self._make(module.spec, ports, params, module.name, shares)
        if not module.node:
            module.node = (
                value.items[0] if isinstance(value, _Several) else value
            ).node
        return value

    def _call_op(
        self, spec: OpSpec, args: list[Any], named: dict[str, Any], at: ast.AST
    ) -> Any:
        return self._make(spec, *self._bound(spec, args, named, at))

    def _make(
        self,
        spec: OpSpec,
        ports: Mapping[str, Sequence[Any]],
        params: Mapping[str, Any],
        name: str = "",
        shares: str = "",
    ) -> Any:
        node = self._add(spec, name, {} if shares else params, shares)
        for port, sources in ports.items():
            for number, source in enumerate(sources):
                materialised = self._materialised(source)
                if isinstance(materialised, _Value):
                    self._wire(
                        materialised, node, port, number if len(sources) > 1 else 0
                    )
        count = spec.outputs_given(dict(params))
        if count == 1:
            return _Value(node)
        return _Several(tuple(_Value(node, number) for number in range(count)))

    def _add(
        self, spec: OpSpec, name: str, params: Mapping[str, Any], shares: str = ""
    ) -> str:
        graph = self._graph
        taken = {node.name for node in graph.nodes.values()}
        if not name or name in taken or not name.isidentifier():
            plain = spec.category == "io" and spec.stem not in taken
            name = spec.stem if plain else graph.fresh_name(spec.stem)
        non_defaults = {
            key: value
            for key, value in params.items()
            if (param := spec.param(key)) is not None
            and not _same(value, param.default)
        }
        node = Node(
            graph.fresh_id(), spec.key, name, FrozenMap(non_defaults), shares=shares
        )
        self._graph = graph.with_node(node)
        return node.id

    def _wire(self, source: _Value, target: str, port: str, number: int = 0) -> None:
        self._graph = self._graph.with_edge(
            Edge(source.node, source.output, target, port, number)
        )

    def _materialised(self, value: Any) -> Any:
        """Return the output of the node of a parameter, or of that which measures a size."""
        if isinstance(value, _Parameter):
            if not value.node:
                spec = self._ops["parameter"]
                value.node = self._add(spec, value.name, value.params)
            return _Value(value.node)
        if isinstance(value, _Value) and value.dim is not None:
            of = _Value(value.node, value.output)
            return self._make(
                self._ops["Tensor.size"], {"input": [of]}, {"dim": value.dim}
            )
        return value

    # --- Arguments

    def arguments_alone(self, spec: OpSpec, tree: ast.Call) -> dict[str, Any]:
        """Return the parameters of a call that stands alone; sizes that are inferred may be left out."""
        args, named = self._arguments(tree, {})
        if spec.kind != "module" and args and isinstance(args[0], _Unknown):
            args = args[1:]  # the tensor
        if spec.kind != "module":
            inputs = [port.name for port in spec.inputs if not port.wired]
            params = {name for name in named if name not in inputs}
            _, bound = self._bound(
                spec,
                [_Unknown()] * len(inputs) + args,
                {name: named[name] for name in params},
                tree,
            )
            return bound
        return self._bound_params(spec, args, named, tree)

    def _bound_params(
        self,
        spec: OpSpec,
        args: list[Any],
        named: dict[str, Any],
        at: ast.AST,
        infers: bool = False,
    ) -> dict[str, Any]:
        """Bind the arguments of a constructor; sizes that are inferred are left out where too few are given, or the
        class `infers` them."""
        params = [param for param in spec.params if not param.call]
        needed = [param for param in params if param.auto or param.required]
        typed = [param for param in needed if not param.auto]
        count = len(args) + sum(param.name in named for param in needed)
        if infers or count <= len(typed) < len(needed):
            params = [param for param in params if not param.auto]
        return self._by_params(spec, params, args, named, at)

    def _bound(
        self,
        spec: OpSpec,
        args: list[Any],
        named: dict[str, Any],
        at: ast.AST,
        at_call: bool = False,
    ) -> tuple[dict[str, list[Any]], dict[str, Any]]:
        """Bind the arguments of a call: what its ports take, and its parameters."""
        inputs = [port for port in spec.inputs if not port.wired]
        ports: dict[str, list[Any]] = {}
        rest, others = list(args), dict(named)
        for port in inputs:
            if port.name in others:
                value = others.pop(port.name)
            elif rest:
                value = rest.pop(0)
            else:
                break
            if port.variadic:
                ports[port.name] = (
                    self._items(value, at) if not isinstance(value, _Unknown) else []
                )
            elif isinstance(value, _Value | _Unknown | _Several | _Parameter):
                ports[port.name] = [
                    value.items[0] if isinstance(value, _Several) else value
                ]
            elif value is not None and spec.operand(port.name) is not None:
                others[port.name] = value
            elif value is not None:
                raise self._misfit(spec, port.name, value, at)
        params = [param for param in spec.params if param.call or not at_call]
        params = [
            param
            for param in params
            if param.name not in ports
            and spec.input(param.name) is None
            or param.name in others
        ]
        if any(isinstance(value, _Training) for value in (*rest, *others.values())):
            rest = [value for value in rest if not isinstance(value, _Training)]
            others = {
                name: value
                for name, value in others.items()
                if not isinstance(value, _Training)
            }
        wired = {
            name: value
            for name, value in self._by_params(spec, params, rest, others, at).items()
        }
        bound: dict[str, Any] = {}
        for name, value in wired.items():
            if isinstance(value, _Value):
                ports[name], bound[name] = [value], PLACEHOLDER
                bound.pop(name)
            elif isinstance(value, tuple) and any(
                isinstance(item, _Value) for item in value
            ):
                for number, item in enumerate(value):
                    if isinstance(item, _Value):
                        ports[f"{name}[{number}]"] = [item]
                bound[name] = tuple(
                    PLACEHOLDER if isinstance(item, _Value) else item for item in value
                )
            else:
                bound[name] = value
        return ports, bound

    def _by_params(
        self,
        spec: OpSpec,
        params: Sequence[Param],
        args: list[Any],
        named: Mapping[str, Any],
        at: ast.AST,
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for number, value in enumerate(args):
            if number >= len(params):
                raise TypedCodeError(
                    f"{spec.label} takes {len(params)} arguments here, and {len(args)} are given.",
                    getattr(at, "lineno", 0),
                )
            param, rest = params[number], args[number:]
            if param.kind == "ints" and param.count == 0 and len(rest) > 1:
                values[param.name] = self._checked(spec, param, tuple(rest), at)
                break
            values[param.name] = self._checked(spec, param, value, at)
        by_name = {param.name: param for param in params}
        for name, value in named.items():
            if name in DROPPED:
                continue
            if name not in by_name:
                names = ", ".join(by_name) or "none"
                raise TypedCodeError(
                    f"{spec.label} has no argument {name} here; it has {names}.",
                    getattr(at, "lineno", 0),
                )
            values[name] = self._checked(spec, by_name[name], value, at)
        return values

    def _checked(self, spec: OpSpec, param: Param, value: Any, at: ast.AST) -> Any:
        if isinstance(value, _Unknown | _Sizes | _Several | _Module):
            raise self._misfit(spec, param.name, value, at)
        if isinstance(value, list):
            value = tuple(value)
        if (
            param.kind == "ints"
            and param.count == 0
            and param.required
            and isinstance(value, int | _Value)
        ):
            value = (value,)
        if isinstance(value, _Value) or (
            isinstance(value, tuple) and any(isinstance(item, _Value) for item in value)
        ):
            return value
        if param.kind == "float" and type(value) is int:
            value = float(value)
        try:
            check_param(param, value)
        except ParamError as error:
            raise TypedCodeError(
                f"{spec.label}: {error}.", getattr(at, "lineno", 0)
            ) from None
        return value

    def _misfit(
        self, spec: OpSpec, name: str, value: Any, at: ast.AST
    ) -> TypedCodeError:
        what = (
            "something that this code does not define"
            if isinstance(value, _Unknown)
            else _short(repr(value))
        )
        return TypedCodeError(
            f"{name} of {spec.label} is {what}.", getattr(at, "lineno", 0)
        )

    def _count(self, at: ast.AST) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise TypedCodeError(
                "This code is too long to be drawn.", getattr(at, "lineno", 0)
            )


def _is_function(item: ast.AST, name: str) -> bool:
    return isinstance(item, ast.FunctionDef) and item.name == name


def _loaded(target: ast.expr) -> ast.expr:
    """Return the target of an augmented assignment as an expression that loads its value."""
    return ast.parse(ast.unparse(target), mode="eval").body


def _modules(values: Iterable[Any]) -> Iterator[_Module]:
    for value in values:
        if isinstance(value, _Module):
            yield value
        elif isinstance(value, _Chain | list):
            yield from _modules(value)


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


def _short(text: str) -> str:
    return text if len(text) <= 50 else f"{text[:47]}..."
