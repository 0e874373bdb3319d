"""Inputs and outputs of the graph: a section of the pages without a selected node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.builder.graph import Graph, Node
from app.views.inspector.sections import PortShape, emptied
from app.views.ui.layouts import hbox
from app.views.ui.widgets import Section, ShapeChip
from app.views.ui.widgets.painting import Glyph, elided, label

if TYPE_CHECKING:
    from app.builder.results import Analysis

_NAME_MOST = 110
MOST = 40  # lines; a net may have 1,000 outputs, and lines for all of them take a second to make


class InputsOutputsSection(Section):
    """A line for each Input and each Output, with its shape."""

    def __init__(self, words: str) -> None:
        super().__init__("Inputs and outputs")
        self._words = words
        self._last: object = None

    def show_ends(self, graph: Graph, analysis: Analysis | None) -> None:
        """Show those of a graph; a hint where there are none."""
        ends = [
            _end(graph, node, analysis)
            for node in graph.nodes.values()
            if node.op in ("input", "output")
        ]
        if ends == self._last:
            return
        self._last = ends
        column = emptied(self)
        if not ends:
            column.addWidget(label(self._words, "label", "text3", wrap=True))
        for port_shape in ends[:MOST]:
            name = label(
                elided(port_shape.port, "label", _NAME_MOST).text, "label", "text2"
            )
            name.setToolTip(port_shape.port)
            chip = ShapeChip(port_shape.text, port_shape.state)
            chip.setAccessibleName(f"{port_shape.port}: {port_shape.text}")
            row = hbox(
                Glyph("io", "io", 14),
                name,
                chip,
                label(port_shape.dtype, "caption", "text3"),
                1,
                spacing=8,
            )
            column.addLayout(row)
        if len(ends) > MOST:
            column.addWidget(label(f"and {len(ends) - MOST:,} more", "label", "text3"))


def _end(graph: Graph, node: Node, analysis: Analysis | None) -> PortShape:
    """Return the type at an input or output."""
    ports = (
        [(node.id, 0)]
        if node.op == "input"
        else [(e.source, e.output) for e in graph.into(node.id)]
    )
    value = analysis.values.get(ports[0]) if analysis and ports else None
    if value is None:
        return PortShape(node.name, "unknown" if ports else "not connected", "assumed")
    return PortShape(node.name, str(value), "normal", getattr(value, "dtype", ""))
