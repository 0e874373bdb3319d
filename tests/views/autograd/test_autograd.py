"""The Autograd tab under mouse and keys; and the pictures that it paints itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import cache

import pytest
from PySide6.QtCore import QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QImage, QPainter, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QWidget

from app.autograd.blocks import group_by_block
from app.autograd.grouping import LayerGroup, held_by_module
from app.autograd.tape import Tape, TapeNode
from app.diagram.diagram import Drawing
from app.views.autograd.graph import parts
from app.views.autograd.graph.arrow_paths import ArrowPath
from app.views.autograd.graph.playback_paint import EdgeFlow
from app.views.autograd.page import AutogradPage
from app.views.ui import theme
from app.views.ui.graphview import small_names
from app.views.ui.inspector import TapeInspector
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.fitting_label import FittingLabel
from tests.support.autograd_tapes import TEXT, small_tape

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def room(qtbot, qapp) -> Iterator[AutogradPage]:
    theme.apply(qapp, "dark")
    widget = AutogradPage()
    qtbot.addWidget(widget)
    widget.resize(1300, 800)
    with qtbot.waitExposed(widget):
        widget.show()
    yield widget


@cache
def block_tape() -> Tape:
    """A net with a block of many tensors and long names."""
    import torch
    from torch import nn

    from app.autograd.batch import TrainingBatch

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(*(Part.one() for _ in range(12)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.blocks(x)

        @staticmethod
        def one() -> nn.Module:
            parts = {
                "convolution": nn.Conv2d(2, 2, 3, padding=1),
                "norm": nn.BatchNorm2d(2),
                "act": nn.Tanh(),
            }
            return nn.Sequential(OrderedDict(parts))

    model = nn.Sequential(
        OrderedDict(encoder_with_a_long_name=Part(), head=nn.Flatten())
    )
    return TrainingBatch(
        model, torch.ones(2, 2, 4, 4), lambda output, _: output.sum()
    ).capture()


def at(room: AutogradPage, key: str, dx: float, dy: float) -> QPoint:
    part = room.scene.part(key)
    return room.view.mapFromScene(QPointF(part.place.x + dx, part.place.y + dy))


def click(room: AutogradPage, key: str, dx: float, dy: float) -> None:
    QTest.mouseClick(room.view.viewport(), LEFT, pos=at(room, key, dx, dy))


def box_named(room: AutogradPage, title: str) -> str:
    return next(
        key for key, item in room.scene.boxes.items() if item.box.title == title
    )


def label_text(widget: QWidget) -> str:
    return "\n".join(label.text() for label in widget.findChildren(QLabel))


# -- states ------------------------------------------------------------------------------------------------------------


def test_an_empty_tab_asks_for_a_batch(room, qtbot) -> None:
    assert room.drawing() is None
    with qtbot.waitSignal(room.captureRequested) as asked:
        QTest.mouseClick(room.offer.button, LEFT)
    assert asked.args == [True]


def test_busy_and_failed_are_said_and_an_old_graph_stays(room, qtbot) -> None:
    room.show_busy()
    assert "Running the forward pass" in label_text(room)
    room.show_error("The batch did not run through", "shapes disagree")
    assert room.banner.isVisible() and room._pages.currentIndex() == 0
    room.set_tape(small_tape())
    assert not room.banner.isVisible()
    room.show_busy()
    assert room.head.capture.text() == "Cancel" and room._pages.currentIndex() == 2
    room.show_error("The batch did not run through", "shapes disagree")
    assert (
        room.head.capture.text() == "Capture again"
        and room._pages.currentIndex() == 2
        and room.banner.isVisible()
    )


def test_a_capture_under_way_is_cancelled_by_button_and_escape_and_the_page_is_as_before(
    room, qtbot
) -> None:
    room.show_busy()
    with qtbot.waitSignal(room.cancelled):
        QTest.mouseClick(room._busy.button, LEFT)
    room.show_idle()
    assert "No graph captured yet" in label_text(room)
    room.set_tape(small_tape())
    room.set_source_text(TEXT + "# changed")
    room.head.mode.set_value("eval")
    room.show_busy()
    assert not room.banner.isVisible()
    with qtbot.waitSignal(room.cancelled):
        QTest.mouseClick(room.head.capture, LEFT)
    with qtbot.waitSignal(room.cancelled):
        QTest.keyClick(room.view, Qt.Key.Key_Escape)
    room.show_idle()
    assert room.banner.isVisible() and room.head.capture.text() == "Capture again"
    assert room.head.mode.value() == "train", (
        "the mode is that of the graph that is shown"
    )
    with qtbot.assertNotEmitted(room.cancelled):
        QTest.keyClick(room.view, Qt.Key.Key_Escape)


def test_a_changed_net_is_noticed(room) -> None:
    room.set_tape(small_tape())
    room.set_source_text(TEXT)
    assert not room.banner.isVisible()
    room.set_source_text(TEXT + "# changed")
    assert "has changed" in label_text(room.banner) and room.banner.isVisible()
    room.set_source_text(TEXT)
    assert not room.banner.isVisible()


def test_the_head_line_says_what_is_shown(room) -> None:
    room.set_tape(small_tape())
    assert f"{len(small_tape().nodes)} nodes · loss" in label_text(room.head)
    assert "on the CPU, whichever device runs use" in room.head.capture.toolTip()
    assert "held for backward" in label_text(room.head)


def test_the_head_line_fits_a_narrow_window(room, qtbot) -> None:
    room.set_tape(small_tape())
    for width in (1300, 900, 700, 520):
        room.resize(width, 700)
        qtbot.waitUntil(lambda width=width: room.head.width() == width)
        shown = [
            w
            for w in room.head.findChildren(QWidget)
            if w.isVisible() and w.parent() is room.head
        ]
        assert all(w.geometry().right() <= width for w in shown)
        for one, other in zip(
            sorted(shown, key=QWidget.x), sorted(shown, key=QWidget.x)[1:], strict=False
        ):
            assert one.geometry().right() <= other.x()
        assert (
            room.head.grouping.isVisible()
            and room.head.capture.isVisible()
            and room.head.export.isVisible()
        )


@pytest.mark.parametrize("text", [1.0, 2.0])
def test_no_control_of_a_head_line_is_squeezed_or_cut(
    room, qtbot, qapp, text: float
) -> None:
    room.set_tape(small_tape())
    theme.apply(qapp, "dark", text)
    try:
        for wanted in (520, 360, 290):
            room.resize(wanted, 700)
            qtbot.waitUntil(lambda: room.head.width() == room.width())
            width = room.width()  # it may not be as narrow
            shown = [
                one
                for one in room.head.findChildren(QWidget)
                if one.isVisible() and one.parent() is room.head
            ]
            controls = [one for one in shown if one is not room.head.summary]
            assert controls and all(
                one.geometry().right() < width for one in controls
            ), width
            assert not [
                one
                for one in controls
                if one.width() < min(one.sizeHint().width(), one.maximumWidth())
            ], width
    finally:
        theme.apply(qapp, "dark", 1.0)


def test_the_overview_does_not_cover_a_small_view(room, qtbot) -> None:
    room.set_tape(small_tape())
    room.resize(1200, 500)
    room.view.zoom_by(8.0)
    for height, seen in ((500, True), (200, False)):
        qtbot.waitUntil(
            lambda height=height: room.resize(1200, height) or room.height() == height
        )  # once it may
        qtbot.waitUntil(lambda seen=seen: room.minimap.isVisible() is seen)


# -- folding -----------------------------------------------------------------------------------------------------------


def test_the_summary_and_the_weights_are_read_whole_beside_the_options_of_a_narrow_window(
    room, qtbot
) -> None:
    head = room.head
    for text in ("Batch 64", "Options"):
        head.add(Button(text))
    room.set_weights("weights of Run 1 at step 69")
    room.set_tape(small_tape())
    for width, line in ((748, head.below), (2200, head.summary)):
        room.resize(width, 500)
        qtbot.waitUntil(lambda: head.width() == width)  # noqa: B023
        assert line.isVisible() and line.text() == head.accessibleName()
        assert line.text().endswith("held for backward · weights of Run 1 at step 69")
        assert (
            line.fontMetrics().horizontalAdvance(line.text())
            <= line.contentsRect().width() + 1
        )
    assert not head.below.isVisible()


def test_the_chevron_folds_and_unfolds_under_the_pointer(room, qtbot) -> None:
    room.set_tape(small_tape())
    assert "node:n1" in room.scene.groups
    spot = at(room, "node:n1", 11, 11)
    QTest.mouseClick(room.view.viewport(), LEFT, pos=spot)
    assert "node:n1" not in room.scene.groups and "fold:node:n1" in room.scene.boxes
    assert "node:n1" not in room.unfolded
    part = room.view._part_at(spot)
    assert part is not None and part.key == "fold:node:n1", (
        "the header stays under the pointer"
    )
    QTest.mouseClick(room.view.viewport(), LEFT, pos=spot)
    assert "node:n1" in room.scene.groups and "fold:node:n1" not in room.scene.boxes


def test_folding_leaves_what_fits_in_sight(room) -> None:
    room.set_tape(small_tape())
    for key in ("node:n1", "loss", "node:n5", "node:n1"):
        room.toggle(key)
        seen = room.view.mapToScene(room.view.viewport().rect()).boundingRect()
        whole = room.view.whole_area()
        part = seen.intersected(whole)
        assert part.width() * part.height() >= 0.8 * whole.width() * whole.height()


def test_a_group_opened_at_the_side_of_a_low_view_leaves_no_empty_side(room) -> None:
    room.set_tape(small_tape())
    room.toggle("loss")
    room.resize(room.width(), 250)
    room.view.zoom_to(0.6)
    part = room.scene.part("fold:loss")
    room.view.pan(
        room.view.viewport().width()
        - 20
        - room.view.mapFromScene(part.extent.topLeft()).x(),
        0,
    )
    room.toggle("loss")
    seen, whole = room.view.visible_area(), room.view.whole_area()
    assert seen.height() < whole.height() and whole.width() < seen.width()
    assert seen.left() <= whole.left() + 2 and whole.right() <= seen.right() + 2


def test_enter_folds_the_layer_of_the_selected_operation(room) -> None:
    room.set_tape(small_tape())
    room.scene.choose(box_named(room, "ConvolutionBackward0"))
    QTest.keyClick(room.view, Qt.Key.Key_Return)
    assert room.scene.current_key() == "fold:node:n1"
    QTest.keyClick(room.view, Qt.Key.Key_Return)
    assert room.scene.current_key() == "node:n1" and "node:n1" in room.scene.groups


def test_everything_folds_and_no_groups_shows_every_operation(room, qtbot) -> None:
    room.set_tape(small_tape())
    QTest.mouseClick(room.head.fold_all, LEFT)
    assert len(room.scene.boxes) == 6 and not room.scene.groups
    QTest.mouseClick(room.head.fold_all, LEFT)
    assert len(room.scene.groups) == 6
    room.head.grouping.set_value("none")
    assert len(room.scene.boxes) == len(small_tape().nodes) and not room.scene.groups
    room.head.grouping.set_value("layer")
    assert len(room.scene.groups) == 6


def test_a_new_tape_keeps_what_is_folded(room) -> None:
    room.set_tape(small_tape())
    room.toggle("node:n1")
    room.set_tape(small_tape())
    assert "node:n1" not in room.scene.groups and "node:n5" in room.scene.groups


# -- selection ---------------------------------------------------------------------------------------------------------


def test_a_click_selects_the_node_and_its_layer_on_the_canvas(room, qtbot) -> None:
    room.set_tape(small_tape())
    details: list[object] = []
    room.detail.connect(details.append)
    with qtbot.waitSignal(room.nodeSelected) as selected:
        click(room, box_named(room, "AddmmBackward0"), 30, 12)
    assert selected.args == ["n5"]
    assert isinstance(details[-1], TapeNode) and details[-1].name == "AddmmBackward0"
    with qtbot.waitSignal(room.nodeSelected) as selected:
        click(room, "node:n1", 60, 11)
    assert selected.args == ["n1"] and isinstance(details[-1], LayerGroup)
    with qtbot.waitSignal(room.nodeSelected) as selected:
        QTest.mouseClick(room.view.viewport(), LEFT, pos=QPoint(4, 4))
    assert selected.args == [None] and details[-1] is None


def test_the_selection_of_others_is_outlined_and_not_sent_back(
    room, qtbot, monkeypatch
) -> None:
    room.set_tape(small_tape())
    room.toggle("node:n5")
    room.scene.choose("")
    heard: list[object] = []
    room.nodeSelected.connect(heard.append)
    told = []
    monkeypatch.setattr(room.scene, "_tell_marks", lambda: told.append(1))
    room.select_nodes(frozenset({"n1", "n5"}))
    assert told == [1], "the overview is told once, not for each node"
    assert {part.key for part in room.scene.linked_parts()} == {
        "node:n1",
        "fold:node:n5",
    }
    room.select_nodes(frozenset())
    assert room.scene.linked_parts() == [] and heard == []


def test_a_page_that_is_emptied_amid_a_capture_no_longer_offers_to_cancel_it(
    room,
) -> None:
    room.set_tape(small_tape())
    room.show_busy()
    assert room.busy and room.head.capture.text() == "Cancel"
    room.set_tape(None)  # as another project does
    assert not room.busy and room.head.capture.text() == "Capture again"


def test_one_part_alone_is_outlined_where_one_is_selected(room, qtbot) -> None:
    room.set_tape(small_tape())
    room.select_nodes(frozenset({"n5"}))
    assert room.scene.linked_parts()
    click(room, "node:n1", 60, 11)
    assert room.scene.current_key() == "node:n1" and not room.scene.linked_parts(), (
        "of the canvas before"
    )
    room.select_nodes(frozenset({"n1"}))
    assert room.scene.current_key() == "node:n1" and not room.scene.linked_parts()
    room.select_nodes(frozenset({"n1", "n5"}))
    assert {part.link for part in room.scene.linked_parts()} == {"n5"}


def test_hovering_tells_the_canvas(room, qtbot) -> None:
    room.set_tape(small_tape())
    heard: list[object] = []
    room.nodeHovered.connect(heard.append)
    QTest.mouseMove(
        room.view.viewport(), at(room, box_named(room, "ReluBackward0"), 20, 12)
    )
    assert heard[-1:] == ["n2"]
    QTest.mouseMove(room.view.viewport(), QPoint(3, 3))
    assert heard[-1] is None


def test_arrow_keys_walk_along_the_gradients(room) -> None:
    room.set_tape(small_tape())
    room.scene.choose(box_named(room, "NllLossBackward0"))
    titles = []
    for key in (Qt.Key.Key_Left, Qt.Key.Key_Left, Qt.Key.Key_Left, Qt.Key.Key_Right):
        QTest.keyClick(room.view, key)
        titles.append(room.scene.boxes[room.scene.current_key()].box.title)
    assert (
        titles[:2] == ["LogSoftmaxBackward0", "AddmmBackward0"]
        and titles[3] == "AddmmBackward0"
    )
    QTest.keyClick(room.view, Qt.Key.Key_Down)
    assert room.scene.boxes[room.scene.current_key()].box.title in (
        "TBackward0",
        "fc1.bias",
    )
    QTest.keyClick(room.view, Qt.Key.Key_Escape)
    assert room.scene.current_key() == ""


# -- the window onto it ------------------------------------------------------------------------------------------------


def wheel(room: AutogradPage, at_: QPoint, turned: int) -> None:
    event = QWheelEvent(
        QPointF(at_),
        QPointF(room.view.viewport().mapToGlobal(at_)),
        QPoint(),
        QPoint(0, turned),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(room.view.viewport(), event)


def test_what_nearly_fits_is_shown_from_its_end_on_with_its_names(room) -> None:
    """The end is the loss, where the backward pass begins."""
    room.set_tape(small_tape())
    view, (_, top, _, bottom) = room.view, room.view.PADS
    for share, simple in ((0.8, False), (0.3, True)):
        area = QRectF(
            0,
            0,
            300,
            (view.viewport().height() - top - bottom) / (share * view.readable_zoom()),
        )
        view.frame(area)
        assert (view.zoom < view.readable_zoom()) == simple, (
            "names would not help in what is that small"
        )
        assert (
            view.visible_area().contains(area) == simple
            and view.visible_area().bottom() >= area.bottom()
        )
    view.frame_all()
    assert view.visible_area().contains(view.whole_area())


def test_in_large_text_a_graph_whose_names_fit_is_shown_whole(room, qapp) -> None:
    room.set_tape(small_tape())
    view, (_, top, _, bottom) = room.view, room.view.PADS
    theme.apply(qapp, "dark", 1.5)
    try:
        area = QRectF(
            0,
            0,
            300,
            (view.viewport().height() - top - bottom) / (1.2 * view.readable_zoom()),
        )
        view.frame(area)
        assert view.zoom >= view.readable_zoom() and view.visible_area().contains(
            area
        ), "names are as large here"
    finally:
        theme.apply(qapp, "dark", 1.0)


def test_every_name_is_readable_where_a_whole_graph_is_fitted_into_a_small_view(
    room,
) -> None:
    room.set_tape(small_tape())
    zoom = 0.45  # at which a net of a dozen layers fits into the page at 1280x800
    room.view.zoom_to(zoom)
    assert room.scene.near.isVisible()
    for part in room.scene.boxes.values():
        assert small_names.fits(
            parts.short_name(part.box),
            part.place.width - 2 * parts.SIDE / zoom,
            zoom,
        )
    for group in room.scene.groups.values():
        assert small_names.fits(
            group.group.title, group.place.width - 2 * parts.SIDE / zoom, zoom
        )
    assert {parts.short_name(part.box) for part in room.scene.boxes.values()} >= {
        "Addmm",
        "weight",
        "bias",
    }


def test_the_wheel_zooms_at_the_pointer(room) -> None:
    room.set_tape(small_tape())
    spot = at(room, "node:n5", 40, 40)
    before, scale = room.view.mapToScene(spot), room.view.zoom
    wheel(room, spot, 240)
    after = room.view.mapToScene(spot)
    assert room.view.zoom > scale * 1.2
    assert abs(after.x() - before.x()) < 2 and abs(after.y() - before.y()) < 2
    for _ in range(40):
        wheel(room, spot, -480)
    assert room.view.zoom > 0
    QTest.keyClick(room.view, Qt.Key.Key_Home)
    seen = room.view.mapToScene(room.view.viewport().rect()).boundingRect()
    assert seen.adjusted(-1, -1, 1, 1).contains(room.view.whole_area())


def test_dragging_nothing_moves_the_view(room) -> None:
    room.set_tape(small_tape())
    before = room.view.mapToScene(QPoint(0, 0))
    viewport = room.view.viewport()
    QTest.mousePress(viewport, LEFT, pos=QPoint(5, 5))
    QTest.mouseMove(viewport, QPoint(65, 45))
    QTest.mouseRelease(viewport, LEFT, pos=QPoint(65, 45))
    moved = room.view.mapToScene(QPoint(0, 0)) - before
    scale = room.view.zoom
    assert abs(moved.x() * scale + 60) < 3 and abs(moved.y() * scale + 40) < 3


def test_f_frames_what_is_selected(room) -> None:
    room.set_tape(small_tape())
    room.view.zoom_by(0.3)
    room.scene.choose("node:n5")
    QTest.keyClick(room.view, Qt.Key.Key_F)
    seen = room.view.mapToScene(room.view.viewport().rect()).boundingRect()
    assert seen.contains(room.scene.part("node:n5").extent)
    assert room.view.zoom > 0.6


@pytest.mark.parametrize("mode", ["dark", "light"])
def test_it_paints_near_and_far_in_both_themes(room, qapp, mode) -> None:
    room.set_tape(small_tape())
    theme.apply(qapp, mode)
    for scale in (1.0, 0.2):
        room.view.zoom_by(scale / room.view.zoom)
        picture = room.view.grab().toImage()
        colors = {
            picture.pixelColor(x, y).name()
            for x in range(0, picture.width(), 7)
            for y in range(0, 400, 7)
        }
        assert len(colors) > 4
    theme.apply(qapp, "dark")


# -- the inspector -----------------------------------------------------------------------------------------------------


def test_the_inspector_shows_what_a_node_keeps(room, qtbot) -> None:
    page = TapeInspector()
    qtbot.addWidget(page)
    assert "Nothing selected" in label_text(page)
    tape = small_tape()
    conv = next(node for node in tape.nodes if node.name == "ConvolutionBackward0")
    page.show_item(tape, conv)
    text = label_text(page)
    for part in (
        "input",
        "3×1×8×8",
        "f32",
        "768 B",
        "0 / 0",
        "stride",
        "(1, 1)",
        "x = self.conv1(x)",
        "line 12",
    ):
        assert part in text, part
    leaf = next(node for node in tape.nodes if node.parameters == ("fc1.weight",))
    page.show_item(tape, leaf)
    assert (
        "fc1.weight" in label_text(page)
        and ".grad" in label_text(page)
        and "broadcast" not in label_text(page)
    )
    page.show_item(
        tape, next(node for node in tape.nodes if node.parameters == ("fc1.bias",))
    )
    assert (
        "AddmmBackward0 broadcasts this tensor, so an incoming gradient of 3×10 is summed to 10."
        in label_text(page)
    )


def test_the_inspector_shows_a_layer(room, qtbot) -> None:
    page = TapeInspector()
    qtbot.addWidget(page)
    room.set_tape(small_tape())
    page.show_item(room.tape, room.item_of("node:n5"))
    text = label_text(page)
    for part in (
        "fc1",
        "Linear",
        "4 backward nodes",
        "fc1.weight",
        "AddmmBackward0",
        "held by this layer",
    ):
        assert part in text, part


def test_the_inspector_of_a_large_block_fits_its_panel_and_says_whose_its_tensors_are(
    room, qtbot
) -> None:
    page, tape = TapeInspector(), block_tape()
    qtbot.addWidget(page)
    page.resize(260, 700)
    page.show()
    groups = group_by_block(tape)
    for item in (
        next(one for one in groups if one.parent is None and len(one.nodes) > 80),
        None,
        next(
            node
            for node in tape.nodes
            if node.is_leaf and "blocks" in node.parameters[0]
        ),
    ):
        page.show_item(tape, item)
        QApplication.processEvents()
        inside = page.widget()
        assert inside.width() <= page.viewport().width(), item
        shown = [one for one in inside.findChildren(QWidget) if one.isVisible()]
        assert all(
            one.mapTo(inside, QPoint(one.width(), 0)).x() <= inside.width()
            for one in shown
        ), item
    page.show_item(
        tape, next(one for one in groups if one.parent is None and len(one.nodes) > 80)
    )
    names = [one.accessibleName() for one in page.widget().findChildren(FittingLabel)]
    assert any(
        name.endswith(".norm · NativeBatchNormBackward0") and "encoder_with" in name
        for name in names
    )
    more = next(
        one
        for one in page.widget().findChildren(Button)
        if one.text().startswith("Show ")
    )
    before = len(names)
    QTest.mouseClick(more, LEFT)
    tensors = sum(len(node.saved) for node in tape.nodes if "blocks" in node.layer)
    qtbot.waitUntil(
        lambda: (
            len(page.widget().findChildren(FittingLabel)) >= before + 2 * (tensors - 20)
        )
    )
    held = held_by_module(tape, range(len(tape.nodes)))
    assert sum(held.values()) == tape.held_bytes and list(held.values()) == sorted(
        held.values(), reverse=True
    )


# -- pictures ----------------------------------------------------------------------------------------------------------


def test_the_export_button_hands_over_the_picture_as_it_stands(room, qtbot) -> None:
    room.set_tape(small_tape())
    room.toggle("node:n1")
    with qtbot.waitSignal(room.exportRequested) as asked:
        QTest.mouseClick(room.head.export, LEFT)
    (drawing,) = asked.args
    assert isinstance(drawing, Drawing)
    assert "fold:node:n1" in {box.id for box in drawing.boxes}


# -- arrows ------------------------------------------------------------------------------------------------------------


def test_an_arrow_stands_out_while_its_box_is_selected_and_is_one_of_many_else(
    room,
) -> None:
    room.set_tape(small_tape())
    room.view.zoom_to(1.0)
    room.view.viewport().repaint()
    scene = room.scene
    arrow = scene.drawing.arrows[0]
    plain = room.view.grab().toImage()
    scene.choose(arrow.source)
    assert room.view.grab().toImage() != plain
    scene.choose("")
    assert room.view.grab().toImage() == plain


def test_a_wire_whose_beginning_is_out_of_sight_keeps_all_its_pieces_in_a_replay(
    qapp,
) -> None:
    route = (
        (641.92, 925.0),
        (451.0, 1025.0),
        (96.0, 1025.0),
        (96.0, 678.0),
        (783.92, 678.0),
        (783.92, 483.0),
        (48.0, 483.0),
        (48.0, 412.0),
        (811.92, 412.0),
        (811.92, 362.5),
        (264.0, 362.5),
    )
    ink = []
    for flow in (EdgeFlow(), EdgeFlow(0.5, True), None):
        picture = QImage(748, 330, QImage.Format.Format_RGB32)
        picture.fill(0)
        painter = QPainter(picture)
        painter.scale(0.66, 0.66)
        painter.translate(2, -457)
        ArrowPath.from_route(route, flow).paint(painter, False, flow)
        painter.end()
        ink.append(
            sum(
                picture.pixelColor(x, y).value() > 8
                for x in range(0, 748, 2)
                for y in range(0, 330)
            )
        )
    assert min(ink[0], ink[1]) >= 0.9 * ink[2], ink


def test_on_a_marked_way_the_other_arrows_step_back_together(room) -> None:
    room.set_tape(small_tape())
    room.view.zoom_to(1.0)
    room.view.viewport().repaint()
    scene = room.scene
    plain = room.view.grab().toImage()
    arrow = scene.drawing.arrows[0]
    scene.set_highlighted(frozenset({arrow.source, arrow.target}))
    assert room.view.grab().toImage() != plain
    scene.set_highlighted(frozenset())
    assert room.view.grab().toImage() == plain
