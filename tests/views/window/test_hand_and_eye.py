"""Building by keyboard and mouse: out of a field and back, nodes put on wires, search that leads somewhere."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.views.ui import theme
from app.views.ui.dialogs.search import SearchDialog
from app.views.ui.graphview import small_names
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

CTRL = Qt.KeyboardModifier.ControlModifier
KEY = Qt.Key


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    window.canvas.view.setFocus()
    return window


def node(window: WholeWindow, name: str) -> str:
    return next(
        key
        for key, each in window.sheet.project.graph.nodes.items()
        if each.name == name
    )


def focus() -> QWidget:
    found = QApplication.focusWidget()
    assert found is not None
    return found


def press(
    key: Qt.Key, keys: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> None:
    QTest.keyClick(focus(), key, keys)


def first_conv(window: WholeWindow) -> str:
    return next(
        key
        for key, each in window.sheet.project.graph.nodes.items()
        if each.op == "nn.Conv2d"
    )


def test_a_field_is_entered_and_left_by_keyboard(
    qtbot: QtBot, window: WholeWindow
) -> None:
    conv, view, stack = (
        first_conv(window),
        window.canvas.view,
        window.document.undo_stack,
    )

    def channels() -> object:
        return window.sheet.project.graph.nodes[conv].params["out_channels"]

    window.selection.set([conv])
    before, steps = channels(), stack.index()
    press(KEY.Key_Return)
    line = focus()
    assert line.accessibleName() == "out_channels"
    QTest.keyClick(line, KEY.Key_A, CTRL)
    QTest.keyClicks(line, "24")
    assert channels() == before, "a value counts when it is committed"
    press(KEY.Key_Return)
    assert channels() == 24 and stack.index() == steps + 1 and focus() is view
    press(KEY.Key_Return)
    QTest.keyClick(focus(), KEY.Key_A, CTRL)
    QTest.keyClicks(focus(), "31")
    press(KEY.Key_Escape)
    assert channels() == 24 and focus() is view and line.text() == "24"
    press(KEY.Key_Return)
    QTest.keyClick(focus(), KEY.Key_A, CTRL)
    QTest.keyClicks(focus(), "40")
    window.toolbar.deck.transport.button("run").setFocusPolicy(Qt.FocusPolicy.NoFocus)
    QTest.mouseClick(
        window.toolbar.deck.counter, Qt.MouseButton.LeftButton
    )  # which takes no focus
    assert channels() == 40, "a click elsewhere commits, whoever has the focus then"
    QTest.keyClicks(line, "1")
    QTest.keyClick(line, KEY.Key_Z, CTRL)
    ready(qtbot, window)
    assert channels() == 24 and line.text() == "24", (
        "undo takes back what was typed in this visit"
    )
    window.outline.field.setFocus()
    press(KEY.Key_Escape)
    assert focus() is view, "out of a search, too"


def test_a_node_dropped_on_a_wire_is_inserted(
    qtbot: QtBot, window: WholeWindow
) -> None:
    canvas, conv = window.canvas, first_conv(window)
    (wire,) = window.sheet.project.graph.out_of(conv)
    new = canvas.commands.add_at("nn.Dropout", QPointF(0, 600))
    assert new is not None
    canvas.frame_all()
    view = canvas.view
    start = view.mapFromScene(canvas.scene.nodes[new].body.center())
    end = view.mapFromScene(canvas.scene.wires[wire].route.path.pointAtPercent(0.5))
    steps = window.document.undo_stack.index()
    port = view.viewport()
    QTest.mousePress(port, Qt.MouseButton.LeftButton, pos=start)
    for at in (start + QPoint(12, 0), end - QPoint(3, 0), end):
        QTest.mouseMove(port, at)
    assert canvas.scene.hovered_wire == wire, "the wire lights up before the drop"
    QTest.mouseRelease(port, Qt.MouseButton.LeftButton, pos=end)
    graph = window.sheet.project.graph
    assert [edge.source for edge in graph.into(new)] == [conv]
    assert [edge.target for edge in graph.out_of(new)] == [wire.target]
    assert window.document.undo_stack.index() == steps + 1
    window.document.undo_stack.undo()
    assert wire in window.sheet.project.graph.edges


def test_copies_cover_nothing_and_come_at_the_pointer(window: WholeWindow) -> None:
    canvas, conv = window.canvas, first_conv(window)
    window.selection.set([conv])
    for _ in range(3):
        canvas.commands.duplicate()
        (new,) = window.selection.ids
        body = canvas.scene.nodes[new].body
        assert set(canvas.scene.index.inside(body)) == {new}
    canvas.commands.copy()
    canvas.commands.paste(middle=QPointF(1000, 1400))
    (new,) = window.selection.ids
    assert (
        canvas.scene.nodes[new].body.center() - QPointF(1000, 1400)
    ).manhattanLength() < 40


def test_found_nodes_are_stepped_through_and_framed(window: WholeWindow) -> None:
    press(KEY.Key_F, CTRL)
    assert focus() is window.outline.field
    QTest.keyClicks(focus(), "relu")
    relus = [
        key
        for key, each in window.sheet.project.graph.nodes.items()
        if each.op == "nn.ReLU"
    ]
    seen = []
    for _ in range(len(relus) + 1):
        press(KEY.Key_Return)
        assert focus() is window.outline.field
        seen.append(window.selection.single)
        assert window.canvas.view.visible_area().contains(
            window.canvas.scene.nodes[seen[-1]].body
        )
    assert seen[:-1] == relus and seen[-1] == relus[0]
    press(KEY.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert window.selection.single == relus[-1]
    press(KEY.Key_Escape)
    press(KEY.Key_Escape)
    assert focus() is window.canvas.view


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("conv2d", "Add Conv2d"),
        ("theme dark", "Theme: Dark"),
        ("settings", "Settings"),
        ("relu1", "Go to relu1"),
        ("batch_size", "Set batch_size"),
        ("zoom at", "Zoom at the pointer: Wheel"),
        ("save", "Save"),
    ],
)
def test_ctrl_k_finds(window: WholeWindow, typed: str, found: str) -> None:
    window.actions_by_key["commands"].trigger()
    palette = window.findChildren(SearchDialog)[-1]
    QTest.keyClicks(palette.field, typed)
    rows = [
        palette.model.data(palette.model.index(row))
        for row in range(min(4, palette.model.rowCount()))
    ]
    assert any(row.startswith(found) for row in rows), rows
    palette.reject()


def test_errors_lead_to_their_node(qtbot: QtBot, window: WholeWindow) -> None:
    conv = first_conv(window)
    window.document.apply("break", window.canvas.commands.project)
    project = window.sheet.project
    graph = project.graph.with_param(conv, "in_channels", 7)
    window.sheet.apply("Break", replace(project, graph=graph))
    qtbot.waitUntil(lambda: len(window.live.errors) == 1)
    counter = window.toolbar.deck.counter
    qtbot.waitUntil(lambda: counter.leads)
    window.outline.field.setFocus()
    QTest.mouseClick(
        counter, Qt.MouseButton.LeftButton, pos=counter.message_rect().center()
    )
    assert window.selection.ids == {conv} and focus() is window.canvas.view
    window.selection.set(())
    window.outline.field.setFocus()
    QTest.mouseClick(window.status._left["errors"], Qt.MouseButton.LeftButton)
    assert window.selection.ids == {conv} and focus() is window.canvas.view


def test_the_u_net_shows_every_name_in_a_readable_size(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.files.open_example("U-Net.tape")
    ready(qtbot, window)
    window.canvas.frame_all()
    zoom = window.canvas.view.zoom
    assert zoom < 0.4 and window.canvas.scene.near.isVisible()
    metrics = QFontMetricsF(theme.font("node"))
    for item in window.canvas.scene.nodes.values():
        room = (item.geometry.width * zoom - 4 - 2 * zoom) / small_names.SQUEEZED
        assert (
            metrics.horizontalAdvance(item.face.name) * small_names.LEGIBLE <= room
        ), item.face.name


@pytest.mark.parametrize("scale", ["1.25", "1.5", "2.0"])
def test_a_net_too_large_for_the_view_lies_beside_the_overlays(
    qtbot, window: WholeWindow, scale: str
) -> None:
    canvas = window.canvas
    window.resize(1280, 800)
    window.actions_by_key[f"text-size.{scale}"].trigger()
    qtbot.waitUntil(lambda: canvas.zoom_control.isVisible())
    canvas.frame_all()
    bodies = [canvas.on_canvas(node.body) for node in canvas.scene.nodes.values()]
    assert (
        any(not QRectF(canvas.rect()).contains(body) for body in bodies)
        or scale == "1.25"
    )
    for overlay in (canvas.minimap, canvas.zoom_control, canvas.breadcrumb):
        assert not overlay.isVisible() or not any(
            body.intersects(QRectF(overlay.geometry())) for body in bodies
        )
    assert canvas.view.zoom >= 0.6 * float(scale), "the text stays legible"


@pytest.mark.parametrize("size", [(1024, 700), (1280, 800), (1600, 1000)])
def test_a_node_that_is_selected_elsewhere_or_added_lies_under_no_overlay(
    qtbot, window: WholeWindow, size: tuple[int, int]
) -> None:
    window.resize(*size)
    canvas, view = window.canvas, window.canvas.view
    canvas.frame_all()
    QApplication.processEvents()

    def covered(name: str) -> list[str]:
        area = canvas.on_canvas(canvas.scene.nodes[name].body)
        shown = (
            one for one in (canvas.minimap, canvas.zoom_control) if one.isVisible()
        )
        return [
            type(one).__name__
            for one in shown
            if area.intersects(QRectF(one.geometry()))
        ]

    assert not [name for name in canvas.scene.nodes if covered(name)], (
        "a whole net that is framed lies beside them"
    )
    node = next(
        node.id
        for node in window.document.project.graph.nodes.values()
        if node.name == "relu3"
    )
    for overlay in (canvas.minimap, canvas.zoom_control):
        view.show_corner(
            canvas.scene.nodes[node].body.topLeft(),
            QPointF(overlay.pos() + QPoint(20, -20)),
            0.7,
        )
        assert covered(node)
        window.selection.set([])
        window.selection.set([node])
        assert not covered(node) and QRectF(canvas.rect()).contains(
            canvas.on_canvas(canvas.scene.nodes[node].body)
        )
