"""Sizes of nodes and places of their ports; of an unfolded block also where everything in its frame is."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import QPointF, QRectF

from app.builder.arrange import complete
from app.builder.graph import Edge
from app.builder.sheet import FRAME, Point
from app.util.lru import LruCache, Same
from app.views.canvas.items.faces import Drawn, Face
from app.views.canvas.items.geometry import (
    HEADER,
    INSET,
    NAME_LEFT,
    NARROWEST,
    PORT_CLOSEST,
    PORT_MARGIN,
    PORT_SPREAD,
    SHORT,
    TALL,
    WIDEST,
    WIDEST_NAMED,
    Shape,
    beside_name,
    text_width,
)
from app.views.canvas.wire_item import LABEL_HEIGHT
from app.views.ui.graphview.detour import led
from app.views.ui.graphview.routes import Route, runs_back
from app.views.ui.graphview.spatial import RectIndex, bounds

BESIDE = 56.0  # between the frame's sides and its contents: room for a wire to turn
ABOVE, BELOW = 22.0, 18.0  # between the header or the lower edge and the contents
LEAST = (160.0, 64.0)


class FrameLayout(Struct, frozen=True):
    """Where everything in a frame is, from its top left corner. `ports` are the heights of inputs and outputs."""

    width: float
    height: float
    inputs: Mapping[str, float]
    outputs: tuple[float, ...]
    shapes: Mapping[str, Shape]
    places: Mapping[str, QPointF]
    ways: Mapping[Edge, Route]
    shift: QPointF  # from the routes' origin to the frame's corner
    frames: tuple[tuple[QRectF, str, str], ...]


_plans: LruCache[FrameLayout] = LruCache(512)


def forget() -> None:
    """Forget layouts after a change of fonts."""
    _plans.clear()


def frame_shape(face: Face, strip: float) -> Shape:
    """Return the shape of an unfolded node."""
    assert face.inside is not None
    plan = plan_of(face.inside.drawn)
    title = (
        NAME_LEFT
        + text_width(face.name, "node")
        + INSET
        + text_width(face.line, "label")
        + beside_name(face)
    )
    width = math.ceil(max(plan.width, title + 2 * INSET))
    free = plan.height - BELOW / 2
    inputs = tuple(plan.inputs.get(pin.port, free) for pin in face.inputs)
    outputs = tuple(
        plan.outputs[i] if i < len(plan.outputs) else free
        for i in range(len(face.outputs))
    )
    line = (*inputs, *outputs, plan.height / 2)[0]
    return Shape(float(width), plan.height, strip, inputs, outputs, line)


def plan_of(drawn: Drawn) -> FrameLayout:
    """Return the layout inside the frame of a block with this drawing."""
    return _plans.get_or_compute(Same(drawn), lambda: _plan(drawn))


def shape_of(face: Face, strip: float = 0.0) -> Shape:
    """Return the shape of a node with this face, and a strip of this height."""
    if face.inside is not None:
        return frame_shape(face, strip)
    name = NAME_LEFT + text_width(face.name, "node") + INSET + beside_name(face)
    line = INSET + text_width(face.line, "label") + INSET
    detail = INSET + text_width(face.detail, "caption") + INSET if face.detail else 0.0
    texts = min(max(line, detail, NARROWEST), WIDEST)
    width = float(math.ceil(max(min(name, WIDEST_NAMED), texts)))
    most = max(len(face.inputs), len(face.outputs))
    base = max(
        TALL if face.tall else SHORT, PORT_CLOSEST * (most - 1) + 2 * PORT_MARGIN
    )
    return Shape(
        width,
        base,
        strip,
        _spread(len(face.inputs), base),
        _spread(len(face.outputs), base),
    )


def _spread(count: int, height: float) -> tuple[float, ...]:
    """Distribute ports vertically around the middle."""
    if count < 2:
        return (height / 2,) * count
    step = min(PORT_SPREAD, (height - 2 * PORT_MARGIN) / (count - 1))
    first = height / 2 - step * (count - 1) / 2
    return tuple(first + step * i for i in range(count))


# --- Where things are ---------------------------------------------------------------------------------------------


def _plan(drawn: Drawn) -> FrameLayout:
    block = drawn.block
    shapes = {node: _roomy(face) for node, face in drawn.faces.items()}
    positions = complete(
        block.graph,
        block.positions,
        {node: shape.size for node, shape in shapes.items()},
    )
    ends = {node.id for node in (*block.inputs, *block.outputs)}
    bodies = {
        n: QRectF(*positions[n], s.width, s.height)
        for n, s in shapes.items()
        if n not in ends
    }
    lines = {node: _line(drawn, node, positions, shapes, bodies) for node in ends}
    frames = [
        QRectF(c.x, c.y, c.width, c.height)
        for c in block.comments.values()
        if c.kind == FRAME
    ]
    area = bounds([*bodies.values(), *frames])
    if area.isEmpty():
        middle = sum(lines.values()) / len(lines) if lines else 0.0
        area = QRectF(0, middle - LEAST[1] / 2, LEAST[0] - 2 * BESIDE, LEAST[1])
    left, right = area.left() - BESIDE, area.right() + BESIDE
    inputs = _apart([lines[node.id] for node in block.inputs])
    outputs = _apart([lines[node.id] for node in block.outputs])
    starts = {
        node.id: QPointF(left, y) for node, y in zip(block.inputs, inputs, strict=True)
    }
    goals = {
        node.id: QPointF(right, y)
        for node, y in zip(block.outputs, outputs, strict=True)
    }
    ways = _routes(drawn, shapes, bodies, starts, goals)
    ports = [QRectF(left, y - 10, 1, 20) for y in (*inputs, *outputs)]
    labels = [
        QRectF(way.label.x(), way.label.y() - LABEL_HEIGHT / 2, 1, LABEL_HEIGHT)
        for way in ways.values()
    ]
    area = bounds([area, *ports, *labels, *(way.bounds for way in ways.values())])
    shift = QPointF(-left, HEADER + ABOVE - area.top())
    down = shift.y()
    return FrameLayout(
        width=right - left,
        height=math.ceil(HEADER + ABOVE + area.height() + BELOW),
        inputs={
            node.name: y + down for node, y in zip(block.inputs, inputs, strict=True)
        },
        outputs=tuple(y + down for y in outputs),
        shapes={node: shapes[node] for node in bodies},
        places={node: body.topLeft() + shift for node, body in bodies.items()},
        ways=ways,
        shift=shift,
        frames=tuple(
            (QRectF(c.x, c.y, c.width, c.height).translated(shift), c.text, c.color)
            for c in block.comments.values()
            if c.kind == FRAME
        ),
    )


def _line(
    drawn: Drawn,
    end: str,
    positions: Mapping[str, Point],
    shapes: Mapping[str, Shape],
    bodies: Mapping[str, QRectF],
) -> float:
    """Return the y of an input or output: that of the port it is wired to, the leftmost of several, else its node's."""
    ports: list[tuple[float, float]] = []
    for edge in drawn.block.graph.out_of(end):
        if edge.target in bodies:
            number = drawn.faces[edge.target].number_of(edge.port, edge.index)
            body = bodies[edge.target]
            ports.append((body.left(), body.top() + shapes[edge.target].inputs[number]))
    for edge in drawn.block.graph.into(end):
        if edge.source in bodies:
            outputs, body = shapes[edge.source].outputs, bodies[edge.source]
            ports.append(
                (body.left(), body.top() + outputs[min(edge.output, len(outputs) - 1)])
            )
    return min(ports)[1] if ports else positions[end][1] + shapes[end].anchor


