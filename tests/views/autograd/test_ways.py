"""Block by block, finding nodes, walking along edges, and the way between two nodes, in the Autograd tab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest

from app.autograd.batch import TrainingBatch
from app.autograd.pictures.search import between, find
from app.autograd.tape import Tape, TapeNode
from app.views.autograd.page import AutogradPage
from app.views.ui import theme
from tests.autograd.test_blocks import Nested
from tests.support.autograd_tapes import small_tape

LEFT = Qt.MouseButton.LeftButton
SHIFT = Qt.KeyboardModifier.ShiftModifier


def nested() -> Tape:
    return TrainingBatch(
        Nested(), torch.randn(2, 1, 8, 8), lambda out, _: out.sum()
    ).capture()


@pytest.fixture
def room(qtbot, qapp) -> Iterator[AutogradPage]:
    theme.apply(qapp, "dark")
    widget = AutogradPage()
    qtbot.addWidget(widget)
    widget.resize(1300, 800)
    with qtbot.waitExposed(widget):
        widget.show()
    yield widget


def titles(room: AutogradPage) -> set[str]:
    drawing = room.drawing()
    assert drawing is not None
    return {box.title for box in drawing.boxes}


def key_of(room: AutogradPage, title: str) -> str:
    drawing = room.drawing()
    assert drawing is not None
    frames = {group.title: group.id for group in drawing.groups}
    return frames.get(title) or next(
        box.id for box in drawing.boxes if box.title == title
    )


def click(
    room: AutogradPage,
    title: str,
    keys: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier,
) -> None:
    part = room.scene.part(key_of(room, title))
    assert part is not None
    spot = room.view.mapFromScene(QPointF(part.place.x + 40, part.place.y + 11))
    QTest.mouseClick(room.view.viewport(), LEFT, keys, spot)


# -- blocks ------------------------------------------------------------------------------------------------------------


def test_a_net_of_blocks_starts_by_block_and_any_other_by_layer(room) -> None:
    room.set_tape(nested())
    assert room.head.grouping.value() == "block" and "stage" in titles(room)
    room.set_tape(None)
    room.set_tape(small_tape())
    assert room.head.grouping.value() == "layer"


def test_blocks_open_level_by_level(room) -> None:
    room.set_tape(nested())
    room.toggle(key_of(room, "stage").removeprefix("fold:"))
    assert {"stage.0", "stage.1"} <= titles(room) and "ReluBackward0" not in titles(
        room
    )
    frame = next(group for group in room.drawing().groups if group.title == "stage")
    room.toggle(key_of(room, "stage.1").removeprefix("fold:"))
    assert "ReluBackward0" in titles(room)
    inner = next(group for group in room.drawing().groups if group.title == "stage.1")
    assert inner.parent == frame.id
    QTest.mouseClick(room.head.fold_all, LEFT)
    assert not room.drawing().groups


def test_brackets_open_and_close_a_level_everywhere(room) -> None:
    room.set_tape(nested())
    QTest.mouseClick(room.head.fold_all, LEFT)
    counts = [len(room.drawing().boxes)]
    for key in (Qt.Key.Key_BracketRight,) * 3 + (Qt.Key.Key_BracketLeft,) * 3:
        QTest.keyClick(room.view, key)
        counts.append(len(room.drawing().boxes))
    assert counts[0] < counts[1] < counts[2] < counts[3] == len(nested().nodes)
    assert counts[3:] == counts[3::-1]


def test_each_way_of_grouping_keeps_what_is_open_in_it(room) -> None:
    room.set_tape(nested())
    stage = key_of(room, "stage").removeprefix("fold:")
    room.toggle(stage)
    room.head.grouping.set_value("layer")
    assert stage not in room.scene.groups
    room.head.grouping.set_value("none")
    assert len(room.drawing().boxes) == len(nested().nodes)
    room.head.grouping.set_value("block")
    assert stage in room.scene.groups


# -- finding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("convolution", {"ConvolutionBackward0"}),
        ("STAGE.1 relu", {"ReluBackward0"}),
        ("stem.weight", {"AccumulateGrad"}),
        ("mat1", {"AddmmBackward0"}),
        ("self 2x2x6x6".replace("x", "*"), set()),
        ("nothing at all", set()),
        ("  ", set()),
    ],
)
def test_nodes_are_found_by_name_layer_parameter_and_saved_tensor(
    words: str, names: set[str]
) -> None:
    tape = nested()
    assert {tape.nodes[node].name for node in find(tape, words)} == names


def test_a_shape_finds_who_saved_it() -> None:
    tape = nested()
    found = find(tape, "relu result 2*2*6*6 float32")
    assert {tape.nodes[node].name for node in found} == {"ReluBackward0"}


def test_ctrl_f_finds_a_node_and_opens_what_hides_it(room, qtbot) -> None:
    room.set_tape(nested())
    details: list[object] = []
    room.detail.connect(details.append)
    QTest.keyClick(room.view, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(room.finder.isVisible)
    QTest.keyClicks(room.finder.field, "stage.1 conv conv")
    assert room.finder.count.text() == "1 of 3"
    assert isinstance(details[-1], TapeNode) and details[-1].layer == "stage.1.conv"
    key = room.scene.current_key()
    assert key == str(details[-1].id)
    seen = room.view.visible_area()
    assert seen.intersects(room.scene.area_of_boxes([key]))
    QTest.keyClick(room.finder.field, Qt.Key.Key_Return)
    assert room.finder.count.text() == "2 of 3" and room.scene.current_key() != key
    QTest.keyClick(room.finder.field, Qt.Key.Key_Return, SHIFT)
    assert room.scene.current_key() == key
    assert "stage.1" not in titles(room) and "stage.0" in titles(room)
    room.finder.field.selectAll()
    QTest.keyClicks(room.finder.field, "stage.0 conv conv")
    assert "stage.0" not in titles(room) and "stage.1" in titles(room), (
        "what was opened for another match closes"
    )
    QTest.keyClicks(room.finder.field, " never")
    assert room.finder.count.text() == "none found"
    QTest.keyClick(room.finder.field, Qt.Key.Key_Escape)
    QTest.keyClick(room.finder.field, Qt.Key.Key_Escape)
    assert not room.finder.isVisible() and room.view.hasFocus()


# -- edges and ways ----------------------------------------------------------------------------------------------------


def test_arrows_walk_into_an_open_block_and_enter_folds_it(room) -> None:
    room.set_tape(nested())
    room.scene.choose(key_of(room, "MeanBackward1"))
    QTest.keyClick(room.view, Qt.Key.Key_Left)
    assert room.scene.current_key() == "fold:layer:stage"
    QTest.keyClick(room.view, Qt.Key.Key_Return)
    assert (
        room.scene.current_key() == "layer:stage" and "layer:stage" in room.scene.groups
    )
    QTest.keyClick(room.view, Qt.Key.Key_Right)
    inside = room.scene.current_key()
    assert inside in room.scene.boxes_in("layer:stage")
    QTest.keyClick(room.view, Qt.Key.Key_Escape)
    room.scene.choose("layer:stage")
    QTest.keyClick(room.view, Qt.Key.Key_Return)
    assert room.scene.current_key() == "fold:layer:stage"


def test_shift_click_marks_the_way_and_escape_ends_it(room) -> None:
    room.set_tape(small_tape())
    click(room, "loss")
    click(room, "relu1", SHIFT)
    way = {room.scene.boxes[key].box.title for key in room.scene.highlighted}
    assert {"AddmmBackward0", "ViewBackward0", "AddBackward0", "ReluBackward0"} <= way
    assert not way & {"ConvolutionBackward0", "fc1.weight", "fc1.bias", "TBackward0"}
    assert room.way.isVisible() and "from loss to relu1" in room.way.title()
    dimmed = {key for key, item in room.scene.boxes.items() if item.opacity() < 1}
    assert dimmed == set(room.scene.boxes) - room.scene.highlighted
    seen = room.view.visible_area()
    assert seen.contains(room.scene.area_of_boxes(room.scene.highlighted))
    room.toggle("node:n5")
    assert "fold:node:n5" in room.scene.highlighted, "folding keeps the way"
    QTest.keyClick(room.view, Qt.Key.Key_Escape)
    assert not room.scene.highlighted and not room.way.isVisible()
    assert all(item.opacity() == 1 for item in room.scene.boxes.values())


def test_a_way_is_found_against_the_gradient_too_and_none_is_said(room) -> None:
    room.set_tape(small_tape())
    click(room, "relu1")
    click(room, "fc1", SHIFT)
    assert "from fc1 to relu1" in room.way.title()
    room.way.end()
    room.head.grouping.set_value("none")
    click(room, "conv1.weight")
    click(room, "fc1.bias", SHIFT)
    assert (
        not room.scene.highlighted
        and "No gradient flows between conv1.weight and fc1.bias" in room.way.title()
    )
    room.set_tape(None)
    assert not room.way.isVisible()


def test_everything_between_two_places_is_on_the_way() -> None:
    arrows = [
        ("a", "b"),
        ("a", "c"),
        ("b", "d"),
        ("c", "d"),
        ("d", "e"),
        ("c", "x"),
        ("y", "d"),
    ]
    assert between(arrows, frozenset("a"), frozenset("d")) == (frozenset("abcd"), False)
    assert between(arrows, frozenset("e"), frozenset("b")) == (frozenset("bde"), True)
    assert between(arrows, frozenset("x"), frozenset("y")) == (frozenset(), True)


def test_what_is_far_is_painted_without_items(room, qtbot) -> None:
    room.set_tape(nested())
    room.head.grouping.set_value("none")
    room.view.zoom_by(0.1 / room.view.zoom)
    room.set_tape(nested())
    room.view.zoom_to(0.1)
    room.view.viewport().repaint()
    assert not room.scene.boxes.made or not room.scene.near.isVisible()
    room.view.zoom_to(1.0)
    room.view.viewport().repaint()
    assert room.scene.boxes.made and room.scene.near.isVisible()
    part = next(iter(room.scene.boxes.values()))
    assert (
        room.view._part_at(room.view.mapFromScene(part.extent.topLeft() + QPoint(9, 9)))
        is part
    )


def test_a_group_stays_selected_while_levels_open_and_close(room) -> None:
    room.set_tape(nested())
    QTest.mouseClick(room.head.fold_all, LEFT)
    room.scene.choose("fold:layer:stage")
    QTest.keyClick(room.view, Qt.Key.Key_BracketRight)
    assert room.scene.current_key() == "layer:stage"
    QTest.keyClick(room.view, Qt.Key.Key_BracketLeft)
    assert room.scene.current_key() == "fold:layer:stage"


def test_open_groups_within_an_open_group_are_seen(room) -> None:
    room.set_tape(nested())
    QTest.mouseClick(room.head.fold_all, LEFT)
    while any(box.shape == "folded" for box in room.scene.drawing.boxes):
        QTest.keyClick(room.view, Qt.Key.Key_BracketRight)
    room.view.zoom_to(1.0)
    inner = [group for group in room.scene.drawing.groups if group.parent is not None]
    assert inner
    for group in inner:
        rect, now = room.scene.layout_.groups[group.id], theme.current()
        room.view.show_point(QPointF(rect.x + rect.width / 2, rect.y))
        spot = room.view.mapFromScene(QPointF(rect.x + rect.width - 2.5, rect.y + 12))
        seen = room.view.viewport().grab().toImage().pixelColor(spot)
        wanted = theme.mix(now.raised, now.categories[group.category], now.header)
        assert (
            abs(seen.lightness() - wanted.lightness()) <= 2
            and abs(seen.hue() - wanted.hue()) <= 12
        )


def test_the_pointer_is_told_what_a_box_says_and_nothing_from_afar(room) -> None:
    room.set_tape(nested())
    room.view.zoom_to(1.0)
    box = next(box for box in room.scene.drawing.boxes if box.chips)
    middle = QPointF(*room.scene.layout_.boxes[box.id].center)
    assert room.scene.tip_at(middle).split("\n") == [
        line
        for line in (
            box.title,
            box.subtitle,
            *box.lines,
            *(chip.text for chip in box.chips),
        )
        if line
    ]
    room.view.zoom_to(0.1)
    assert room.scene.tip_at(middle) == ""


# -- a screen reader ---------------------------------------------------------------------------------------------------


def test_a_screen_reader_finds_operations_selects_and_folds_them(
    room: AutogradPage,
) -> None:
    text = QAccessible.Text
    room.set_tape(nested())
    whole = QAccessible.queryAccessibleInterface(room.view)
    drawing = room.drawing()
    assert whole.text(text.Name) == "Autograd graph" and drawing is not None
    parts = [whole.child(number) for number in range(whole.childCount())]
    assert len(parts) >= len(drawing.groups) + len(drawing.boxes) + len(drawing.arrows)
    assert all(
        part.text(text.Name) and part.actionInterface().actionNames()[0] == "Press"
        for part in parts
    )
    gradients = [
        part.text(text.Name)
        for part in parts
        if part.text(text.Name).startswith("Gradient from ")
    ]
    assert len(gradients) == len(drawing.arrows)

    group = next(part for part in parts if part.state().expanded)
    group.actionInterface().doAction("Press")
    assert group.state().selected and room.scene.current_key()
    title = group.text(text.Name)
    group.actionInterface().doAction("Fold or unfold")
    parts = [whole.child(number) for number in range(whole.childCount())]
    assert any(
        part.text(text.Name).startswith(title) and part.state().collapsed
        for part in parts
    )
