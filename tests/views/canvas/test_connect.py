"""Wiring without a mouse: any port to any port, through lists that one types down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtTest import QTest

from app.builder.analysis import analyse
from app.builder.edits import edits
from app.project.project import Project
from app.views.canvas import connect
from app.views.ui import theme
from tests.support.canvas_table import OPS, SHIFT, Table, no_step, one_step, small

Key = Qt.Key


@pytest.fixture
def table(qtbot, qapp) -> Iterator[Table]:
    if not qapp.styleSheet():
        theme.apply(qapp, "dark")
    yield Table(qtbot, small())


def with_recurrence() -> Project:
    """input -> lstm1, and gru1 that stands alone: ports of every kind."""
    project, first = edits.add(Project(), OPS, "input", (0.0, 4.0))
    project, _ = edits.add_behind(project, OPS, "nn.LSTM", first, (240.0, 4.0))
    return edits.add(project, OPS, "nn.LSTM", (480.0, 4.0))[0]


def with_size() -> Project:
    """x.size(0) gives a number, and a view and an addition stand beside it."""
    project, first = edits.add(Project(), OPS, "input", (0.0, 4.0))
    project, _ = edits.add_behind(project, OPS, "Tensor.size", first, (240.0, 160.0))
    project, _ = edits.add_behind(project, OPS, "torch.flatten", first, (480.0, 4.0))
    return project


def listed(table: Table) -> list[tuple[str, str]]:
    """The rows as (other node, port), with an arrow for the way."""
    box = table.canvas.connect_box
    rows = [
        box.rows.item(i).data(Qt.ItemDataRole.UserRole) for i in range(box.rows.count())
    ]
    return [(row.text, row.faint) for row in rows]


def choose(table: Table, text: str) -> None:
    field = table.canvas.connect_box.field
    assert table.canvas.connect_box.isVisible()
    QTest.keyClicks(field, text)
    QTest.keyClick(field, Key.Key_Return)


def test_w_connects_to_a_port_by_its_name(table: Table) -> None:
    table.canvas.commands.select([table.id("conv1")])

    def gesture() -> None:
        table.key(Key.Key_W)
        choose(table, "fc1")

    one_step(table, gesture, "Connect conv1 to fc1")
    assert ("conv1", "fc1", "input") in table.wires()
    assert table.view.hasFocus() and table.names() == {"conv1"}


def test_the_list_offers_what_fits_and_nothing_else(table: Table) -> None:
    table.canvas.set_analysis(analyse(table.document.project.graph))
    table.canvas.commands.select([table.id("relu1")])
    table.key(Key.Key_W)
    # Not to conv1, which would be a loop, nor to output or from conv1, which is there already.
    assert listed(table) == [
        ("→ fc1", "input"),
        ("← input", "input"),
        ("← fc1", "input"),
    ]
    QTest.keyClick(table.canvas.connect_box.field, Key.Key_Escape)
    assert not table.canvas.connect_box.isVisible()


def test_the_list_goes_with_the_graph_that_it_is_of(table: Table) -> None:
    box = table.canvas.connect_box
    for change in (
        lambda: table.document.apply("Remove all", Project()),
        table.document.new,
    ):
        table.document.new(small())
        table.canvas.commands.select([table.id("relu1")])
        table.key(Key.Key_W)
        assert box.isVisible()
        change()
        assert box.isHidden()


def test_a_taken_port_says_whose_place_the_wire_takes(table: Table) -> None:
    offers = connect.to_connect(table.scene.graph, OPS, None, table.id("fc1"))
    found = [offer for offer in offers if offer.outgoing]
    assert [(offer.node, offer.hint) for offer in found] == [
        ("conv1", "instead of input"),
        ("relu1", "instead of conv1"),
        ("output", "instead of relu1"),
    ]


def test_of_two_selected_nodes_the_wires_between_them_are_offered(table: Table) -> None:
    table.canvas.commands.select([table.id("fc1"), table.id("input")])
    table.key(Key.Key_W)
    assert listed(table) == [("→ fc1", "input")]


def test_any_two_ports_of_nodes_with_many(qtbot, qapp) -> None:
    table = Table(qtbot, with_recurrence())
    table.canvas.commands.select([table.id("lstm1")])

    def gesture() -> None:
        table.key(Key.Key_W)
        choose(table, "lstm2 hx")

    one_step(table, gesture, "Connect lstm1 to lstm2")
    (wire,) = table.scene.graph.into(table.id("lstm2"))
    assert (wire.output, wire.port) == (1, "hx")


def test_shift_w_cuts_one_wire(table: Table) -> None:
    table.canvas.commands.select([table.id("relu1")])

    def gesture() -> None:
        table.key(Key.Key_W, SHIFT)
        assert listed(table) == [("→ output", "input"), ("← conv1", "input")]
        choose(table, "conv")

    one_step(table, gesture, "Cut the wire from conv1 to relu1")
    assert ("conv1", "relu1", "input") not in table.wires()


def test_without_a_node_selected_it_says_what_to_do(table: Table) -> None:
    table.canvas.commands.select(())
    for key in ("connect", "disconnect"):
        assert not table.canvas.actions_by_key[key].isEnabled()
    no_step(table, table.canvas.connector.connect)
    no_step(table, table.canvas.connector.disconnect)
    assert len(table.said) == 0 and table.canvas.word.isVisible()


def test_a_number_let_go_on_a_body_asks_which_parameter(qtbot, qapp) -> None:
    table = Table(qtbot, with_size())
    node = table.id("flatten1")

    def gesture() -> None:
        table.drag(
            table.output("size1"),
            table.at(table.scene.nodes[node].body.center() + QPointF(10, 12)),
        )
        assert [value.port for value in table.canvas.connect_box.values()] == [
            "start_dim",
            "end_dim",
        ]
        choose(table, "end")

    one_step(table, gesture, "Connect size1 to flatten1")
    assert ("size1", "flatten1", "end_dim") in table.wires()


def test_a_whole_network_without_a_mouse(qtbot, qapp) -> None:
    """input -> fc1 -> relu1 -> add1, and past them input -> add1."""
    table = Table(qtbot, Project())
    for letters in ("input", "linear", "relu", "add"):
        table.key(Key.Key_Tab)
        table.type(letters)
        QTest.keyClick(table.canvas.search.field, Key.Key_Return)
    table.canvas.commands.select([table.id("input")])
    table.key(Key.Key_W)
    choose(table, "add other")
    assert table.wires() == {
        ("input", "fc1", "input"),
        ("fc1", "relu1", "input"),
        ("relu1", "add1", "input"),
        ("input", "add1", "other"),
    }
