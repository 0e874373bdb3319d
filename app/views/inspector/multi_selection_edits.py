"""Edits of several nodes: each one undo step."""

from __future__ import annotations

from typing import Any

from app.builder.edits import blocks, edits
from app.builder.graph import Graph
from app.util.formatting import counted
from app.views.fields.values import equal_values
from app.views.inspector.edit_target import EditTarget


class MultiSelectionEdits:
    """Edits of the nodes `ids`, in the order of the graph, of the sheet in front."""

    def __init__(self, front: EditTarget) -> None:
        self._front = front
        self.ids: tuple[str, ...] = ()

    @property
    def _many(self) -> str:
        return counted(len(self.ids), "node")

    def _owners(self) -> tuple[str, ...]:
        """Return the nodes whose modules are called, without duplicates."""
        return tuple(
            dict.fromkeys(self._front.graph.owner(node).id for node in self.ids)
        )

    def set(self, name: str, value: Any, merge: str | None) -> None:
        """Give a parameter of all of them one value."""
        graph = self._front.graph
        for node in self._owners():
            graph = self._with_param(graph, node, name, value)
        key = f"{'/'.join(self.ids)}/{merge}" if merge else None
        self._front.apply(f"Set {name} of {self._many}", graph, key)

    def _with_param(self, graph: Graph, node: str, name: str, value: Any) -> Graph:
        param = self._front.catalog.spec_of(graph, graph.nodes[node]).param(name)
        if (
            param is not None
            and not param.required
            and equal_values(value, param.default)
        ):
            return graph.without_param(node, name)
        return graph.with_param(node, name, value)

    def reset(self, name: str) -> None:
        """Back to what new nodes have."""
        graph = self._front.graph
        for node in self._owners():
            start = self._front.catalog.spec_of(
                graph, graph.nodes[node]
            ).starting_params()
            graph = (
                graph.with_param(node, name, start[name])
                if name in start
                else graph.without_param(node, name)
            )
        self._front.apply(f"Reset {name} of {self._many}", graph)

    def freezable(self) -> tuple[str, ...]:
        """Return the nodes with parameters that can be frozen."""
        return edits.flaggable(
            self._front.sheet, self._front.catalog, self.ids, "frozen"
        )

    def freeze(self, on: bool) -> None:
        """Freeze the modules of all of them, or let them learn again."""
        graph = self._front.graph
        nodes = dict.fromkeys(graph.owner(node).id for node in self.freezable())
        text = f"{'Freeze' if on else 'Unfreeze'} {counted(len(nodes), 'node')}"
        self._front.apply_sheet(
            text, edits.flagged(self._front.sheet, nodes, "frozen", on)
        )

    def repeat(self, count: int, merge: str | None) -> None:
        """Repeat the module of each. Raises BlockError, and then nothing is changed."""
        sheet = self._front.sheet
        for node in self._owners():
            sheet = blocks.set_repeat(sheet, self._front.catalog, node, count)
        self._front.apply_sheet(
            f"Repeat {self._many} ×{count}", sheet, f"{'/'.join(self.ids)}/{merge}"
        )

    def share(self) -> None:
        """Let all of them call the module of the first."""
        graph = self._front.graph
        owner = graph.owner(self.ids[0])
        for node in self.ids:
            if graph.owner(node).id != owner.id:
                graph = graph.with_shared(node, owner.id)
        self._front.apply(
            f"Share the weights of {owner.name} among {self._many}", graph
        )

    def unshare(self) -> None:
        """Give each of them its own module, with the parameters of the shared one."""
        graph = self._front.graph
        for node in self.ids:
            if len(graph.sharing(node)) > 1:
                graph = graph.unshared(node)
        self._front.apply(f"Give {self._many} their own weights", graph)
