"""Edits of blocks, as pure functions over a whole project: make, expand, rename, replace.

A sheet is identified by the name of its block, "" for the network. Invalid edits raise `BlockError`.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar, cast

from msgspec.structs import replace

from app.builder import rules
from app.builder.blocks import (
    PREFIX,
    Block,
    BlockError,
    Blocks,
    block_of,
    unused_name,
    used,
    would_contain_itself,
)
from app.builder.catalog.catalog import Catalog, Param
from app.builder.graph import Edge, Graph, Node
from app.builder.names import SCAFFOLD
from app.builder.params import ParamError, check_param
from app.builder.sheet import Bends, Sheet, changed
from app.util.frozen import FrozenMap

NETWORK = ""
LONGEST_NAME = 60
MOST_REPEATS = 1000


class Whole(Sheet, Protocol):
    """A project, as far as it is drawn: the sheet of the network, and the blocks."""

    @property
    def blocks(self) -> Blocks: ...


W = TypeVar("W", bound=Whole)
S = TypeVar("S", bound=Sheet)


# --- Sheets -----------------------------------------------------------------------------------------------------


def sheet_named(project: Whole, name: str) -> Sheet:
    """Return the sheet of a block, or of the network for "". Raises BlockError."""
    if name == NETWORK:
        return project
    if name not in project.blocks:
        raise BlockError(f"There is no block {name}")
    return project.blocks[name]


def sheets(project: Whole) -> Iterator[tuple[str, Sheet]]:
    """Yield every sheet with its name, the network's first."""
    yield NETWORK, project
    yield from project.blocks.items()


def with_sheet(project: W, name: str, sheet: Sheet) -> W:
    """Replace a sheet, without updating the instances of the block."""
    if name == NETWORK:
        parts = ("graph", "positions", "comments", "bends", "unfolded")
        return _replaced(
            project, **{field_name: getattr(sheet, field_name) for field_name in parts}
        )
    return _replaced(project, blocks=project.blocks.set(name, cast(Block, sheet)))


def _replaced(project: W, **parts: Any) -> W:
    return cast(W, replace(cast(Any, project), **parts))


def _every_sheet(project: W, change: Callable[[Any], Any]) -> W:
    """Apply `change` to each sheet; unchanged sheets stay the same objects."""
    after = change(project)
    blocks = {name: change(block) for name, block in project.blocks.items()}
    if any(blocks[name] is not block for name, block in project.blocks.items()):
        after = _replaced(after, blocks=FrozenMap(blocks))
    return cast(W, after)


def instances(project: Whole, name: str) -> tuple[tuple[str, Node], ...]:
    """List every instance of a block with the name of its sheet."""
    op = PREFIX + name
    return tuple(
        (on, node)
        for on, sheet in sheets(project)
        for node in sheet.graph.nodes.values()
        if node.op == op
    )


# --- Names ------------------------------------------------------------------------------------------------------


def check_name(project: Whole, name: str, old: str = "") -> None:
    """Raise BlockError unless a block may be called `name`."""
    if (
        not name.isidentifier()
        or keyword.iskeyword(name)
        or name.startswith("__")
        or len(name) > LONGEST_NAME
    ):
        raise BlockError(
            f"{name!r:.60} cannot name a class: use letters, digits and _, a letter first"
        )
    if name in SCAFFOLD:
        raise BlockError(f"{name} is reserved in the code; choose another name")
    if name != old and name in project.blocks:
        raise BlockError(f"There is a block {name} already; choose another name")


def rename_block(project: W, old: str, new: str) -> W:
    """Give a block another name; its instances follow. Raises BlockError."""
    sheet_named(project, old)
    check_name(project, new, old)
    blocks = {
        new if name == old else name: replace(block, name=new) if name == old else block
        for name, block in project.blocks.items()
    }
    return _with_ops(
        _replaced(project, blocks=FrozenMap(blocks)), {PREFIX + old: PREFIX + new}
    )


def _with_ops(project: W, ops: dict[str, str]) -> W:
    """Replace ops of nodes on all sheets."""
    return _every_sheet(project, lambda sheet: with_ops(sheet, ops))


