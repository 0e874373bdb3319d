"""Blocks by mouse and keys on the real window: made, repeated, gone into, exposed, made unique, trained, taken away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu

from app.builder.arrange import arrange
from app.builder.expressions import Expr
from app.builder.graph import Graph, Node
from app.export.layers import write_model
from app.project import file, library
from app.project.project import Project
from app.views.canvas.gestures.gestures import DropOp
from app.views.palette.feature import PaletteFeature
from app.views.settings import Settings
from app.views.training.charts.feature import ChartsFeature
from tests.support.builder_nets import net
from tests.support.whole_window import WholeWindow

LEFT, NONE = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
CTRL, SHIFT, ALT = (
    Qt.KeyboardModifier.ControlModifier,
    Qt.KeyboardModifier.ShiftModifier,
    Qt.KeyboardModifier.AltModifier,
)
UNIT = ("conv1", "relu", "conv2", "sum")


def residual() -> Project:
    """A net for the digits with one residual unit in it."""
    wide = {"out_channels": 8, "kernel_size": (3, 3), "padding": 1}
    graph = net(
        [
            ("input", "input", {"shape": (1, 8, 8)}),
            ("nn.Conv2d", "stem", wide),
            ("nn.Conv2d", "conv1", wide),
            ("nn.ReLU", "relu", {}),
            ("nn.Conv2d", "conv2", wide),
            ("operator.add", "sum", {}),
            ("nn.Flatten", "flatten", {}),
            ("nn.Linear", "fc", {"out_features": 10}),
            ("output", "output", {}),
        ],
        [
            ("input", "stem"),
            ("stem", "conv1"),
            ("conv1", "relu"),
            ("relu", "conv2"),
            ("conv2", "sum"),
            ("stem", "sum", "other"),
            ("sum", "flatten"),
            ("flatten", "fc"),
            ("fc", "output"),
        ],
    )
    return Project("residual", graph, arrange(graph, {}))


class Hand:
    """Mouse and keys, and what is to be seen."""

    def __init__(self, window: WholeWindow, qtbot) -> None:
        self.window, self.qtbot, self.canvas = window, qtbot, window.canvas

    @property
    def project(self) -> Project:
        return self.window.document.project

    def node(self, name: str) -> Node:
        return next(
            n for n in self.window.sheet.project.graph.nodes.values() if n.name == name
        )

    def node_of_network(self, name: str) -> Node:
        return next(n for n in self.project.graph.nodes.values() if n.name == name)

    def ready(self) -> None:
        self.qtbot.waitUntil(lambda: self.window.live.up_to_date)

    def body(self, name: str) -> QPoint:
        """The lower part of a node, past its ports' reach, in pixels of the viewport."""
        self.canvas.reveal([self.node(name).id])
        area = self.canvas.scene.nodes[self.node(name).id].body
        return self.canvas.view.mapFromScene(
            QPointF(area.center().x(), area.bottom() - 8)
        )

    def click(self, name: str, keys: Qt.KeyboardModifier = NONE) -> None:
        QTest.mouseClick(self.canvas.view.viewport(), LEFT, keys, self.body(name))

    def select(self, *names: str) -> None:
        self.canvas.frame_all()
        self.click(names[0])
        for name in names[1:]:
            self.click(name, SHIFT)
        assert {
            self.window.sheet.project.graph.nodes[n].name
            for n in self.window.selection.ids
        } == set(names)

    def double_click(self, name: str) -> None:
        QTest.mouseDClick(self.canvas.view.viewport(), LEFT, NONE, self.body(name))

    def key(self, key: Qt.Key, keys: Qt.KeyboardModifier = NONE) -> None:
        self.canvas.view.setFocus()
        QTest.keyClick(self.canvas.view, key, keys)

    def answer(self, text: str) -> None:
        """Type into the question that is asked, over what stands there, and Enter."""
        field = self.window.drawing.ask_box.field
        assert field.isVisible()
        QTest.keyClick(field, Qt.Key.Key_A, CTRL)
        QTest.keyClicks(field, text)
        QTest.keyClick(field, Qt.Key.Key_Return)

    def make(self, *names: str, called: str = "Residual") -> None:
        self.select(*names)
        self.key(Qt.Key.Key_G, CTRL)
        self.answer(called)

    def shapes(self) -> set[str]:
        """What stands on the wires."""
        self.ready()
        return {item.chip.text for item in self.canvas.scene.wires.values()}

    def crumbs(self) -> list[str]:
        return [button.text() for button in self.canvas.breadcrumb.buttons]

    def strips(self) -> set[str]:
        """The nodes with gradients on them."""
        return {
            item.face.name
            for item in self.canvas.scene.nodes.values()
            if item.geometry.strip
        }

    def undo_all(self) -> None:
        while self.window.document.undo_stack.canUndo():
            self.key(Qt.Key.Key_Z, CTRL)


