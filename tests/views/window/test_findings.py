"""The detectives in the window: found, gone to, checked, measured, with the mouse and with keys."""

from __future__ import annotations

import torch
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QInputDialog

from app.autograd.capture_options import PLAIN_OPTIONS
from app.project.project import Project
from app.views.autograd.findings.findings_page import (
    BATCH,
    CHECKPOINT,
    FINDINGS,
    GAIN,
    OVER,
)
from tests.support.findings import (
    button,
    capture,
    changed,
    click,
    done,
    inspector_text,
    net,
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
    QTest.mouseClick(
        chart,
        Qt.MouseButton.LeftButton,
        pos=chart.point_of(len(chart.rungs) - 1).toPoint(),
    )
    assert window.selection.ids == {"n5"}
    QTest.keyClick(chart, Qt.Key.Key_Left)
    QTest.keyClick(chart, Qt.Key.Key_Return)
    assert window.selection.ids == {"n4"}
    assert "No gradient vanishes or explodes" in control.page.rule.text()


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
            qtbot.waitUntil(lambda before=before: window.room.tape is not before)

    assert options.button.isVisible()
    menu, before = options.menu, window.room.tape
    menu.popup(options.button.mapToGlobal(options.button.rect().bottomLeft()))
    qtbot.waitUntil(menu.isVisible)
    menu.setActiveAction(
        menu.by_key["start.outputs"]
    )  # a menu takes no click that follows its opening too soon
    QTest.keyClick(menu, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: window.room.tape is not before)
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
    assert row.path == "linear4" and row.equal and page.table.rows[0][6] == "equal"
    click(page.use)
    assert window.document.project.training.recompute == ("linear4",)
    assert window.right.pane.page == "training" and page.table.rows[0][7] == "recompute"
    window.document.undo_stack.undo()
    assert window.document.project.training.recompute == ()


def test_stop_another_batch_and_another_project(window, qtbot) -> None:
    window.actions_by_key["findings"].trigger()
    control = window.findings_control
    assert not control.working and control.page.empty.isVisible(), (
        "without a batch there is a word, and no fault"
    )
    graph = net(("nn.Tanh", {}))
    capture(qtbot, window, graph)
    control.page.turn_to(FINDINGS)
    done(qtbot, control)
    control.run_diagnostics()
    click(control.page.stop)
    done(qtbot, control)
    control.run_diagnostics()
    window.document.new(Project(name="other", graph=graph))
    assert not control.working and control.findings is None
    assert control.page.empty.isVisible() and torch.is_grad_enabled()
