"""The detectives in the window: found, gone to, checked, measured, with the mouse and with keys."""

from __future__ import annotations

import torch
from msgspec.structs import replace
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QInputDialog, QPushButton, QWidget

from app.autograd.capture_options import PLAIN_OPTIONS
from app.builder.graph import Graph
from app.project.project import Project
from app.views.autograd.findings.findings_control import FindingsControl
from app.views.autograd.findings.findings_page import (
    BATCH,
    CHECKPOINT,
    FINDINGS,
    GAIN,
    GRADCHECK,
    OVER,
)
from tests.support import own_layers_nets as own
from tests.support.whole_window import WholeWindow

LEFT = Qt.MouseButton.LeftButton


def net(*middle: tuple[str, dict[str, object]]) -> Graph:
    return own.chain(
        [
            ("input", {"shape": (1, 8, 8)}),
            ("nn.Flatten", {}),
            ("nn.Linear", {"out_features": 8}),
            *middle,
            ("nn.Linear", {"out_features": 10}),
            ("output", {}),
        ]
    )


def changed(graph: Graph, node: str, **values: object) -> Graph:
    return graph.with_node(replace(graph.nodes[node], **values))


def capture(qtbot, window: WholeWindow, graph: Graph) -> FindingsControl:
    """Open a net and capture one batch of it."""
    window.document.new(Project(name="found", graph=graph))
    qtbot.waitUntil(
        lambda: window.live.up_to_date and window.live.analysis is not None,
        timeout=60_000,
    )
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(lambda: window.room.tape is not None, timeout=60_000)
    return window.findings_control


def done(qtbot, control: FindingsControl) -> None:
    qtbot.waitUntil(lambda: not control.working, timeout=60_000)


