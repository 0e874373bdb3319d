"""The outline: find, choose, and one selection with the canvas."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.edits import edits
from app.features.outline.outline import Outline
from app.project.document import Document
from app.util.resources import path as resource_path
from app.views.selection import Selection


@pytest.fixture
def document() -> Document:
    result = Document()
    result.open(Path(resource_path("examples", "digits.tape")))
    return result


@pytest.fixture
def selection() -> Selection:
    return Selection()


@pytest.fixture
def outline(qtbot: QtBot, document: Document, selection: Selection) -> Outline:
    view = Outline(document, selection, catalog())
    qtbot.addWidget(view)
    view.resize(220, 600)
    with qtbot.waitExposed(view):
        view.show()
    return view


def names(outline: Outline) -> list[str]:
    return [
        outline.model.data(outline.model.index(row))
        for row in range(outline.model.rowCount())
    ]


def test_nodes_stand_in_running_order_and_follow_the_drawing(
    outline: Outline, document: Document
) -> None:
    assert (
        names(outline)[:3] == ["input", "conv1", "relu1"]
        and names(outline)[-1] == "logits"
    )
    first = next(iter(document.project.graph.nodes))
    document.apply("Delete", edits.delete(document.project, [first]))
    assert "input" not in names(outline)
    document.undo_stack.undo()
    assert names(outline)[0] == "input"


def test_one_selection_both_ways(
    qtbot: QtBot, outline: Outline, selection: Selection, document: Document
) -> None:
    ids = {node.name: key for key, node in document.project.graph.nodes.items()}
    selection.set({ids["fc1"]})
    assert [
        index.data() for index in outline.view.selectionModel().selectedIndexes()
    ] == ["fc1"]
    view = outline.view.viewport()
    where = outline.view.visualRect(outline.model.index(1)).center()
    qtbot.mouseClick(view, Qt.MouseButton.LeftButton, pos=where)
    assert selection.ids == {ids["conv1"]}
    there = outline.view.visualRect(outline.model.index(3)).center()
    qtbot.mouseClick(
        view, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ShiftModifier, there
    )
    assert selection.ids == {ids["conv1"], ids["relu1"], ids["conv2"]}


def test_a_filter_does_not_change_the_selection(
    outline: Outline, selection: Selection, document: Document
) -> None:
    ids = {node.name: key for key, node in document.project.graph.nodes.items()}
    selection.set({ids["fc1"]})
    outline.field.setText("conv")
    assert names(outline) == ["conv1", "conv2"]
    assert selection.ids == {ids["fc1"]}
    outline.field.clear()
    assert [
        index.data() for index in outline.view.selectionModel().selectedIndexes()
    ] == ["fc1"]


def test_enter_jumps_and_parameters_are_told(
    qtbot: QtBot, outline: Outline, document: Document
) -> None:
    ids = {node.name: key for key, node in document.project.graph.nodes.items()}
    outline.set_analysis(analyse(document.project.graph))
    row = names(outline).index("conv2")
    told = outline.model.data(
        outline.model.index(row), Qt.ItemDataRole.AccessibleTextRole
    )
    assert told == "conv2, Conv2d, 18496 parameters"
    outline.view.setCurrentIndex(outline.model.index(row))
    outline.view.setFocus()
    QApplication.processEvents()
    with qtbot.waitSignal(outline.jump_requested) as jumped:
        qtbot.keyClick(outline.view, Qt.Key.Key_Return)
    assert jumped.args == [ids["conv2"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("shape:1024", ["flatten", "drop1"]),
        ("shape:64x4x4", ["pool1"]),
        ("relu shape:8x8", ["relu1", "relu2"]),
        ("shape:10", ["fc2"]),
        ("shape:4096", []),
    ],
)
def test_nodes_are_found_by_what_comes_out_of_them(
    outline: Outline, document: Document, query: str, expected: list[str]
) -> None:
    outline.set_analysis(analyse(document.project.graph))
    outline.field.setText(query)
    assert names(outline) == expected