@pytest.fixture
def hand(window: WholeWindow, qtbot) -> Hand:
    """A hand on a project that was just opened."""
    window.document.new(residual())
    window.library_control.read()
    window.activateWindow()
    qtbot.waitUntil(lambda: window.live.up_to_date and window.furnished)
    return Hand(window, qtbot)


# -- the whole story --------------------------------------------------------------------------------------------------


def test_a_block_from_its_making_to_its_file(hand: Hand, tmp_path: Path) -> None:
    window, first = hand.window, hand.project
    hand.make(*UNIT)
    assert list(hand.project.blocks) == ["Residual"]
    assert [
        n.name for n in hand.project.graph.nodes.values() if n.op == "block.Residual"
    ] == ["residual1"]

    hand.key(Qt.Key.Key_R, CTRL | SHIFT)
    hand.answer("3")
    assert hand.node("residual1").repeat == 3
    hand.ready()
    assert window.live.errors == ()
    assert window.canvas.scene.nodes[hand.node("residual1").id].face.badge == "×3"
    three = window.live.analysis.parameters[hand.node("residual1").id]

    hand.key(Qt.Key.Key_Return)  # go in
    assert hand.crumbs() == ["Network", "residual1 1/3"]
    assert {n.name for n in window.sheet.project.graph.nodes.values()} == {
        "input",
        "output",
        *UNIT,
    }
    hand.ready()
    assert window.live.in_front.graph is window.sheet.project.graph
    graph = window.sheet.project.graph.with_param(
        hand.node("conv1").id, "out_channels", 4
    )
    window.sheet.apply("Set out_channels", _with_graph(window.sheet.project, graph))
    hand.ready()
    assert (
        window.live.analysis.parameters[hand.node_of_network("residual1").id] < three
    ), "all three follow"

    hand.select("conv1")
    hand.key(Qt.Key.Key_X, CTRL | SHIFT)
    menu = next(
        m
        for m in window.findChildren(QMenu)
        if m.objectName() == "expose" and m.isVisible()
    )
    action = next(a for a in menu.actions() if a.text().startswith("out_channels"))
    menu.setActiveAction(action)
    QTest.keyClick(menu, Qt.Key.Key_Return)
    window.activateWindow()  # a platform without windows does not give the keyboard back by itself
    hand.qtbot.waitUntil(lambda: QApplication.activeWindow() is window)
    hand.answer("channels")
    assert hand.node("conv1").params["out_channels"] == Expr("channels")
    hand.ready()
    assert window.live.errors == ()

    hand.key(Qt.Key.Key_Escape)  # nothing selected
    hand.key(Qt.Key.Key_Escape)  # out
    assert hand.crumbs() == ["Network"]
    assert window.selection.ids == {hand.node("residual1").id}
    _set(window, hand.node("residual1"), "channels", 6)
    hand.ready()
    assert (
        "channels=6" in window.canvas.scene.nodes[hand.node("residual1").id].face.line
    )
    assert window.live.errors == ()

    hand.key(Qt.Key.Key_D, CTRL)
    hand.key(Qt.Key.Key_U, CTRL)
    assert set(hand.project.blocks) == {"Residual", "Residual2"}
    hand.key(Qt.Key.Key_Delete)

    path = tmp_path / "residual.tape"
    assert window.files.save_to(path)
    assert file.read(path) == hand.project
    last = hand.project
    hand.undo_all()
    assert hand.project == first
    while window.document.undo_stack.canRedo():
        hand.key(Qt.Key.Key_Y, CTRL)
    assert hand.project == last


