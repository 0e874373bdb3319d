"""The catalog of operations: one `OpSpec` per op, introspected from torch.

The specs are created by `introspect` and stored in `resources/catalog.json`, so that the window can draw nodes and
forms without torch. For another version of torch a separate process creates them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from app.builder import literals
from app.builder.catalog import snapshot
from app.builder.graph import Graph, Node
from app.util.errors import CodedError
from app.util.frozen import FrozenMap, Shared, equal_in

if TYPE_CHECKING:
    from app.builder.blocks import Block


# What kind of wire a parameter of a kind accepts.
_WIRED_KINDS = {
    "int": "number",
    "float": "number",
    "bool": "number",
    "number": "number",
    "ints": "number or tuple",
    "index": "tensor or number",
}
_PART = re.compile(
    r"(?P<param>[A-Za-z_]\w*)(?P<item>\[\d{1,2}\])?(?P<part>\.(?:start|stop|step))?"
)


class UnknownOpError(CodedError, KeyError):
    """An op that this catalog does not have."""

    def __str__(self) -> str:
        return f"there is no op {self.args[0]!r} in the catalog"


class Port(Struct, frozen=True):
    """Where a wire ends. `kind` is "tensor", "number", "tuple", several of them ("tensor or number") or "any"; a
    variadic port takes an ordered list of wires.

    What arrives at a `named` port is written with its name. A `wired` port is a parameter, `dim`, or a part of one,
    `size[0]`, `index[1].stop`, that a wire gives instead of a literal.
    """

    name: str
    kind: str = "tensor"
    required: bool = True
    variadic: bool = False
    named: bool = False
    wired: bool = False

    @property
    def param(self) -> str:
        """The parameter that a wired port sets, wholly or in part."""
        return re.split(r"[.[]", self.name, maxsplit=1)[0] if self.wired else ""


class Param(Struct, frozen=True):
    """One argument of a constructor or of a call.

    `kind` is "int", "float", "bool", "str", "choice", "ints" (a number, or `count` of them, any count if 0), "dtype",
    "equation" (of `einsum`), "number" (int, float or bool), "index" (an expression in brackets), "tensor" (numbers in
    tuples) or "value" (a number, string, bool, or a tuple of them). A parameter with the name of a port is the value of
    the unconnected port. `choices` are the allowed strings (besides numbers, for "ints"). `start` is the value in a new
    node if the signature has no default. `call` marks arguments of `forward` rather than of the constructor.
    `positional` arguments are passed without their name. With `holes` some of several numbers may be None.
    """

    name: str
    kind: str
    default: Any = None
    required: bool = False
    choices: tuple[Any, ...] = ()
    auto: bool = False
    count: int = 1
    optional: bool = False
    minimum: float | None = None
    maximum: float | None = None
    start: Any = None
    call: bool = False
    positional: bool = False
    holes: bool = False


INSIDE = ("definition", "contains")  # fields of OpSpec


class OpSpec(Shared, frozen=True, dict=True):
    """One operation. `target` is its dotted name in torch, resolved only for keys of the catalog.

    `outputs_by` is the parameter that determines the number of outputs, "" if all are returned. Its documentation is
    read from the installed torch: `introspect.documentation`.
    """

    key: str
    kind: str
    target: str
    label: str
    category: str
    stem: str
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = (Port("output"),)
    params: tuple[Param, ...] = ()
    outputs_by: str = ""
    # The block that it represents, and every nested block; not part of the snapshot.
    definition: Block | None = None
    contains: tuple[Block, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Compare what is seen from outside: a block's inside is compared as a block."""
        return equal_in(
            (name for name in self.__struct_fields__ if name not in INSIDE), self, other
        )

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def _params(self) -> dict[str, Param]:
        return {param.name: param for param in self.params}

    def param(self, name: str) -> Param | None:
        return self._params.get(name)

    def input(self, name: str) -> Port | None:
        return next((port for port in self.inputs if port.name == name), None)

    @cached_property
    def input_names(self) -> frozenset[str]:
        """The names of its inputs, without wired parameters."""
        return frozenset(port.name for port in self.inputs if not port.wired)

    @cached_property
    def operands(self) -> frozenset[str]:
        """The inputs that a parameter can replace."""
        return self.input_names.intersection(self._params)

    def operand(self, port: str) -> Param | None:
        """Return the parameter that replaces an unconnected port: `other` of `x * 0.5`."""
        return self._params.get(port) if port in self.operands else None

    def wirable(self, name: str) -> Port | None:
        """Return the port for wiring a parameter, or a part of one; None if it can only be typed.

        Parameters that determine weights or the number of outputs, strings and dtypes are typed.
        """
        if name in self.input_names or not (match := _PART.fullmatch(name)):
            return None
        param = self._params.get(match["param"])
        if (
            param is None
            or param.name == self.outputs_by
            or param.name not in self._given_at_the_call
        ):
            return None
        if name != param.name:  # a part of it
            wirable = param.kind == "index" or (
                param.kind == "ints" and match["part"] is None
            )
            port_kind = (
                "tensor or number"
                if param.kind == "index" and match["part"] is None
                else "number"
            )
            return (
                Port(name, port_kind, required=False, named=True, wired=True)
                if wirable
                else None
            )
        kind = _WIRED_KINDS.get(param.kind)
        if param.kind == "ints" and param.count == 0 and param.required:
            kind = "tuple"
        return (
            Port(name, kind, required=False, named=True, wired=True) if kind else None
        )

    @cached_property
    def exact(self) -> bool:
        """Return whether 1, 1.0 and True, which are equal, result in different types."""
        return any(param.kind in ("number", "tensor", "value") for param in self.params)

    @cached_property
    def _given_at_the_call(self) -> frozenset[str]:
        if self.kind in ("function", "method", "operator"):
            return frozenset(self._params)
        return frozenset(
            param.name for param in self.params if param.call and self.kind == "module"
        )

    def starting_params(self) -> FrozenMap[str, Any]:
        """Return the parameters that a new node needs to run: values for arguments without a default."""
        return FrozenMap({p.name: p.start for p in self.params if p.start is not None})

    def outputs_given(self, params: Mapping[str, Any]) -> int:
        """Return how many outputs the call returns: a flag adds the second, a number is the count, sizes are one
        each."""
        param = self.param(self.outputs_by)
        if param is None:
            return len(self.outputs)
        value = params.get(param.name, param.default)
        count = (
            len(value)
            if isinstance(value, tuple)
            else value + 1
            if isinstance(value, bool)
            else value
        )
        return (
            min(count, len(self.outputs)) if isinstance(count, int) and count > 0 else 1
        )

    def value(self, node: Node, name: str) -> Any:
        """Return a node's parameter, or its default."""
        param = self.param(name)
        return node.params.get(name, param.default if param else None)


