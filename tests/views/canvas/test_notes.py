"""Comments, frames and bends by mouse and by keyboard: each gesture is one undo step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt
from PySide6.QtGui import (
    QContextMenuEvent,
    QDragEnterEvent,
    QDragMoveEvent,
    QGuiApplication,
)
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu

from app.builder.analysis import analyse
from app.builder.edits import comments
from app.builder.sheet import COMMENT, FRAME, Comment
from app.project.document import Document
from app.project.project import Project
from app.views.canvas import Canvas
from app.views.canvas.gestures.gesture import Hit
from app.views.canvas.menus import menu_for
from app.views.canvas.view import MIME
from app.views.selection import Selection
from app.views.ui import theme
from app.views.ui.present import present
from tests.support.canvas_table import (
    CTRL,
    LEFT,
    NONE,
    OPS,
    SHIFT,
    Table,
    no_step,
    one_step,
    send_move,
    small,
)

Key = Qt.Key


@pytest.fixture
def table(qtbot, qapp) -> Iterator[Table]:
    if not qapp.styleSheet():
        theme.apply(qapp, "dark")
    theme.manager().set_reduced_motion(True)
    QGuiApplication.clipboard().clear()
    yield Table(qtbot, small())
    theme.manager().set_reduced_motion(False)


def notes(table: Table) -> dict[str, Comment]:
    return dict(table.document.project.comments)


def write(table: Table, text: str, end: Key = Key.Key_Return) -> None:
    field = table.canvas.writing.field
    assert field.isVisible()
    QTest.keyClicks(field, text)
    QTest.keyClick(field, end)


def framed(table: Table, *names: str, title: str = "features") -> str:
    table.canvas.commands.select([table.id(name) for name in names])
    table.key(Key.Key_C)
    write(table, title)
    return next(key for key, note in notes(table).items() if note.text == title)


def commented(table: Table, text: str = "look") -> str:
    table.canvas.commands.select(())
    table.canvas.writing.begin(QPointF(480, 240))
    write(table, text)
    return next(key for key, note in notes(table).items() if note.text == text)


def title(table: Table, note: str) -> QPoint:
    return table.at(table.scene.notes.items[note].body.topLeft() + QPointF(40, 16))


def corner(table: Table, note: str) -> QPoint:
    return table.at(table.scene.notes.items[note].body.bottomRight())


# --- Frames and comments ----------------------------------------------------------------------------------------


def test_c_puts_a_frame_round_the_selection_and_asks_its_name(table: Table) -> None:
    table.canvas.commands.select([table.id("conv1"), table.id("relu1")])

    def gesture() -> None:
        table.key(Key.Key_C)
        write(table, "features")

    after = one_step(table, gesture, "Put 2 nodes in a frame")
    (note,) = after.comments.values()
    assert (note.kind, note.text) == (FRAME, "features")
    held = comments.inside(
        after.comments, after.positions, table.scene.sizes(), next(iter(after.comments))
    )[0]
    assert set(held) == {table.id("conv1"), table.id("relu1")}


def test_a_new_frame_says_who_else_lies_in_it(table: Table) -> None:
    framed(table, "conv1", "relu1")
    assert not table.said
    framed(table, "input", "relu1", title="wide")
    assert table.said == ["conv1 was added to the frame and will move with it"]


def test_escape_leaves_a_new_frame_with_its_first_title(table: Table) -> None:
    table.canvas.commands.select([table.id("conv1")])

    def gesture() -> None:
        table.key(Key.Key_C)
        write(table, "nothing", Key.Key_Escape)

    (note,) = one_step(table, gesture, "Put conv1 in a frame").comments.values()
    assert note.text == "Frame"
    assert table.view.hasFocus()


def test_c_with_nothing_selected_writes_a_comment(table: Table) -> None:
    def gesture() -> None:
        table.key(Key.Key_C)
        field = table.canvas.writing.field
        QTest.keyClicks(field, "one")
        QTest.keyClick(field, Key.Key_Return, SHIFT)
        write(table, "two")

    (note,) = one_step(table, gesture, "Add comment").comments.values()
    assert (note.kind, note.text) == (COMMENT, "one\ntwo")


@pytest.mark.parametrize(
    ("text", "end"), [("", Key.Key_Return), ("words", Key.Key_Escape)]
)
def test_a_comment_that_nothing_was_written_in_is_none(
    table: Table, text: str, end: Key
) -> None:
    def gesture() -> None:
        table.key(Key.Key_C)
        write(table, text, end)

    no_step(table, gesture)


def test_a_comment_grows_with_its_text(table: Table) -> None:
    short, long = (
        commented(table, "short"),
        commented(table, ("many words " * 30).strip()),
    )
    assert notes(table)[long].height > notes(table)[short].height


def test_dragging_a_frame_takes_the_nodes_in_it_along(table: Table) -> None:
    frame, wire = (
        framed(table, "conv1", "relu1"),
        table.scene.graph.into(table.id("relu1"))[0],
    )
    table.canvas.commands.notes.bend(wire, QPointF(400, 100))
    before, conv = table.document.project, table.id("conv1")
    spot = title(table, frame)
    after = one_step(
        table,
        lambda: table.drag(spot, spot + QPoint(64, 80)),
        "Move 2 nodes and 1 frame",
    )
    shift = after.comments[frame].x - before.comments[frame].x
    assert shift == after.positions[conv][0] - before.positions[conv][0] > 0
    assert after.bends[wire][0][0] - before.bends[wire][0][0] == shift
    assert after.positions[table.id("input")] == before.positions[table.id("input")]


def test_notes_and_bends_go_along_with_nodes_that_make_way(table: Table) -> None:
    whole, last = framed(table, "conv1", "relu1"), framed(table, "output", title="end")
    note = commented(table)
    spot = QPointF(table.scene.nodes[table.id("output")].body.topLeft())
    project = table.document.project
    beside = replace(project.comments[note], x=spot.x(), y=spot.y() - 80)
    table.document.apply(
        "Move", replace(project, comments=project.comments.set(note, beside))
    )
    (wire,) = table.scene.graph.into(table.id("output"))
    table.canvas.commands.notes.bend(wire, QPointF(660, 100))
    before = table.document.project
    after = one_step(
        table,
        lambda: table.drop("nn.BatchNorm2d", table.wire("conv1", "relu1")),
        "Insert BatchNorm2d before relu1",
    )
    end = table.id("output")
    way = after.positions[end][0] - before.positions[end][0]
    assert way > 100
    assert after.comments == before.comments.update(
        {
            whole: replace(
                before.comments[whole], width=before.comments[whole].width + way
            ),
            last: replace(before.comments[last], x=before.comments[last].x + way),
            note: replace(beside, x=beside.x + way),
        }
    )
    ((x, y),) = before.bends[wire]
    assert after.bends[wire] == ((x + way, y),)
    nodes, _ = comments.taken_along(after, [whole], table.scene.sizes())
    assert nodes == {table.id(name) for name in ("conv1", "bn1", "relu1")}

    table.click(table.body("bn1"))
    closed = one_step(
        table,
        lambda: table.key(Key.Key_Delete, CTRL),
        "Delete bn1 and reconnect",
    )
    back = closed.positions[end][0] - after.positions[end][0]
    assert back < 0
    assert closed.comments[last].x == after.comments[last].x + back
    assert closed.comments[note].x == after.comments[note].x + back
    assert closed.comments[whole].width == after.comments[whole].width + back


def test_a_row_that_does_not_move_leaves_its_notes(table: Table) -> None:
    frame, note = framed(table, "fc1"), commented(table)
    before = notes(table)
    assert table.drop("nn.BatchNorm2d", table.wire("conv1", "relu1"))
    assert notes(table)[frame] == before[frame] and note in before


def test_a_frame_is_round_its_nodes_after_they_are_laid_out_in_rows(
    table: Table,
) -> None:
    last = table.id("relu1")
    names = ["relu1"]
    for _ in range(14):
        table.selection.set([last])
        last = present(table.canvas.add_op("nn.ReLU"))
        names.append(table.document.project.graph.nodes[last].name)
    frame = framed(table, *names[-4:])
    assert table.canvas.zoom_control.wrap.isVisible()
    one_step(
        table, lambda: QTest.mouseClick(table.canvas.zoom_control.wrap, LEFT), "Lay out"
    )
    nodes, _ = comments.taken_along(
        table.document.project, [frame], table.scene.sizes()
    )
    assert nodes == {table.id(name) for name in names[-4:]}


def test_escape_puts_a_dragged_frame_back(table: Table) -> None:
    frame = framed(table, "conv1")
    place = table.scene.notes.items[frame].pos()

    def gesture() -> None:
        spot = title(table, frame)
        QTest.mousePress(table.view.viewport(), Qt.MouseButton.LeftButton, NONE, spot)
        send_move(table.view.viewport(), spot + QPoint(50, 50), LEFT, NONE)
        assert table.scene.notes.items[frame].pos() != place
        table.key(Key.Key_Escape)
        QTest.mouseRelease(
            table.view.viewport(),
            Qt.MouseButton.LeftButton,
            NONE,
            spot + QPoint(50, 50),
        )

    no_step(table, gesture)
    assert table.scene.notes.items[frame].pos() == place


def test_edges_resize(table: Table) -> None:
    note = commented(table)
    before = notes(table)[note]
    spot = corner(table, note)
    after = one_step(
        table, lambda: table.drag(spot, spot + QPoint(80, 40)), "Resize comment"
    ).comments[note]
    assert (after.x, after.y) == (before.x, before.y)
    assert after.width > before.width and after.height > before.height


def test_an_edge_does_not_go_past_the_other(table: Table) -> None:
    frame = framed(table, "conv1")
    body = table.scene.notes.items[frame].body
    spot = table.at(QPointF(body.left(), body.bottom() - 20))
    after = one_step(
        table, lambda: table.drag(spot, spot + QPoint(900, 0)), "Resize frame"
    ).comments[frame]
    assert after.width == comments.LEAST_WIDTH
    assert after.x + after.width == pytest.approx(body.right())


def test_double_click_and_enter_edit_the_text(table: Table) -> None:
    note = commented(table)
    spot = table.at(table.scene.notes.items[note].body.center())

    def by_mouse() -> None:
        table.click(spot)
        QTest.mouseDClick(table.view.viewport(), Qt.MouseButton.LeftButton, NONE, spot)
        write(table, "again")

    assert one_step(table, by_mouse, "Edit comment").comments[note].text == "again"

    def by_key() -> None:
        table.canvas.commands.select((), [note])
        table.key(Key.Key_Return)
        write(table, "and again")

    assert one_step(table, by_key, "Edit comment").comments[note].text == "and again"


def test_delete_takes_the_frame_and_leaves_the_nodes(table: Table) -> None:
    frame = framed(table, "conv1", "relu1")
    table.click(title(table, frame))
    assert table.scene.notes.selected == {frame} and not table.selection.ids
    after = one_step(table, lambda: table.key(Key.Key_Delete), "Delete 1 frame")
    assert not after.comments and len(after.graph.nodes) == 5


def test_a_frame_is_copied_with_what_lies_in_it_between_windows(
    table: Table, qtbot
) -> None:
    frame = framed(table, "conv1", "relu1")
    wire = table.scene.graph.into(table.id("relu1"))[0]
    table.canvas.commands.notes.bend(wire, QPointF(400, 100))
    table.click(title(table, frame))
    table.key(Key.Key_C, CTRL)
    other = Canvas(Document(Project()), Selection(), OPS)
    qtbot.addWidget(other)
    other.commands.paste()
    project = other.document.project
    assert [note.text for note in project.comments.values()] == ["features"]
    assert {node.name for node in project.graph.nodes.values()} == {"conv1", "relu1"}
    assert len(project.bends) == 1


def test_comments_alone_are_cut_and_pasted(table: Table) -> None:
    note = commented(table)
    table.canvas.commands.select((), [note])
    assert not one_step(
        table, lambda: table.key(Key.Key_X, CTRL), "Cut 1 comment"
    ).comments
    pasted = one_step(table, table.canvas.commands.paste, "Paste 1 comment")
    assert [note.text for note in pasted.comments.values()] == ["look"]


def test_the_marquee_takes_notes_and_shift_adds(table: Table) -> None:
    frame, note = framed(table, "conv1"), commented(table)
    whole = table.scene.content_rect().adjusted(-20, -20, 20, 20)
    table.drag(table.at(whole.topLeft()), table.at(whole.bottomRight()))
    assert table.scene.notes.selected == {frame, note} and len(table.selection.ids) == 5
    table.click(table.empty())
    assert not table.scene.notes.selected
    table.click(table.body("input"))
    table.click(title(table, frame), SHIFT)
    assert table.scene.notes.selected == {frame} and table.names() == {"input"}


def test_a_press_in_a_frame_begins_a_marquee_and_nodes_in_it_are_clicked(
    table: Table,
) -> None:
    frame = framed(table, "conv1", "relu1")
    table.click(table.body("conv1"))
    assert table.names() == {"conv1"} and not table.scene.notes.selected
    inside = table.scene.notes.items[frame].body.bottomLeft() + QPointF(12, -12)
    assert table.scene.hit(inside) == Hit()


def test_the_colour_comes_from_the_menu(table: Table) -> None:
    frame = framed(table, "conv1")
    menu = menu_for(table.canvas, Hit(note=frame), QPoint(10, 10))
    colours = next(
        action.menu() for action in menu.actions() if action.text() == "Colour"
    )
    assert isinstance(colours, QMenu)
    choice = next(
        action for action in colours.actions() if action.text() == "Convolution"
    )
    assert (
        one_step(table, choice.trigger, "Colour 1 frame").comments[frame].color
        == "conv"
    )


def test_the_menu_of_a_frame_selects_what_is_in_it(table: Table) -> None:
    frame = framed(table, "conv1", "relu1")
    menu = menu_for(table.canvas, Hit(note=frame), QPoint(10, 10))
    next(
        action for action in menu.actions() if action.text() == "Select contents"
    ).trigger()
    assert table.names() == {"conv1", "relu1"} and table.scene.notes.selected == {frame}


def test_the_menu_key_opens_the_menu_of_what_is_selected(table: Table) -> None:
    frame, wire = framed(table, "conv1"), table.scene.graph.into(table.id("relu1"))[0]
    for select, entry in (
        (lambda: table.canvas.commands.select((), [frame]), "Colour"),
        (lambda: table.canvas.commands.select([table.id("fc1")]), "Connect to…"),
        (lambda: table.canvas.commands.select_wire(wire), "Add a bend"),
        (lambda: table.canvas.commands.select(()), "Comment here"),
    ):
        select()
        spot = QPoint(1, 1)
        event = QContextMenuEvent(
            QContextMenuEvent.Reason.Keyboard, spot, table.view.mapToGlobal(spot)
        )
        QApplication.sendEvent(table.view.viewport(), event)
        menu = table.canvas.findChildren(
            QMenu, options=Qt.FindChildOption.FindDirectChildrenOnly
        )[-1]
        assert entry in [action.text() for action in menu.actions()]
        menu.close()


def test_notes_by_keyboard_alone(table: Table) -> None:
    frame, note = framed(table, "conv1"), commented(table)
    table.canvas.commands.select(())
    table.key(Key.Key_N)
    assert table.scene.notes.selected == {frame}
    table.key(Key.Key_N)
    assert table.scene.notes.selected == {note}
    table.key(Key.Key_N, SHIFT)
    before = notes(table)[frame]
    moved = one_step(
        table,
        lambda: [table.key(Key.Key_Right, SHIFT) for _ in "12"],
        "Move 1 node and 1 frame",
    )
    assert moved.comments[frame].x == before.x + 16
    wider = one_step(
        table, lambda: [table.key(Key.Key_Right, CTRL) for _ in "12"], "Resize 1 frame"
    )
    assert wider.comments[frame].width == before.width + 16


def test_a_frame_tells_its_parameters_and_its_title_grows_from_afar(
    table: Table,
) -> None:
    frame = framed(table, "conv1", "relu1")
    table.canvas.set_analysis(analyse(table.document.project.graph))
    item = table.scene.notes.items[frame]
    count = table.scene.analysis.parameters[table.id("conv1")]
    assert [line.text for _, line in item._lines] == ["features", f"{count:,} params"]
    assert not item.title.isVisible()
    table.view.zoom_to(0.2)
    assert item.title.isVisible() and item.title.boundingRect().height() * 0.2 > 10
    assert table.scene.hit(item.title.sceneBoundingRect().center(), 0.2).note == frame


def test_fit_brings_a_frame_close(table: Table) -> None:
    frame = framed(table, "conv1")
    before = table.document.project
    table.canvas.commands.notes.resize(frame, comments.Area(100, -200, 900, 100))
    table.canvas.commands.select((), [frame])
    table.canvas.actions_by_key["fit_frame"].trigger()
    assert (
        table.document.project.comments[frame].height == before.comments[frame].height
    )


# --- Bends ------------------------------------------------------------------------------------------------------


def test_pulling_a_wire_bends_it(table: Table) -> None:
    wire = table.scene.graph.into(table.id("relu1"))[0]
    spot = table.wire("conv1", "relu1")
    after = one_step(
        table,
        lambda: table.drag(spot, spot + QPoint(0, 80)),
        "Bend the wire from conv1 to relu1",
    )
    ((_, y),) = after.bends[wire]
    assert y == round(y / 8) * 8
    path = table.scene.wires[wire].route.path
    assert path.boundingRect().bottom() >= y - 1
    bend = table.at(table.scene.bends.points(wire)[0])
    again = one_step(
        table,
        lambda: table.drag(bend, bend + QPoint(8, -40)),
        "Bend the wire from conv1 to relu1",
    )
    assert len(again.bends[wire]) == 1 and again.bends[wire] != after.bends[wire]


def test_double_click_puts_a_bend_and_takes_it_away(table: Table) -> None:
    port, spot = table.view.viewport(), table.wire("conv1", "relu1")
    left = Qt.MouseButton.LeftButton
    made = one_step(
        table,
        lambda: QTest.mouseDClick(port, left, NONE, spot),
        "Bend the wire from conv1 to relu1",
    )
    (wire,) = made.bends
    bend = table.at(table.scene.bends.points(wire)[0])
    text = "Remove a bend of the wire from conv1 to relu1"
    assert not one_step(
        table, lambda: QTest.mouseDClick(port, left, NONE, bend), text
    ).bends


def test_a_selected_bend_is_nudged_and_deleted_by_key(table: Table) -> None:
    table.canvas.commands.select([table.id("relu1")])
    made = one_step(
        table, lambda: table.key(Key.Key_B), "Bend the wire from conv1 to relu1"
    )
    (wire,) = made.bends
    ((x, y),) = made.bends[wire]
    table.canvas.commands.select_wire(wire, 0)
    text = "Bend the wire from conv1 to relu1"
    nudged = one_step(
        table, lambda: [table.key(Key.Key_Down, SHIFT) for _ in "12"], text
    )
    assert nudged.bends[wire] == ((x, y + 16),)
    table.canvas.commands.select_wire(wire, 0)
    text = "Remove a bend of the wire from conv1 to relu1"
    assert not one_step(table, lambda: table.key(Key.Key_Delete), text).bends
    assert wire in table.document.project.graph.edges


def test_a_bent_wire_goes_round_the_nodes_at_its_ends(table: Table) -> None:
    wire = table.scene.graph.into(table.id("relu1"))[0]
    table.canvas.commands.notes.bend(wire, QPointF(200, 300))
    path = table.scene.wires[wire].route.path
    points = [path.pointAtPercent(i / 200) for i in range(3, 198)]
    assert not any(
        table.scene.nodes[table.id(name)].body.contains(p)
        for name in ("conv1", "relu1")
        for p in points
    )


def test_escape_straightens_a_wire_being_pulled(table: Table) -> None:
    port, spot = table.view.viewport(), table.wire("conv1", "relu1")

    def gesture() -> None:
        QTest.mousePress(port, LEFT, NONE, spot)
        send_move(port, spot + QPoint(0, 60), LEFT, NONE)
        assert table.scene.bends.bodies()
        table.key(Key.Key_Escape)
        QTest.mouseRelease(port, LEFT, NONE, spot)

    no_step(table, gesture)
    assert not table.scene.bends.bodies()


# --- Lay out ----------------------------------------------------------------------------------------------------


def test_a_selection_is_laid_out_in_its_place(table: Table) -> None:
    chosen = [table.id(name) for name in ("conv1", "relu1")]
    table.canvas.commands.select(chosen)
    table.canvas.commands.shift([table.id("relu1")], [], 0, 200)
    before = table.document.project.positions
    after = one_step(table, lambda: table.key(Key.Key_L), "Lay out 2 nodes").positions
    assert after[table.id("conv1")] == before[table.id("conv1")]
    assert after[table.id("relu1")] != before[table.id("relu1")]
    assert after[table.id("input")] == before[table.id("input")]


def test_nodes_glide_to_their_places_and_the_document_changes_once(
    table: Table, qtbot
) -> None:
    theme.manager().set_reduced_motion(False)
    table.canvas.commands.shift([table.id("relu1")], [], 64, 2000)
    relu, count = table.id("relu1"), table.document.undo_stack.index()
    start = table.scene.nodes[relu].pos()
    table.key(Key.Key_L)
    assert table.canvas.glide.running and table.scene.nodes[relu].pos() == start
    assert table.document.undo_stack.index() == count + 1
    seen = table.view.visible_area()
    qtbot.waitUntil(lambda: not table.canvas.glide.running)
    assert table.view.visible_area() == seen and seen.contains(
        table.scene.content_rect()
    )
    fresh = Canvas(Document(table.document.project), Selection(), OPS)
    qtbot.addWidget(fresh)
    for wire, item in table.scene.wires.items():
        assert item.route.path == fresh.scene.wires[wire].route.path, (
            "wires have found their ways"
        )
    assert (
        table.scene.nodes[relu].x(),
        table.scene.nodes[relu].y(),
    ) == table.document.project.positions[relu]


def test_a_press_ends_the_glide(table: Table) -> None:
    theme.manager().set_reduced_motion(False)
    table.canvas.commands.shift([table.id("relu1")], [], 64, 200)
    table.key(Key.Key_L)
    table.click(QPoint(5, 5))
    relu = table.id("relu1")
    assert not table.canvas.glide.running
    assert (
        table.scene.nodes[relu].x(),
        table.scene.nodes[relu].y(),
    ) == table.document.project.positions[relu]


# --- At the edge of the view ------------------------------------------------------------------------------------


def test_the_view_moves_along_while_something_is_dragged_at_its_edge(
    table: Table, qtbot
) -> None:
    port = table.view.viewport()
    edge = QPoint(port.width() - 4, port.height() // 2)
    start, before = table.body("relu1"), table.view.visible_area().left()
    QTest.mousePress(port, LEFT, NONE, start)
    send_move(port, edge, LEFT, NONE)
    place = table.scene.nodes[table.id("relu1")].x()
    table.canvas.autoscroll.tick()
    assert (
        table.view.visible_area().left() == before
    )  # who passes over the edge wants to stay
    qtbot.waitUntil(lambda: table.view.visible_area().left() > before + 20)
    assert table.scene.nodes[table.id("relu1")].x() > place
    QTest.mouseRelease(port, LEFT, NONE, edge)
    seen = table.view.visible_area().left()
    table.canvas.autoscroll.tick()
    assert table.view.visible_area().left() == seen
    assert table.document.undo_stack.undoText() == "Move relu1"


def test_a_layer_dragged_in_over_the_edge_moves_nothing_until_it_comes_back_to_it(
    table: Table, qtbot
) -> None:
    edge, inside = QPoint(4, 300), QPoint(400, 300)
    before = table.view.visible_area()
    data = QMimeData()
    data.setData(MIME, b"nn.ReLU")
    for spot, moves in ((edge, False), (inside, False), (edge, True)):
        enter = QDragEnterEvent(spot, Qt.DropAction.CopyAction, data, LEFT, NONE)
        move = QDragMoveEvent(spot, Qt.DropAction.CopyAction, data, LEFT, NONE)
        if table.view.gesture is None:
            QApplication.sendEvent(table.view.viewport(), enter)
        QApplication.sendEvent(table.view.viewport(), move)
        table.canvas.autoscroll.tick()
        if not moves:
            assert table.view.visible_area() == before
    qtbot.waitUntil(lambda: table.view.visible_area() != before)
    table.view.cancel_gesture()


def test_a_press_at_the_edge_moves_nothing(table: Table) -> None:
    port = table.view.viewport()
    before = table.view.visible_area()
    QTest.mousePress(port, LEFT, NONE, QPoint(3, 300))
    table.canvas.autoscroll.tick()
    assert table.view.visible_area() == before
    QTest.mouseRelease(port, LEFT, NONE, QPoint(3, 300))
