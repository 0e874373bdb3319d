"""However the drawing came about, edit by edit or at once, it shows the same."""

from __future__ import annotations

import random

import pytest
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QImage, QPainter

from app.builder import rules
from app.builder.analysis import analyse, shapes_first
from app.builder.arrange import DEFAULT, arrange
from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.edits import bends, edits
from app.builder.results import Analysis
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.views.canvas.difference import differing, moved
from app.views.canvas.scene import CanvasScene
from app.views.ui import theme
from app.views.ui.graphview.spatial import RectIndex
from tests.support.unfold_blocks import net

BLOCKS = net(unfolded=True)[0].blocks
OPS = with_blocks(catalog(), BLOCKS)
KEYS = (
    "nn.Conv2d",
    "nn.ReLU",
    "nn.Linear",
    "nn.Flatten",
    "operator.add",
    "torch.cat",
    "nn.LSTM",
    "torch.split",
    "block.Cell",
    "block.Stage",
)


class Hand:
    """Edits a project at random, the same way for the same seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        project, last = edits.add(Project(blocks=BLOCKS), OPS, "input", (0.0, 0.0))
        project = edits.changed(
            project, project.graph.with_param(last, "shape", (4, 8, 8))
        )
        for i in range(14):
            op = self.dice.choice(("nn.Conv2d", "nn.ReLU", "block.Cell", "block.Stage"))
            project, last = edits.add_behind(
                project, OPS, op, last, (230.0 * (i % 5), 140.0 * (i // 5))
            )
        self.project, _ = edits.add_behind(
            project, OPS, "output", last, (1200.0, 300.0)
        )
        self.past = [self.project]

    def node(self) -> str:
        return self.dice.choice(list(self.project.graph.nodes))

    def spot(self) -> tuple[float, float]:
        return self.dice.randrange(-40, 160) * 8.0, self.dice.randrange(-10, 90) * 8.0

    def edit(self) -> None:
        """One edit; what the rules refuse is left out."""
        kind = self.dice.choice(
            (
                "param",
                "param",
                "name",
                "move",
                "move",
                "add",
                "behind",
                "insert",
                "connect",
                "connect",
                "cut",
                "delete",
                "delete",
                "bridge",
                "mute",
                "lay out",
                "bend",
                "bend",
                "undo",
                "unplaced",
                "fold",
                "fold",
            )
        )
        try:
            self.project = self._edited(kind)
        except (rules.ConnectError, IndexError):
            return
        self.past.append(self.project)

    def _edited(self, kind: str) -> Project:
        project, graph, dice = self.project, self.project.graph, self.dice
        wires = sorted(graph.edges)
        if kind == "undo":
            return dice.choice(self.past[-4:])
        if kind == "add":
            return edits.add(project, OPS, dice.choice(KEYS), self.spot())[0]
        if kind == "insert":
            return edits.insert(
                project, OPS, "nn.Dropout", dice.choice(wires), self.spot()
            )[0]
        if kind == "cut":
            return edits.cut(project, [dice.choice(wires)])
        if kind == "bend":
            return bends.with_points(
                project, dice.choice(wires), [self.spot()] * dice.randrange(2)
            )
        if not graph.nodes:
            return project
        node = self.node()
        if kind == "param":
            params = {"nn.Conv2d": "out_channels", "nn.Linear": "out_features"}
            name = params.get(graph.nodes[node].op)
            return (
                edits.changed(
                    project, graph.with_param(node, name, dice.randrange(1, 2000))
                )
                if name
                else project
            )
        if kind == "name":
            name = dice.choice(("a", "a_longer_name", f"x{dice.random()}"))
            return edits.changed(project, graph.with_name(node, name))
        if kind == "move":
            return edits.move(
                project,
                [node],
                dice.randrange(-30, 30) * 8.0,
                dice.randrange(-20, 20) * 8.0,
            )
        if kind == "behind":
            return edits.add_behind(project, OPS, dice.choice(KEYS), node, self.spot())[
                0
            ]
        if kind == "connect":
            target = self.node()
            ports = OPS.spec_of(graph, graph.nodes[target]).inputs
            return edits.connect(project, OPS, node, 0, target, dice.choice(ports).name)
        if kind == "delete":
            return edits.delete(project, [node, self.node()])
        if kind == "bridge":
            return edits.delete_and_reconnect(project, OPS, [node])
        if kind == "mute":
            return edits.flagged(project, [node], "muted", not graph.nodes[node].muted)
        if kind == "fold":
            blocks = [
                node.id
                for node in graph.nodes.values()
                if node.op in ("block.Cell", "block.Stage")
            ]
            return edits.changed(
                project, unfolded=project.unfolded ^ {dice.choice(blocks)}
            )
        if kind == "unplaced":
            return edits.changed(project, positions=project.positions.without(node))
        return edits.changed(
            project, positions=arrange(graph, dict.fromkeys(graph.nodes, DEFAULT))
        )


def shown(scene: CanvasScene) -> dict[str, object]:
    """All that there is to see, as values."""
    nodes = {
        key: (
            item.face,
            item.geometry,
            item.x(),
            item.y(),
            item.rank,
            item.far_ring(theme.current()),
        )
        for key, item in scene.nodes.items()
    }
    wires = {
        edge: (
            item.route,
            item.label,
            item.state,
            item.rank,
            item.chip.place,
            item.chip.visible,
            item._selected,
        )
        for edge, item in scene.wires.items()
    }
    return {
        "nodes": nodes,
        "wires": wires,
        "rect": scene.content_rect(),
        "graph": scene.graph,
        "problems": scene.problems,
    }


def afresh(project: Project, analysis: Analysis | None) -> CanvasScene:
    scene = CanvasScene(OPS)
    if analysis is not None:
        scene.set_analysis(analysis)
    scene.show_project(project)
    return scene


def picture(scene: CanvasScene, zoom: float) -> QImage:
    """All of a scene, as it is painted at a zoom."""
    scene.set_zoom(zoom)
    area = scene.content_rect().adjusted(-50, -50, 50, 50)
    image = QImage(
        round(area.width() * zoom),
        round(area.height() * zoom),
        QImage.Format.Format_RGB32,
    )
    image.fill(theme.current().canvas)
    painter = QPainter(image)
    scene.render(painter, QRectF(0, 0, area.width() * zoom, area.height() * zoom), area)
    painter.end()
    return image


@pytest.mark.parametrize("seed", range(4))
def test_edit_by_edit_it_shows_what_it_would_show_at_once(qapp, seed: int) -> None:
    theme.apply(qapp, "dark")
    hand = Hand(seed)
    scene, analysis = CanvasScene(OPS), None
    for step in range(60):
        hand.edit()
        scene.show_project(hand.project)
        if hand.dice.random() < 0.3 and scene.nodes:
            node = hand.dice.choice(sorted(scene.nodes))
            scene.drag({node: scene.nodes[node].pos() + QPointF(80, 40)})
            scene.settle()
        if hand.dice.random() < 0.7:  # else the answer is still of an older drawing
            analysis = shapes_first(hand.project.graph, OPS, earlier=analysis)
            scene.set_analysis(analysis)
            if step % 3 == 0:
                analysis = analyse(hand.project.graph, OPS, before=analysis)
                scene.set_analysis(analysis)
        whole = scene.content_rect() if step % 4 == 0 else None
        if step % 5 == 4:
            fresh = afresh(hand.project, analysis)
            assert shown(scene) == shown(fresh), f"step {step}"
            assert whole is None or whole == fresh.content_rect()
    for zoom in (0.2, 0.6):
        assert picture(scene, zoom) == picture(afresh(hand.project, analysis), zoom)


def test_what_lies_at_a_point_is_what_was_painted_last_there(qapp) -> None:
    project, _ = edits.add(Project(), OPS, "nn.ReLU", (0.0, 0.0))
    for place in ((8.0, 8.0), (16.0, 16.0)):
        project, top = edits.add(project, OPS, "nn.ReLU", place)
    scene = CanvasScene(OPS)
    scene.show_project(project)
    spot = QPointF(60, 40)
    assert scene.hit(spot).node == top
    scene.set_selected(frozenset([next(iter(scene.nodes))]))
    assert scene.hit(spot).node == next(iter(scene.nodes))


def test_differences() -> None:
    before = FrozenMap({"a": 1, "b": (2,), "c": 3})
    assert differing(before, FrozenMap({"b": (2,), "c": 4, "d": 5})) == {"a", "c", "d"}
    assert (
        differing(before, before.without("a")) == {"a"}
        and differing(before, before) == set()
    )
    assert moved((1, 2, 3), (1, 2, 3)) == (set(), set())
    assert moved((1, 2, 3), ()) == ({1, 2, 3}, set())
    assert moved((1, 2), (2, 1)) == (set(), set())


def test_a_rectangle_as_large_as_a_drawing_is_found_everywhere() -> None:
    index: RectIndex[str] = RectIndex()
    for i in range(400):
        index.put(f"n{i}", QRectF(300.0 * (i % 20), 300.0 * (i // 20), 100, 50))
    index.put("wide", QRectF(-1e4, -1e4, 1e5, 1e5))
    assert set(index.inside(QRectF(310, 310, 10, 10))) == {"n21", "wide"}
    index.put("wide", QRectF(0, 0, 10, 10))
    assert index.inside(QRectF(310, 310, 10, 10)) == ["n21"]
    index.remove("n21")
    assert index.inside(QRectF(310, 310, 10, 10)) == [] and len(index) == 400
