"""Blocks unfolded where they stand, by mouse and keys: seen, gone into, undone, saved."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.builder.analysis import analyse
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.edits import edits
from app.builder.graph import Edge
from app.project.document import Document
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.views.canvas import Canvas
from app.views.canvas.breadcrumb import Crumb
from app.views.canvas.gestures.gesture import Hit
from app.views.canvas.items.node_item import NodeItem
from app.views.canvas.menus import menu_for
from app.views.canvas.overlays import arrange_overlays
from app.views.navigation import Navigation, SheetDocument
from app.views.project_catalog import ProjectCatalog
from app.views.selection import Selection
from app.views.settings import Settings
from app.views.ui import theme
from tests.support.unfold_blocks import net
from tests.support.whole_window import WholeWindow

LEFT, NONE = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
SHIFT, ALT = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.AltModifier


class Desk:
    """A canvas on a network of blocks in blocks, and hands to work on it, speaking of nodes by name."""

    def __init__(self, qtbot, project: Project) -> None:
        self.document, self.selection = Document(project), Selection()
        self.catalog = ProjectCatalog(catalog(), self.document)
        self.place = Navigation(self.document)
        self.sheet = SheetDocument(self.document, self.place, self.catalog)
        self.canvas = Canvas(self.sheet, self.selection, self.catalog)
        self.catalog.changed.connect(lambda: self.canvas.scene.refresh_faces())
        qtbot.addWidget(self.canvas)
        self.canvas.resize(1280, 800)
        with qtbot.waitActive(self.canvas):
            self.canvas.show()
            self.canvas.activateWindow()
        self.canvas.frame_all()
        QApplication.processEvents()
        self.view, self.scene, self.stack = (
            self.canvas.view,
            self.canvas.scene,
            self.document.undo_stack,
        )
        self.view.setFocus()
        self.said: list[str] = []
        self.canvas.commands.said.connect(self.said.append)

    @property
    def project(self) -> Project:
        return self.document.project

    def id(self, name: str) -> str:
        return next(
            node.id
            for node in self.sheet.project.graph.nodes.values()
            if node.name == name
        )

    def item(self, name: str) -> NodeItem:
        return self.scene.nodes[self.id(name)]

    def inner(self, name: str, *way: str) -> QRectF:
        """The body of a node inside, on the scene."""
        item, at = self.item(name), QPointF()
        for step in way:
            at += item.pos()
            assert item.inner is not None
            item = item.inner.nodes[step]
        return item.body.translated(at)

    def at(self, point: QPointF) -> QPoint:
        return self.view.mapFromScene(point)

    def chevron(self, body: QRectF) -> QPoint:
        return self.at(body.topRight() + QPointF(-14, 15))

    def click(self, spot: QPoint) -> None:
        QTest.mouseClick(self.view.viewport(), LEFT, NONE, spot)

    def key(self, key: Qt.Key, keys: Qt.KeyboardModifier = NONE) -> None:
        QTest.keyClick(self.view, key, keys)
        self.canvas.glide.finish()

    def unfold(self, *names: str) -> None:
        self.selection.set([self.id(name) for name in names])
        self.key(Qt.Key.Key_U)

    def tip(self, point: QPointF) -> str:
        return self.view.tip_at(self.at(point))


@pytest.fixture
def desk(qtbot, qapp) -> Iterator[Desk]:
    theme.apply(qapp, "dark")
    made = Desk(qtbot, net()[0])
    made.canvas.glide.finish()
    yield made


def picture(desk: Desk, zoom: float) -> QImage:
    """All of the scene as it is painted at a zoom."""
    area = desk.scene.content_rect().adjusted(-40, -40, 40, 40)
    image = QImage((area.size() * zoom).toSize(), QImage.Format.Format_RGB32)
    image.fill(theme.current().canvas)
    desk.scene.set_zoom(zoom)
    painter = QPainter(image)
    desk.scene.render(painter, QRectF(QPointF(), area.size() * zoom), area)
    painter.end()
    return image


def color_at(desk: Desk, image: QImage, zoom: float, point: QPointF) -> int:
    corner = desk.scene.content_rect().adjusted(-40, -40, 40, 40).topLeft()
    return image.pixel(((point - corner) * zoom).toPoint())


# --- Keys and mouse ---------------------------------------------------------------------------------------------


def test_u_unfolds_and_folds_as_one_step_each(desk: Desk) -> None:
    first, stage = desk.project, desk.id("stage1")
    desk.unfold("stage1")
    unfolded = desk.project
    assert unfolded.unfolded == {stage} and desk.stack.undoText() == "Unfold stage1"
    frame = desk.item("stage1").body
    assert frame.contains(desk.inner("stage1", "n2")) and frame.contains(
        desk.inner("stage1", "n3")
    )
    assert desk.item("cell1").body.left() > frame.right()  # it made way
    desk.key(Qt.Key.Key_U)
    assert (
        desk.project == first
        and desk.stack.undoText() == "Fold stage1"
        and desk.stack.count() == 2
    )
    desk.stack.undo()
    assert desk.project == unfolded
    desk.stack.undo()
    assert desk.project == first and desk.item("stage1").inner is None
    desk.stack.redo()
    assert desk.project == unfolded and desk.item("stage1").inner is not None


def test_the_chevron_unfolds_at_every_depth(desk: Desk) -> None:
    before = desk.project
    desk.view.zoom_to(1.0)
    desk.canvas.reveal([desk.id("stage1")])
    desk.click(desk.chevron(desk.item("stage1").body))
    desk.canvas.glide.finish()
    assert desk.project.unfolded == {
        desk.id("stage1")
    } and desk.selection.single == desk.id("stage1")
    once = desk.project
    narrow = desk.item("stage1").body.width()
    desk.canvas.frame_all()
    desk.click(desk.chevron(desk.inner("stage1", "n3")))
    desk.canvas.glide.finish()
    assert (
        desk.project.blocks["Stage"].unfolded == {"n3"}
        and desk.stack.undoText() == "Unfold cell2"
    )
    assert desk.item("stage1").body.width() > narrow
    assert desk.item("cell1").body.left() > desk.item("stage1").body.right()
    assert desk.inner("stage1", "n3").contains(desk.inner("stage1", "n3", "n2"))
    desk.canvas.frame_all()
    desk.click(desk.chevron(desk.inner("stage1", "n3")))
    desk.canvas.glide.finish()
    assert desk.project == once
    for _ in range(desk.stack.count()):
        desk.stack.undo()
    assert desk.project == before


def test_level_by_level_and_all_back(desk: Desk) -> None:
    before = desk.project
    desk.key(Qt.Key.Key_U, SHIFT)
    assert desk.project.unfolded == {desk.id("stage1"), desk.id("cell1")}
    desk.key(Qt.Key.Key_U, SHIFT)
    assert (
        desk.project.blocks["Stage"].unfolded == {"n2", "n3"}
        and desk.stack.count() == 2
    )
    desk.key(Qt.Key.Key_U, SHIFT)
    assert (
        desk.stack.count() == 2 and desk.canvas.word.text() == "Everything is unfolded"
    )
    desk.key(Qt.Key.Key_U, ALT)
    assert desk.project == before and desk.stack.undoText() == "Fold all"
    desk.key(Qt.Key.Key_U, ALT)
    assert (
        desk.stack.count() == 3
        and desk.canvas.word.text() == "Nothing is unfolded here"
    )


def test_the_menu_says_what_can_be_done(desk: Desk) -> None:
    def words(hit: Hit) -> list[str]:
        menu = menu_for(desk.canvas, hit, desk.view.mapToGlobal(QPoint(5, 5)))
        return [action.text() for action in menu.actions()]

    stage = desk.id("stage1")
    assert "Unfold\tU" in words(Hit(stage))
    assert not any(
        text.startswith(("Fold", "Unfold\t")) for text in words(Hit(desk.id("relu1")))
    )
    desk.unfold("stage1")
    assert "Fold\tU" in words(Hit(stage))
    inside = words(Hit(stage, inside=("n3",)))
    assert inside[:2] == ["Unfold cell2", "Go to cell2"]
    assert desk.canvas.actions_by_key["unfold"].isEnabled()
    desk.selection.set([desk.id("relu1")])
    assert not desk.canvas.actions_by_key["unfold"].isEnabled()


# --- The inside is for looking ----------------------------------------------------------------------------------


def test_a_press_inside_selects_and_moves_the_instance(desk: Desk) -> None:
    desk.unfold("stage1")
    desk.canvas.frame_all()
    desk.selection.set(())
    middle = desk.inner("stage1", "n2").center() + QPointF(0, 10)
    assert desk.scene.hit(middle) == Hit(desk.id("stage1"), inside=("n2",))
    desk.click(desk.at(middle))
    assert desk.selection.ids == {desk.id("stage1")}
    desk.key(Qt.Key.Key_Right, SHIFT)
    assert desk.inner("stage1", "n2").contains(middle + QPointF(8, 0))


def test_ports_are_where_the_inner_wires_end(desk: Desk) -> None:
    desk.unfold("stage1", "cell1")
    for name in ("stage1", "cell1"):
        item = desk.item(name)
        assert item.inner is not None
        shift = item.inner.plan.shift
        block = desk.project.blocks["Stage" if name == "stage1" else "Cell"]
        for edge, wire in item.inner.wires.items():
            start, end = (wire.route.path.pointAtPercent(t) + shift for t in (0, 1))
            if edge.source == block.inputs[0].id:
                assert start == item.geometry.input(0)
            if edge.target == block.outputs[0].id:
                assert end.y() == item.geometry.output(0).y()
    wire = next(
        wire
        for edge, wire in desk.scene.wires.items()
        if edge.target == desk.id("cell1")
    )
    assert wire.route.path.pointAtPercent(1) == desk.item("cell1").input_point(0)


def test_the_skip_past_an_unfolded_block_goes_round_it(desk: Desk) -> None:
    project, ops = desk.project, desk.catalog.now
    project, add = edits.add(project, ops, "operator.add", (1500.0, 0.0))
    project = edits.connect(project, ops, desk.id("relu1"), 0, add, "input")
    project = edits.connect(project, ops, desk.id("input"), 0, add, "other")
    desk.document.apply("skip", project)
    desk.unfold("stage1", "cell1")
    wire = next(
        w for e, w in desk.scene.wires.items() if e.target == add and e.port == "other"
    )
    bodies = [desk.item(name).body for name in ("stage1", "cell1", "relu1")]
    points = [wire.route.path.pointAtPercent(i / 200) for i in range(201)]
    assert not any(body.contains(point) for body in bodies for point in points)


def test_shapes_of_the_instance_stand_inside(desk: Desk) -> None:
    desk.unfold("stage1")
    desk.canvas.set_analysis(analyse(desk.project.graph, desk.catalog.now))
    item = desk.item("stage1")
    assert item.inner is not None and {
        wire.label for wire in item.inner.wires.values()
    } == {"N×4×8×8"}
    desk.canvas.frame_all()
    tip = desk.tip(desk.inner("stage1", "n2").center() + QPointF(0, 10))
    assert tip.splitlines()[0] == "cell1" and "N×4×8×8" in tip and "148 params" in tip
    graph = desk.project.graph.with_param(desk.id("input"), "shape", (4, 16, 16))
    desk.sheet.apply("wider", edits.changed(desk.project, graph))
    desk.canvas.set_analysis(analyse(desk.project.graph, desk.catalog.now))
    item = desk.item("stage1")
    assert item.inner is not None and {
        wire.label for wire in item.inner.wires.values()
    } == {"N×4×16×16"}


def test_an_edit_of_the_block_is_seen_from_outside(desk: Desk) -> None:
    desk.unfold("cell1")
    cell = desk.project.blocks["Cell"]
    graph = cell.graph.with_name("n2", "renamed")
    desk.place.enter(desk.id("cell1"))
    desk.sheet.apply("rename", edits.changed(cell, graph))
    desk.place.leave()
    item = desk.item("cell1")
    assert item.inner is not None and item.inner.nodes["n2"].face.name == "renamed"


def test_a_block_that_grows_is_given_room_where_it_is_unfolded(desk: Desk) -> None:
    gap = desk.item("cell1").body.left() - desk.item("stage1").body.right()
    desk.unfold("stage1")
    desk.place.enter(desk.id("stage1"))
    before = desk.project
    desk.sheet.apply("move", edits.move(desk.sheet.project, ["n3", "n4"], 400.0, 200.0))
    desk.place.leave()
    assert desk.item("cell1").body.left() - desk.item("stage1").body.right() == gap
    assert not desk.item("stage1").body.intersects(desk.item("fc1").body)
    desk.stack.undo()
    assert desk.project == before


def test_unfolding_inside_a_block_one_stands_in(desk: Desk) -> None:
    desk.place.enter(desk.id("stage1"))
    before = desk.project
    desk.unfold("cell1")
    assert (
        desk.project.blocks["Stage"].unfolded == {"n2"}
        and desk.project.unfolded == frozenset()
    )
    assert desk.item("cell1").inner is not None
    desk.stack.undo()
    assert desk.project == before


def odd_blocks() -> dict[str, Block]:
    """Blocks that are hardly any: nothing in them, a wire straight through, nothing wired, one value given twice, all
    in one spot, and a loop."""
    bare, ops = Block("Odd"), catalog()
    ends, first = edits.add(bare, ops, "input", (0.0, 0.0))
    ends, last = edits.add(ends, ops, "output", (0.0, 0.0))
    loose, relu = edits.add(ends, ops, "nn.ReLU", (0.0, 0.0))
    loose, _ = edits.add(loose, ops, "torch.cat", (0.0, 0.0))
    twice, more = edits.add(
        edits.connect(loose, ops, first, 0, relu, "input"), ops, "output", (0.0, 0.0)
    )
    twice = edits.connect(
        edits.connect(twice, ops, relu, 0, last, "input"), ops, relu, 0, more, "input"
    )
    unplaced = edits.changed(twice, positions=FrozenMap())
    loop = replace(twice, graph=twice.graph.with_edge(Edge(relu, 0, relu, "input", 1)))
    through = edits.connect(ends, ops, first, 0, last, "input")
    return {
        "bare": bare,
        "ends": ends,
        "through": through,
        "loose": loose,
        "twice": twice,
        "unplaced": unplaced,
        "loop": loop,
    }


@pytest.mark.parametrize("kind", odd_blocks())
def test_odd_blocks_unfold(desk: Desk, kind: str) -> None:
    project = replace(
        desk.project, blocks=desk.project.blocks.set("Odd", odd_blocks()[kind])
    )
    desk.document.apply("odd", project)
    project, odd = edits.add(project, desk.catalog.now, "block.Odd", (0.0, 800.0))
    desk.document.apply("add", project)
    desk.selection.set([odd])
    desk.key(Qt.Key.Key_U)
    item = desk.scene.nodes[odd]
    assert (
        item.inner is not None and item.body.width() >= 100 and item.body.height() >= 60
    )
    for heights in (item.geometry.inputs, item.geometry.outputs):
        assert all(0 < y < item.body.height() for y in heights)
        assert all(b - a >= 14 for a, b in pairwise(sorted(heights)))
    for node in item.inner.nodes.values():
        assert item.geometry.rect.contains(node.body)
    assert picture(desk, 0.2) != picture(desk, 0.6)
    desk.key(Qt.Key.Key_U)
    assert desk.project == project


# --- What is painted --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", ["dark", "light"])
def test_from_near_and_from_afar_the_inside_is_seen(
    desk: Desk, qapp, look: str
) -> None:
    theme.apply(qapp, look)
    desk.unfold("stage1")
    for zoom in (0.2, 1.0):
        image = picture(desk, zoom)
        head = desk.inner("stage1", "n2").topLeft() + QPointF(
            50, 4 if zoom < 1 else 1.5
        )
        near = theme.current().categories["block"].lightness()
        seen = color_at(desk, image, zoom, head)
        ground = color_at(
            desk, image, zoom, desk.item("stage1").body.bottomLeft() + QPointF(20, -8)
        )
        assert abs(lightness(seen) - near) < 30
        assert (
            ground != theme.current().canvas.rgb()
            and abs(lightness(ground) - lightness(seen)) > 10
        )


def lightness(rgb: int) -> int:
    return QColor.fromRgb(rgb).lightness()


def test_a_million_nodes_inside_are_painted(desk: Desk) -> None:
    blocks, op = desk.project.blocks, "nn.ReLU"
    for depth in range(6):
        block, ops = Block(f"Deep{depth}"), with_blocks(catalog(), blocks)
        for i in range(10):
            block, _ = edits.add(block, ops, op, (240.0 * i, 0.0))
        block = edits.changed(
            block, unfolded=frozenset(block.graph.nodes), positions=FrozenMap()
        )
        blocks, op = blocks.set(block.name, block), f"block.{block.name}"
    project, deep = edits.add(
        replace(desk.project, blocks=blocks),
        with_blocks(catalog(), blocks),
        op,
        (0.0, 900.0),
    )
    desk.document.apply("deep", edits.changed(project, unfolded=frozenset([deep])))
    desk.canvas.frame_all()
    assert len(desk.scene.map_shapes().rects) < 10_000
    desk.view.grab()
    desk.view.zoom_to(1.0)
    desk.view.grab()


def test_another_theme_paints_the_inside_anew(desk: Desk, qapp) -> None:
    desk.unfold("stage1")
    theme.apply(qapp, "light")
    fresh = picture(desk, 1.0)
    theme.apply(qapp, "dark")
    dark = picture(desk, 1.0)
    theme.apply(qapp, "light")
    assert picture(desk, 1.0) == fresh != dark


def test_the_map_shows_what_is_inside(desk: Desk) -> None:
    before = len(desk.scene.map_shapes().rects)
    desk.unfold("stage1")
    assert len(desk.scene.map_shapes().rects) == before + 2


# --- Files and windows ------------------------------------------------------------------------------------------


def test_saved_and_opened_it_is_unfolded(desk: Desk, tmp_path: Path) -> None:
    desk.key(Qt.Key.Key_U, SHIFT)
    desk.key(Qt.Key.Key_U, SHIFT)
    desk.document.save(tmp_path / "net.tape")
    project = desk.project
    desk.document.new()
    assert not desk.scene.nodes
    desk.document.open(tmp_path / "net.tape")
    assert desk.project == project
    assert desk.item("stage1").inner is not None
    assert desk.inner("stage1", "n2").contains(desk.inner("stage1", "n2", "n2"))


def test_a_double_click_inside_goes_there(qtbot, qapp) -> None:
    theme.apply(qapp, "dark")
    window = WholeWindow(Settings("TapedeckTests", "unfold"))
    qtbot.addWidget(window)
    window.resize(1500, 900)
    window.document.new(net(unfolded=True)[0])
    window.show()
    canvas, graph = window.canvas, window.document.project.graph
    stage = next(node.id for node in graph.nodes.values() if node.name == "stage1")
    window.selection.set([stage])
    canvas.actions_by_key["unfold"].trigger()
    canvas.glide.finish()
    canvas.frame_all()
    frame = canvas.scene.nodes[stage]
    cell = frame.inner.nodes["n2"]
    conv = cell.inner.nodes["n2"].body.translated(frame.pos() + cell.pos())
    spot = canvas.view.mapFromScene(conv.center())
    QTest.mouseDClick(canvas.view.viewport(), LEFT, NONE, spot)
    assert [node for node, _ in window.place.path] == [
        stage,
        "n2",
    ] and window.selection.ids == {"n2"}
    assert {
        "canvas.unfold",
        "canvas.unfold_level",
        "canvas.fold_all",
    } <= window.actions_by_key.by_key.keys()
    window.document.undo_stack.setClean()
    window.close()


# --- What lies over a small canvas ------------------------------------------------------------------------------


def test_a_deep_way_never_covers_the_legend(desk: Desk) -> None:
    canvas = desk.canvas
    for count in range(1, 12):
        canvas.breadcrumb.set_crumbs(
            [Crumb(f"layer{i}", "") for i in range(count)],
            "class Bottleneck · 3 follow",
        )
        for width in (1280, 760, 420):
            canvas.resize(width, 500)
            arrange_overlays(canvas)
            over = canvas.breadcrumb.geometry().intersects(canvas.legend.geometry())
            assert canvas.legend.isHidden() or not over
            assert canvas.breadcrumb.geometry().right() < width


def test_the_map_is_small_on_a_small_canvas_and_gone_on_a_tiny_one(desk: Desk) -> None:
    canvas, sizes = desk.canvas, []
    for size in (QSize(1280, 800), QSize(700, 300), QSize(400, 180), QSize(1280, 800)):
        canvas.resize(size)
        QApplication.processEvents()
        sizes.append(canvas.minimap.width() if canvas.minimap.isVisible() else 0)
        assert canvas.zoom_control.geometry().right() < (
            canvas.minimap.x() if sizes[-1] else canvas.width()
        )
    assert sizes[0] == sizes[3] > sizes[1] > sizes[2] == 0
