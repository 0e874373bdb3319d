"""The Cost page, the strips on the canvas and what the inspector and the status line say of it."""

from __future__ import annotations

import os
import signal

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QScrollArea
from pytestqt.qtbot import QtBot

from app.builder.catalog.catalog import catalog
from app.builder.graph import Graph
from app.builder.shapes.cost import cost
from app.builder.shapes.network_cost import NetworkCost
from app.engine.client import shared
from app.features.cost.cost_rows import COLUMNS, note, rows_of
from app.features.cost.feature import CostTable
from app.features.cost.values import Cost
from app.project import file
from app.util.columns import as_csv
from app.util.resources import path
from app.views.selection import Selection
from app.views.ui import theme
from tests.support.builder_nets import net
from tests.support.engines import asked, stop
from tests.support.whole_window import WholeWindow

NODE, PARAMETERS, COMPUTE, BYTES, FIELD = 0, 2, 4, 7, 8
DESCENDING, ASCENDING = Qt.SortOrder.DescendingOrder, Qt.SortOrder.AscendingOrder


@pytest.fixture(scope="module")
def digits() -> NetworkCost:
    return cost(file.read(path("examples/digits.tape")).graph)


@pytest.fixture
def selection() -> Selection:
    return Selection()


@pytest.fixture
def page(
    qtbot: QtBot, qapp: QApplication, selection: Selection, digits: NetworkCost
) -> CostTable:
    theme.apply(qapp, "dark")
    view = CostTable(catalog(), selection)
    qtbot.addWidget(view)
    view.resize(1100, 320)
    with qtbot.waitExposed(view):
        view.show()
    view.set_cost(digits)
    return view


def test_the_total_is_in_sight_in_a_low_page(page: CostTable, qtbot: QtBot) -> None:
    page.resize(500, 176)  # that of a window of 1024x700
    qtbot.waitUntil(lambda: page.height() == 176)
    bottom = page.total.mapTo(page, page.total.rect().bottomLeft()).y()
    assert (
        page.rect().contains(0, bottom)
        and page.total.visibleRegion().boundingRect() == page.total.rect()
    )
    assert not [area for area in page.findChildren(QScrollArea) if area.isVisible()], (
        "one scroll bar, of the table"
    )


def named(digits: NetworkCost, name: str) -> str:
    return next(node.id for node in digits.graph.nodes.values() if node.name == name)


def column(page: CostTable, number: int) -> list[str]:
    return [
        page.model.index(row, number).data() for row in range(page.model.rowCount())
    ]


def test_rows_stand_in_running_order_and_the_total_below(page: CostTable) -> None:
    assert column(page, NODE)[:4] == ["input", "conv1", "relu1", "conv2"]
    assert column(page, COMPUTE)[:4] == ["–", "18,432", "not counted", "1,179,648"]
    assert page.totals.rows[0][PARAMETERS] == "85,066"
    assert page.totals.rows[0][COMPUTE] == "1,264,256"
    assert page.totals.rows[0][BYTES] == "56.8 KiB"


def test_a_click_on_a_column_sorts_by_its_numbers_and_a_third_gives_the_running_order_back(
    qtbot: QtBot, page: CostTable
) -> None:
    header = page.table.horizontalHeader()
    spot = header.viewport().rect().topLeft()
    spot.setX(header.sectionViewportPosition(COMPUTE) + 20)
    spot.setY(header.height() // 2)
    seen = []
    for _ in range(3):
        qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=spot)
        seen.append(column(page, NODE)[:4])
    counted = [["fc2", "conv1", "fc1", "conv2"], ["conv2", "fc1", "conv1", "fc2"]]
    assert sorted(seen[:2]) == sorted(counted)
    assert seen[2] == ["input", "conv1", "relu1", "conv2"]


@pytest.mark.parametrize("order", [ASCENDING, DESCENDING])
def test_what_is_not_counted_comes_last_either_way(
    page: CostTable, order: Qt.SortOrder
) -> None:
    page.table.sortByColumn(COMPUTE, order)
    assert not {"not counted", "–"} & set(column(page, COMPUTE)[:4])
    page.table.sortByColumn(FIELD, order)
    assert column(page, FIELD)[-1] == "–" and column(page, FIELD)[0] != "–"


def test_names_are_sorted_as_words_and_parameters_as_numbers(page: CostTable) -> None:
    page.table.sortByColumn(NODE, ASCENDING)
    assert column(page, NODE) == sorted(column(page, NODE), key=str.casefold)
    page.table.sortByColumn(PARAMETERS, DESCENDING)
    assert column(page, PARAMETERS)[:4] == ["65,600", "18,496", "650", "320"]