def test_a_net_of_blocks_trains_and_is_taken_away(hand: Hand, tmp_path: Path) -> None:
    from app.preflight import preflight
    from app.source.compiled import load_class
    from app.source.generated import Source

    window = hand.window
    hand.make(*UNIT)
    hand.key(Qt.Key.Key_R, CTRL | SHIFT)
    hand.answer("3")
    hand.ready()
    QTest.keyClick(window, Qt.Key.Key_F7)
    hand.qtbot.waitUntil(lambda: window.session.state == "paused")
    window.run_control.step()
    hand.qtbot.waitUntil(lambda: len(window.session.current.history.steps) == 2)
    window.run_control.stop()
    hand.qtbot.waitUntil(lambda: not window.session.active)
    assert hand.node("residual1").id in window.run_control.unchanged(
        window.session.current
    )
    window.overlay.set_value("Gradients")
    window.findChild(ChartsFeature).paint_gradients()
    assert hand.strips() == {"stem", "residual1", "fc"}
    window.block_control.go_in()
    assert hand.strips() == {"conv1", "conv2"}, "those of the first repetition"
    _set(window, hand.node("conv1"), "bias", False)
    window.findChild(ChartsFeature).paint_gradients()
    assert hand.strips() == {"conv2"}, (
        "what is not as it was when the run began has no figures of it"
    )
    hand.key(Qt.Key.Key_Z, CTRL)
    window.overlay.set_value("Shapes")
    window.findChild(ChartsFeature).paint_gradients()
    hand.ready()

    job = preflight.job(hand.project, window.live.analysis)
    write_model(job.source, tmp_path / "model.py")
    text = (tmp_path / "model.py").read_text("utf-8")
    assert "class Residual(nn.Module):" in text
    assert load_class(Source(text))().state_dict().keys()


def _with_graph(sheet: Any, graph: Graph) -> Any:
    return replace(sheet, graph=graph)


def _set(window: WholeWindow, node: Node, name: str, value: object) -> None:
    sheet = window.sheet.project
    window.sheet.apply(
        f"Set {name}", _with_graph(sheet, sheet.graph.with_param(node.id, name, value))
    )


# -- making -----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_a_block_is_said_before_a_name_is_asked(hand: Hand) -> None:
    before = hand.project
    hand.select("conv1", "conv2")
    hand.key(Qt.Key.Key_G, CTRL)
    assert hand.window.drawing.ask_box.isHidden()
    assert "relu" in hand.canvas.word.text()
    assert hand.project is before


def test_a_name_that_cannot_be_is_asked_again_and_esc_lets_it_be(hand: Hand) -> None:
    before = hand.project
    hand.select(*UNIT)
    hand.key(Qt.Key.Key_G, CTRL)
    ask = hand.window.drawing.ask_box
    assert ask.field.text() == "ResidualBlock"
    hand.answer("not a name")
    assert ask.isVisible() and "class" in ask.refusal.text()
    QTest.keyClick(ask.field, Qt.Key.Key_Escape)
    assert ask.isHidden() and hand.project is before
    assert hand.canvas.view.hasFocus()


def test_expanding_gives_the_nodes_back(hand: Hand) -> None:
    hand.make(*UNIT)
    hand.key(Qt.Key.Key_G, CTRL | SHIFT)
    assert {n.name for n in hand.project.graph.nodes.values()} >= set(UNIT)
    assert {hand.project.graph.nodes[n].name for n in hand.window.selection.ids} == set(
        UNIT
    )
    hand.ready()
    assert hand.window.live.errors == ()


# -- going in and out -------------------------------------------------------------------------------------------------


def test_inside_the_canvas_shows_the_shapes_of_this_instance(hand: Hand) -> None:
    hand.make(*UNIT)
    hand.double_click("residual1")
    hand.ready()
    hand.qtbot.waitUntil(lambda: "N×8×8×8" in hand.shapes())
    hand.qtbot.waitUntil(
        lambda: (
            hand.canvas.scene.nodes[hand.node("input").id].face.line == "Tensor 8×8×8"
        )
    )
    hand.qtbot.waitUntil(lambda: hand.node("conv1").id in hand.window.code.source.lines)


def test_a_crumb_leads_back_and_the_last_one_to_the_next_repetition(hand: Hand) -> None:
    hand.make(*UNIT)
    hand.key(Qt.Key.Key_R, CTRL | SHIFT)
    hand.answer("2")
    hand.key(Qt.Key.Key_Down, ALT)
    QTest.mouseClick(hand.canvas.breadcrumb.buttons[1], LEFT)
    assert hand.crumbs() == ["Network", "residual1 2/2"]
    assert hand.window.place.path[0][1] == 1
    QTest.mouseClick(hand.canvas.breadcrumb.buttons[0], LEFT)
    assert hand.window.place.path == ()


