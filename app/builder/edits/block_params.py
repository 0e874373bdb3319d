"""Parameters of a block: set on its instances, computed with inside. Pure functions over a whole project."""

from __future__ import annotations

import keyword
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from app.builder.blocks import Block, BlockError
from app.builder.catalog.catalog import Catalog, Param
from app.builder.edits.blocks import Whole, on_instances, sheet_named, with_sheet
from app.builder.edits.expand_block import filled
from app.builder.expressions import Expr, expressions, mapped
from app.builder.graph import Node
from app.builder.literals import AUTO
from app.builder.params import COMPUTED, ParamError, check_param
from app.util.frozen import FrozenMap

W = TypeVar("W", bound=Whole)

# Names that a generated `__init__` and expressions use themselves.
RESERVED = frozenset(
    {"self", "torch", "nn", "F", "super", "max", "min", "int", "round"}
)
LONGEST_NAME = 60


def expose_param(
    project: W, block: str, catalog: Catalog, node: str, param: str, name: str
) -> W:
    """Expose a node's parameter as a parameter of its block; its value becomes the default.

    An existing name binds the node to that parameter. Raises BlockError.
    """
    inside = _block(project, block)
    owner = inside.graph.owner(node)
    spec = catalog.spec_of(inside.graph, owner)
    inner = spec.param(param)
    if inner is None:
        raise BlockError(f"{owner.name} has no parameter {param}")
    value = spec.value(owner, param)
    check_exposable(owner, inner, value)
    existing = next((other for other in inside.params if other.name == name), None)
    if existing is None:
        check_param_name(inside, name)
        new = Param(
            name,
            inner.kind,
            value,
            choices=inner.choices,
            count=inner.count,
            optional=inner.optional,
            minimum=inner.minimum,
            maximum=inner.maximum,
        )
        inside = replace(inside, params=(*inside.params, new))
    elif existing.kind != inner.kind:
        raise BlockError(
            f"{block} has a parameter {name} of another kind; choose another name"
        )
    graph = inside.graph.with_param(owner.id, param, Expr(name))
    return with_sheet(project, block, replace(inside, graph=graph))


def check_exposable(node: Node, param: Param, value: Any) -> None:
    """Raise BlockError unless the value of a parameter can be given from outside."""
    subject = f"{param.name} of {node.name}"
    if param.kind not in COMPUTED:
        raise BlockError(
            f"{subject} is one of fixed choices; only numbers and flags can be exposed"
        )
    if any(expressions(value)):
        raise BlockError(f"{subject} is computed from parameters of the block already")
    if value is AUTO:
        raise BlockError(
            f"{subject} is inferred from the input; give it a value to expose it"
        )
    if value is None and not param.optional:
        raise BlockError(
            f"{subject} has no value yet; give it one, which instances start from"
        )


def check_param_name(block: Block, name: str, old: str = "") -> None:
    """Raise BlockError unless a parameter of a block may have a name."""
    if (
        not name.isidentifier()
        or keyword.iskeyword(name)
        or name.startswith("_")
        or len(name) > LONGEST_NAME
    ):
        raise BlockError(
            f"{name!r:.60} cannot name an argument: use letters, digits and _, a letter first"
        )
    if name in RESERVED:
        raise BlockError(f"{name} is reserved in the code; choose another name")
    if name != old and any(param.name == name for param in block.params):
        raise BlockError(
            f"{block.name} has a parameter {name} already; choose another name"
        )


def unexpose(project: W, block: str, catalog: Catalog, name: str) -> W:
    """Remove an exposed parameter: inside, every instance uses its default. Raises BlockError."""
    inside = _block(project, block)
    param = _param(inside, name)
    remaining = {
        other.name: Expr(other.name) for other in inside.params if other.name != name
    }

    def without(node: Node) -> Node:
        spec = catalog.spec_of(inside.graph, node)
        params = {
            key: filled(value, {**remaining, name: param.default}, spec, key)
            if _names(value, name)
            else value
            for key, value in node.params.items()
        }
        return replace(node, params=FrozenMap(params))

    nodes = {
        key: without(node) if _uses(node, name) else node
        for key, node in inside.graph.nodes.items()
    }
    after = replace(
        inside,
        graph=replace(inside.graph, nodes=FrozenMap(nodes)),
        params=tuple(other for other in inside.params if other.name != name),
    )
    project = with_sheet(project, block, after)
    return on_instances(
        project,
        block,
        lambda n: replace(n, params=n.params.without(name)) if name in n.params else n,
    )


def rename_param(project: W, block: str, old: str, new: str) -> W:
    """Give a parameter another name, inside and on every instance. Raises BlockError."""
    inside = _block(project, block)
    _param(inside, old)
    check_param_name(inside, new, old)

    def renamed(node: Node) -> Node:
        params = {
            key: mapped(value, lambda expression: expression.renamed(old, new))
            for key, value in node.params.items()
        }
        return replace(node, params=FrozenMap(params))

    nodes = {
        key: renamed(node) if _uses(node, old) else node
        for key, node in inside.graph.nodes.items()
    }
    after = replace(
        inside,
        graph=replace(inside.graph, nodes=FrozenMap(nodes)),
        params=tuple(
            replace(param, name=new) if param.name == old else param
            for param in inside.params
        ),
    )
    project = with_sheet(project, block, after)

    def following(node: Node) -> Node:
        if old not in node.params:
            return node
        return replace(
            node,
            params=FrozenMap(
                {new if key == old else key: v for key, v in node.params.items()}
            ),
        )

    return on_instances(project, block, following)


def set_default(project: W, block: str, name: str, value: Any) -> W:
    """Set the default of a block's parameter. Raises BlockError."""
    inside = _block(project, block)
    param = _param(inside, name)
    try:
        if any(expressions(value)):
            raise BlockError(f"The default of {name} is a value, not an expression")
        check_param(param, value)
    except ParamError as error:
        raise BlockError(str(error)) from None
    params = tuple(
        replace(other, default=value) if other.name == name else other
        for other in inside.params
    )
    return with_sheet(project, block, replace(inside, params=params))


def _block(project: Whole, name: str) -> Block:
    if not name:
        raise BlockError(
            "The network itself has no parameters; go into a block to expose some of it"
        )
    return cast(Block, sheet_named(project, name))


def _param(block: Block, name: str) -> Param:
    for param in block.params:
        if param.name == name:
            return param
    raise BlockError(f"{block.name} has no parameter {name}")


def _uses(node: Node, name: str) -> bool:
    return any(_names(value, name) for value in node.params.values())


def _names(value: Any, name: str) -> bool:
    return any(name in expression.names for expression in expressions(value))