def test_the_selection_is_the_same_here_and_elsewhere(
    qtbot: QtBot, page: CostTable, selection: Selection, digits: NetworkCost
) -> None:
    conv, fc = named(digits, "conv2"), named(digits, "fc1")
    selection.set([conv, fc])
    chosen = {
        page.model.rows[index.row()].node
        for index in page.table.selectionModel().selectedRows()
    }
    assert chosen == {conv, fc}
    page.table.sortByColumn(PARAMETERS, DESCENDING)
    chosen = {
        page.model.rows[index.row()].node
        for index in page.table.selectionModel().selectedRows()
    }
    assert chosen == {conv, fc} == selection.ids
    cell = page.table.visualRect(page.model.index(3, NODE)).center()
    qtbot.mouseClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=cell)
    assert selection.ids == {named(digits, "conv1")}


def test_a_sorting_stays_when_the_network_changes(
    page: CostTable, digits: NetworkCost
) -> None:
    page.table.sortByColumn(PARAMETERS, DESCENDING)
    other = digits.graph.with_param(named(digits, "fc2"), "out_features", 5000)
    page.set_cost(cost(other))
    assert column(page, NODE)[0] == "fc2"


def test_enter_and_a_double_click_ask_for_the_node(
    qtbot: QtBot, page: CostTable, digits: NetworkCost
) -> None:
    page.table.setCurrentIndex(page.model.index(1, 0))
    with qtbot.waitSignal(page.jump_requested) as asked:
        qtbot.keyClick(page.table, Qt.Key.Key_Return)
    assert asked.args == [named(digits, "conv1")]


