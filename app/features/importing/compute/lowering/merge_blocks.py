"""Drafts made blocks: equal submodules are instances of one block, what differs in numbers is a parameter of it, and
equal ones in a row are one node, repeated."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, starmap
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.builder.blocks import PREFIX, Block, Blocks, unused_name
from app.builder.catalog.catalog import Catalog, Param
from app.builder.expressions import Expr, computed
from app.builder.graph import Edge, Graph, Node, Tie
from app.builder.names import identifier
from app.builder.params import COMPUTED
from app.features.importing.compute.lowering.hoist_cat import join_further, join_outside
from app.features.importing.compute.lowering.ir import Draft, DraftNode
from app.util.frozen import FrozenMap

Key = tuple[Any, ...]


class Form(Struct, frozen=True):
    """The node that an instance of a draft becomes on the outer sheet."""

    op: str
    params: FrozenMap[str, Any]
    repeat: int = 1


class _Group(Struct):
    """Drafts that are the same but for numbers."""

    key: Key
    members: list[Draft] = []
    params: dict[str, Param] = {}
    vectors: dict[str, tuple[Any, ...]] = {}
    graph: Graph = Graph()
    name: str = ""
    run: Node | None = None


class Merger:
    """Makes the graph of a root draft and the blocks in it."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._keys: dict[int, Key] = {}
        self._wholes: dict[int, Key] = {}
        self._groups: dict[Key, _Group] = {}
        self._of: dict[int, _Group] = {}

    def merge(self, root: Draft) -> tuple[Graph, Blocks]:
        """Return the network's graph and its blocks, innermost first."""
        join_outside(root)
        join_further(root)
        inner = [draft for draft in _postorder(root) if draft is not root]
        for draft in inner:
            key = self._key(draft)
            group = self._groups.setdefault(key, _Group(key))
            group.members.append(draft)
            self._of[id(draft)] = group
        blocks: dict[str, Block] = {}
        for group in self._groups.values():
            group.graph = self._graph(group)
            group.run = _single_run(group.graph)
            if group.run is None:
                group.name = unused_name(blocks, _name(group.members[0]))
                blocks[group.name] = Block(
                    group.name, group.graph, params=tuple(group.params.values())
                )
        used = _used(graph := self._graph(_Group((), [root])), blocks)
        return graph, FrozenMap(
            {name: block for name, block in blocks.items() if name in used}
        )

    # --- Which are the same

    def _key(self, draft: Draft) -> Key:
        key = self._keys.get(id(draft))
        if key is None:
            rows = tuple(
                (
                    n.name,
                    self._what(n),
                    self._fixed(n),
                    n.shares,
                    n.kept,
                    tuple(n.tied.items()),
                    n.order,
                    bool(n.frozen),
                )
                for n in draft.nodes.values()
            )
            # Equal neighbours are to become one repeated node, so chains differing in that are not merged.
            equal = tuple(self._alike(a, b) for a, b in pairwise(draft.nodes.values()))
            key = (
                draft.kind,
                rows,
                tuple(draft.wires),
                tuple(draft.inputs),
                tuple(draft.outputs),
                equal,
            )
            self._keys[id(draft)] = key
        return key

    def _alike(self, node: DraftNode, other: DraftNode) -> bool:
        key = self._key_with_numbers(node)
        return key is not None and key == self._key_with_numbers(other)

    def _key_with_numbers(self, node: DraftNode) -> Key | None:
        """Return a key of an entered submodule including its numbers; None if it is no block."""
        if node.inner is None or node.shares:
            return None
        key = self._wholes.get(id(node.inner))
        if key is None:
            rows = tuple(
                (
                    n.op,
                    tuple(sorted((k, repr(v)) for k, v in n.params.items())),
                    bool(n.frozen),
                    self._key_with_numbers(n),
                )
                for n in node.inner.nodes.values()
                if n.op != "input"
            )
            key = self._wholes[id(node.inner)] = (self._key(node.inner), rows)
        return key

    def _what(self, node: DraftNode) -> Any:
        return self._key(node.inner) if node.inner is not None else node.op

    def _fixed(self, node: DraftNode) -> tuple[Any, ...]:
        """Return what must be equal to merge: strings, flags, and which sizes are inferred."""
        if node.inner is not None or node.op == "input":
            return ()
        spec = self.catalog[node.op]
        fixed: list[tuple[Any, ...]] = []
        for param in spec.params:
            value = node.params.get(param.name, param.default)
            if not self._may_differ(node, param) or value is None:
                fixed.append((param.name, type(value).__name__, value))
            elif param.auto or isinstance(value, tuple):
                fixed.append(
                    (
                        param.name,
                        param.name in node.params,
                        len(value) if isinstance(value, tuple) else 0,
                    )
                )
        return tuple(fixed)

    def _may_differ(self, node: DraftNode, param: Param) -> bool:
        spec = self.catalog[node.op]
        return param.kind in COMPUTED and param.name != spec.outputs_by

    # --- What differs

    def _graph(self, group: _Group) -> Graph:
        """Build the graph of a group, with expressions where its members differ."""
        first = group.members[0]
        nodes = {}
        for node_id, node in first.nodes.items():
            mates = [member.nodes[node_id] for member in group.members]
            forms = [self._form(mate) for mate in mates]
            params = self._together(group, node, forms)
            ties = {
                name: Tie(other, theirs) for name, (other, theirs) in node.tied.items()
            }
            nodes[node_id] = Node(
                node_id,
                forms[0].op,
                node.name,
                params,
                shares=node.shares,
                repeat=forms[0].repeat,
                kept=node.kept,
                tied=FrozenMap(ties),
                frozen=bool(node.frozen),
                order=node.order,
            )
        ports = {
            node_id: port
            for node_id, node in first.nodes.items()
            if (port := self._port(node))
        }
        edges = tuple(
            replace(edge, port=ports.get(edge.target, edge.port))
            for edge in starmap(Edge, first.wires)
        )
        return _with_runs(Graph(FrozenMap(nodes), edges))

    def _port(self, node: DraftNode) -> str:
        """Return the input port of a node that a whole chain became: that of the repeated block."""
        group = self._of[id(node.inner)] if node.inner is not None else None
        if group is None or group.run is None:
            return ""
        inner = self._groups_by_op(group.run.op).graph
        return next(other.name for other in inner.nodes.values() if other.op == "input")

    def _form(self, node: DraftNode) -> Form:
        """Return a node's form: an op with its parameters, or a block instance with its own values."""
        if node.inner is None:
            return Form(node.op, FrozenMap(node.params))
        group = self._of[id(node.inner)]
        number = next(
            i for i, member in enumerate(group.members) if member is node.inner
        )
        values = {name: vector[number] for name, vector in group.vectors.items()}
        if node.shares:
            values = {}
        if group.run is not None:
            run = group.run
            params = (
                {name: computed(value, values) for name, value in run.params.items()}
                if not node.shares
                else {}
            )
            return Form(run.op, FrozenMap(params), run.repeat)
        mine = {
            name: value
            for name, value in values.items()
            if value != group.params[name].default
        }
        return Form(PREFIX + group.name, FrozenMap(mine))

    def _together(
        self, group: _Group, node: DraftNode, forms: list[Form]
    ) -> FrozenMap[str, Any]:
        names = dict.fromkeys(name for form in forms for name in form.params)
        params: dict[str, Any] = {}
        for name in names:
            param = self._param(node, name)
            vector = tuple(form.params.get(name, param.default) for form in forms)
            if all(
                value == vector[0] and type(value) is type(vector[0])
                for value in vector
            ):
                if vector[0] != param.default or param.required or node.op == "input":
                    params[name] = vector[0]
            elif node.op == "input":
                continue  # what arrives at a block decides its shape
            elif (items := self._by_item(group, node, param, vector)) is not None:
                params[name] = items
            else:
                params[name] = self._exposed(group, node, param, vector)
        return FrozenMap(params)

    def _by_item(
        self, group: _Group, node: DraftNode, param: Param, vector: tuple[Any, ...]
    ) -> tuple[Any, ...] | None:
        """Expose each differing or wired item of a size tuple separately; None for other parameters."""
        if param.kind != "ints" or not all(
            isinstance(value, tuple) for value in vector
        ):
            return None
        if len({len(value) for value in vector}) != 1:
            return None
        columns = list(zip(*vector, strict=True))
        if any(type(item) is not int for column in columns for item in column):
            return None
        apart = {column for column in columns if len(set(column)) > 1}
        wired = any(
            wire[2] == node.id and wire[3].startswith(f"{param.name}[")
            for wire in group.members[0].wires
        )
        if len(apart) > 1 and not wired and node.op not in ("parameter", "buffer"):
            return None
        item_param = Param(
            "size" if param.name in ("shape", "size") else param.name,
            "int",
            minimum=param.minimum,
        )
        expressions_by_column = {
            column: self._exposed(group, node, item_param, column)
            for column in reversed(columns)
            if column in apart
        }
        return tuple(expressions_by_column.get(column, column[0]) for column in columns)

    def _param(self, node: DraftNode, name: str) -> Param:
        if node.inner is None:
            param = self.catalog[node.op].param(name)
            assert param is not None
            return param
        group = self._of[id(node.inner)]
        if group.run is None:
            return group.params[name]
        inner = self._groups_by_op(group.run.op)
        return inner.params[name]

    def _groups_by_op(self, op: str) -> _Group:
        return next(
            group for group in self._groups.values() if PREFIX + group.name == op
        )

    def _exposed(
        self, group: _Group, node: DraftNode, param: Param, vector: tuple[Any, ...]
    ) -> Expr:
        """Return an expression for these values: an existing parameter, a multiple of one, or a new parameter."""
        for name, other_vector in group.vectors.items():
            if other_vector == vector and all(
                type(a) is type(b) for a, b in zip(other_vector, vector, strict=True)
            ):
                return Expr(name)
        if param.kind == "int" and all(
            type(value) is int and value > 0 for value in vector
        ):
            for name, other_vector in group.vectors.items():
                if all(type(value) is int and value > 0 for value in other_vector):
                    times = {
                        value / base
                        for value, base in zip(vector, other_vector, strict=True)
                    }
                    (factor, *others) = times
                    if not others and factor in (2, 3, 4, 6, 8):
                        return Expr(f"{name} * {int(factor)}")
                    if not others and 1 / factor in (2, 3, 4, 6, 8):
                        return Expr(f"{name} // {int(1 / factor)}")
        used_names = set(group.vectors)
        plain = identifier(param.name)
        name = (
            plain
            if plain not in used_names or not node.name[:1].isalpha()
            else identifier(f"{node.name}_{plain}")
        )
        number = 2
        while name in used_names:
            name, number = f"{plain}{number}", number + 1
        default = Counter(vector).most_common(1)[0][0]
        group.vectors[name] = vector
        group.params[name] = Param(
            name,
            param.kind,
            default,
            count=param.count,
            choices=param.choices,
            optional=param.optional,
            minimum=param.minimum,
            maximum=param.maximum,
        )
        return Expr(name)