def test_on_the_way_back_the_network_is_seen_as_it_was(hand: Hand) -> None:
    hand.make(*UNIT)
    view = hand.canvas.view
    view.zoom_to(1.37)
    view.pan(60, 20)
    before = view.visible_area().center()
    hand.window.block_control.go_in()
    hand.key(Qt.Key.Key_Up, ALT)
    assert view.zoom == pytest.approx(1.37)
    assert (view.visible_area().center() - before).manhattanLength() < 4


def test_undo_from_outside_takes_back_an_edit_made_inside(hand: Hand) -> None:
    hand.make(*UNIT)
    hand.window.block_control.go_in()
    _set(hand.window, hand.node("conv1"), "bias", False)
    hand.key(Qt.Key.Key_Up, ALT)
    hand.key(Qt.Key.Key_Z, CTRL)
    hand.window.block_control.go_in()
    assert "bias" not in hand.node("conv1").params


def test_undo_of_the_block_that_one_stands_in_steps_out(hand: Hand) -> None:
    first = hand.project
    hand.make(*UNIT)
    hand.window.block_control.go_in()
    hand.key(Qt.Key.Key_Z, CTRL)
    assert hand.project == first
    assert hand.window.place.path == () and hand.crumbs() == ["Network"]
    assert {item for item in hand.canvas.scene.nodes} == set(first.graph.nodes)


def test_another_project_is_seen_from_its_network(hand: Hand) -> None:
    hand.make(*UNIT)
    hand.window.block_control.go_in()
    hand.window.document.new(residual())
    assert hand.window.place.path == ()
    assert set(hand.canvas.scene.nodes) == set(hand.project.graph.nodes)


def test_a_renamed_input_keeps_the_wire_outside(hand: Hand) -> None:
    hand.make(*UNIT)
    hand.window.block_control.go_in()
    hand.canvas.commands.rename(hand.node("input").id, "skip")
    hand.key(Qt.Key.Key_Up, ALT)
    into = hand.project.graph.into(hand.node("residual1").id)
    assert [edge.port for edge in into] == ["skip"]
    assert [
        pin.port
        for pin in hand.canvas.scene.nodes[hand.node("residual1").id].face.inputs
    ] == ["skip"]


def test_a_view_of_the_network_leads_out_of_a_block(hand: Hand) -> None:
    """What the curves, the tape and the problems speak of are nodes of the network, whatever is in front."""
    window = hand.window
    hand.make(*UNIT)
    instance = hand.node("residual1").id
    window.block_control.go_in()
    window.selection.set([hand.node("conv1").id])
    assert window.network_selection.ids == {instance}
    fc = next(n.id for n in hand.project.graph.nodes.values() if n.name == "fc")
    window.network_selection.set([fc])
    assert window.place.path == () and window.selection.ids == {fc}


# -- the palette and the library --------------------------------------------------------------------------------------


def test_the_palette_says_what_belongs_among_the_blocks(hand: Hand) -> None:
    model = hand.window.palette_view.model
    texts = [
        model.data(model.index(row, 0, model.index(group, 0)))
        for group in range(model.rowCount())
        if model.group(model.index(group, 0)).category == "block"
        for row in range(model.rowCount(model.index(group, 0)))
    ]
    assert len(texts) == 1 and "Ctrl+G" in texts[0]
    hand.make(*UNIT)
    assert model.index_of("block.Residual").isValid()


def test_a_block_is_dropped_from_the_palette(hand: Hand) -> None:
    hand.make(*UNIT)
    view = hand.canvas.view
    drop = DropOp(view, view.visible_area().center(), "block.Residual")
    drop.start(NONE)
    drop.finish(view.visible_area().topLeft() + QPointF(120, 60), NONE)
    assert sorted(
        n.name for n in hand.project.graph.nodes.values() if n.op == "block.Residual"
    ) == ["residual1", "residual2"]


def test_a_block_cannot_be_put_into_itself(hand: Hand) -> None:
    hand.make(*UNIT)
    hand.window.block_control.go_in()
    before = hand.project
    hand.window.selection.set(())
    assert hand.canvas.add_op("block.Residual") is None
    assert hand.project is before
    assert "itself" in hand.canvas.word.text()