def _roomy(face: Face) -> Shape:
    """Return the shape of a node in the frame, with room for numbers that are still unknown."""
    shape = shape_of(face)
    unknown = "?" in face.line or (face.tall and " " not in face.line)
    if face.block or not unknown:
        return shape
    wider = math.ceil(shape.width + text_width("0000", "label"))
    return replace(shape, width=max(shape.width, min(wider, WIDEST)))


def _apart(heights: list[float]) -> list[float]:
    """Separate the ports on one side."""
    spaced = dict.fromkeys(range(len(heights)), 0.0)
    last = -math.inf
    for number in sorted(spaced, key=lambda i: heights[i]):
        last = spaced[number] = max(heights[number], last + PORT_CLOSEST)
    return list(spaced.values())


def _routes(
    drawn: Drawn,
    shapes: Mapping[str, Shape],
    bodies: Mapping[str, QRectF],
    starts: Mapping[str, QPointF],
    goals: Mapping[str, QPointF],
) -> dict[Edge, Route]:
    """Lead all wires of a block: forward wires first, then backward ones, in separate lanes."""
    nodes: RectIndex[str] = RectIndex()
    for node, body in bodies.items():
        nodes.put(node, body)
    lanes: RectIndex[Edge] = RectIndex()

    def lanes_in(area: QRectF) -> list[QRectF]:
        return [lanes[wire] for wire in lanes.inside(area)]

    def ends_of(edge: Edge) -> tuple[QPointF, QPointF]:
        start, end = starts.get(edge.source), goals.get(edge.target)
        if start is None:
            shape = shapes[edge.source]
            number = min(edge.output, len(shape.outputs) - 1)
            start = bodies[edge.source].topLeft() + shape.output(number)
        if end is None:
            number = drawn.faces[edge.target].number_of(edge.port, edge.index)
            end = bodies[edge.target].topLeft() + shapes[edge.target].input(number)
        return start, end

    ends = {
        edge: ends_of(edge)
        for edge in drawn.block.graph.edges
        if (edge.source in bodies or edge.source in starts)
        and (edge.target in bodies or edge.target in goals)
    }
    ways: dict[Edge, Route] = {}
    for edge in sorted(ends, key=lambda edge: (runs_back(*ends[edge]), edge)):
        start, end = ends[edge]
        source = bodies.get(edge.source, QRectF(start.x() - 1, start.y() - 1, 1, 2))
        target = bodies.get(edge.target, QRectF(end.x(), end.y() - 1, 1, 2))
        own = (edge.source, edge.target)
        bends = [QPointF(*point) for point in drawn.block.bends.get(edge, ())]
        ways[edge] = led(start, end, source, target, nodes, own, lanes_in, bends)
        if not ways[edge].lane.isEmpty():
            lanes.put(edge, ways[edge].lane)
    return ways
