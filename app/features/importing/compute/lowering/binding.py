"""Binding of traced calls to ops of the catalog: which arguments are ports, which parameters.

Spellings of one op (`torch.add`, `x.add(y)`, `x + y`) are unified.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from msgspec import Struct
from torch import fx
from torch.nn import functional as F

from app.builder.catalog import ops
from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.catalog.introspect import find, schema_of
from app.builder.catalog.spellings import FUNCTIONS, METHODS
from app.builder.literals import DTYPES, DType, Slice
from app.builder.params import ParamError, check_param
from app.features.importing.compute.tracing.proxies import (
    Training,
    float_fact,
    set_item,
    tuple_of,
)
from app.util.errors import CodedError

BATCH_NORM = "F.batch_norm"
WIRED = 1  # placeholder for a number that a wire provides


class BindingError(CodedError, ValueError):
    """A call without an op in the catalog; the message says which and why."""


class Bound(Struct):
    """An op, the nodes that its ports take (several on a variadic one), and its parameters.

    A node inside a parameter is in `wired` under its position: `size[0]`, `index[1].stop`.
    """

    key: str
    ports: dict[str, list[fx.Node]] = {}
    params: dict[str, Any] = {}
    wired: dict[str, fx.Node] = {}

    def check(self, spec: OpSpec) -> None:
        """Raise BindingError if a required argument is missing."""
        argument_names = {
            *self.ports,
            *self.params,
            *(name.partition("[")[0].partition(".")[0] for name in self.wired),
        }
        names = [port.name for port in spec.inputs if port.required] + [
            param.name for param in spec.params if param.required
        ]
        missing = next((name for name in names if name not in argument_names), None)
        if missing is not None:
            raise BindingError(
                f"{spec.key} is called without {missing}, which its node needs"
            )


def _torch_function(name: str) -> Any:
    """Return what a dotted name of `spellings` is."""
    module, *names = name.split(".")
    value: Any = {"torch": torch, "operator": operator, "F": F}[module]
    for each in names:
        value = getattr(value, each)
    return value


_FUNCTIONS: dict[Any, str] = {
    **{_torch_function(name): key for name, key in FUNCTIONS.items()},
    set_item: "operator.setitem",
    float_fact: "torch.finfo",
    tuple_of: "tuple",
}
# On boolean tensors these are equivalent and read better.
_LOGICAL = {
    f"torch.bitwise_{name}": f"torch.logical_{name}"
    for name in ("and", "or", "xor", "not")
}
_NEW = {"new_zeros": "torch.zeros", "new_ones": "torch.ones", "new_full": "torch.full"}

# Arguments about device and memory layout, which the run decides, and those without an effect.
_DROPPED = frozenset(
    "device layout pin_memory memory_format non_blocking copy generator out stacklevel _stacklevel requires_grad "
    "align_corners_ path".split()
)


class Binder:
    """Binds the calls of one graph to ops. `values` has an example value of each node."""

    def __init__(self, catalog: Catalog, values: Mapping[fx.Node, Any]) -> None:
        self.catalog, self.values = catalog, values
        self._functions = functions(catalog)

    def bind(self, node: fx.Node, like: fx.Node | None) -> Bound:
        """Bind a call of a function or method to an op; new tensors take the device of `like`. Raises BindingError."""
        args, kwargs = list(node.args), dict(node.kwargs)
        if node.target in (
            torch.tensor_split,
            "tensor_split",
            torch.split,
            "split",
            "split_with_sizes",
        ):
            key, args, kwargs = "torch.split", *self._split_at(node, args, kwargs)
        elif node.op == "call_method":
            key, args, kwargs = self._method(str(node.target), args, kwargs)
        else:
            key = self._function(node.target)
        key = (
            _LOGICAL.get(key, key)
            if all(map(self._is_truth, node.all_input_nodes))
            else key
        )
        spec = self.catalog.get(key)
        if spec is None:
            raise BindingError(f"{_name(node.target)} is not among the ops")
        bound = Bound(key)
        for name, value in self.by_name(spec, args, kwargs).items():
            self.put(bound, spec, name, value)
        if (
            "like" in spec.input_names
            and "like" not in bound.ports
            and like is not None
        ):
            bound.ports["like"] = [like]
        return bound

    def _is_truth(self, node: fx.Node) -> bool:
        value = self.values[node]
        return isinstance(value, torch.Tensor) and value.dtype == torch.bool

    def _function(self, target: Any) -> str:
        name = getattr(target, "__name__", "")
        if (
            name.endswith("_")
            and not name.endswith("__")
            and getattr(torch, name, None) is target
        ):
            target = getattr(
                torch, name[:-1], target
            )  # drawings are functional: use the out-of-place form
        unified = _FUNCTIONS.get(target) if _hashable(target) else None
        key = unified or self._functions.get(target) if _hashable(target) else None
        if key is None:
            raise BindingError(f"{_name(target)} is not among the ops")
        return key

    def _method(
        self, name: str, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[str, list[Any], dict[str, Any]]:
        plain = (
            name[:-1]
            if name.endswith("_")
            and not name.startswith("_")
            and name != "requires_grad_"
            else name
        )
        if plain in _NEW:
            size = kwargs.get("size")
            sizes = args[1:] if size is None else [size, *args[1:]]
            sizes += [kwargs["fill_value"]] if "fill_value" in kwargs else []
            if kwargs.get("dtype") is not None:
                kwargs = {"dtype": kwargs["dtype"], "like": args[0]}
                sizes_as_tuple = plain == "new_full" or (
                    len(sizes) == 1 and isinstance(sizes[0], tuple | list)
                )
                return _NEW[plain], sizes if sizes_as_tuple else [tuple(sizes)], kwargs
            return f"Tensor.{plain}", [args[0], *sizes], {}
        if plain == "size":
            return (
                ("Tensor.size", args, kwargs)
                if len(args) > 1 or kwargs
                else ("Tensor.shape", args, {})
            )
        if plain == "to" and len(args) == 2 and self._is_tensor(args[1]):
            return "Tensor.type_as", args, {}
        if plain == "t":
            return "torch.transpose", [args[0], 0, 1], {}
        if (
            plain == "where"
        ):  # the condition comes first in the function, and not in the method
            named = {
                "input" if name == "self" else name: value
                for name, value in kwargs.items()
            }
            return "torch.where", [*args[1:2], args[0], *args[2:]], named
        function = getattr(torch, plain, None)
        key = METHODS.get(plain) or (
            _FUNCTIONS.get(function) if function is not None else None
        )
        if key is None:
            names = (
                f"Tensor.{plain}",
                f"torch.{plain}",
            )  # a function of F by that name may be another, as unfold is
            key = next((name for name in names if name in self.catalog), None)
        if key is None:
            raise BindingError(f"Tensor.{name} is not among the ops")
        return key, args, kwargs

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, fx.Node) and isinstance(
            self.values.get(value), torch.Tensor
        )

    def _split_at(
        self, node: fx.Node, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Turn split positions into part sizes, read off the example."""
        dim = kwargs.get("dim", args[2] if len(args) > 2 else 0)
        return [
            args[0],
            tuple(chunk.shape[dim] for chunk in self.values[node]),
            dim,
        ], {}

    # --- Arguments by name

    def by_name(
        self,
        spec: OpSpec,
        args: list[Any],
        kwargs: dict[str, Any],
        names: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Map the arguments of a call to names, in the order of `names` or of the op's signature."""
        if spec.key == "torch.einsum":  # the tensors may be given one by one
            tensors = args[1:] if isinstance(args[1], fx.Node) else args[1]
            return {"equation": args[0].replace(" ", ""), "tensors": list(tensors)}
        names = names or positions(spec)
        if spec.key == "torch.arange":
            names = ("end",) if len(args) == 1 else ("start", "end", "step")
        if (
            spec.key == "torch.randint"
            and "high" not in kwargs
            and len(args) == (1 if "size" in kwargs else 2)
        ):
            names = ("high", "size")
        arguments: dict[str, Any] = {}
        for number, value in enumerate(args):
            if number >= len(names):
                raise BindingError(
                    f"{spec.key} takes {len(names)} arguments here, but {len(args)} are given"
                )
            name = names[number]
            param = spec.param(name)
            rest = args[number:]
            if (
                param is not None
                and param.kind == "ints"
                and len(rest) > 1
                and all(map(self._is_number, rest))
            ):
                if param.count == 0:  # x.view(2, 3) as well as x.view((2, 3))
                    arguments[name] = tuple(rest)
                    break
            arguments[name] = value
        if spec.key in ("torch.cat", "torch.stack") and "axis" not in kwargs:
            arguments.setdefault("dim", kwargs.get("dim", 0))
        if (
            spec.key in _REDUCING
            and not ({"dim", "axis"} & {*kwargs, *arguments})
            and isinstance(args[0], fx.Node)
        ):
            arguments["dim"] = tuple(range(self.values[args[0]].dim()))  # all of them
        if (
            spec.key == "torch.repeat_interleave"
        ):  # output_size only spares torch computing that size
            kwargs = {
                name: value for name, value in kwargs.items() if name != "output_size"
            }
        if spec.key == "torch.norm" and arguments.get("p", kwargs.get("p", "fro")) in (
            "fro",
            None,
        ):
            arguments["p"] = 2.0
            kwargs = {name: value for name, value in kwargs.items() if name != "p"}
        for name, value in kwargs.items():
            arguments[_RENAMED.get((spec.key, name), name)] = value
        return arguments

    def _is_number(self, value: Any) -> bool:
        if isinstance(value, fx.Node):
            return isinstance(self.values.get(value), int)
        return isinstance(value, int) and not isinstance(value, bool)

    def _is_number_node(self, value: Any) -> bool:
        return isinstance(value, fx.Node) and self._is_number(value)

    def put(self, bound: Bound, spec: OpSpec, name: str, value: Any) -> None:
        if name == "training" and type(value) is Training:
            return  # the default of every op with this argument
        port = spec.input(name) if name in spec.input_names else None
        param = spec.param(name)
        if port is not None and port.variadic:
            if value is None and not port.required:
                return
            if isinstance(value, fx.Node):
                raise BindingError(
                    f"{spec.key} takes the output list of another call as {name}"
                )
            if not all(isinstance(item, fx.Node) for item in value):
                raise BindingError(f"{spec.key} takes only tensors as {name}")
            bound.ports[name] = list(value)
        elif port is not None and isinstance(value, fx.Node):
            bound.ports[name] = [value]
        elif param is not None:
            self._put_param(bound, spec, name, value)
        elif value is None or name in _DROPPED or _means_nothing(name, value):
            return
        else:
            raise BindingError(
                f"{spec.key} has no {name} here, and it is {value!r:.40}"
            )

    def _put_param(self, bound: Bound, spec: OpSpec, name: str, value: Any) -> None:
        param = spec.param(name)
        assert param is not None
        if (
            param.kind == "ints"
            and param.count == 0
            and param.required
            and self._is_number_node(value)
        ):
            value = (value,)
        if isinstance(value, fx.Node):
            wirable = spec.wirable(name)
            if (
                wirable is not None
                and self._is_tensor(value)
                and "tensor" not in wirable.kind
            ):
                raise BindingError(
                    f"{spec.key} takes a tensor as {name}, where its node takes a number"
                )
            if (
                wirable is None
            ):  # what decides how many outputs there are is read off the example
                value = self.values[value]
            else:
                bound.wired[name] = value
                return
        if param.kind == "ints" and isinstance(value, list | tuple):
            value = tuple(
                self._item(bound, f"{name}[{i}]", item) for i, item in enumerate(value)
            )
            if param.count == 2 and len(value) == 1:
                value = value * 2
        elif param.kind == "index":
            value = self._index(bound, name, value)
        if (
            param.kind == "ints"
            and param.count == 0
            and param.required
            and type(value) is int
        ):
            value = (value,)
        literal = literal_of(value)
        if literal is None and not param.optional:
            return
        try:
            check_param(param, literal)
        except ParamError as error:
            raise BindingError(f"{spec.key}: {error}") from error
        if (
            literal != param.default
            or type(literal) is not type(param.default)
            or param.required
        ):
            bound.params[name] = literal

    def _item(self, bound: Bound, position: str, value: Any) -> Any:
        if isinstance(value, fx.Node):
            bound.wired[position] = value
            return WIRED
        return value

    def _index(self, bound: Bound, name: str, value: Any) -> Any:
        if isinstance(value, list):
            value = (value,)
        if not isinstance(value, tuple):
            return self._index_item(bound, name, value)
        return tuple(
            self._index_item(bound, f"{name}[{i}]", item)
            for i, item in enumerate(value)
        )

    def _index_item(self, bound: Bound, position: str, value: Any) -> Any:
        if isinstance(value, slice):
            parts = (
                self._item(
                    bound, f"{position}.{bound_name}", getattr(value, bound_name)
                )
                for bound_name in ("start", "stop", "step")
            )
            return Slice(*parts)
        if isinstance(value, list | tuple):
            if not all(type(entry) is int for entry in value):
                raise BindingError(
                    "a tensor is indexed with a list of values other than integers"
                )
            return tuple(value)
        return self._item(bound, position, value)


_REDUCING = frozenset(
    f"torch.{name}"
    for name in ("mean", "sum", "std", "var", "amax", "amin", "logsumexp", "norm")
)
_RENAMED = {
    ("operator.add", "a"): "input",
    ("torch.transpose", "axis0"): "dim0",
    ("torch.transpose", "axis1"): "dim1",
    ("torch.mean", "axis"): "dim",
    ("torch.sum", "axis"): "dim",
    ("torch.cat", "axis"): "dim",
    ("torch.matmul", "mat2"): "other",
}


def _means_nothing(name: str, value: Any) -> bool:
    return (
        (name == "alpha" and value == 1)
        or (
            name == "return_dict" and value is True
        )  # of a class that gives a record anyway
        or (name == "training" and type(value) is Training)
        or (name in _OFF and not value)
    )


_OFF = (
    "return_indices",
    "sparse",
    "scale_grad_by_freq",
    "implicit",
    "antialias",
    "enable_gqa",
)


def _hashable(target: Any) -> bool:
    return getattr(type(target), "__hash__", None) is not None


def _name(target: Any) -> str:
    module = getattr(target, "__module__", None) or ""
    return (
        target
        if isinstance(target, str)
        else f"{module}.{getattr(target, '__name__', target)}".lstrip(".")
    )


def literal_of(value: Any) -> Any:
    """Convert a Python value to a project literal. Raises BindingError if there is none."""
    if isinstance(value, torch.dtype):
        name = str(value).removeprefix("torch.")
        if name not in DTYPES:
            raise BindingError(f"{value} is not a supported dtype")
        return DType(name)
    if isinstance(value, tuple | list):
        return tuple(map(literal_of, value))
    if type(value) is Training:
        return bool(value)
    if (
        value is None
        or value is Ellipsis
        or isinstance(value, bool | int | float | str | Slice)
    ):
        return value
    raise BindingError(f"{value!r:.60} cannot be stored in a project")


def functions(catalog: Catalog) -> dict[Any, str]:
    """Index the catalog's ops by function."""
    keys_by_function: dict[Any, str] = {}
    for key, spec in catalog.items():
        if (
            spec.kind in ("function", "operator")
            and spec.target
            and not spec.target.startswith("own.")
        ):
            keys_by_function.setdefault(find(spec.target), key)
    return keys_by_function


@cache
def _positions(
    key: str, target: str, inputs: tuple[str, ...], params: tuple[str, ...]
) -> tuple[str, ...]:
    if key == "operator.setitem":
        return ("input", "index", "value")
    if key.startswith("operator."):
        return (*inputs, *(name for name in params if name not in inputs))
    names: list[str] = []
    if target and not target.startswith("own."):
        schema = schema_of(key, find(target))
        if schema is None:
            names = signature_of(find(ops.SIGNATURES.get(key, target)))
        else:
            names = [argument.name for argument in schema.arguments]
            names = ["input" if name == "self" else name for name in names]
    first = inputs[0] if inputs else ""
    names = [
        first if number == 0 and name not in (*inputs, *params) else name
        for number, name in enumerate(names)
    ]
    catalog_names = [name for name in names if name in (*inputs, *params)]
    if not names or not catalog_names:
        return (*inputs, *params)
    return tuple(names)


def positions(spec: OpSpec) -> tuple[str, ...]:
    """List an op's argument names in the order of its signature."""
    return _positions(
        spec.key,
        spec.target,
        tuple(port.name for port in spec.inputs if not port.wired),
        tuple(param.name for param in spec.params),
    )


def signature_of(function: Callable[..., Any]) -> list[str]:
    try:
        return [
            name
            for name, p in inspect.signature(function).parameters.items()
            if p.kind is not p.VAR_KEYWORD
        ]
    except (TypeError, ValueError):
        return []
