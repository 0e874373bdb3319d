"""What hands do on the canvas: each gesture is one undo step, and undoing it gives back the very project."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.builder.arrange import GRID, NEXT_GAP
from app.builder.edits import edits
from app.project.project import Project
from app.views.canvas.view import MIME
from app.views.ui import theme
from tests.support.canvas_table import (
    ALT,
    CTRL,
    LEFT,
    MIDDLE,
    NONE,
    OPS,
    SHIFT,
    Table,
    no_step,
    one_step,
    send_move,
    small,
)


@pytest.fixture
def table(qtbot, qapp) -> Iterator[Table]:
    if not qapp.styleSheet():
        theme.apply(qapp, "dark")
    QGuiApplication.clipboard().clear()
    yield Table(qtbot, small())


# --- Moving ---------------------------------------------------------------------------------------------------------


def test_dragging_a_node_moves_it_over_the_grid(table: Table) -> None:
    start = table.body("relu1")
    project = one_step(
        table, lambda: table.drag(start, start + QPoint(45, 61)), "Move relu1"
    )
    x, y = project.positions[table.id("relu1")]
    assert x % 8 == 0 and (y + 25) % 8 == 0
    assert abs(x - 480 - 45) <= 4 and abs(y - 15 - 61) <= 4


def test_wires_go_past_a_node_that_is_put_in_their_way(table: Table) -> None:
    way = next(
        item
        for edge, item in table.scene.wires.items()
        if edge.source == table.id("conv1")
    )
    assert not way.route.past
    table.drag(table.body("output"), table.body("output") + QPoint(240, 0))
    table.drag(table.body("relu1"), table.body("relu1") + QPoint(240, 0))
    table.canvas.commands.shift([table.id("fc1")], (), 240, -160)
    assert way.route.past
    table.document.undo_stack.undo()
    assert not way.route.past


def test_selected_nodes_move_together(table: Table) -> None:
    table.selection.set([table.id("conv1"), table.id("relu1")])
    start = table.body("conv1")
    before = table.document.project.positions
    after = one_step(
        table, lambda: table.drag(start, start + QPoint(0, 80)), "Move 2 nodes"
    ).positions
    moved = {
        name: after[table.id(name)][1] - before[table.id(name)][1]
        for name in ("conv1", "relu1", "input")
    }
    assert moved == {"conv1": 80, "relu1": 80, "input": 0}


def test_escape_puts_dragged_nodes_back(table: Table) -> None:
    def gesture() -> None:
        port, start = table.view.viewport(), table.body("relu1")
        QTest.mousePress(port, LEFT, NONE, start)
        send_move(port, start + QPoint(90, 90), LEFT, NONE)
        assert table.scene.nodes[table.id("relu1")].y() > 80
        table.key(Qt.Key.Key_Escape)
        QTest.mouseRelease(port, LEFT, NONE, start + QPoint(90, 90))

    no_step(table, gesture)
    assert table.scene.nodes[table.id("relu1")].pos() == QPointF(480, 15)


def test_a_press_that_trembles_is_a_click(table: Table) -> None:
    start = table.body("relu1")
    no_step(table, lambda: table.drag(start, start + QPoint(1, 1)))
    assert table.names() == {"relu1"}


# --- Selecting ------------------------------------------------------------------------------------------------------


def test_marquee_selects_adds_and_toggles(table: Table) -> None:
    top = table.at(QPointF(200, -60))
    no_step(table, lambda: table.drag(top, table.at(QPointF(620, 120))))
    assert table.names() == {"conv1", "relu1"}
    table.drag(table.at(QPointF(200, 280)), table.at(QPointF(400, 160)), SHIFT)
    assert table.names() == {"conv1", "relu1", "fc1"}
    table.drag(top, table.at(QPointF(400, 120)), CTRL)
    assert table.names() == {"relu1", "fc1"}
    table.click(table.empty())
    assert table.names() == set()


def test_clicks_add_and_toggle(table: Table) -> None:
    table.click(table.body("conv1"))
    table.click(table.body("relu1"), SHIFT)
    assert table.names() == {"conv1", "relu1"}
    table.click(table.body("conv1"), CTRL)
    assert table.names() == {"relu1"}


def test_selection_comes_from_and_goes_to_other_views(table: Table) -> None:
    heard = []
    table.selection.changed.connect(lambda ids, origin: heard.append((ids, origin)))
    table.click(table.body("conv1"))
    assert heard == [(frozenset([table.id("conv1")]), table.canvas)]
    table.selection.set([table.id("relu1")], "another view")
    assert table.scene.nodes[table.id("relu1")]._selected
    hovers = []
    table.selection.hovered.connect(hovers.append)
    send_move(table.view.viewport(), table.body("conv1"), Qt.MouseButton.NoButton, NONE)
    assert hovers == [table.id("conv1")]


# --- Wires ----------------------------------------------------------------------------------------------------------


def test_a_wire_is_drawn_from_an_output(table: Table) -> None:
    one_step(
        table,
        lambda: table.drag(table.output("conv1"), table.input("fc1")),
        "Connect conv1 to fc1",
    )
    assert ("conv1", "fc1", "input") in table.wires()


def test_a_wire_is_drawn_from_a_free_input(table: Table) -> None:
    one_step(
        table,
        lambda: table.drag(table.input("fc1"), table.output("relu1")),
        "Connect relu1 to fc1",
    )
    assert ("relu1", "fc1", "input") in table.wires()


def test_a_wire_dropped_on_a_node_takes_its_first_free_input(table: Table) -> None:
    one_step(
        table,
        lambda: table.drag(table.output("conv1"), table.body("fc1")),
        "Connect conv1 to fc1",
    )
    assert ("conv1", "fc1", "input") in table.wires()


def test_ports_that_fit_are_ringed_while_a_wire_is_drawn(table: Table) -> None:
    port, start = table.view.viewport(), table.output("relu1")
    QTest.mousePress(port, LEFT, NONE, start)
    send_move(port, start + QPoint(30, 60), LEFT, NONE)
    marked = {node for node, item in table.scene.nodes.items() if item._marks}
    table.key(Qt.Key.Key_Escape)
    assert marked == {
        table.id("fc1")
    }  # the others are before relu1, or have this very wire
    assert not any(item._marks for item in table.scene.nodes.values())
    QTest.mouseRelease(port, LEFT, NONE, start)


def test_a_refused_wire_says_why_beside_the_pointer(table: Table) -> None:
    def gesture() -> None:
        port = table.view.viewport()
        QTest.mousePress(port, LEFT, NONE, table.output("relu1"))
        send_move(port, table.empty(), LEFT, NONE)
        send_move(port, table.body("conv1"), LEFT, NONE)
        assert table.canvas.word.isVisible()
        assert (
            table.canvas.word.text()
            == "conv1 leads to relu1; a wire back would make a cycle"
        )
        QTest.mouseRelease(port, LEFT, NONE, table.body("conv1"))

    no_step(table, gesture)
    assert table.said == ["conv1 leads to relu1; a wire back would make a cycle"]


def test_the_end_of_a_wire_is_taken_elsewhere(table: Table) -> None:
    one_step(
        table,
        lambda: table.drag(table.input("relu1"), table.input("fc1")),
        "Connect conv1 to fc1",
    )
    assert table.wires() == {
        ("input", "conv1", "input"),
        ("conv1", "fc1", "input"),
        ("relu1", "output", "input"),
    }


def test_the_end_of_a_wire_let_go_on_nothing_removes_it(table: Table) -> None:
    text = "Cut the wire from conv1 to relu1"
    one_step(table, lambda: table.drag(table.input("relu1"), table.empty()), text)
    assert ("conv1", "relu1", "input") not in table.wires()


def test_the_end_of_a_wire_put_back_changes_nothing(table: Table) -> None:
    no_step(
        table,
        lambda: table.drag(table.input("relu1"), table.input("relu1") + QPoint(2, 7)),
    )
    assert all(item.isVisible() for item in table.scene.wires.values())


def test_alt_click_cuts_a_wire(table: Table) -> None:
    text = "Cut the wire from conv1 to relu1"
    one_step(table, lambda: table.click(table.wire("conv1", "relu1"), ALT), text)
    assert ("conv1", "relu1", "input") not in table.wires()


def test_a_wire_is_selected_and_deleted(table: Table) -> None:
    table.click(table.wire("conv1", "relu1"))
    one_step(table, lambda: table.key(Qt.Key.Key_Delete), "Delete 1 wire")
    assert ("conv1", "relu1", "input") not in table.wires()


# --- Adding ---------------------------------------------------------------------------------------------------------


def test_a_layer_dropped_from_the_palette_is_added_there(table: Table) -> None:
    one_step(table, lambda: table.drop("nn.Tanh", table.empty()), "Add Tanh")
    middle = table.scene.nodes[table.id("tanh1")].body.center() - QPointF(500, 330)
    assert abs(middle.x()) <= 8 and abs(middle.y()) <= 8
    assert table.left_selected == {"tanh1"}


def test_a_layer_dropped_on_another_comes_to_lie_beside_it(table: Table) -> None:
    under = table.scene.nodes[table.id("fc1")].body
    for name in ("tanh1", "tanh2", "tanh3"):
        one_step(
            table, lambda: table.drop("nn.Tanh", table.at(under.center())), "Add Tanh"
        )
        new = table.scene.nodes[table.id(name)].body
        others = [
            item.body
            for key, item in table.scene.nodes.items()
            if key != table.id(name)
        ]
        assert not any(new.intersects(body) for body in others)
        assert (new.center() - under.center()).manhattanLength() < 400, (
            "it is near where it was let go"
        )


def test_a_layer_dropped_on_a_wire_is_inserted(table: Table) -> None:
    spot = table.wire("conv1", "relu1")
    one_step(
        table,
        lambda: table.drop("nn.BatchNorm2d", spot),
        "Insert BatchNorm2d before relu1",
    )
    assert {("conv1", "bn1", "input"), ("bn1", "relu1", "input")} <= table.wires()
    assert ("conv1", "relu1", "input") not in table.wires()


def test_the_row_makes_way_for_a_layer_dropped_on_a_wire(table: Table) -> None:
    table.drop("nn.BatchNorm2d", table.wire("conv1", "relu1"))
    row = [
        table.scene.nodes[table.id(name)]
        for name in ("input", "conv1", "bn1", "relu1", "output")
    ]
    assert all(b.x() - a.body.right() > 90 for a, b in zip(row, row[1:], strict=False))
    assert len({item.y() + item.geometry.anchor for item in row}) == 1


def test_something_else_is_not_dropped(table: Table) -> None:
    no_step(table, lambda: table.drop("no.Such", table.empty()))


def test_a_layer_dragged_out_again_leaves_nothing(table: Table) -> None:
    count = len(table.scene.items())
    data = QMimeData()
    data.setData(MIME, b"nn.ReLU")
    enter = QDragEnterEvent(table.empty(), Qt.DropAction.CopyAction, data, LEFT, NONE)
    QApplication.sendEvent(table.view.viewport(), enter)
    assert len(table.scene.items()) == count + 1
    QApplication.sendEvent(table.view.viewport(), QDragLeaveEvent())
    assert len(table.scene.items()) == count


def test_double_click_on_nothing_searches_and_adds_there(table: Table) -> None:
    QTest.mouseDClick(table.view.viewport(), LEFT, NONE, table.empty())
    assert table.canvas.search.isVisible()
    table.type("sigmoid")
    one_step(
        table,
        lambda: QTest.keyClick(table.canvas.search.field, Qt.Key.Key_Return),
        "Add Sigmoid",
    )
    assert not table.canvas.search.isVisible()
    assert table.view.hasFocus()
    assert abs(table.scene.nodes[table.id("sigmoid1")].body.center().x() - 500) <= 8


def test_tab_searches_and_the_arrows_choose(table: Table) -> None:
    table.key(Qt.Key.Key_Tab)
    table.type("conv")
    field = table.canvas.search.field
    second = table.canvas.search.values()[1]
    QTest.keyClick(field, Qt.Key.Key_Down)
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert table.selection.single is not None
    assert table.document.project.graph.nodes[table.selection.single].op == second


def test_escape_closes_the_search(table: Table) -> None:
    table.key(Qt.Key.Key_Tab)
    no_step(table, lambda: QTest.keyClick(table.canvas.search.field, Qt.Key.Key_Escape))
    assert not table.canvas.search.isVisible()


def test_a_wire_let_go_on_nothing_searches_what_fits_and_connects(table: Table) -> None:
    no_step(table, lambda: table.drag(table.output("relu1"), table.empty()))
    search = table.canvas.search
    assert search.isVisible()
    assert "input" not in search.values() and "nn.Linear" in search.values()
    table.type("maxpool")
    text = "Add MaxPool2d after relu1"
    one_step(table, lambda: QTest.keyClick(search.field, Qt.Key.Key_Return), text)
    assert ("relu1", "pool1", "input") in table.wires()


def test_a_wire_from_an_input_let_go_searches_what_gives(table: Table) -> None:
    table.drag(table.input("fc1"), table.empty() + QPoint(-300, 0))
    assert "output" not in table.canvas.search.values()
    table.type("flatten")
    field = table.canvas.search.field
    one_step(
        table,
        lambda: QTest.keyClick(field, Qt.Key.Key_Return),
        "Add Flatten before fc1",
    )
    assert ("flatten1", "fc1", "input") in table.wires()


def test_with_one_node_selected_a_new_one_is_connected_behind_it(table: Table) -> None:
    table.click(table.body("fc1"))
    project = one_step(
        table, lambda: table.canvas.add_op("nn.GELU"), "Add GELU after fc1"
    )
    assert ("fc1", "gelu1", "input") in table.wires()
    fc, gelu = project.positions[table.id("fc1")], project.positions[table.id("gelu1")]
    assert gelu[0] > fc[0] + 100
    assert gelu[1] + 25 == fc[1] + 36  # their ports are on one line
    assert table.left_selected == {"gelu1"}


def test_behind_a_node_that_feeds_one_other_a_new_one_goes_into_the_wire(
    table: Table,
) -> None:
    table.click(table.body("conv1"))
    text = "Insert Tanh before relu1"
    one_step(table, lambda: table.canvas.add_op("nn.Tanh"), text)
    assert {("conv1", "tanh1", "input"), ("tanh1", "relu1", "input")} <= table.wires()
    new, relu = (table.scene.nodes[table.id(name)].body for name in ("tanh1", "relu1"))
    assert not new.intersects(relu)


def test_behind_a_node_that_feeds_two_a_new_one_is_a_branch(table: Table) -> None:
    table.drag(table.output("conv1"), table.input("fc1"))
    before = table.wires()
    table.click(table.body("conv1"))
    table.canvas.add_op("nn.Tanh")
    assert table.wires() == before | {("conv1", "tanh1", "input")}


# --- Typed code ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["conv2d 20 5", "nn.Conv2d(20, 5)"])
def test_arguments_can_be_typed_in_the_search(table: Table, typed: str) -> None:
    table.click(table.body("fc1"))
    table.key(Qt.Key.Key_Tab)
    table.type(typed)
    field = table.canvas.search.field
    project = one_step(
        table, lambda: QTest.keyClick(field, Qt.Key.Key_Return), "Add Conv2d after fc1"
    )
    params = project.graph.nodes[table.id("conv2")].params
    assert (params["out_channels"], params["kernel_size"]) == (20, 5)


def test_arguments_that_do_not_fit_are_said_beside_the_layer(table: Table) -> None:
    table.key(Qt.Key.Key_Tab)
    table.type("nn.Conv2d(20, 'big')")
    row = table.canvas.search.rows.item(0).data(Qt.ItemDataRole.UserRole)
    assert row.text == "Conv2d" and "kernel_size expects" in row.faint


def test_pasted_code_becomes_nodes(table: Table) -> None:
    code = "self.conv7 = nn.Conv2d(1, 20, 5)\nself.act7 = nn.ReLU()\n"
    QGuiApplication.clipboard().setText(code)
    one_step(table, lambda: table.key(Qt.Key.Key_V, CTRL), "Paste 2 nodes")
    assert ("conv7", "act7", "input") in table.wires()
    assert table.left_selected == {"conv7", "act7"}


def test_code_that_cannot_be_drawn_is_refused_with_its_line(table: Table) -> None:
    refused: list[str] = []
    table.canvas.commands.refused.connect(refused.append)
    QGuiApplication.clipboard().setText("x = nn.Linear(2, 2)\nwhile x: pass\n")
    no_step(table, lambda: table.key(Qt.Key.Key_V, CTRL))
    assert len(refused) == 1 and "Line 2: A `while` statement" in refused[0]


# --- Removing, clipboard, keys --------------------------------------------------------------------------------------


def test_delete_and_delete_reconnect(table: Table) -> None:
    table.click(table.body("relu1"))
    one_step(table, lambda: table.key(Qt.Key.Key_Delete), "Delete relu1")
    assert table.wires() == {("input", "conv1", "input")}
    table.document.undo_stack.undo()
    table.click(table.body("relu1"))
    one_step(
        table, lambda: table.key(Qt.Key.Key_Delete, CTRL), "Delete relu1 and reconnect"
    )
    assert table.wires() == {("input", "conv1", "input"), ("conv1", "output", "input")}
    assert table.names() == set()
    conv, output = (table.scene.nodes[table.id(n)].body for n in ("conv1", "output"))
    gap = output.left() - conv.right()
    assert NEXT_GAP <= gap < NEXT_GAP + GRID, "the row closed up"
    table.document.undo_stack.undo()
    assert table.scene.nodes[table.id("output")].body.left() == 720.0


def test_a_row_stays_open_where_another_node_would_be_overlapped(table: Table) -> None:
    project, _ = edits.add(table.document.project, OPS, "nn.ReLU", (560.0, 60.0))
    table.document.apply("Add ReLU", project)
    before = table.scene.nodes[table.id("output")].body
    assert before.top() < 60.0 < before.bottom()
    table.click(table.body("relu1"))
    table.key(Qt.Key.Key_Delete, CTRL)
    assert table.scene.nodes[table.id("output")].body == before


def test_copy_and_paste_between_two_windows(table: Table, qtbot) -> None:
    table.selection.set([table.id("conv1"), table.id("relu1")])
    no_step(table, lambda: table.key(Qt.Key.Key_C, CTRL))
    other = Table(qtbot, Project())
    one_step(other, lambda: other.key(Qt.Key.Key_V, CTRL), "Paste 2 nodes")
    assert other.wires() == {("conv1", "relu1", "input")}
    assert other.left_selected == {"conv1", "relu1"}
    conv = other.document.project.graph.nodes[other.id("conv1")]
    assert conv.params == table.document.project.graph.nodes[table.id("conv1")].params
    one_step(other, lambda: other.key(Qt.Key.Key_V, CTRL), "Paste 2 nodes")
    places = list(other.document.project.positions.values())
    assert len(set(places)) == 4


@pytest.mark.parametrize(
    "text",
    ["", "hello", '{"tapedeck": 1}', '{"tapedeck": 99, "graph": {}}', "[" * 3000],
)
def test_a_clipboard_without_nodes_is_passed_over_with_a_word(
    table: Table, text: str
) -> None:
    QGuiApplication.clipboard().setText(text)
    no_step(table, lambda: table.key(Qt.Key.Key_V, CTRL))
    assert len(table.said) == 1 and "clipboard" in table.said[0]
    assert table.canvas.word.isVisible()


def test_pasted_nodes_of_one_op_are_measured_once(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.key(Qt.Key.Key_A, CTRL)
    table.key(Qt.Key.Key_C, CTRL)
    scene, measured = table.canvas.scene, []
    size_of = scene.size_of
    monkeypatch.setattr(scene, "size_of", lambda op: measured.append(op) or size_of(op))
    table.key(Qt.Key.Key_V, CTRL)
    assert sorted(measured) == sorted(table.document.project.graph.ops)


def test_cut_and_paste_puts_it_back_in_its_place(table: Table) -> None:
    place = table.document.project.positions[table.id("fc1")]
    table.click(table.body("fc1"))
    one_step(table, lambda: table.key(Qt.Key.Key_X, CTRL), "Cut fc1")
    one_step(table, lambda: table.key(Qt.Key.Key_V, CTRL), "Paste fc1")
    assert table.document.project.positions[table.id("fc1")] == place


def test_duplicate_leaves_the_clipboard_alone(table: Table) -> None:
    QGuiApplication.clipboard().setText("mine")
    table.click(table.body("fc1"))
    one_step(table, lambda: table.key(Qt.Key.Key_D, CTRL), "Duplicate fc1")
    assert table.left_selected == {"fc2"}
    assert QGuiApplication.clipboard().text() == "mine"


def test_arrows_walk_along_the_wires(table: Table) -> None:
    table.click(table.body("input"))
    walked = []
    for key in (
        Qt.Key.Key_Right,
        Qt.Key.Key_Right,
        Qt.Key.Key_Left,
        Qt.Key.Key_Down,
        Qt.Key.Key_Up,
    ):
        no_step(table, lambda key=key: table.key(key))
        walked += sorted(table.names())
    assert walked == ["conv1", "relu1", "conv1", "fc1", "conv1"]


def test_nudges_in_a_row_are_one_step(table: Table) -> None:
    table.click(table.body("fc1"))
    before = table.document.project

    def press() -> None:
        for _ in range(3):
            table.key(Qt.Key.Key_Right, SHIFT)

    after = one_step(table, press, "Move fc1")
    node = table.id("fc1")
    assert after.positions[node] == (
        before.positions[node][0] + 24,
        before.positions[node][1],
    )


def test_rename_where_it_stands(table: Table) -> None:
    table.click(table.body("conv1"))
    table.key(Qt.Key.Key_F2)
    field = table.canvas.rename_field
    assert field.isVisible() and field.text() == "conv1"
    QTest.keyClicks(field, "stem")
    one_step(
        table, lambda: QTest.keyClick(field, Qt.Key.Key_Return), "Rename conv1 to stem"
    )
    assert table.names() == {"stem"}
    table.key(Qt.Key.Key_F2)
    QTest.keyClicks(field, "other")
    no_step(table, lambda: QTest.keyClick(field, Qt.Key.Key_Escape))


def test_enter_and_double_click_ask_to_edit(table: Table) -> None:
    asked = []
    table.canvas.editRequested.connect(asked.append)
    table.click(table.body("conv1"))
    table.key(Qt.Key.Key_Return)
    QTest.mouseDClick(table.view.viewport(), LEFT, NONE, table.body("relu1"))
    assert asked == [table.id("conv1"), table.id("relu1")]


def test_lay_out_is_one_step(table: Table) -> None:
    one_step(table, lambda: table.key(Qt.Key.Key_L), "Lay out")
    bodies = [item.body for item in table.scene.nodes.values()]
    assert not any(a.intersects(b) for i, a in enumerate(bodies) for b in bodies[:i])


def test_a_long_line_of_nodes_is_offered_rows(table: Table) -> None:
    control = table.canvas.zoom_control
    assert not control.wrap.isVisible()
    last = table.id("relu1")
    for _ in range(14):
        table.selection.set([last])
        last = table.canvas.add_op("nn.ReLU")
    assert control.wrap.isVisible()
    low = table.scene.content_rect().height()
    one_step(table, lambda: QTest.mouseClick(control.wrap, LEFT), "Lay out")
    assert not control.wrap.isVisible() and table.scene.content_rect().height() > low


def test_select_all_and_nothing(table: Table) -> None:
    table.key(Qt.Key.Key_A, CTRL)
    assert len(table.selection.ids) == 5
    table.key(Qt.Key.Key_Escape)
    assert not table.selection.ids


# --- Seeing ---------------------------------------------------------------------------------------------------------


def test_the_wheel_zooms_at_the_pointer(table: Table) -> None:
    from PySide6.QtGui import QWheelEvent

    port, spot = table.view.viewport(), table.body("relu1")
    under, before = table.view.mapToScene(spot), table.view.zoom
    wheel = QWheelEvent(
        QPointF(spot),
        QPointF(port.mapToGlobal(spot)),
        QPoint(),
        QPoint(0, 240),
        Qt.MouseButton.NoButton,
        NONE,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(port, wheel)
    assert table.view.zoom > before
    assert (table.view.mapToScene(spot) - under).manhattanLength() < 3


@pytest.mark.parametrize("way", ["middle", "space"])
def test_panning_moves_the_picture_under_the_hand(table: Table, way: str) -> None:
    spot, port = table.empty(), table.view.viewport()
    under = table.view.mapToScene(spot)
    if way == "space":
        QTest.keyPress(table.view, Qt.Key.Key_Space)
    button = LEFT if way == "space" else MIDDLE
    no_step(table, lambda: table.drag(spot, spot + QPoint(-70, 40), NONE, button))
    if way == "space":
        QTest.keyRelease(table.view, Qt.Key.Key_Space)
    assert (table.view.mapToScene(spot + QPoint(-70, 40)) - under).manhattanLength() < 2
    assert port.cursor().shape() != Qt.CursorShape.ClosedHandCursor


def test_home_shows_everything_and_f_the_selection(table: Table) -> None:
    table.click(table.body("output"))
    table.view.zoom_to(3.0)
    table.key(Qt.Key.Key_Home)
    assert table.view.visible_area().contains(table.scene.content_rect())
    table.view.pan(5000, 5000)
    table.key(Qt.Key.Key_F)
    assert table.view.visible_area().contains(table.scene.rect_of(table.selection.ids))


def test_an_edit_elsewhere_ends_the_gesture(table: Table) -> None:
    port, start = table.view.viewport(), table.body("relu1")
    QTest.mousePress(port, LEFT, NONE, start)
    send_move(port, start + QPoint(60, 60), LEFT, NONE)
    table.document.apply(
        "Delete relu1", edits.delete(table.document.project, [table.id("relu1")])
    )
    send_move(port, start + QPoint(90, 90), LEFT, NONE)
    QTest.mouseRelease(port, LEFT, NONE, start)
    assert len(table.scene.nodes) == 4
    assert table.document.undo_stack.undoText() == "Delete relu1"


def test_align_and_distribute_are_one_step_each(table: Table) -> None:
    table.canvas.commands.select_all()
    before = table.document.project
    table.canvas.actions_by_key["align_middle"].trigger()
    ports = {
        table.scene.nodes[node].y() + table.scene.nodes[node].geometry.anchor
        for node in table.scene.nodes
    }
    assert len(ports) == 1
    table.document.undo_stack.undo()
    assert table.document.project == before
    assert table.document.undo_stack.count() == 1
    table.canvas.commands.select([table.id("conv1")])
    assert not table.canvas.actions_by_key["align_left"].isEnabled()


def test_a_layer_is_replaced_by_searching_another(table: Table, qtbot) -> None:
    table.canvas.commands.select([table.id("relu1")])
    before, wires = table.document.project, table.wires()
    QTest.keyClick(table.view, Qt.Key.Key_R, CTRL)
    assert table.canvas.search.isVisible()
    QTest.keyClicks(table.canvas.search.field, "gelu")
    QTest.keyClick(table.canvas.search.field, Qt.Key.Key_Return)
    node = next(
        node
        for node in table.document.project.graph.nodes.values()
        if node.op.endswith("GELU")
    )
    assert {
        (a.replace(node.name, "relu1"), b.replace(node.name, "relu1"), p)
        for a, b, p in table.wires()
    } == wires
    table.document.undo_stack.undo()
    assert table.document.project == before


def test_mute_and_freeze_by_key(table: Table) -> None:
    table.canvas.commands.select([table.id("conv1"), table.id("relu1")])
    before = table.document.project
    QTest.keyClick(table.view, Qt.Key.Key_M)
    assert all(
        table.document.project.graph.nodes[table.id(name)].muted
        for name in ("conv1", "relu1")
    )
    assert table.scene.nodes[table.id("conv1")].face.muted
    QTest.keyClick(table.view, Qt.Key.Key_F, SHIFT)
    frozen = {
        node.name for node in table.document.project.graph.nodes.values() if node.frozen
    }
    assert frozen == {"conv1", "relu1"}
    for _ in range(2):
        table.document.undo_stack.undo()
    assert table.document.project == before
    table.canvas.commands.select([table.id("input")])
    QTest.keyClick(table.view, Qt.Key.Key_M)
    assert table.document.project == before and table.said
