"""The classes of a layer file, parsed from its text without running it.

A class is a layer if it derives from `nn.Module` or `autograd.Function`, under any imported name, or from a layer of
the same file.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping

from app.builder.catalog.catalog import OpSpec, Param, Port
from app.builder.catalog.custom_arguments import (
    Scope,
    UnusableLayerError,
    arguments,
    constructor_params,
    forward_ports,
)
from app.util.errors import CodedError
from app.util.frozen import Shared

FUNCTION = ("torch.autograd.Function", "torch.autograd.function.Function")
# Containers whose `forward` the file does not have to write.
_CONTAINERS = {"torch.nn.Sequential": (Port("input", "any"),)}
_MOST_OUTPUTS = 32


class LayerTextError(CodedError, ValueError):
    """A text whose classes cannot be read; the words say why."""


class LayerClass(Shared, frozen=True):
    """One class. `kind` is "module" or "function"; `reason` tells why it cannot be used, "" if it can.

    `order` has the arguments of `forward`, ports and parameters; `kept` are arguments that keep their default because
    no form can show it. `summary` is the first line of its docstring.
    """

    name: str
    kind: str
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = (Port("output"),)
    params: tuple[Param, ...] = ()
    order: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    reason: str = ""
    summary: str = ""
    line: int = 0


def read_classes(text: str, ops: Mapping[str, OpSpec]) -> tuple[LayerClass, ...]:
    """List the layers of a text, in order. `ops` has the constructors of torch's layers. Raises LayerTextError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in the user's file
            tree = ast.parse(text)
        return _Reader(tree, ops).read()
    except SyntaxError as error:
        where = (
            f"line {error.lineno} is not valid Python: "
            if error.lineno
            else "it is not valid Python: "
        )
        raise LayerTextError(f"{where}{error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise LayerTextError(
            f"it cannot be read as Python: {error or type(error).__name__}"
        ) from error


