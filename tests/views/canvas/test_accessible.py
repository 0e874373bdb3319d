"""The canvas as a screen reader finds it: a list of nodes, ports, wires and comments that say and do something."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAccessible, QAccessibleInterface

from app.builder.edits import edits
from app.project.project import Project
from app.views.ui import theme
from app.views.ui.graphview import accessible
from tests.support.canvas_table import OPS, Table, one_step

Text, Role = QAccessible.Text, QAccessible.Role


def long_net(nodes: int = 20) -> Project:
    """An input and layers in a row, of which every third has a skip around it."""
    project, last = edits.add(Project(), OPS, "input", (0.0, 4.0))
    before = last
    for number in range(nodes - 1):
        op = ("nn.Linear", "nn.ReLU", "operator.add")[number % 3]
        project, new = edits.add_behind(
            project, OPS, op, last, (160.0 * (number + 1), 4.0)
        )
        if op == "operator.add":
            project = edits.connect(
                project, OPS, before, 0, new, OPS[op].inputs[1].name
            )
            before = new
        last = new
    return project


@pytest.fixture
def table(qtbot, qapp) -> Iterator[Table]:
    if not qapp.styleSheet():
        theme.apply(qapp, "dark")
    QAccessible.setActive(True)
    yield Table(qtbot, long_net())
    QAccessible.setActive(False)


def top(table: Table) -> QAccessibleInterface:
    return QAccessible.queryAccessibleInterface(table.canvas.view)


def children(of: QAccessibleInterface) -> list[QAccessibleInterface]:
    return [of.child(number) for number in range(of.childCount())]


def named(among: list[QAccessibleInterface], start: str) -> QAccessibleInterface:
    return next(one for one in among if one.text(Text.Name).startswith(start))


def test_every_part_of_a_net_of_20_nodes_has_a_name_a_role_a_place_and_actions(
    table: Table,
) -> None:
    whole = top(table)
    assert (
        whole.text(Text.Name) == "Canvas"
        and whole.role() == Role.List
        and whole.state().multiSelectable
    )
    parts = children(whole)
    names = [part.text(Text.Name) for part in parts]
    assert len(names) == 20 + len(table.canvas.scene.wires) and len(set(names)) == len(
        names
    )
    assert names[0].startswith("input") and names[1].startswith(
        "fc1, Linear"
    )  # in execution order
    for number, part in enumerate(parts):
        inner = children(part)
        assert len(inner) >= 1 if number < 20 else not inner
        for each in (part, *inner):
            assert (
                each.text(Text.Name)
                and each.isValid()
                and each.actionInterface().actionNames()[0] == "Press"
            )
            assert not each.rect().isEmpty() and each.role() in (
                Role.ListItem,
                Role.Button,
            )
            assert (
                each.state().selectable
                and each.state().focusable
                and not each.state().invalid
            )
            above = each.parent()
            assert above.text(Text.Name) == (whole if each is part else part).text(
                Text.Name
            )
            assert above.indexOfChild(each) == (
                number if each is part else inner.index(each)
            )
    output = named(children(named(parts, "fc1")), "output of")
    assert "connected to relu1" in output.text(Text.Description)
    wire = named(parts, "Wire from fc1 to relu1")
    assert (
        whole.childAt(*_middle(named(parts, "fc1"))).text(Text.Name).startswith("fc1")
    )
    assert "into port" in wire.text(Text.Description)


def _middle(part: QAccessibleInterface) -> tuple[int, int]:
    at: QPoint = part.rect().center()
    return at.x(), at.y()


def test_what_is_done_through_the_interface_selects_connects_opens_and_deletes(
    table: Table, qtbot
) -> None:
    canvas, whole = table.canvas, top(table)
    linear = named(children(whole), "fc1")
    linear.actionInterface().doAction("Press")
    assert canvas.selection.single == table.id("fc1") and linear.state().selected
    assert whole.selectionInterface().selectedItemCount() == 1

    asked = []
    canvas.editRequested.connect(asked.append)
    linear.actionInterface().doAction("Edit")
    assert asked == [table.id("fc1")]

    named(children(linear), "output of").actionInterface().doAction("Press")
    assert canvas.connect_box.isVisible() and canvas.connect_box.rows.count()
    canvas.connect_box.hide()

    count = whole.childCount()
    wire = named(children(whole), "Wire from fc1 to relu1")
    one_step(table, lambda: wire.actionInterface().doAction("Delete"), "Delete 1 wire")
    assert not wire.isValid() and wire.text(Text.Name) == ""
    one_step(table, lambda: linear.actionInterface().doAction("Delete"), "Delete fc1")
    assert not linear.isValid() and linear.state().invalid
    assert whole.childCount() < count - 1
    qtbot.waitUntil(
        lambda: table.canvas.view.access is not None and not linear.isValid()
    )
    names = [
        part.text(Text.Name) for part in children(whole)
    ]  # objects of what is gone are deleted, others stay
    assert all(names) and not [name for name in names if name.startswith("fc1")]


def test_events_follow_selection_focus_names_and_new_nodes(
    table: Table, qtbot, monkeypatch
) -> None:
    sent: list[tuple[str, QAccessible.Event]] = []

    def record(thing, event) -> None:
        sent.append(
            (QAccessible.queryAccessibleInterface(thing).text(Text.Name), event)
        )

    top(table).childCount()  # a screen reader has found the canvas
    monkeypatch.setattr(accessible, "_send", record)
    Event = QAccessible.Event
    table.key(Qt.Key.Key_Right)
    assert table.names() == {"input"}
    table.key(Qt.Key.Key_Right)
    focused = [name.split(",")[0] for name, event in sent if event == Event.Focus]
    assert focused == ["input", "fc1"]
    assert top(table).focusChild().text(Text.Name).startswith("fc1, Linear")

    sent.clear()
    table.canvas.commands.rename(table.id("fc1"), "first")
    qtbot.waitUntil(
        lambda: any(
            event == Event.NameChanged and name.startswith("first")
            for name, event in sent
        )
    )
    table.canvas.commands.select([])
    table.canvas.add_op("nn.Dropout")
    qtbot.waitUntil(
        lambda: any(
            event == Event.ObjectCreated and name.startswith("drop")
            for name, event in sent
        )
    )


def test_without_a_screen_reader_nothing_is_made(qtbot, qapp) -> None:
    if not qapp.styleSheet():
        theme.apply(qapp, "dark")
    table = Table(qtbot, long_net(3))
    table.key(Qt.Key.Key_Right)
    table.canvas.add_op("nn.ReLU")
    assert table.canvas.view.access is None and not table.canvas.view.findChildren(
        accessible.GraphPart
    )