def test_ctrl_c_copies_the_chosen_rows_and_all_with_the_total_where_none_is(
    qtbot: QtBot, page: CostTable, selection: Selection, digits: NetworkCost
) -> None:
    page.table.setFocus()
    qtbot.keyClick(page.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    lines = QGuiApplication.clipboard().text().splitlines()
    assert len(lines) == 1 + 12 + 1 and lines[-1].startswith("Total\t12 nodes\t85,066")
    selection.set([named(digits, "conv2")])
    qtbot.keyClick(page.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    lines = QGuiApplication.clipboard().text().splitlines()
    assert lines[1].split("\t")[:5] == [
        "conv2",
        "Conv2d",
        "18,496",
        "21.7 %",
        "1,179,648",
    ]
    assert len(lines) == 2
    table = bytes(
        QGuiApplication.clipboard().mimeData().data("text/csv").data()
    ).decode()
    assert table.splitlines()[1].startswith(
        "conv2,Conv2d,18496,21.74,1179648,93.31,N×64×8×8,16384"
    )


def test_csv_leaves_empty_what_is_unknown_and_says_what_is_not_counted(
    digits: NetworkCost,
) -> None:
    lines = as_csv(COLUMNS, rows_of(digits, catalog())).splitlines()
    assert lines[1] == "input,Input,0,0,,,N×1×8×8,256,"
    assert lines[3].startswith("relu1,ReLU,0,0,not counted,,")


def test_columns_are_as_wide_as_their_texts(page: CostTable) -> None:
    metrics = page.table.fontMetrics()
    for number in range(page.model.columnCount()):
        widest = max(metrics.horizontalAdvance(text) for text in column(page, number))
        assert page.table.columnWidth(number) > widest
        assert page.total.columnWidth(number) == page.table.columnWidth(number)


def test_columns_of_a_hidden_page_are_measured_for_another_look_when_it_is_shown(
    qapp: QApplication, page: CostTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[bool] = []
    monkeypatch.setattr(
        page,
        "_fit_columns",
        lambda fit=page._fit_columns: (measured.append(page.isVisible()), fit()),
    )
    page.hide()
    theme.apply(qapp, "light")
    try:
        assert not measured
        page.show()
        assert measured and all(measured)
        measured.clear()
        page.hide()
        page.show()
        assert not measured, "once"
    finally:
        theme.apply(qapp, "dark")


def test_a_node_that_counts_partly_names_what_is_left_out() -> None:
    rows = [
        ("input", "in", {"shape": (5, 12)}),
        ("nn.LSTM", "it", {}),
        ("output", "out", {}),
    ]
    one = cost(net(rows)).nodes["it"]
    assert "aten.tanh_" in one.gaps_text and one.gaps_text.startswith("Not counted, ")


def test_the_note_tells_frozen_parameters_from_trained_ones(
    digits: NetworkCost,
) -> None:
    fc1 = digits.graph.nodes[named(digits, "fc1")]
    frozen = cost(digits.graph.with_node(replace(fc1, frozen=True)))
    assert "85,066 parameters: 19,466 trainable, 65,600 frozen." in note(frozen)


def test_an_empty_canvas_says_what_belongs_here(page: CostTable) -> None:
    page.set_cost(cost(Graph()))
    assert page.empty.isVisible() and not page.table.isVisible()


# --- In the window


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    window.files.open(path("examples/digits.tape"))
    qtbot.waitUntil(lambda: window.status.text("compute") == "2.53 MFLOP per sample")
    return window


def test_status_inspector_and_canvas_show_the_cost_and_follow_an_edit(
    qtbot: QtBot, window: WholeWindow
) -> None:
    graph = window.document.project.graph
    ids = {node.name: node.id for node in graph.nodes.values()}
    assert window.status.text("compute") == "2.53 MFLOP per sample"
    window.selection.set([ids["conv2"]])
    cost = window.inspector.node_page.cost
    qtbot.waitUntil(lambda: "N = 1" in cost.caption())
    window.overlay.set_value("Cost")
    items = window.canvas.scene.nodes
    plain, striped = items[ids["relu1"]], items[ids["conv2"]]
    assert striped._cells is not None and plain._cells is None
    assert window.canvas.scales.heat.bounds() == ("0.1 %", "100 %")
    window.costs.controls.set_value("parameters")
    assert striped._words == "21.7 % params"
    changed = graph.with_param(ids["conv2"], "out_channels", 32)
    window.document.apply(
        "Set out_channels", replace(window.document.project, graph=changed)
    )
    qtbot.waitUntil(lambda: window.status.text("compute") == "1.28 MFLOP per sample")
    window.costs.controls.set_value("compute")
    window.overlay.set_value("Shapes")
    assert striped._cells is None and not window.canvas.scales.isVisible()


def test_another_project_does_not_show_what_the_last_one_cost(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.pages.show("cost")
    overview = window.inspector.overview
    qtbot.waitUntil(
        lambda: (
            "85,066" in window.status.text("parameters")
            and overview._verdict.isVisible()
        )
    )
    window.document.new()
    assert (
        window.status.text("compute") == window.status.text("parameters") == ""
        and window.costs.empty.isVisible()
    )
    assert not overview._verdict.isVisible(), "nothing has been checked yet"
    assert window.costs.model.rowCount() == 0
    window.files.open(path("examples/digits.tape"))
    qtbot.waitUntil(lambda: window.status.text("compute") == "2.53 MFLOP per sample")
    assert window.costs.table.isVisible()


def test_the_cost_is_asked_again_where_the_engine_ended_amid_the_question(
    qtbot: QtBot, window: WholeWindow
) -> None:
    qtbot.waitUntil(lambda: window.live.up_to_date and not window.engine.busy)
    window.status.set_compute("")
    stop(shared().pid)  # so that the question is still open when it ends
    window.cost_control._ask()
    qtbot.waitUntil(lambda: asked(shared(), Cost))
    os.kill(shared().pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: window.status.text("compute") == "2.53 MFLOP per sample")


def test_gradients_go_before_costs_and_give_them_back(
    qtbot: QtBot, window: WholeWindow
) -> None:
    node = next(
        node.id
        for node in window.document.project.graph.nodes.values()
        if node.name == "conv2"
    )
    item = window.canvas.scene.nodes[node]
    window.overlay.set_value("Cost")
    window.canvas.set_gradients({node: [0.5]}, 0.01, 10.0)
    assert item._words == "grad 0.50"
    window.canvas.set_gradients({node: [0.5, 0.0042]}, 0.001, 10.0)
    assert item._words == "grad 0.0042", "and not 0.00, which it is not"
    window.canvas.set_gradients({node: [0.5]}, 0.01, 10.0)
    assert window.canvas.scales.heat.bounds() == ("0.01", "10")
    window.canvas.set_gradients({}, 0.01, 10.0)
    assert item._words == "93.3 % FLOP"
    assert window.canvas.scales.heat.bounds() == ("0.1 %", "100 %")


def test_columns_take_no_more_room_than_they_need_where_there_is_little(
    qtbot: QtBot, page: CostTable
) -> None:
    header = page.table.horizontalHeader()
    wide = [header.sectionSize(number) for number in range(8)]
    page.resize(972, 320)
    narrow = [header.sectionSize(number) for number in range(8)]
    assert sum(narrow) < sum(wide) and all(
        width >= page.table.sizeHintForColumn(number)
        for number, width in enumerate(narrow)
    ), "figures are whole"
    header.resizeSection(0, 240)
    page.resize(1000, 320)
    assert header.sectionSize(0) == 240, "what the user has widened stays so"
    bar = page.table.horizontalScrollBar()
    assert bar.maximum() == 0 or bar.isVisible(), "what does not fit is scrolled to"
    page.resize(1700, 320)
    assert bar.maximum() == 0