class Catalog(Mapping[str, OpSpec]):
    """Specs by key, in palette order."""

    def __init__(self, specs: tuple[OpSpec, ...], torch_version: str) -> None:
        self._specs = {spec.key: spec for spec in specs}
        self.torch_version = torch_version

    def __getitem__(self, key: str) -> OpSpec:
        try:
            return self._specs[key]
        except KeyError:
            raise UnknownOpError(key) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def __contains__(self, key: object) -> bool:
        return key in self._specs

    def plus(self, specs: Iterable[OpSpec]) -> Catalog:
        """Extend the catalog by specs, replacing those of the same key."""
        return Catalog((*self._specs.values(), *specs), self.torch_version)

    def _with_wires(self, spec: OpSpec, graph: Graph, node: Node) -> OpSpec:
        """Add a port for every wired parameter to a spec; one replaced by a literal becomes optional."""
        names = dict.fromkeys(
            edge.port
            for edge in graph.into(node.id)
            if edge.port not in spec.input_names
        )
        more = tuple(port for name in names if (port := spec.wirable(name)))
        typed = {name for name in spec.operands if node.params.get(name) is not None}
        if not more and not typed:
            return spec
        inputs = tuple(
            replace(port, required=False) if port.name in typed else port
            for port in spec.inputs
        )
        return replace(spec, inputs=(*inputs, *more))

    def _with_outputs(self, spec: OpSpec, graph: Graph, node: Node) -> OpSpec:
        """Limit a spec to the outputs that the node's parameters select, and those that are still wired."""
        if not spec.outputs_by:
            return spec
        wired = max((edge.output + 1 for edge in graph.out_of(node.id)), default=1)
        count = max(spec.outputs_given(node.params), wired)
        return (
            spec
            if count >= len(spec.outputs)
            else replace(spec, outputs=spec.outputs[:count])
        )

    def spec_of(self, graph: Graph, node: Node) -> OpSpec:
        """Return the spec of a node; for an unknown op a placeholder with the ports that its wires use."""
        if node.op in self._specs:
            return self._with_outputs(
                self._with_wires(self._specs[node.op], graph, node), graph, node
            )
        ports = tuple(dict.fromkeys(edge.port for edge in graph.into(node.id)))
        outputs = max((edge.output + 1 for edge in graph.out_of(node.id)), default=1)
        return OpSpec(
            key=node.op,
            kind="unknown",
            target="",
            label=node.op,
            category="block",
            stem="unknown",
            inputs=tuple(Port(name, required=False) for name in ports),
            outputs=tuple(
                Port(f"output{i}" if i else "output") for i in range(outputs)
            ),
        )