def with_ops(sheet: S, ops: dict[str, str]) -> S:
    """Replace ops of nodes on a sheet."""
    if not any(node.op in ops for node in sheet.graph.nodes.values()):
        return sheet
    return _with_nodes(
        sheet, lambda node: replace(node, op=ops[node.op]) if node.op in ops else node
    )


def _with_nodes(sheet: S, change: Callable[[Node], Node]) -> S:
    nodes = {key: change(node) for key, node in sheet.graph.nodes.items()}
    if all(nodes[key] is node for key, node in sheet.graph.nodes.items()):
        return sheet
    return changed(sheet, graph=replace(sheet.graph, nodes=FrozenMap(nodes)))


def delete_block(project: W, name: str) -> W:
    """Remove an unused block. Raises BlockError that names its users."""
    sheet_named(project, name)
    uses = instances(project, name)
    if uses:
        on, node = uses[0]
        where = f"in {on}" if on else "in the network"
        more = f" and {len(uses) - 1} more" if len(uses) > 1 else ""
        raise BlockError(
            f"{name} is in use: {node.name} {where}{more}. Delete or expand what uses it first."
        )
    return _replaced(project, blocks=project.blocks.without(name))


def duplicate_block(project: W, name: str) -> tuple[W, str]:
    """Copy a block under a fresh name; return the project and that name."""
    block = sheet_named(project, name)
    new = unused_name(project.blocks, name)
    return _replaced(
        project, blocks=project.blocks.set(new, replace(cast(Block, block), name=new))
    ), new


def make_unique(project: W, sheet: str, node: str) -> tuple[W, str]:
    """Give an instance its own copy of the block; return the project and the copy's name. Nodes that share its module
    move along."""
    drawn = sheet_named(project, sheet)
    old = block_of(drawn.graph.nodes[node].op)
    sheet_named(project, old or "?")
    together = set(drawn.graph.sharing(node))
    if all(
        on == sheet and other.id in together for on, other in instances(project, old)
    ):
        raise BlockError(f"{drawn.graph.nodes[node].name} is the only {old} already")
    project, new = duplicate_block(project, old)
    drawn = sheet_named(project, sheet)
    after = _with_nodes(
        drawn, lambda n: replace(n, op=PREFIX + new) if n.id in together else n
    )
    return with_sheet(project, sheet, after), new


# --- Another definition -----------------------------------------------------------------------------------------


def put_block(project: W, name: str, block: Block) -> W:
    """Replace the definition of a block, under the new definition's name.

    Its instances stay wired: inputs and outputs are matched by node id, not by name or order. Wires at removed ports
    are dropped, and so are values of parameters that it no longer exposes. Raises BlockError for a block that would
    contain itself.
    """
    before = cast(Block, sheet_named(project, name))
    if block is before:
        return project
    block = _with_port_names(block)
    for inner in used(block.graph):
        if inner in project.blocks and would_contain_itself(
            project.blocks, name, inner
        ):
            route = "" if inner == name else f"{inner} contains {name}: "
            raise BlockError(f"{route}{name} cannot contain itself")
    project = _replaced(
        project, blocks=project.blocks.set(name, replace(block, name=name))
    )
    project = _rewired(project, PREFIX + name, before, block)
    if block.params != before.params:
        project = _with_params_of(project, block)
    return rename_block(project, name, block.name) if block.name != name else project


def _with_port_names(block: Block) -> Block:
    """Make the names of inputs and of outputs unique, since wires refer to ports by name.

    Its inputs lose their shapes, which each instance determines.
    """
    graph = block.graph
    for node in block.inputs:
        if node.params:
            graph = graph.with_node(replace(node, params=FrozenMap()))
    for ports in (block.inputs, block.outputs):
        names: set[str] = set()
        for node in ports:
            name = free_name(node.name, names)
            names.add(name)
            if name != node.name:
                graph = graph.with_name(node.id, name)
    return block if graph is block.graph else replace(block, graph=graph)


def free_name(name_stem: str, names_in_use: Iterable[str]) -> str:
    """Return `name_stem`, or `name_stem` with the first free number from 2 on."""
    used_up, name, number = set(names_in_use), name_stem, 2
    while name in used_up:
        name, number = f"{name_stem}{number}", number + 1
    return name


