"""What typing in the text does to a project: one small change each, as a value, and how it is applied."""

from __future__ import annotations

import ast
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from app.builder import names
from app.builder.catalog.catalog import Catalog
from app.builder.catalog.inits import FUNCTIONS, check_inits
from app.builder.edits import block_params, blocks, edits
from app.builder.graph import Init
from app.builder.literals import to_code
from app.builder.sheet import changed
from app.features.code.editing.values import UNSET, CodeEditError, ValueReader
from app.util.frozen import FrozenMap

W = TypeVar("W", bound=blocks.Whole)


class Change(Struct, frozen=True):
    """On the sheet of a block, "" for the network's."""

    sheet: str

    @property
    def description(self) -> str:
        raise AssertionError


class OnNode(Change, frozen=True):
    """A change of a node; `who` is its name in descriptions."""

    node: str
    who: str


class SetParameter(OnNode, frozen=True):
    """A parameter of a node; UNSET is its default."""

    name: str
    value: Any

    @property
    def description(self) -> str:
        to = (
            "back to its default"
            if self.value is UNSET
            else f"to {_short(to_code(self.value))}"
        )
        return f"Set {self.name} of {self.who} {to}"


class RenameNode(OnNode, frozen=True):
    name: str

    @property
    def description(self) -> str:
        return f"Rename {self.who} to {self.name}"


class SetRepeat(OnNode, frozen=True):
    count: int

    @property
    def description(self) -> str:
        return f"Repeat {self.who} ×{self.count}"


class SetFrozen(OnNode, frozen=True):
    on: bool

    @property
    def description(self) -> str:
        return f"{'Freeze' if self.on else 'Unfreeze'} {self.who}"


class SetDefault(Change, frozen=True):
    """What instances of the block have that do not set a parameter themselves."""

    name: str
    value: Any

    @property
    def description(self) -> str:
        return f"Set the default of {self.name} to {_short(to_code(self.value))}"


class SetOutputKey(Change, frozen=True):
    node: str
    key: str

    @property
    def description(self) -> str:
        return f"Return it under {_short(to_code(self.key))}"


class SetInit(Change, frozen=True):
    """How a parameter of a layer is initialised."""

    node: str
    parameter: str
    init: Init

    @property
    def description(self) -> str:
        return f"Initialise {self.parameter or 'the values'} by {self.init.name}"

    @classmethod
    def read(
        cls,
        sheet: str,
        node: str,
        parameter: str,
        function: ast.Attribute,
        values: Any,
        reading: ValueReader,
    ) -> SetInit:
        """Build it from a call of `torch.nn.init`. Raises CodeEditError, and ParamError for a missing argument."""
        if function.attr not in FUNCTIONS:
            raise CodeEditError(
                f"torch.nn.init has no {function.attr} here; it has {', '.join(FUNCTIONS)}",
                function,
            )
        params_by_name = {param.name: param for param in FUNCTIONS[function.attr]}
        params = {}
        for name, tree in values:
            if name not in params_by_name:
                has = ", ".join(params_by_name) or "no arguments"
                raise CodeEditError(
                    f"{function.attr} has no argument {name}; it has {has}", tree
                )
            params[name] = reading.value(params_by_name[name], tree)
        init = Init(function.attr, FrozenMap(params))
        check_inits({parameter or "weight": init})
        return cls(sheet, node, parameter, init)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def applied(project: W, ops: Catalog, change: Change) -> W:
    """Apply a change to the project. Raises BlockError, GraphError."""
    if isinstance(change, SetDefault):
        return block_params.set_default(
            project, change.sheet, change.name, change.value
        )
    sheet: Any = blocks.sheet_named(project, change.sheet)
    graph = sheet.graph
    match change:
        case SetParameter(node=node, name=name, value=value):
            param = ops.spec_of(graph, graph.owner(node)).param(name)
            plain = (
                param is not None
                and not param.required
                and repr(value) == repr(param.default)
            )
            graph = (
                graph.without_param(node, name)
                if value is UNSET or plain
                else graph.with_param(node, name, value)
            )
        case RenameNode(node=node, name=name):
            graph = graph.with_name(node, name)
        case SetOutputKey(node=node, key=key):
            graph = graph.with_param(node, "key", key)
        case SetInit(node=node, parameter=parameter, init=init):
            owner = graph.owner(node)
            graph = graph.with_node(
                replace(owner, inits=owner.inits.set(parameter, init))
            )
        case SetRepeat(node=node, count=count):
            return _put(
                project, change.sheet, blocks.set_repeat(sheet, ops, node, count)
            )
        case SetFrozen(node=node, on=on):
            return _put(
                project, change.sheet, edits.flagged(sheet, [node], "frozen", on)
            )
    return _put(project, change.sheet, changed(sheet, graph=graph))


def _put(project: W, name: str, sheet: Any) -> W:
    return blocks.with_sheet(project, name, sheet)


def check_layer_name(name: str, used_names: set[str], at: ast.AST) -> None:
    """Raise CodeEditError unless a layer of a class can be called so, and its attribute is exactly that."""
    if name in names.module_attributes():
        raise CodeEditError(
            f"Every nn.Module has {name} already; choose another name", at
        )
    if name in used_names:
        raise CodeEditError(f"{name} is in use in this class already", at)
    if names.written(name) != name:
        raise CodeEditError(
            f"A layer cannot be named {name}; {names.written(name)} is valid", at
        )