def _postorder(root: Draft) -> Iterator[Draft]:
    """Yield every draft once, innermost first."""
    todo: list[tuple[Draft, bool]] = [(root, False)]
    visited: set[int] = set()
    while todo:
        draft, done = todo.pop()
        if done:
            if id(draft) not in visited:
                visited.add(id(draft))
                yield draft
            continue
        todo.append((draft, True))
        todo.extend(
            (node.inner, False)
            for node in reversed(draft.nodes.values())
            if node.inner is not None
        )


def _used(graph: Graph, blocks: dict[str, Block]) -> set[str]:
    used: set[str] = set()
    todo = [graph]
    while todo:
        for node in todo.pop().nodes.values():
            name = node.op.removeprefix(PREFIX)
            if node.op.startswith(PREFIX) and name not in used and name in blocks:
                used.add(name)
                todo.append(blocks[name].graph)
    return used


def _name(draft: Draft) -> str:
    """Name a block after its class, or its path for an `nn.Sequential`."""
    if draft.kind in ("Sequential", "Module"):
        parts = [
            segment
            for segment in re.split(r"[._]", draft.path)
            if segment and not segment.isdigit()
        ]
        word = (
            "".join(segment[:1].upper() + segment[1:] for segment in parts[-1:])
            or "Chain"
        )
    else:
        word = draft.kind.lstrip("_")
    return identifier(word[:1].upper() + word[1:], "Block")