@cache
def catalog() -> Catalog:
    """Return the catalog of the installed torch. Raises snapshot.TorchUnreadableError."""
    return load(snapshot.of_installed_torch())


def load(raw: dict[str, Any]) -> Catalog:
    """Build a catalog from the plain data of `dump`."""
    return Catalog(tuple(_spec(record) for record in raw["ops"]), raw["torch"])


def dump(catalog: Catalog) -> dict[str, Any]:
    """Plain data for the snapshot; fields at their defaults are left out."""
    return {
        "torch": catalog.torch_version,
        "ops": [_record(spec) for spec in catalog.values()],
    }


def _record(value: OpSpec | Port | Param) -> dict[str, Any]:
    record: dict[str, Any] = {}
    names, defaults = value.__struct_fields__, value.__struct_defaults__
    default_of = dict(zip(names[-len(defaults) :], defaults, strict=True))
    for name in names:
        item = getattr(value, name)
        if name in INSIDE:
            continue
        if (
            name in default_of
            and item == default_of[name]
            and type(item) is type(default_of[name])
        ):
            continue
        if name in ("inputs", "outputs") or (name == "params"):
            record[name] = [_record(field_value) for field_value in item]
        else:
            record[name] = literals.encode(item)
    return record


def _spec(record: dict[str, Any]) -> OpSpec:
    plain = _values(
        {k: v for k, v in record.items() if k not in ("inputs", "outputs", "params")}
    )
    spec = OpSpec(
        **plain,
        inputs=tuple(Port(**_values(port)) for port in record.get("inputs", ())),
        params=tuple(Param(**_values(param)) for param in record.get("params", ())),
    )
    if "outputs" in record:
        spec = replace(
            spec, outputs=tuple(Port(**_values(port)) for port in record["outputs"])
        )
    return spec


def _values(record: dict[str, Any]) -> dict[str, Any]:
    return {
        name: literals.decode(value) if type(value) is dict else value
        for name, value in record.items()
    }


class Documentation(Struct, frozen=True):
    """Documentation of an op in the installed torch: first sentence, full text, and a sentence or two per argument."""

    summary: str
    text: str
    arguments: FrozenMap[str, str]