def _rewired(project: W, op: str, before: Block, after: Block) -> W:
    """Reconnect the wires at instances of `op` whose ports were moved or renamed."""
    new_names = {node.id: node.name for node in after.inputs}
    ports = {node.name: new_names.get(node.id) for node in before.inputs}
    new_numbers = {node.id: number for number, node in enumerate(after.outputs)}
    numbers = {
        number: new_numbers.get(node.id) for number, node in enumerate(before.outputs)
    }
    if all(old == new for old, new in (*ports.items(), *numbers.items())):
        return project

    def rewire(sheet: S) -> S:
        nodes = {node.id for node in sheet.graph.nodes.values() if node.op == op}
        if not nodes:
            return sheet

        def led(edge: Edge) -> Edge | None:
            output: int | None = (
                numbers.get(edge.output) if edge.source in nodes else edge.output
            )
            port: str | None = (
                ports.get(edge.port) if edge.target in nodes else edge.port
            )
            return (
                None
                if output is None or port is None
                else replace(edge, output=output, port=port)
            )

        return with_edges(sheet, led)

    return _every_sheet(project, rewire)


def with_edges(sheet: S, led: Callable[[Edge], Edge | None]) -> S:
    """Replace each wire by `led` of it, dropping it for None; bends follow their wires."""
    edges = {edge: led(edge) for edge in sheet.graph.edges}
    if all(new == old for old, new in edges.items()):
        return sheet
    graph = Graph(
        sheet.graph.nodes,
        tuple(dict.fromkeys(new for new in edges.values() if new is not None)),
    )
    bends: Bends = FrozenMap(
        {
            new: sheet.bends[old]
            for old, new in edges.items()
            if new and old in sheet.bends
        }
    )
    return changed(sheet, graph=graph, bends=bends)


def _with_params_of(project: W, block: Block) -> W:
    """Drop the values of instances that the block does not expose or accept."""
    params_by_name = {param.name: param for param in block.params}

    def with_known_params(node: Node) -> Node:
        params = {
            key: value
            for key, value in node.params.items()
            if key in params_by_name and takes(params_by_name[key], value)
        }
        return (
            node
            if len(params) == len(node.params)
            else replace(node, params=FrozenMap(params))
        )

    return on_instances(project, block.name, with_known_params)


def on_instances(project: W, name: str, change: Callable[[Node], Node]) -> W:
    """Apply `change` to every instance of a block."""
    op = PREFIX + name
    return _every_sheet(
        project,
        lambda sheet: _with_nodes(
            sheet, lambda node: change(node) if node.op == op else node
        ),
    )


def takes(param: Param, value: Any) -> bool:
    """Return whether a parameter accepts a value."""
    try:
        check_param(param, value)
    except ParamError:
        return False
    return True


# --- Repeats ----------------------------------------------------------------------------------------------------


def set_repeat(sheet: S, catalog: Catalog, node: str, count: int) -> S:
    """Chain `count` modules in place of one, each with its own weights. Raises BlockError."""
    graph = sheet.graph
    spec = catalog.spec_of(graph, graph.nodes[node])
    name = graph.nodes[node].name
    if not 1 <= count <= MOST_REPEATS:
        raise BlockError(
            f"{name} can be repeated 1 to {MOST_REPEATS} times, not {count}"
        )
    if spec.kind not in ("module", "block", "custom"):
        raise BlockError(f"{name} is a function; layers and blocks can be repeated")
    if count > 1 and (len(spec.outputs) != 1 or not spec.inputs):
        gives = f"{len(spec.outputs)} outputs" if len(spec.outputs) != 1 else "no input"
        raise BlockError(
            f"{name} has {gives}; to be repeated, it must take and return one tensor"
        )
    owner = graph.owner(node)
    return changed(sheet, graph=graph.with_node(replace(owner, repeat=count)))


def flows_back(graph: Graph, nodes: set[str]) -> str | None:
    """Return the name of an outside node that is downstream of some of `nodes` and upstream of others, or None."""
    between = (rules.downstream(graph, nodes) & rules.upstream(graph, nodes)) - nodes
    return next(
        (node.name for node in graph.nodes.values() if node.id in between), None
    )
