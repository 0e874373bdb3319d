"""Edits of a node: each changes the open graph or the whole project, and is one undo step.

A node that shares a module has the parameters of the node that owns the module; edits apply to the owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.builder import rules
from app.builder.blocks import block_of
from app.builder.catalog.catalog import OpSpec
from app.builder.edits import block_params, blocks, edits
from app.builder.graph import Edge, Init, Node
from app.builder.value_types import ValueType, kind_of
from app.views.fields.form import ParamWire
from app.views.fields.values import equal_values
from app.views.inspector.edit_target import EditTarget

_VERBS = {"muted": ("Unmute", "Mute"), "frozen": ("Unfreeze", "Freeze")}


class WireSource(Struct, frozen=True):
    """An output of a node, as a source for a wire."""

    node: str
    number: int
    name: str


class NodeEdits:
    """Reads and edits one node of the sheet in front."""

    def __init__(self, front: EditTarget) -> None:
        self.front = front
        self.id = ""

    @property
    def node(self) -> Node:
        return self.front.graph.nodes[self.id]

    @property
    def owner(self) -> Node:
        """The node that owns the called module, and so the parameters."""
        return self.front.graph.owner(self.id)

    @property
    def spec(self) -> OpSpec:
        return self.front.catalog.spec_of(self.front.graph, self.node)

    # --- Parameters

    def set(self, name: str, value: Any, merge: str | None) -> None:
        """Set a parameter; a value equal to the default is removed."""
        param = self.spec.param(name)
        if param is None:
            return
        graph = self.front.graph
        if not param.required and equal_values(value, param.default):
            graph = graph.without_param(self.id, name)
        else:
            graph = graph.with_param(self.id, name, value)
        self.front.apply(
            f"Set {name} of {self.owner.name}",
            graph,
            f"{self.owner.id}/{merge}" if merge else None,
        )

    def reset(self, name: str) -> None:
        """Reset to the default, or to the value of a new node."""
        start, graph = self.spec.starting_params(), self.front.graph
        if name in start:
            graph = graph.with_param(self.id, name, start[name])
        else:
            graph = graph.without_param(self.id, name)
        self.front.apply(f"Reset {name} of {self.owner.name}", graph)

    def reset_all(self) -> None:
        """Give every parameter the value that a new node of the op has."""
        if self.spec.kind != "unknown":
            graph = self.front.graph.with_node(
                replace(self.owner, params=self.spec.starting_params())
            )
            self.front.apply(f"Reset {self.owner.name}", graph)

    # --- The node

    def rename(self, name: str, merge: str) -> None:
        self.front.apply(
            "Rename node",
            self.front.graph.with_name(self.id, name),
            f"{self.id}/{merge}",
        )

    def flag(self, flag: str, on: bool) -> None:
        """Mute the call, or freeze the module that it calls."""
        node = self.owner if flag == "frozen" else self.node
        text = f"{_VERBS[flag][on]} {node.name}"
        self.front.apply_sheet(
            text, edits.flagged(self.front.sheet, [node.id], flag, on)
        )

    def delete(self) -> None:
        self.front.apply_sheet(
            f"Delete {self.node.name}", edits.delete(self.front.sheet, [self.id])
        )

    # --- Wires instead of values

    def wires(self) -> tuple[ParamWire, ...]:
        """Return the wires into parameters or parts of them."""
        graph, spec = self.front.graph, self.spec
        wires = []
        for edge in graph.into(self.id):
            port = spec.input(edge.port)
            param = (
                port.param
                if port is not None and port.wired
                else edge.port
                if spec.operand(edge.port)
                else ""
            )
            if param:
                wires.append(ParamWire(edge.port, param, graph.nodes[edge.source].name))
        return tuple(wires)

    def ports(self, param: str) -> tuple[str, ...]:
        """Return the ports through which a parameter or a part of it can be wired."""
        wirable = rules.wirable(self.front.graph, self.front.catalog, self.id)
        operand_ports = (param,) if self.spec.operand(param) else ()
        return (*operand_ports, *(port.name for port in wirable if port.param == param))

    def sources(
        self, port: str, values: Mapping[tuple[str, int], ValueType]
    ) -> Iterator[WireSource]:
        """Yield the outputs that can be wired to a port; `values` are their known types."""
        graph, catalog = self.front.graph, self.front.catalog
        target_port = rules.port_of(self.spec, self.node, port)
        if target_port is None:
            return
        behind = rules.downstream(graph, (self.id,)) | {self.id}
        for node in graph.nodes.values():
            if node.id in behind:
                continue
            for number, output in enumerate(catalog.spec_of(graph, node).outputs):
                value = values.get((node.id, number))
                if rules.kinds_fit(
                    kind_of(value) if value is not None else output.kind,
                    target_port.kind,
                ):
                    if rules.can_connect(
                        graph, catalog, node.id, number, self.id, port
                    ):
                        name = (
                            node.name if not number else f"{node.name}, {output.name}"
                        )
                        yield WireSource(node.id, number, name)

    def wire(self, source: WireSource, port: str) -> None:
        """Let a node give a parameter. Raises ConnectError."""
        sheet = edits.connect(
            self.front.sheet,
            self.front.catalog,
            source.node,
            source.number,
            self.id,
            port,
        )
        self.front.apply_sheet(f"Wire {port} of {self.node.name}", sheet)

    def cut(self, port: str) -> None:
        """Cut the wire that gives a parameter, or a part of it."""
        wires: list[Edge] = [
            edge for edge in self.front.graph.into(self.id) if edge.port == port
        ]
        self.front.apply_sheet(
            f"Cut the wire to {port} of {self.node.name}",
            edits.cut(self.front.sheet, wires),
        )

    # --- Blocks

    def expose(self, param: str, name: str) -> None:
        """Let instances of the block in front set a parameter. Raises BlockError."""
        front, owner = self.front, self.owner
        front.apply_whole(
            f"Expose {param} of {owner.name}",
            lambda project: block_params.expose_param(
                project, front.name, front.catalog, owner.id, param, name
            ),
        )

    def why_not_exposed(self, param: str) -> str:
        """Return why a parameter cannot be exposed, "" if it can."""
        param_spec = self.spec.param(param)
        if param_spec is None:
            return f"{self.owner.name} has no parameter {param}"
        try:
            block_params.check_exposable(
                self.owner, param_spec, self.spec.value(self.owner, param)
            )
        except blocks.BlockError as error:
            return str(error)
        return ""

    def instances(self) -> int:
        """Return the number of instances of the node's block."""
        return len(blocks.instances(self.front.whole, block_of(self.node.op)))

    def make_unique(self) -> None:
        """Give the instance its own copy of the block. Raises BlockError."""
        name, node = self.front.name, self.id
        self.front.apply_whole(
            f"Make {self.node.name} unique",
            lambda project: blocks.make_unique(project, name, node)[0],
        )

    # --- The module

    def repeat(self, count: int, merge: str | None) -> None:
        """Repeat the module `count` times in sequence. Raises BlockError."""
        sheet = blocks.set_repeat(self.front.sheet, self.front.catalog, self.id, count)
        self.front.apply_sheet(
            f"Repeat {self.owner.name} ×{count}",
            sheet,
            merge and f"{self.owner.id}/{merge}",
        )

    def others_sharing(self) -> tuple[str, ...]:
        """Return the names of the other nodes that call the same module."""
        graph = self.front.graph
        return tuple(
            graph.nodes[other].name
            for other in graph.sharing(self.id)
            if other != self.id
        )

    def modules(self) -> tuple[Node, ...]:
        """Return the nodes whose module this one could share: of the same op, with their own module."""
        op, excluded = self.node.op, (self.owner.id, self.id)
        return tuple(
            n
            for n in self.front.graph.nodes.values()
            if n.op == op and not n.shares and n.id not in excluded
        )

    def share(self, with_node: str) -> None:
        """Call the module of another node. Raises GraphError."""
        graph = self.front.graph.with_shared(self.id, with_node)
        self.front.apply(
            f"Share the weights of {graph.owner(self.id).name} with {self.node.name}",
            graph,
        )

    def unshare(self) -> None:
        """Use an own module again, with the present parameters."""
        self.front.apply(
            f"Give {self.node.name} its own weights", self.front.graph.unshared(self.id)
        )

    def initialise(
        self, name: str, init: Init | None, merge: str | None = None
    ) -> None:
        """Set how a parameter is initialised; None for PyTorch's default."""
        owner = self.owner
        inits = (
            owner.inits.without(name) if init is None else owner.inits.set(name, init)
        )
        text = (
            f"Initialise {name} of {owner.name}"
            if init
            else f"Initialise {name} of {owner.name} as PyTorch does"
        )
        key = f"{owner.id}/init/{name}/{merge}" if merge else None
        self.front.apply(
            text, self.front.graph.with_node(replace(owner, inits=inits)), key
        )
