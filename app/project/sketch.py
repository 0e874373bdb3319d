"""Draw a net by calls: each adds a node behind others."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from app.builder import rules
from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.edits import edits
from app.project.project import Project


class Sketch:
    """A project under construction; `last` is the id of the node that was added last."""

    def __init__(self, project: Project) -> None:
        self.project, self.last = project, ""

    def add(self, op: str, name: str, *sources: str, **params: Any) -> str:
        """Add a node whose required ports get `sources` in order, all of them a port that takes a list; return its id.

        Raises ConnectError.
        """
        graph, ops = self.project.graph, with_blocks(catalog(), self.project.blocks)
        new = edits.new_node(graph, ops, op)
        graph = graph.with_node(
            replace(new, name=name, params=new.params.update(params))
        )
        ports = [port for port in ops[op].inputs if port.required]
        for number, source in enumerate(sources):
            port = ports[0] if ports[0].variadic else ports[number]
            graph = rules.connect(graph, ops, source, 0, new.id, port.name)
        self.project = edits.changed(self.project, graph)
        self.last = new.id
        return new.id

    def then(self, op: str, name: str, **params: Any) -> str:
        """Add a node behind the last one."""
        return self.add(op, name, self.last, **params)

    def feed(self, source: str, target: str, port: str) -> None:
        """Wire an output to a port that is not required, such as a mask's. Raises ConnectError."""
        ops = with_blocks(catalog(), self.project.blocks)
        graph = rules.connect(self.project.graph, ops, source, 0, target, port)
        self.project = edits.changed(self.project, graph)
