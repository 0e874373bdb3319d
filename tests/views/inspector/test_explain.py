"""Explain shape: a dimension is chosen by mouse and keys, its formula shown, and the way upstream can be walked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.project.document import Document
from app.project.project import Project
from app.views.inspector import Inspector
from app.views.inspector.explain.parts import DimensionChip
from app.views.inspector.explain.section import ExplainSection
from app.views.selection import Selection
from app.views.ui.background import Background
from app.views.ui.widgets import Button
from tests.support.builder_nets import net

ROWS = [
    ("input", "in", {"shape": (1, 28, 28)}),
    ("nn.Conv2d", "conv1", {"out_channels": 32}),
    ("nn.ReLU", "relu1", {}),
    ("nn.Conv2d", "conv2", {"out_channels": 64}),
    ("nn.ReLU", "relu2", {}),
    ("nn.MaxPool2d", "pool1", {}),
    ("torch.mean", "squeeze", {"dim": (2, 3), "keepdim": True}),
    ("operator.mul", "scaled", {}),
    ("nn.Flatten", "flat", {}),
    ("nn.Linear", "fc", {"out_features": 10}),
    ("output", "logits", {}),
]
WIRES = [
    ("in", "conv1"),
    ("conv1", "relu1"),
    ("relu1", "conv2"),
    ("conv2", "relu2"),
    ("relu2", "pool1"),
    ("pool1", "squeeze"),
    ("pool1", "scaled", "input"),
    ("squeeze", "scaled", "other"),
    ("scaled", "flat"),
    ("flat", "fc"),
    ("fc", "logits"),
]


@pytest.fixture
def selection() -> Selection:
    return Selection()


@pytest.fixture
def inspector(qtbot: QtBot, selection: Selection) -> Iterator[Inspector]:
    worker = Background()
    graph = net(ROWS, WIRES)
    view = Inspector(Document(Project("net", graph)), selection, catalog(), worker)
    qtbot.addWidget(view)
    view.resize(304, 900)
    with qtbot.waitExposed(view):
        view.show()
    view.set_analysis(analyse(graph))
    yield view
    worker.close()


def explained(inspector: Inspector, selection: Selection, node: str) -> ExplainSection:
    selection.set({node})
    QApplication.processEvents()
    return inspector.node_page.shape


def click_on(qtbot: QtBot, chip: DimensionChip, dimension: int) -> None:
    place = chip.area_of(dimension).center()
    qtbot.mouseClick(
        chip, Qt.MouseButton.LeftButton, pos=QPoint(round(place.x()), round(place.y()))
    )
    QApplication.processEvents()


def formula(section: ExplainSection) -> list[str]:
    assert section.formula is not None
    return section.formula.texts()


def label_texts(section: ExplainSection) -> set[str]:
    QApplication.processEvents()  # what is new comes to the screen
    return {
        each.text()
        for each in section.findChildren(QLabel)
        if each.isVisibleTo(section)
    }


def test_a_layer_starts_with_the_dimension_that_is_worked_out(
    inspector: Inspector, selection: Selection
) -> None:
    section = explained(inspector, selection, "conv2")
    assert section.title() == "Explain shape"
    assert formula(section)[-1] == "  = ⌊23/1⌋ + 1 = 24"
    assert section.formula is not None and section.formula.remark == "W is the same"
    assert (
        "A 3×3 kernel without padding trims one pixel from each side."
        in label_texts(section)
    )


def test_a_click_on_a_dimension_explains_it(
    qtbot: QtBot, inspector: Inspector, selection: Selection
) -> None:
    section = explained(inspector, selection, "conv2")
    click_on(qtbot, section.chips[0], 1)
    assert formula(section) == ["C = out_channels = 64"]
    assert "out_channels sets the 64." in label_texts(section)
    assert section.rows == []
    click_on(qtbot, section.chips[0], 3)
    assert section.story is not None and section.story.name == "W"
    assert "W is 24" in section.chips[0].accessibleName()


def test_keys_walk_along_the_dimensions_and_keep_the_focus(
    qtbot: QtBot, inspector: Inspector, selection: Selection
) -> None:
    section = explained(inspector, selection, "conv2")
    section.chips[0].setFocus(Qt.FocusReason.TabFocusReason)
    names = []
    for key in (
        Qt.Key.Key_Right,
        Qt.Key.Key_Right,
        Qt.Key.Key_Left,
        Qt.Key.Key_Home,
        Qt.Key.Key_End,
    ):
        qtbot.keyClick(section.chips[0], key)
        assert section.story is not None
        names.append(section.story.name)
        assert section.chips[0].hasFocus()
    assert names == ["W", "W", "H", "N", "W"]


def test_a_row_upstream_selects_its_node_and_goes_on_with_the_dimension(
    qtbot: QtBot, inspector: Inspector, selection: Selection
) -> None:
    section = explained(inspector, selection, "conv2")
    click_on(qtbot, section.chips[0], 3)
    assert [row.text() for row in section.rows] == ["relu1", "conv1", "in"]
    qtbot.mouseClick(section.rows[1], Qt.MouseButton.LeftButton)
    assert selection.ids == {"conv1"}
    assert section.story is not None and (section.story.name, section.story.result) == (
        "W",
        26,
    )


def test_the_way_upstream_by_keys_alone(
    qtbot: QtBot, inspector: Inspector, selection: Selection
) -> None:
    section = explained(inspector, selection, "conv2")
    section.rows[0].setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(section.rows[0], Qt.Key.Key_Down)
    assert section.rows[1].hasFocus()
    qtbot.keyClick(section.rows[1], Qt.Key.Key_Return)
    assert selection.ids == {"conv1"}
    assert section.chips[0].hasFocus()


def test_a_long_way_is_shown_in_full_when_asked(
    qtbot: QtBot, inspector: Inspector, selection: Selection
) -> None:
    section = explained(inspector, selection, "flat")
    assert [row.text() for row in section.rows] == [
        "scaled",
        "pool1",
        "relu2",
        "conv2",
        "relu1",
    ]
    more = next(
        each
        for each in section.findChildren(Button)
        if each.text() == "Show the full derivation"
    )
    qtbot.mouseClick(more, Qt.MouseButton.LeftButton)
    assert [row.text() for row in section.rows][-2:] == ["conv1", "in"]


def test_broadcasting_marks_what_stretches(
    inspector: Inspector, selection: Selection
) -> None:
    section = explained(inspector, selection, "scaled")
    assert section.alignment is not None
    assert (
        section.alignment.accessibleName()
        == "pool1: N, 64, 12, 12; squeeze: N, 64, 1 stretches, 1 stretches"
    )
    section.choose(0, 2)
    assert "squeeze stretches from 1 to 12." in label_texts(section)
    assert explained(inspector, selection, "conv1").alignment is None


def test_shapes_that_clash_stand_side_by_side(
    inspector: Inspector, selection: Selection
) -> None:
    explained(inspector, selection, "scaled")
    rows = [
        ("input", "in", {"shape": (64, 12, 12)}),
        ("input", "squeeze", {"shape": (64, 5)}),
        ("operator.mul", "scaled", {}),
        ("output", "logits", {}),
    ]
    wires = [
        ("in", "scaled", "input"),
        ("squeeze", "scaled", "other"),
        ("scaled", "logits"),
    ]
    graph = net(rows, wires)
    inspector._document.apply("Change", Project("net", graph))
    inspector.set_analysis(analyse(graph))
    section = inspector.node_page.shape
    assert section.alignment is not None and section.formula is None
    spoken = "in: N, 64 clashes, 12 clashes, 12 clashes; squeeze: missing, N clashes, 64 clashes, 5 clashes"
    assert section.alignment.accessibleName() == spoken
    assert any("must be equal" in each for each in label_texts(section))


def test_the_output_of_the_net_hands_on_what_it_gets(
    inspector: Inspector, selection: Selection
) -> None:
    section = explained(inspector, selection, "logits")
    assert [row.text() for row in section.rows] == ["fc"]
    assert section.story is not None and section.story.result == 10


def test_a_stale_or_broken_node_has_nothing_to_explain(
    inspector: Inspector, selection: Selection
) -> None:
    explained(inspector, selection, "conv2")
    broken = net(
        [
            ("input", "in", {"shape": (5,)}),
            ("nn.Conv2d", "conv2", {}),
            ("output", "logits", {}),
        ]
    )
    inspector.set_analysis(analyse(broken))
    section = inspector.node_page.shape
    assert section.chips == {} and section.story is None
    assert any("It fails on its input" in each for each in label_texts(section))