class _Reader:
    def __init__(self, tree: ast.Module, ops: Mapping[str, OpSpec]) -> None:
        self.ops = ops
        self.scope = Scope(_imported(tree), _constants(tree), _stars(tree))
        self.classes = {
            node.name: node
            for node in _top(tree.body)
            if isinstance(node, ast.ClassDef)
        }

    def read(self) -> tuple[LayerClass, ...]:
        layers = []
        for name, node in self.classes.items():
            kind = self._kind(node, ())
            if kind and not name.startswith("_"):
                layers.append(self._layer(node, kind))
        return tuple(layers)

    def _bases(self, node: ast.ClassDef) -> list[ast.ClassDef | str]:
        """List the base classes: classes of the file, and qualified names of others."""
        bases: list[ast.ClassDef | str] = []
        for base in node.bases:
            local = self.classes.get(base.id) if isinstance(base, ast.Name) else None
            if local is not None and local is not node:
                bases.append(local)
            elif name := self.scope.dotted(base):
                bases.append(name)
        return bases

    def _kind(self, node: ast.ClassDef, path: tuple[str, ...]) -> str:
        """ "module", "function", or "" for a class that is no layer."""
        for base in self._bases(node):
            if isinstance(base, ast.ClassDef):
                kind = (
                    self._kind(base, (*path, node.name))
                    if base.name not in path
                    else ""
                )
            else:
                kind = (
                    "function"
                    if base in FUNCTION
                    else "module"
                    if _is_module(base)
                    else ""
                )
            if kind:
                return kind
        return ""

    def _line_of(
        self, node: ast.ClassDef, path: tuple[str, ...] = ()
    ) -> Iterator[ast.ClassDef | str]:
        """Yield the class and its bases, nearest first."""
        yield node
        for base in self._bases(node):
            if isinstance(base, str):
                yield base
            elif base.name not in path:
                yield from self._line_of(base, (*path, node.name))

    def _method(self, node: ast.ClassDef, name: str) -> ast.FunctionDef | str | None:
        """Return a method of the class, or the qualified name of the torch layer that it is inherited from."""
        for owner in self._line_of(node):
            if isinstance(owner, str):
                if owner in _CONTAINERS or self._torch_spec(owner):
                    return owner
                continue
            for item in owner.body:
                if (
                    isinstance(item, ast.FunctionDef)
                    and item.name == name
                    and not _overload(item)
                ):
                    return item
        return None

    def _torch_spec(self, dotted: str) -> OpSpec | None:
        return (
            self.ops.get(f"nn.{dotted.rpartition('.')[2]}")
            if _is_module(dotted)
            else None
        )

    def _layer(self, node: ast.ClassDef, kind: str) -> LayerClass:
        summary = (ast.get_docstring(node) or "").strip().partition("\n")[0]
        try:
            signature = self._module(node) if kind == "module" else self._function(node)
        except UnusableLayerError as error:
            return LayerClass(
                node.name, kind, reason=str(error), summary=summary, line=node.lineno
            )
        inputs, outputs, params, order, defaulted = signature
        return LayerClass(
            node.name,
            kind,
            inputs,
            outputs,
            params,
            order,
            defaulted,
            "",
            summary,
            node.lineno,
        )

    def _module(self, node: ast.ClassDef) -> _Made:
        if any(
            self.scope.dotted(_called(mark)).endswith("dataclass")
            for mark in node.decorator_list
        ):
            raise UnusableLayerError(
                "it is a dataclass, whose arguments are not read; write an __init__"
            )
        params, defaulted = self._constructor(node)
        forward = self._method(node, "forward")
        if forward is None:
            raise UnusableLayerError("it has no forward")
        if isinstance(forward, str):
            spec = self._torch_spec(forward)
            inputs = spec.inputs if spec else _CONTAINERS[forward]
            outputs = (
                spec.outputs if spec and not spec.outputs_by else (Port("output"),)
            )
            call = tuple(param for param in (spec.params if spec else ()) if param.call)
            return inputs, outputs, (*params, *call), (), defaulted
        constructor_names = frozenset(param.name for param in params)
        inputs, call, left = forward_ports(
            arguments(forward, 1), self.scope, constructor_names
        )
        order = (*(port.name for port in inputs), *(param.name for param in call))
        return inputs, _outputs(forward), (*params, *call), order, (*defaulted, *left)

    def _constructor(
        self, node: ast.ClassDef
    ) -> tuple[tuple[Param, ...], tuple[str, ...]]:
        constructor = self._method(node, "__init__")
        if constructor is None:
            return (), ()
        if not isinstance(constructor, str):
            return constructor_params(arguments(constructor, 1), self.scope)
        spec = self._torch_spec(constructor)
        if spec is None:
            raise UnusableLayerError(
                "it defines no __init__, and that of its base class takes modules"
            )
        return tuple(_typed(param) for param in spec.params if not param.call), ()

    def _function(self, node: ast.ClassDef) -> _Made:
        forward = self._method(node, "forward")
        if not isinstance(forward, ast.FunctionDef):
            raise UnusableLayerError("it has no forward")
        context = 0 if self._method(node, "setup_context") is not None else 1
        signature = arguments(forward, context)
        if any(argument.keyword for argument in signature):
            raise UnusableLayerError(
                "forward has keyword-only arguments, and apply takes no keyword arguments"
            )
        inputs, params, defaulted = forward_ports(
            signature, self.scope, frozenset(), by_name=False
        )
        if defaulted:
            raise UnusableLayerError(
                f"{', '.join(defaulted)} of forward cannot be edited here, and apply takes no keyword arguments"
            )
        names = {port.name for port in inputs} | {param.name for param in params}
        return (
            inputs,
            _outputs(forward),
            params,
            tuple(argument.name for argument in signature if argument.name in names),
            (),
        )


_Made = tuple[
    tuple[Port, ...],
    tuple[Port, ...],
    tuple[Param, ...],
    tuple[str, ...],
    tuple[str, ...],
]


def _typed(param: Param) -> Param:
    """Return a parameter of a torch layer without inference from the input shape."""
    if not param.auto:
        return param
    return Param(
        param.name,
        param.kind,
        required=True,
        count=param.count,
        minimum=param.minimum,
        positional=True,
    )