def test_the_menu_of_a_block_renames_copies_and_deletes_it(hand: Hand) -> None:
    window = hand.window
    hand.make(*UNIT)
    menu = window.findChild(PaletteFeature).menu(
        "block.Residual", window.mapToGlobal(QPoint(100, 300))
    )
    doings = {action.text(): action for action in menu.actions()}
    doings["Duplicate"].trigger()
    assert set(hand.project.blocks) == {"Residual", "Residual2"}
    doings["Rename…"].trigger()
    hand.answer("Unit")
    assert set(hand.project.blocks) == {"Unit", "Residual2"}
    assert hand.node("residual1").op == "block.Unit"
    window.findChild(PaletteFeature).menu("block.Unit", QPoint()).actions()[
        -1
    ].trigger()
    assert "in use" in hand.canvas.word.text()
    window.findChild(PaletteFeature).menu("block.Residual2", QPoint()).actions()[
        -1
    ].trigger()
    assert set(hand.project.blocks) == {"Unit"}
    window.findChild(PaletteFeature).menu("block.Unit", QPoint()).actions()[1].trigger()
    assert window.place.block == "Unit"


def test_a_block_of_the_library_comes_into_another_project(hand: Hand) -> None:
    window = hand.window
    hand.make(*UNIT)
    window.actions_by_key["block.save"].trigger()
    hand.answer("Residual")
    assert (window.library_control.folder / "Residual.tape").is_file()
    window.document.new(Project("other"))
    hand.qtbot.waitUntil(
        lambda: window.palette_view.model.index_of("library.Residual").isValid()
    )
    new = hand.canvas.add_op("library.Residual")
    assert hand.project.graph.nodes[new].op == "block.Residual"
    assert set(hand.project.blocks) == {"Residual"}
    hand.qtbot.waitUntil(
        lambda: not window.palette_view.model.index_of("library.Residual").isValid()
    )
    hand.key(Qt.Key.Key_Z, CTRL)
    assert not hand.project.blocks


def test_a_file_in_the_library_that_cannot_be_read_is_said(hand: Hand) -> None:
    folder = hand.window.library_control.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "broken.tape").write_text("{}")
    hand.window.library_control.read()
    assert "broken.tape" in {
        path.name for path, _ in hand.window.catalog.library.unread
    }
    (folder / "broken.tape").unlink()


def test_an_instance_is_pasted_with_its_block(hand: Hand) -> None:
    hand.make(*UNIT)
    hand.select("residual1")
    hand.key(Qt.Key.Key_C, CTRL)
    hand.window.document.new(Project("other"))
    hand.key(Qt.Key.Key_V, CTRL)
    assert [node.op for node in hand.project.graph.nodes.values()] == ["block.Residual"]
    assert set(hand.project.blocks) == {"Residual"}
    text = QGuiApplication.clipboard().text()
    assert library.KEY not in text