# --- Runs


def _chain(graph: Graph) -> list[Node] | None:
    """Return the nodes of a graph that is one chain named 0, 1, 2, ...; None for any other."""
    inputs = [node for node in graph.nodes.values() if node.op == "input"]
    outputs = [node for node in graph.nodes.values() if node.op == "output"]
    inner = [
        node for node in graph.nodes.values() if node.op not in ("input", "output")
    ]
    if len(inputs) != 1 or len(outputs) != 1 or len(graph.edges) != len(inner) + 1:
        return None
    at, order = inputs[0].id, []
    for number in range(len(inner)):
        out = graph.out_of(at)
        if (
            len(out) != 1
            or out[0].output
            or graph.nodes[out[0].target].name != str(number)
        ):
            return None
        at = out[0].target
        order.append(graph.nodes[at])
    return order


def _with_runs(graph: Graph) -> Graph:
    """Equal blocks in a row, in a chain that is numbered, as one that is repeated."""
    chain = _chain(graph)
    if chain is None or any(node.tied for node in graph.nodes.values()):
        return graph
    gone: set[str] = set()
    merged: dict[str, Node] = {}
    number = 0
    while number < len(chain):
        node, end = chain[number], number + 1
        alone = node.repeat == 1 and node.op.startswith(PREFIX) and not node.shares
        like = node.op, node.params, node.frozen
        while (
            alone
            and end < len(chain)
            and (chain[end].op, chain[end].params, chain[end].frozen) == like
        ):
            if chain[end].repeat != 1 or chain[end].shares:
                break
            gone.add(chain[end].id)
            end += 1
        merged[node.id] = (
            replace(node, repeat=end - number) if end - number > 1 else node
        )
        number = end
    if not gone:
        return graph
    last: dict[str, str] = {}
    for node in chain:  # the output of a run is that of its first node
        last[node.id] = (
            node.id if node.id not in gone else last[graph.into(node.id)[0].source]
        )
    left = (edge for edge in graph.edges if edge.target not in gone)
    edges = (replace(edge, source=last.get(edge.source, edge.source)) for edge in left)
    nodes = {
        key: merged.get(key, node)
        for key, node in graph.nodes.items()
        if key not in gone
    }
    return Graph(FrozenMap(nodes), tuple(edges))


def _single_run(graph: Graph) -> Node | None:
    """Return the repeated node if a numbered chain consists of it alone."""
    inner = [
        node for node in graph.nodes.values() if node.op not in ("input", "output")
    ]
    single = inner[0] if len(inner) == 1 else None
    return (
        single
        if single is not None and single.repeat > 1 and single.name == "0"
        else None
    )
