"""What the canvas shows: faces, shapes on wires, problems, overlays; and that an edit touches only what it changes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import Cure, Problem, apply_cure
from app.builder.edits import edits
from app.builder.graph import Edge, Graph, Node
from app.builder.literals import AUTO, Slice
from app.builder.results import Analysis
from app.builder.summary import detail_line, summary_line
from app.project.document import Document
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.views.canvas import Canvas
from app.views.canvas.finder import matching_ops
from app.views.canvas.items.geometry import (
    INSET,
    NAME_LEFT,
    WIDEST,
    WIDEST_NAMED,
    snapped,
    text_width,
)
from app.views.canvas.items.node_item import NodeItem, cells_of
from app.views.canvas.overlays import Callout
from app.views.canvas.scene import STRIPS
from app.views.canvas.wire_item import ASSUMED, ERROR, NORMAL
from app.views.selection import Selection
from app.views.ui import theme
from app.views.ui.graphview import routes
from app.views.ui.graphview.detour import around
from app.views.ui.graphview.spatial import RectIndex

OPS = catalog()


def chain(*ops: tuple[str, dict]) -> tuple[Project, list[str]]:
    project, ids = Project(), []
    for op, params in ops:
        if ids:
            project, new = edits.add_behind(
                project, OPS, op, ids[-1], (240.0 * len(ids), 0.0)
            )
        else:
            project, new = edits.add(project, OPS, op, (0.0, 0.0))
        for name, value in params.items():
            project = edits.changed(project, project.graph.with_param(new, name, value))
        ids.append(new)
    return project, ids


def broken() -> tuple[Project, list[str]]:
    """A Linear that does not take what arrives, and a layer behind it of which nothing is known."""
    shape = {"shape": (4, 6, 6)}
    wide = {"in_features": 144}
    return chain(
        ("input", shape),
        ("nn.ReLU", {}),
        ("nn.Linear", wide),
        ("nn.Tanh", {}),
        ("output", {}),
    )


@pytest.fixture
def show(qtbot, qapp):
    if theme.current().name != "dark" or not qapp.styleSheet():
        theme.apply(qapp, "dark")

    def make(project: Project) -> Canvas:
        canvas = Canvas(Document(project), Selection(), OPS)
        qtbot.addWidget(canvas)
        canvas.resize(1280, 800)
        with qtbot.waitExposed(canvas):
            canvas.show()
        canvas.frame_all()
        return canvas

    return make


# --- Lines of a node ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "params", "resolved", "line"),
    [
        (
            "nn.Conv2d",
            {"out_channels": 32, "kernel_size": 3},
            {"in_channels": 1},
            "Conv2d 1→32, 3×3",
        ),
        (
            "nn.Conv2d",
            {"out_channels": 8, "kernel_size": (3, 5)},
            {},
            "Conv2d ?→8, 3×5",
        ),
        (
            "nn.Conv1d",
            {"out_channels": 8, "kernel_size": 5},
            {"in_channels": AUTO},
            "Conv1d ?→8, 5",
        ),
        ("nn.Linear", {"out_features": 10}, {"in_features": 128}, "Linear 128→10"),
        ("nn.Dropout", {"p": 0.25}, {}, "Dropout p=0.25"),
        ("nn.Dropout", {}, {}, "Dropout p=0.5"),
        ("nn.Flatten", {}, {}, "Flatten 1 to −1"),
        ("nn.MaxPool2d", {"kernel_size": 2}, {}, "MaxPool2d 2×2"),
        ("nn.BatchNorm2d", {}, {"num_features": 64}, "BatchNorm2d 64"),
        ("nn.ReLU", {"inplace": True}, {}, "ReLU"),
        ("nn.LeakyReLU", {"negative_slope": 0.2}, {}, "LeakyReLU 0.2"),
        ("nn.Softmax", {"dim": -1}, {}, "Softmax dim=−1"),
        ("torch.permute", {"dims": (0, 2, 1)}, {}, "permute 0, 2, 1"),
        ("input", {"shape": (1, 28, 28)}, {}, "Tensor 1×28×28"),
        ("output", {}, {}, "Output"),
        ("operator.mul", {"other": 0.5}, {}, "mul other=0.5"),
        ("parameter", {"shape": (1, 64)}, {}, "Parameter 1×64"),
        ("constant", {"value": ((1, 2, 3), (4, 5, 6))}, {}, "Constant 2×3"),
        ("number", {"value": -0.5}, {}, "Number −0.5"),
        ("operator.getitem", {"index": (Slice(), 0)}, {}, "getitem [:, 0]"),
    ],
)
def test_the_line_under_a_name(
    op: str, params: dict, resolved: dict, line: str
) -> None:
    assert (
        summary_line(OPS[op], Node("n", op, "n", FrozenMap(params)), resolved) == line
    )


def test_the_line_says_what_comes_from_a_wire() -> None:
    cut = Node(
        "n", "operator.getitem", "n", FrozenMap(index=(Slice(), Slice(None, -1)))
    )
    view = Node("v", "Tensor.view", "v", FrozenMap(size=(0, -1)))
    pick = Node("p", "torch.select", "p", FrozenMap(dim=1, index=0))
    nodes = FrozenMap(
        {node.id: node for node in (cut, view, pick, Node("s", "Tensor.size", "s"))}
    )
    edges = (
        Edge("s", 0, "n", "index[1].stop"),
        Edge("s", 0, "v", "size[0]"),
        Edge("s", 0, "p", "dim"),
    )
    bare, graph = Graph(nodes), Graph(nodes, edges)
    lines = [
        (
            summary_line(OPS.spec_of(bare, n), n, {}),
            summary_line(OPS.spec_of(graph, n), n, {}),
        )
        for n in (cut, view, pick)
    ]
    assert lines == [
        ("getitem [:, :−1]", "getitem [:, :←]"),
        ("view 0, −1", "view ←, −1"),
        ("select dim=1, index=0", "select dim=←, index=0"),
    ]


def test_every_op_has_a_line_that_begins_with_its_label() -> None:
    for op in OPS:
        node = edits.new_node(Graph(), OPS, op)
        assert summary_line(OPS[op], node, {}).startswith(
            "Tensor" if op == "input" else OPS[op].label
        )


def test_the_line_of_counts() -> None:
    linear = Node("n", "nn.Linear", "fc")
    assert detail_line(OPS["nn.Linear"], linear, 1179776) == "1,179,776 params"
    assert detail_line(OPS["nn.PReLU"], linear, 1) == "1 param"
    assert detail_line(OPS["nn.Linear"], linear, None) == ""
    assert detail_line(OPS["input"], Node("n", "input", "x"), 0) == "float32, batch N"


# --- Shapes and problems --------------------------------------------------------------------------------------------


def wire(canvas: Canvas, source: str, target: str):
    return next(
        w
        for e, w in canvas.scene.wires.items()
        if (e.source, e.target) == (source, target)
    )


def test_shapes_stand_on_wires_and_errors_on_nodes(show) -> None:
    project, (start, relu, fc, tanh, out) = broken()
    canvas = show(project)
    canvas.set_analysis(analyse(project.graph))
    assert (wire(canvas, start, relu).label, wire(canvas, start, relu).state) == (
        "N×4×6×6",
        NORMAL,
    )
    assert (wire(canvas, relu, fc).label, wire(canvas, relu, fc).state) == (
        "N×4×6×6",
        ERROR,
    )
    assert wire(canvas, fc, tanh).state == wire(canvas, tanh, out).state == ASSUMED
    assert canvas.scene.nodes[fc].face.state == "error"
    assert [pin.error for pin in canvas.scene.nodes[fc].face.inputs] == [True]


def test_the_callout_tells_the_first_error_and_offers_its_cure(show, qtbot) -> None:
    project, (_, _, fc, _, _) = broken()
    canvas = show(project)
    assert not canvas.callout.isVisible()
    canvas.set_analysis(analyse(project.graph))
    problem = canvas.scene.problems[fc][0]
    assert canvas.callout.isVisible() and canvas.callout.problem == problem
    foot = canvas.on_canvas(canvas.scene.nodes[fc].body)
    assert canvas.callout.y() >= foot.bottom()
    with qtbot.waitSignal(canvas.cureRequested) as asked:
        QTest.mouseClick(canvas.callout.button, Qt.MouseButton.LeftButton)
    assert asked.args == [problem.cures[0]]
    assert canvas.callout.button.text() == problem.cures[0].label


def test_a_callout_that_nobody_asked_for_covers_no_other_node(show) -> None:
    """The error is told on its node and in the list; what lies under it can be clicked."""
    project, (_, _, fc, tanh, _) = broken()
    place = project.positions[fc]
    project = replace(
        project, positions=project.positions.set(tanh, (place[0], place[1] + 130))
    )
    canvas = show(project)
    canvas.set_analysis(analyse(project.graph))
    relu = "n2"
    above = canvas.on_canvas(canvas.scene.nodes[fc].body).toRect()
    assert canvas.scene.nodes[fc].face.state == "error"
    assert (
        canvas.callout.isVisible() and canvas.callout.geometry().bottom() <= above.top()
    ), "there is room above"
    project = replace(
        project, positions=project.positions.set(relu, (place[0], place[1] - 130))
    )
    canvas.document.apply("Move", project)
    canvas.set_analysis(analyse(project.graph))
    assert not canvas.callout.isVisible()
    canvas.selection.set({fc})
    assert canvas.callout.isVisible()
    canvas.selection.set({tanh})
    assert not canvas.callout.isVisible()


def test_a_callout_that_is_asked_for_covers_no_other_node_where_there_is_a_place_that_does_not(
    show,
) -> None:
    """Under a node, above it, or further to a side."""
    project, (_, relu, fc, tanh, _) = broken()
    x, y = project.positions[fc]
    for other, tip_down in (
        ((x, y + 130), True),
        ((x, y - 130), False),
        ((x + 200, y + 110), None),
    ):
        moved = replace(
            project,
            positions=project.positions.set(tanh, other).set(relu, (x - 260, y)),
        )
        canvas = show(moved)
        canvas.set_analysis(analyse(moved.graph))
        canvas.selection.set({fc})
        body = {
            node: canvas.on_canvas(canvas.scene.nodes[node].body).toRect()
            for node in (relu, fc, tanh)
        }
        place = canvas.callout.geometry()
        assert canvas.callout.isVisible() and not any(
            area.intersects(place) for area in body.values()
        )
        if tip_down is not None:
            assert (place.bottom() < body[fc].top()) == tip_down
        assert place.left() <= body[fc].center().x() <= place.right(), (
            "it points at its node"
        )
        canvas.grab()
    near_edge = QRectF(500, place.height() + 2, 100, 60)
    assert [spot.top() for spot, above in canvas.callout.places_at(near_edge) if above][
        0
    ] == 0, "closer than usual"


def test_a_callout_that_was_hidden_stays_hidden_until_there_is_another(show) -> None:
    project, _ = broken()
    canvas = show(project)
    canvas.set_analysis(analyse(project.graph))
    canvas.callout.dismissed.emit(canvas.callout.problem)
    canvas.set_analysis(analyse(project.graph))
    assert not canvas.callout.isVisible()
    other = edits.changed(project, project.graph.with_param("n3", "in_features", 145))
    canvas.document.apply("Set in_features", other)
    canvas.set_analysis(analyse(other.graph))
    assert canvas.callout.isVisible()


def test_the_callout_goes_with_the_error(show) -> None:
    project, _ = broken()
    canvas = show(project)
    canvas.set_analysis(analyse(project.graph))
    mended = edits.changed(project, project.graph.with_param("n3", "in_features", AUTO))
    canvas.document.apply("Set in_features", mended)
    canvas.set_analysis(analyse(mended.graph))
    assert (
        not canvas.callout.isVisible() or canvas.callout.problem.severity == "warning"
    )


def test_an_unknown_op_is_a_placeholder_with_its_wires(show) -> None:
    node = Node("n1", "nn.FromTheFuture", "strange")
    graph = Graph(
        FrozenMap({"n1": node, "n2": Node("n2", "nn.ReLU", "relu")}),
        (Edge("n2", 0, "n1", "magic"),),
    )
    canvas = show(Project(graph=graph))
    assert canvas.scene.nodes["n1"].face.state == "unknown"
    assert [pin.port for pin in canvas.scene.nodes["n1"].face.inputs] == ["magic"]
    canvas.grab()


def test_all_nodes_of_one_module_show_that_it_is_shared(show) -> None:
    project, ids = chain(
        ("nn.Linear", {"out_features": 4}),
        ("nn.Linear", {"out_features": 4}),
        ("nn.ReLU", {}),
    )
    canvas = show(project)
    before = canvas.document.project
    canvas.document.apply(
        "Share", edits.changed(before, before.graph.with_shared(ids[1], ids[0]))
    )
    assert [canvas.scene.nodes[node].face.shared for node in ids] == [True, True, False]
    canvas.document.undo_stack.undo()
    assert not any(canvas.scene.nodes[node].face.shared for node in ids)


def test_an_analysis_of_an_older_drawing_does_no_harm(show) -> None:
    project, ids = broken()
    canvas = show(project)
    answer = analyse(project.graph)
    canvas.document.apply("Delete", edits.delete(project, ids[:2]))
    canvas.set_analysis(answer)
    canvas.document.undo_stack.undo()
    canvas.set_analysis(Analysis(Graph(), answer.source))
    assert not canvas.scene.problems


def test_of_labels_of_one_output_that_would_cover_each_other_one_stands(show) -> None:
    project, (start, attn) = chain(
        ("input", {"shape": (16, 32)}), ("nn.MultiheadAttention", {})
    )
    for port in ("key", "value"):
        project = edits.connect(project, OPS, start, 0, attn, port)
    canvas = show(project)
    canvas.set_analysis(analyse(project.graph))
    assert [item.chip.isVisible() for item in canvas.scene.wires.values()].count(
        True
    ) == 1
    assert {item.label for item in canvas.scene.wires.values()} == {"N×16×32"}


@pytest.mark.parametrize("zoom", [1.0, 0.8, 0.63])
def test_shapes_can_be_read_on_the_wires_however_far_it_is_zoomed_and_cover_no_node(
    show, zoom: float
) -> None:
    project, _ = chain(
        ("input", {"shape": (1, 8, 8)}),
        ("nn.Conv2d", {"in_channels": 1, "out_channels": 32}),
        ("nn.ReLU", {}),
    )
    canvas = show(project)
    canvas.set_analysis(analyse(project.graph))
    canvas.view.zoom_to(zoom)
    for wire in canvas.scene.wires.values():
        scale = wire.label_scale(canvas.view.zoom)
        assert scale is not None, f"{wire.label} is not shown"
        pixels = theme.ROLES["shape"][0] * scale[1] * zoom
        assert pixels >= 8.99 and scale[0] > 0.7 * scale[1]
        chip, width = wire.chip.rect, wire.chip.width * scale[0]
        label = QRectF(chip.center().x() - width / 2, chip.y(), width, chip.height())
        for node in canvas.scene.nodes.values():
            assert not node.body.intersects(label)


def test_a_cure_finds_room_in_the_row(show) -> None:
    project, ids = broken()
    canvas = show(project)
    cure = next(
        cure for problem in analyse(project.graph).errors for cure in problem.cures
    )
    mended = canvas.with_positions(
        edits.changed(project, apply_cure(project.graph, OPS, cure))
    )
    canvas.document.apply(cure.label, mended)
    new = (set(mended.graph.nodes) - set(ids)).pop()
    body = canvas.scene.nodes[new].body
    assert not any(body.intersects(canvas.scene.nodes[node].body) for node in ids)
    line = {item.y() + item.geometry.anchor for item in canvas.scene.nodes.values()}
    assert (
        len(line) <= 2
    )  # the nodes of this drawing are aligned by their tops, the new one by its port
    assert canvas.scene.nodes[ids[1]].x() < body.left() < canvas.scene.nodes[ids[2]].x()


# --- Drawing by difference ------------------------------------------------------------------------------------------


def test_an_edit_touches_only_what_it_changes(show, monkeypatch) -> None:
    project, (start, relu, fc, _, _) = broken()
    canvas = show(project)
    items, wires = dict(canvas.scene.nodes), dict(canvas.scene.wires)
    painted: list[str] = []
    monkeypatch.setattr(
        NodeItem, "_remake", lambda self: painted.append(self.node) or False
    )
    canvas.document.apply(
        "Set p", edits.changed(project, project.graph.with_name(relu, "act"))
    )
    assert painted == [relu]
    canvas.document.apply("Move", edits.move(canvas.document.project, [fc], 8.0, 0.0))
    assert painted == [relu]
    assert canvas.scene.nodes == items and canvas.scene.wires == wires
    canvas.document.undo_stack.undo()
    assert canvas.scene.nodes[fc].x() == project.positions[fc][0]


def test_an_answer_that_says_nothing_new_paints_nothing(show, monkeypatch) -> None:
    project, _ = broken()
    canvas = show(project)
    canvas.set_analysis(analyse(project.graph))
    painted: list[str] = []
    monkeypatch.setattr(
        NodeItem, "_remake", lambda self: painted.append(self.node) or False
    )
    canvas.set_analysis(analyse(project.graph))
    assert painted == []


def test_nodes_without_a_place_are_shown_laid_out_and_nothing_is_edited(show) -> None:
    project, ids = broken()
    canvas = show(Project(graph=project.graph))
    assert len({(item.x(), item.y()) for item in canvas.scene.nodes.values()}) == len(
        ids
    )
    assert not canvas.document.dirty
    canvas.selection.set([ids[0]])
    canvas.commands.nudge(8, 0)
    assert set(canvas.document.project.positions) == set(ids)


def test_another_project_takes_the_place_of_this_one(show) -> None:
    project, _ = broken()
    canvas = show(project)
    canvas.document.new()
    assert not canvas.scene.nodes and not canvas.scene.wires
    assert canvas.empty.isVisible() and not canvas.minimap.isVisible()


def test_another_project_is_painted_when_it_is_in_sight(
    show, qtbot, monkeypatch
) -> None:
    canvas = show(chain(("input", {}), ("output", {}))[0])
    many, ids = chain(
        ("input", {"shape": (8,)}),
        *[("nn.Linear", {"out_features": n}) for n in range(1, 6)],
    )
    pictured: list[str] = []
    paint = NodeItem.paint
    monkeypatch.setattr(
        NodeItem,
        "paint",
        lambda item, *given, **named: (
            pictured.append(item.node),
            paint(item, *given, **named),
        )[1],
    )
    viewport = canvas.view.viewport()
    canvas.document.new(many)
    assert (
        not viewport.updatesEnabled() and not pictured
    )  # the first project stays in sight
    qtbot.waitUntil(lambda: set(pictured) == set(ids))
    assert set(pictured) == set(ids) == canvas.scene.nodes.keys()
    canvas.document.new(Project())
    canvas.hide()  # nobody looks
    qtbot.waitUntil(viewport.updatesEnabled)


def test_the_empty_canvas_offers_the_example(show, qtbot) -> None:
    canvas = show(Project())
    assert canvas.empty.isVisible()
    with qtbot.waitSignal(canvas.exampleRequested):
        QTest.mouseClick(canvas.empty.button, Qt.MouseButton.LeftButton)


# --- Runs, themes, places -------------------------------------------------------------------------------------------


def test_wires_are_wide_by_size_while_it_runs(show) -> None:
    project, (start, conv, flat, out) = chain(
        ("input", {"shape": (1, 8, 8)}),
        ("nn.Conv2d", {"out_channels": 16}),
        ("nn.Flatten", {}),
        ("output", {}),
    )
    canvas = show(project)
    canvas.set_analysis(analyse(project.graph))
    canvas.set_running(True)
    assert wire(canvas, conv, flat)._width == pytest.approx(7.0)
    assert wire(canvas, start, conv)._width == pytest.approx(
        1.5 + 5.5 * (64 / 576) ** 0.5
    )
    assert canvas.scales.isVisible() and not canvas.legend.isVisible()
    canvas.set_running(False)
    assert wire(canvas, conv, flat)._width is None
    assert canvas.legend.isVisible()


def test_gradients_add_a_strip_below_and_leave_the_ports(show) -> None:
    project, ids = broken()
    canvas = show(project)
    item = canvas.scene.nodes[ids[2]]
    anchor, height = item.geometry.anchor, item.geometry.height
    canvas.set_gradients({ids[2]: [0.1, 0.5, float("nan")]}, 0.01, 10)
    assert (item.geometry.anchor, item.geometry.height) == (anchor, height + 8)
    assert canvas.scales.heat.bounds() == ("0.01", "10")
    canvas.grab()
    canvas.set_gradients({}, 0, 0)
    assert item.geometry.height == height
    assert not canvas.scales.isVisible()


def test_the_gradient_is_said_on_every_layer_whose_parameters_are_known_later(
    show,
) -> None:
    conv = ("nn.Conv2d", {"out_channels": 4, "kernel_size": 3})
    project, (_, conv) = chain(("input", {"shape": (1, 8, 8)}), conv)
    canvas = show(project)
    item = canvas.scene.nodes[conv]
    canvas.set_gradients({conv: [0.1, 0.5]}, 0.01, 10)
    assert item._words == "", "it is not known whether it has parameters"
    canvas.set_analysis(analyse(project.graph))
    assert item._words == "grad 0.50"


def test_strips_of_many_nodes_change_some_in_a_turn_and_end_with_the_newest(
    qtbot, show
) -> None:
    project, _ids = chain(*[("nn.Linear", {})] * (2 * STRIPS))
    canvas = show(project)
    items = canvas.scene.nodes

    def newest() -> list[float | None]:
        return [item._norms[0][0] for item in items.values()]

    def shown(value: float) -> int:
        canvas.set_gradients({node: [value] for node in items}, 0.01, 10)
        return newest().count(value)

    assert shown(0.5) == 2 * STRIPS, "the first time all nodes get their strips"
    assert shown(0.25) == 0 == shown(0.75)
    turns = [0]
    canvas.scene.redrawn.connect(lambda: turns.append(newest().count(0.75)))
    qtbot.waitUntil(lambda: set(newest()) == {0.75})
    assert (
        all(after - before <= STRIPS for before, after in pairwise(turns))
        and len(turns) > 2
    )


def test_gradient_cells() -> None:
    assert cells_of([2.0] * 7) == [2.0] * 7 + [None] * 17
    assert len(cells_of(list(range(30)))) == 30
    many = cells_of([float(i) for i in range(1000)])
    assert len(many) == 40 and many == sorted(many)


def test_a_long_name_does_not_widen_a_node_without_end(show) -> None:
    project, ids = chain(("nn.ReLU", {}))
    canvas = show(
        edits.changed(
            project, project.graph.with_name(ids[0], "a very long name indeed, " * 8)
        )
    )
    assert canvas.scene.nodes[ids[0]].geometry.width == WIDEST_NAMED


def test_the_name_of_a_block_has_room_on_its_node(show) -> None:
    project, ids = chain(("nn.ReLU", {}))
    name = "residual_block1_down"
    canvas = show(edits.changed(project, project.graph.with_name(ids[0], name)))
    item = canvas.scene.nodes[ids[0]]
    needed = NAME_LEFT + text_width(name, "node") + INSET
    assert WIDEST < needed <= item.geometry.width


@pytest.mark.parametrize("name", ["dark", "light"])
def test_it_paints_in_both_themes_and_at_every_zoom(show, qapp, name: str) -> None:
    project, _ = broken()
    canvas = show(project)
    canvas.set_analysis(analyse(project.graph))
    theme.apply(qapp, name)
    for zoom in (0.05, 0.2, 0.5, 1.0, 4.0):
        canvas.view.zoom_to(zoom)
        image = canvas.view.grab().toImage()
        assert image.pixelColor(3, image.height() - 3).name() in (
            theme.current().canvas.name(),
            theme.current().dot.name(),
        )
    theme.apply(qapp, "dark")


def test_snapping_is_by_the_line_of_the_ports() -> None:
    for anchor in (25.0, 36.0):
        point = snapped(QPointF(101, 203), anchor)
        assert point.x() % 8 == 0 and (point.y() + anchor) % 8 == 0
        assert abs(point.x() - 101) <= 4 and abs(point.y() - 203) <= 4


def test_a_wire_is_straight_where_ports_align_and_goes_past_what_stands_between() -> (
    None
):
    source, target = QRectF(0, 0, 100, 50), QRectF(600, 0, 100, 50)
    start, end = QPointF(100, 25), QPointF(600, 25)
    straight = routes.route(start, end, source, target)
    assert straight.path.boundingRect().height() == 0 and straight.run == 500
    block = QRectF(300, 0, 100, 50)
    past = routes.route(
        start,
        end,
        source,
        target,
        lambda area: [block] if area.intersects(block) else [],
    )
    assert past.past == -1 and past.path.boundingRect().top() < block.top() - 10
    assert not any(
        block.contains(past.path.pointAtPercent(i / 100)) for i in range(101)
    )
    low = routes.route(
        start,
        QPointF(600, 35),
        source,
        target,
        lambda area: [block] if area.intersects(block) else [],
    )
    assert low.past == 1 and low.path.boundingRect().bottom() > block.bottom() + 10


def test_a_wire_back_runs_between_the_rows() -> None:
    source, target = QRectF(600, 0, 100, 50), QRectF(0, 200, 100, 50)
    back = routes.route(QPointF(700, 25), QPointF(0, 225), source, target)
    assert back.backward and 50 < back.label.y() + routes.LABEL_RISE < 200
    inner = [node.adjusted(1, 1, -1, -1) for node in (source, target)]
    assert not any(
        node.contains(back.path.pointAtPercent(i / 100))
        for i in range(101)
        for node in inner
    )


def test_the_index_of_places() -> None:
    index = RectIndex()
    index.put("a", QRectF(0, 0, 100, 50))
    index.put("b", QRectF(1000, 1000, 100, 50))
    assert index.inside(QRectF(-10, -10, 20, 20)) == ["a"]
    assert index.inside(QRectF(-5000, -5000, 10000, 10000)) == ["a", "b"]
    index.put("a", QRectF(2000, 0, 100, 50))
    assert index.inside(QRectF(-10, -10, 20, 20)) == []
    index.remove("a")
    index.remove("a")
    assert index.inside(QRectF(1990, -10, 50, 50)) == []


def test_the_search_puts_the_likely_first() -> None:
    assert matching_ops(OPS, "conv")[0].key == "nn.Conv2d"
    assert matching_ops(OPS, "relu")[0].key in ("nn.ReLU", "F.relu")
    assert matching_ops(OPS, "bn")[0].category == "norm"
    assert {spec.key for spec in matching_ops(OPS, "merge")} >= {
        "torch.cat",
        "operator.add",
    }
    assert [spec.key for spec in matching_ops(OPS, "", ["nn.Tanh"])] == ["nn.Tanh"]
    assert matching_ops(OPS, "zzzz") == []


def test_a_wire_over_several_rows_runs_beside_the_nodes_between() -> None:
    source, target = QRectF(0, 0, 100, 50), QRectF(600, 300, 100, 50)
    between = [QRectF(140 * i, 150, 110, 60) for i in range(8)]

    def obstacles(area: QRectF) -> list[QRectF]:
        return [rect for rect in between if rect.intersects(area)]

    for start, end, a, b in (
        (QPointF(100, 25), QPointF(600, 325), source, target),
        (QPointF(700, 325), QPointF(0, 25), target, source),
    ):
        way = around(
            routes.route(start, end, a, b, obstacles),
            start,
            end,
            a,
            b,
            obstacles,
            lambda area: [],
        )
        points = [way.path.pointAtPercent(i / 200) for i in range(201)]
        assert not any(
            rect.adjusted(-3, -3, 3, 3).contains(point)
            for rect in between
            for point in points
        )
        assert (points[0], points[-1]) == (start, end)


def test_a_wire_turns_beyond_what_is_wider_in_its_column_and_a_steep_one_misses_nothing() -> (
    None
):
    cases = (
        (
            QRectF(0, 0, 100, 50),
            QRectF(700, 400, 100, 50),
            [QRectF(0, 100, 160, 60), QRectF(330, 60, 60, 120)],
        ),
        (QRectF(700, 0, 100, 50), QRectF(0, 400, 100, 50), [QRectF(700, 100, 160, 60)]),
        (QRectF(0, 0, 76, 50), QRectF(480, 940, 76, 50), [QRectF(240, 380, 136, 50)]),
        (
            QRectF(0, 0, 76, 50),
            QRectF(48, 900, 140, 72),
            [QRectF(-900, 250 * n, 1500, 50) for n in (1, 2, 3)],
        ),
        (
            QRectF(0, 0, 76, 50),
            QRectF(1048, -32, 105, 50),
            [QRectF(0, -139, 147, 72), QRectF(520, -180, 120, 230)],
        ),
    )
    for source, target, between in cases:
        start, end = (
            QPointF(source.right(), source.center().y()),
            QPointF(target.left(), target.center().y()),
        )

        def obstacles(area: QRectF, rects: list[QRectF] = between) -> list[QRectF]:
            return [rect for rect in rects if rect.intersects(area)]

        way = around(
            routes.route(start, end, source, target, obstacles),
            start,
            end,
            source,
            target,
            obstacles,
            lambda area: [],
        )
        points = [way.path.pointAtPercent(i / 300) for i in range(301)]
        assert not any(rect.contains(point) for rect in between for point in points)
        assert (points[0], points[-1]) == (start, end)


def test_the_index_finds_what_is_large_where_it_is() -> None:
    index: RectIndex[str] = RectIndex()
    rects = {
        f"{n}": QRectF(40.0 * n, 25.0 * n, 30.0 * 2 ** (n % 15), 20.0 * 2 ** (n % 13))
        for n in range(300)
    }
    for key, rect in rects.items():
        index.put(key, rect)
    for area in (
        QRectF(0, 0, 10, 10),
        QRectF(9000, 5000, 800, 600),
        QRectF(-1e5, -1e5, 2e5, 2e5),
    ):
        assert sorted(index.inside(area)) == sorted(
            key for key, rect in rects.items() if rect.intersects(area)
        )
    for key in [*rects][::2]:
        index.remove(key)
    here = QRectF(3000, 2000, 4000, 3000)
    assert sorted(index.inside(here)) == sorted(
        key for key in [*rects][1::2] if rects[key].intersects(here)
    )


def test_a_callout_has_the_height_of_its_own_problem(qtbot) -> None:
    """Not that of the problem before, whose wide button left the reason a column of one word."""
    wide = Problem(
        "error",
        None,
        "The data have one input",
        "Remove one of the inputs, or choose other data. " * 2,
        cures=(
            Cure(
                "Synthetic data input (1, 8, 8) float32; input1 (1, 28, 28) float32", ()
            ),
        ),
    )
    plain = Problem(
        "warning",
        None,
        "conv3 is not connected to an output",
        "It is left out of the code. Connect it to an output, or remove it.",
        cures=(Cure("Remove conv3", ()), Cure("Keep conv3", ())),
    )
    heights = []
    for problems in ((plain,), (wide, plain)):
        parent = QWidget()
        qtbot.addWidget(parent)
        callout = Callout(parent)
        for problem in problems:
            callout.set_problem(problem)
        heights.append(callout.height())
    assert heights[0] == heights[1] < 100
    callout.set_problem(wide)
    assert callout.height() < 160, "the button is below the reason"