def click(widget: QWidget) -> None:
    QTest.mouseClick(
        widget, LEFT, pos=QPoint(widget.width() // 2, min(widget.height() // 2, 20))
    )


def button(window: WholeWindow, name: str) -> QPushButton:
    found = window.tape_inspector.widget().findChild(QPushButton, name)
    assert isinstance(found, QPushButton)
    return found


def inspector_text(window: WholeWindow) -> str:
    """Every word of the inspector's page."""
    from PySide6.QtWidgets import QLabel

    return "\n".join(
        part.text() for part in window.tape_inspector.widget().findChildren(QLabel)
    )


def test_a_frozen_layer_and_a_leaf_that_has_its_gradient(window, qtbot) -> None:
    control = capture(qtbot, window, changed(net(("nn.Tanh", {})), "n3", frozen=True))
    leaf = next(
        node
        for node in window.room.tape.nodes
        if node.parameters == ("linear5.weight",)
    )
    window.room.reveal(leaf.id)
    click(button(window, "why"))
    assert window.bottom.pane.page == "findings" and control.page.page == FINDINGS
    done(qtbot, control)
    row = next(row for row in control.page.list.rows if row.finding.kind == "none")
    assert row.finding.title == "linear3" and "frozen" in row.finding.sentence
    assert "linear5.weight.grad: norm" in inspector_text(window), (
        "the leaf's page is updated without another click"
    )
    click(row)
    assert window.selection.ids == {"n3"}
    assert "Checked on this batch" in control.page.list.foot.text()


def test_an_in_place_change_is_found_before_backward_and_gone_to_with_keys(
    window, qtbot
) -> None:
    control = capture(
        qtbot, window, net(("nn.Sigmoid", {}), ("nn.ReLU", {"inplace": True}))
    )
    window.actions_by_key["findings"].trigger()
    done(qtbot, control)
    first = control.page.list.rows[0]
    assert first.finding.kind == "in place" and first.finding.severity == "error"
    assert (
        "SigmoidBackward0" in first.finding.sentence
        and "inplace=False in relu5" in first.finding.cure
    )
    assert ".clone()" in first.finding.after
    first.setFocus()
    QTest.keyClick(first, Qt.Key.Key_Return)
    assert window.tape_inspector.shown_item().name == "SigmoidBackward0"
    assert window.selection.ids <= {"n4", "n5"} and window.selection.ids
    click(control.page.run)
    assert control.working
    done(qtbot, control)
    assert control.page.list.rows[0].finding.kind == "in place", (
        "a second look finds the same"
    )


def test_nothing_found_says_what_was_looked_for_and_the_ladder_selects_a_layer(
    window, qtbot
) -> None:
    control = capture(qtbot, window, net(("nn.Tanh", {})))
    control.show()
    done(qtbot, control)
    assert control.page.list.rows == [] and control.page.list.foot.text().startswith(
        "Nothing found."
    )
    control.show(GAIN)
    chart = control.page.chart
    assert [rung.title for rung in chart.rungs][-2:] == ["tanh4", "linear5"]
    QTest.mouseClick(chart, LEFT, pos=chart.point_of(len(chart.rungs) - 1).toPoint())
    assert window.selection.ids == {"n5"}
    QTest.keyClick(chart, Qt.Key.Key_Left)
    QTest.keyClick(chart, Qt.Key.Key_Return)
    assert window.selection.ids == {"n4"}
    assert "No gradient vanishes or explodes" in control.page.rule.text()


def test_gradcheck_of_a_layer_of_a_node_and_of_the_whole_net(window, qtbot) -> None:
    graph = own.chain(
        [
            ("input", {"shape": (1, 8, 8)}),
            ("nn.Conv2d", {"out_channels": 2, "kernel_size": 3}),
            ("nn.Flatten", {}),
            ("nn.Linear", {"out_features": 10}),
            ("output", {}),
        ]
    )
    control = capture(qtbot, window, graph)
    conv = next(
        node for node in window.room.tape.nodes if node.name.startswith("Convolution")
    )
    window.room.reveal(conv.id)
    assert "1 of 64 samples. Training state is untouched." in inspector_text(window)
    click(button(window, "gradcheck"))
    assert control.page.page == GRADCHECK and control.working
    done(qtbot, control)
    report = control.report
    assert (
        report is not None
        and report.passed
        and {row.dtype for row in report.table} == {"float32", "float64"}
    )
    assert control.page.check.inputs.rowCount() == len(report.inputs)
    assert {given.name for given in report.inputs} == {"conv2d2.weight", "conv2d2.bias"}
    assert (
        "is correct" in control.page.check.verdict.text()
        and "is correct" in inspector_text(window)
    )
    window.room.scene.choose("node:n2")
    click(button(window, "gradcheck"))
    done(qtbot, control)
    assert control.report.what == "layer conv2d2"
    click(control.page.run)
    done(qtbot, control)
    assert control.report.what == "the whole network" and control.report.passed


def test_options_of_a_capture(window, qtbot, monkeypatch) -> None:
    control, options = (
        capture(qtbot, window, net(("nn.Tanh", {}))),
        window.options_control,
    )

    def choose(*keys: str) -> None:
        for key in keys:
            before = window.room.tape
            options.menu.fill()
            options.menu.by_key[key].trigger()
            qtbot.waitUntil(
                lambda before=before: window.room.tape is not before, timeout=60_000
            )

    assert options.button.isVisible()
    menu, before = options.menu, window.room.tape
    menu.popup(options.button.mapToGlobal(options.button.rect().bottomLeft()))
    qtbot.waitUntil(menu.isVisible)
    menu.setActiveAction(
        menu.by_key["start.outputs"]
    )  # a menu takes no click that follows its opening too soon
    QTest.keyClick(menu, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: window.room.tape is not before, timeout=60_000)
    assert window.room.tape.loss is None and options.button.text() == "Options (1)"
    monkeypatch.setattr(QInputDialog, "getInt", lambda *_args: (3, True))
    choose("vector.one-hot")
    control.show()
    done(qtbot, control)
    bias = control.findings.paths.answers["linear5.bias"]
    assert bias.norm == 64, "one element of each of 64 rows"
    choose("amp")
    assert any(node.name == "ToCopyBackward0" for node in window.room.tape.nodes)
    choose("plain", "second_order")
    second = next(node for node in window.room.tape.nodes if node.order == 2)
    window.room.reveal(second.id)
    assert "second order" in inspector_text(window)
    assert (
        window.room.head.root.text() == "‖grad‖².grad_fn"
        and "squared" in window.room.head.accessibleName()
    )
    control.show()
    done(qtbot, control)
    words = control.page.left_out
    assert words.isVisible() and words.text().startswith(
        "Diagnosed without create_graph=True: "
    )
    control.show(GAIN)
    assert words.isVisible()
    control.page.over.set_value(OVER)
    assert not words.isVisible(), (
        "a run has nothing to do with the options of a capture"
    )
    control.page.over.set_value(BATCH)
    choose("plain")
    assert not words.isVisible()
    assert options.menu.options == PLAIN_OPTIONS and options.button.text() == "Options"
    loss = window.room.tape.loss
    choose("data.random")
    assert window.room.tape.loss != loss


def test_a_block_is_checkpointed_and_set_under_training(window, qtbot) -> None:
    graph = changed(net(("nn.Linear", {"out_features": 8})), "n4", repeat=2)
    control = capture(qtbot, window, graph)
    control.show(CHECKPOINT)
    click(control.page.run)
    done(qtbot, control)
    page = control.page.checkpoint
    (row,) = page.rows
    assert (
        row.path == "linear4" and row.equal and page.table.item(0, 6).text() == "equal"
    )
    click(page.use)
    assert window.document.project.training.recompute == ("linear4",)
    assert (
        window.right.pane.page == "training"
        and page.table.item(0, 7).text() == "recompute"
    )
    window.document.undo_stack.undo()
    assert window.document.project.training.recompute == ()


def test_stop_another_batch_and_another_project(window, qtbot) -> None:
    window.actions_by_key["findings"].trigger()
    window.actions_by_key["gradcheck-net"].trigger()
    window.actions_by_key["gradcheck-here"].trigger()
    control = window.findings_control
    assert not control.working and control.page.empty.isVisible(), (
        "without a batch there is a word, and no fault"
    )
    graph = net(("nn.Tanh", {}))
    capture(qtbot, window, graph)
    control.page.turn_to(FINDINGS)
    done(qtbot, control)
    control.check_net()
    click(control.page.stop)
    done(qtbot, control)
    assert control.report is None or control.report.cancelled or control.report.passed
    control.check_net()
    window.document.new(Project(name="other", graph=graph))
    assert not control.working and control.report is None and control.findings is None
    assert control.page.empty.isVisible() and torch.is_grad_enabled()