def _is_module(dotted: str) -> bool:
    """Return whether a qualified name is that of a torch layer.

    >>> _is_module("torch.nn.Module"), _is_module("torch.nn.Parameter"), _is_module("collections.Module")
    (True, False, False)
    """
    room, _, name = dotted.rpartition(".")
    inside = room == "torch.nn" or room.startswith("torch.nn.modules")
    return (
        inside
        and name[:1].isupper()
        and name not in ("Parameter", "Buffer", "UninitializedParameter")
    )


def _called(mark: ast.expr) -> ast.expr:
    return mark.func if isinstance(mark, ast.Call) else mark


def _overload(item: ast.FunctionDef) -> bool:
    return any(
        ast.unparse(mark).rpartition(".")[2] == "overload"
        for mark in item.decorator_list
    )


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the top-level statements, including those under `if` and `try`."""
    for item in body:
        yield item
        if isinstance(item, ast.If):
            yield from _top([*item.body, *item.orelse])
        elif isinstance(item, ast.Try):
            handled = [line for handler in item.handlers for line in handler.body]
            yield from _top([*item.body, *handled, *item.orelse, *item.finalbody])
        elif isinstance(item, ast.With):
            yield from _top(item.body)


def _imported(tree: ast.Module) -> dict[str, str]:
    """Map the imported names of the file to qualified names: `nn` to "torch.nn"."""
    qualified_names: dict[str, str] = {}
    for item in _top(tree.body):
        if isinstance(item, ast.Import):
            for alias in item.names:
                qualified_names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(item, ast.ImportFrom) and not item.level:
            for alias in item.names:
                qualified_names[alias.asname or alias.name] = (
                    f"{item.module}.{alias.name}"
                )
    return qualified_names


def _stars(tree: ast.Module) -> tuple[str, ...]:
    """List the modules imported by `*`."""
    imports = (item for item in _top(tree.body) if isinstance(item, ast.ImportFrom))
    return tuple(
        item.module or ""
        for item in imports
        if any(alias.name == "*" for alias in item.names)
    )


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Map the file's names that are assigned once to their values."""
    assignments: dict[str, ast.expr | None] = {}
    for item in _top(tree.body):
        if isinstance(item, ast.Assign):
            targets: list[ast.expr] = item.targets
            value: ast.expr | None = item.value
        elif isinstance(item, ast.AnnAssign | ast.AugAssign):
            targets, value = (
                [item.target],
                item.value if isinstance(item, ast.AnnAssign) else None,
            )
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                assignments[target.id] = value if target.id not in assignments else None
    return {name: value for name, value in assignments.items() if value is not None}


def _outputs(forward: ast.FunctionDef) -> tuple[Port, ...]:
    names = returned_names(forward)
    return tuple(Port(name, "any") for name in names) if names else (Port("output"),)


def returned_names(forward: ast.FunctionDef) -> tuple[str, ...]:
    """Name several outputs if every `return` has a tuple of the same length; () for one output."""
    returned = [
        item.value for item in _own(forward.body) if isinstance(item, ast.Return)
    ]
    first = returned[0] if returned else None
    if not isinstance(first, ast.Tuple) or not 2 <= len(first.elts) <= _MOST_OUTPUTS:
        return ()
    for value in returned:
        if not isinstance(value, ast.Tuple) or len(value.elts) != len(first.elts):
            return ()
        if any(isinstance(item, ast.Starred) for item in value.elts):
            return ()
    names: list[str] = []
    for number, item in enumerate(first.elts):
        name = _name_of(item)
        names.append(name if name not in names else f"{name}{number}")
    return tuple(names)


def _name_of(value: ast.expr) -> str:
    """Name a value after its variable, its attribute or its key."""
    if isinstance(value, ast.Name | ast.Attribute):
        return value.id if isinstance(value, ast.Name) else value.attr
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        key = value.slice.value
        if isinstance(key, str) and key.isidentifier():
            return key
        if isinstance(key, int) and isinstance(value.value, ast.Attribute):
            return f"{value.value.attr}{key}"
    return "output"


def _own(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a function, without those of nested functions and classes."""
    for item in body:
        yield item
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for block in ("body", "orelse", "finalbody"):
            yield from _own(getattr(item, block, []))
        for handler in [*getattr(item, "handlers", []), *getattr(item, "cases", [])]:
            yield from _own(handler.body)