def test_a_problem_inside_leads_to_where_it_is(hand: Hand) -> None:
    window = hand.window
    hand.make(*UNIT)
    window.block_control.go_in()
    _set(window, hand.node("conv2"), "out_channels", 3)
    hand.key(Qt.Key.Key_Up, ALT)
    hand.ready()
    row = next(row for row in window.problems_panel.rows if row.problem.path)
    QTest.mouseClick(row, LEFT, NONE, QPoint(60, row.height() // 2))
    assert window.place.block == "Residual"
    hand.ready()
    wrong = {problem.node for problem in window.live.in_front.errors}
    assert wrong == {hand.node("sum").id}
    assert hand.canvas.scene.nodes[hand.node("sum").id].face.state == "error"


def test_a_cure_inside_a_block_mends_the_block(hand: Hand) -> None:
    window = hand.window
    hand.make(*UNIT)
    window.block_control.go_in()
    before = hand.project
    unused = hand.canvas.add_op("nn.Tanh")
    hand.ready()
    problem = next(
        problem for problem in window.live.in_front.problems if problem.node == unused
    )
    window.cures.apply(problem.cures[-1])
    assert hand.project.blocks == before.blocks
    assert window.place.block == "Residual"


def test_a_block_of_blocks_is_gone_into_step_by_step(hand: Hand) -> None:
    window = hand.window
    hand.make(*UNIT)
    window.block_control.go_in()
    hand.make("conv1", "relu", called="Half")
    hand.ready()
    assert window.live.errors == ()
    hand.double_click("half1")
    assert hand.crumbs() == ["Network", "residual1", "half1"]
    hand.ready()
    assert window.live.in_front.graph is hand.project.blocks["Half"].graph
    _set(window, hand.node("conv1"), "bias", False)
    assert (
        hand.project.blocks["Half"].graph.nodes[hand.node("conv1").id].params["bias"]
        is False
    )
    hand.key(Qt.Key.Key_Z, CTRL)
    hand.key(Qt.Key.Key_Z, CTRL)
    assert hand.crumbs() == ["Network", "residual1"], (
        "the block that one stood in is undone"
    )


def test_notes_and_bends_inside_are_the_blocks_own(hand: Hand) -> None:
    window = hand.window
    hand.make(*UNIT)
    outside = hand.project.comments
    window.block_control.go_in()
    window.canvas.commands.notes.add_comment("why the way round", QPointF(0, -200))
    assert hand.project.comments is outside
    assert [
        note.text for note in hand.project.blocks["Residual"].comments.values()
    ] == ["why the way round"]


def test_a_long_way_fits_a_narrow_canvas(hand: Hand) -> None:
    crumbs = hand.canvas.breadcrumb
    hand.make(*UNIT)
    hand.window.block_control.go_in()
    hand.make("conv1", "relu", called="Half")
    hand.window.block_control.go_in()
    whole = crumbs.width()
    crumbs.fit(whole - 40)
    assert crumbs.note.isHidden() and crumbs.width() <= whole - 40
    crumbs.fit(220)
    assert (
        crumbs.buttons[1].isHidden()
        and not crumbs.buttons[0].isHidden()
        and not crumbs.buttons[2].isHidden()
    )
    crumbs.fit(whole)
    assert crumbs.width() == whole


def test_enter_goes_in_and_alt_enter_to_the_form(hand: Hand) -> None:
    hand.make(*UNIT)
    hand.window.block_control.go_in()
    hand.window.block_control.ask_expose(hand.node("conv1").id, "out_channels")
    hand.answer("channels")
    hand.key(Qt.Key.Key_Up, ALT)
    hand.key(Qt.Key.Key_Return, ALT)
    focus = QApplication.focusWidget()
    assert focus is not None and hand.window.inspector.isAncestorOf(focus)
    assert hand.window.place.path == ()


def test_the_menu_of_a_node_has_what_can_be_done_with_it(hand: Hand) -> None:
    def words() -> list[str]:
        return [
            action.text().replace("&", "").rstrip("…")
            for action in hand.canvas.more_actions()
        ]

    hand.make(*UNIT)
    assert words() == [
        "Make block",
        "Go in",
        "Edit parameters of the instance",
        "Expand block",
        "Make unique",
        "Repeat",
        "Save to library",
    ]
    hand.window.block_control.go_in()
    hand.select("conv1")
    assert words() == ["Make block", "Repeat", "Expose parameter"]
    hand.select("input")
    assert words() == []


def test_the_library_stands_where_the_person_puts_it(
    hand: Hand, tmp_path: Path, own_folders: Path
) -> None:
    settings = Settings("TapedeckTest", "folders")
    assert settings.library_folder.is_relative_to(own_folders), (
        "beside the person's other data at first"
    )
    control = hand.window.library_control
    before = control.folder
    hand.make(*UNIT)
    control.set_folder(tmp_path / "blocks")
    assert control.write("Residual", "Mine") == ""
    assert [entry.name for entry in hand.window.catalog.library.entries] == ["Mine"]
    (tmp_path / "blocks" / "Mine.tape").unlink()
    hand.qtbot.waitUntil(
        lambda: not hand.window.catalog.library.entries
    )  # the folder is watched
    control.set_folder(before)


def test_a_block_of_that_name_is_replaced_only_when_asked_twice(
    hand: Hand, tmp_path: Path
) -> None:
    control = hand.window.library_control
    before = control.folder
    control.set_folder(tmp_path)
    hand.make(*UNIT)
    assert control.write("Residual", "Residual") == ""
    hand.window.block_control.go_in()
    _set(hand.window, hand.node("conv1"), "bias", False)
    control.save()
    hand.answer("Residual")
    ask = hand.window.drawing.ask_box
    assert ask.isVisible() and "already" in ask.refusal.text()
    QTest.keyClick(ask.field, Qt.Key.Key_Return)
    assert ask.isHidden()
    kept = library.read(tmp_path).entries[0].block
    assert kept == hand.project.blocks["Residual"]
    control.set_folder(before)
