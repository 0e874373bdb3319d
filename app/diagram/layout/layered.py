"""Layered placement of boxes in rows, left to right: the engine below `arrange`.

Layers by longest path, order within a layer by barycentres (kept only where crossings get fewer), heights by isotonic
regression, which is the least-squares way to stand in order without touching. Long pictures are cut into bands that
stand below one another like lines of text; what leads from one band to the next runs through the gutter between them.
Nothing recurses, so chains of any length are fine.
"""

from __future__ import annotations

from app.diagram.layout.chain_layout import is_string, string
from app.diagram.layout.coordinates import stand
from app.diagram.layout.crossing_order import make_rows, order_rows
from app.diagram.layout.model import Link, Placed, Point, Spacing, State, Vertex
from app.diagram.layout.ranks import acyclic, cut_into_bands, layers
from app.diagram.layout.routes import draw

__all__ = ["Link", "Placed", "Point", "Spacing", "Vertex", "place"]


def place(vertices: list[Vertex], links: list[Link], limit: float, spacing: Spacing | None = None) -> Placed:
    """Stand `vertices` in bands no wider than `limit` where their widths allow it.

    The order of `vertices` is the order in which the reader expects them; links against it are drawn backwards.
    A link from a vertex to itself is an error of the caller (ValueError).
    """
    if any(link.tail == link.head for link in links):
        raise ValueError("a link leads from a vertex to itself")
    if not vertices:
        return Placed([], [], [], 0.0, 0.0)
    turned, rank = acyclic(len(vertices), links)
    forward = [
        Link(k.head, k.tail, k.head_dy, k.tail_dy, k.label_width) if turn else k
        for k, turn in zip(links, turned, strict=True)
    ]
    state = State(vertices, forward, spacing or Spacing(), layers(vertices, forward, rank))
    state.heights = [v.height for v in vertices]
    state.weights = [v.weight for v in vertices]
    cut_into_bands(state, limit)
    if is_string(state):
        string(state)
    else:
        make_rows(state)
        order_rows(state)
        stand(state)
    return draw(state, turned)
